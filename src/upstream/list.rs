//! Reads a server's whole lists, of every kind alike, within bounds [LST-01, LST-02, FC-LST-02].

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::exchange::{Answer, Outcome};
use crate::wire::json;
use crate::wire::jsonrpc::{ErrorObject, code};
use crate::wire::mcp::{Definition, Kind};

use super::ServerSettings;
use super::link::{Link, Outgoing};

const PAGES_MAX: usize = 100;
/// How many entries one list may have.
const ITEMS_MAX: usize = 5_000;
const BYTES_MAX: usize = 32 << 20;
const WARNINGS_MAX: usize = 100;

/// A list of a server as far as it could be read.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) items: Vec<Definition>,
    /// What was left out, and why.
    pub(super) warnings: Vec<String>,
    /// How long the server calls its list fresh.
    pub(super) ttl: Option<Duration>,
}

impl Listing {
    fn warn(&mut self, words: String) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(words);
        }
    }
}

/// Reads all pages of a kind. What lies beyond a bound is left out with a warning.
pub(super) async fn read(link: &Arc<dyn Link>, kind: Kind, settings: &ServerSettings) -> Result<Listing, String> {
    let mut listing = Listing::default();
    let mut members = String::new();
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for _ in 0..PAGES_MAX {
        let Some(result) = page(link, kind, members, settings).await? else { return Ok(listing) };
        bytes += result.len();
        let next = add_page(&mut listing, kind, &result)?;
        let Some(cursor) = next else { return Ok(listing) };
        if listing.items.len() >= ITEMS_MAX || bytes >= BYTES_MAX {
            listing.items.truncate(ITEMS_MAX);
            listing.warnings.push(format!("more than {ITEMS_MAX} entries or {BYTES_MAX} bytes: the rest is left out"));
            return Ok(listing);
        }
        if !seen.insert(cursor.clone()) {
            listing.warnings.push("the same cursor came twice: the list ends there".to_owned());
            return Ok(listing);
        }
        members = format!("\"cursor\":{cursor}");
    }
    listing.warnings.push(format!("more than {PAGES_MAX} pages: the rest is left out"));
    Ok(listing)
}

/// Asks for one page; `None` if the server does not have the method, which counts as empty [LST-07].
async fn page(
    link: &Arc<dyn Link>,
    kind: Kind,
    members: String,
    settings: &ServerSettings,
) -> Result<Option<Bytes>, String> {
    let asked = outcome(link, kind.list_method(), members);
    let outcome = tokio::time::timeout(settings.tool_timeout, asked)
        .await
        .map_err(|_| "no answer in time (tool_timeout_secs)".to_owned())?;
    result(outcome)
}

/// Asks a request of the gateway's own; says what the server said, in words for the log where it refuses.
pub(super) async fn ask(
    link: &Arc<dyn Link>,
    method: &'static str,
    members: String,
    limit: Duration,
) -> Result<Bytes, String> {
    let outcome = tokio::time::timeout(limit, outcome(link, method, members)).await;
    match result(outcome.map_err(|_| "no answer in time".to_owned())?)? {
        Some(result) => Ok(result),
        None => Err(format!("error {}", code::METHOD_NOT_FOUND.0)),
    }
}

async fn outcome(link: &Arc<dyn Link>, method: &'static str, members: String) -> Outcome {
    let ask = Arc::clone(link).request(Outgoing::Own { method, members });
    ask.await.outcome(|_| {}).await
}

fn result(outcome: Outcome) -> Result<Option<Bytes>, String> {
    match outcome {
        Err(reject) => Err(format!("{} {}", reject.public, reject.detail)),
        Ok(Answer::Upstream { response, .. }) => match (response.result(), response.error()) {
            (Some(result), _) => Ok(Some(result)),
            (None, error) => {
                let error = ErrorObject::read(&error.unwrap_or_default());
                if error.code == code::METHOD_NOT_FOUND { Ok(None) } else { Err(format!("error {}", error.code.0)) }
            }
        },
        Ok(Answer::Discovery(_) | Answer::Ended | Answer::InputRequired(_) | Answer::Page(_) | Answer::Unseen(_)) => {
            Err("no list".to_owned())
        }
    }
}

/// Adds a page's entries; returns the next cursor as JSON text.
fn add_page(listing: &mut Listing, kind: Kind, result: &Bytes) -> Result<Option<String>, String> {
    let members = json::members(result).map_err(|err| err.to_string())?;
    let get = |key| members.get(key).map_err(|err| err.to_string());
    let member = kind.member();
    let items = get(member)?.ok_or_else(|| format!("a result without '{member}'"))?;
    let places = json::elements(items.get()).map_err(|err| format!("'{member}': {err}"))?;
    for place in places {
        if listing.items.len() >= ITEMS_MAX {
            listing.warn(format!("more than {ITEMS_MAX} entries: the rest is left out"));
            return Ok(None);
        }
        match Definition::read(kind, result.slice_ref(items.get().get(place).unwrap_or_default())) {
            Ok(item) => listing.items.push(item),
            Err(err) => listing.warn(format!("a {} is left out: {err}", kind.noun())),
        }
    }
    let ttl = get("ttlMs")?.and_then(json::Raw::parse).filter(|ttl| *ttl > 0).map(Duration::from_millis);
    listing.ttl = match (listing.ttl, ttl) {
        (Some(one), Some(two)) => Some(one.min(two)),
        (one, two) => one.or(two),
    };
    let cursor = get("nextCursor")?.filter(|cursor| cursor.get().starts_with(b"\""));
    Ok(cursor.map(|cursor| String::from_utf8_lossy(cursor.get()).into_owned()))
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
