//! Finds out which era a child speaks, and opens the conversation in it (protocol §2.8, §3).
//!
//! Not for: time limits of the whole start, or starting again; `StdioConnector` has them.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;

use crate::exchange::{Answer, Reject, Reply, ReplyBody};
use crate::upstream::EraChoice;
use crate::upstream::initialize as agreement;
use crate::upstream::link::{Outgoing, StartError};
use crate::wire::json;
use crate::wire::jsonrpc::{ErrorCode, ErrorObject, Response, code};
use crate::wire::mcp::{Capabilities, Era, STATELESS_LATEST};

use super::connection::Connection;

/// How many characters of a server's own words are repeated.
const WORDS_CHARS: usize = 200;

/// How long a child whose pipe has broken has for its exit, so that its status can be named.
const EXIT_GRACE: Duration = Duration::from_secs(1);

/// How a conversation is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// By `initialize`.
    Legacy,
    /// By a probe.
    Probe,
    /// Stateless as configured: `server/discover` is asked for its facts alone.
    Stateless,
    /// Stateless, and `server/discover` must say so.
    StatelessOnly,
}

/// How an attempt ended.
#[derive(Debug)]
pub(super) enum Opened {
    /// The conversation is open.
    Done(Capabilities),
    /// The child has ended at the probe: an old server may, and wants another start without it.
    EndedAtProbe,
}

/// What a probe found.
enum Probe {
    /// The child has ended.
    Ended,
    /// Anything but a stateless server; in its words.
    Other(String),
    /// A stateless server.
    Stateless(Capabilities),
}

// === impl Plan ===

impl Plan {
    /// Reconciles what is configured with what is wanted.
    pub(super) fn new(choice: EraChoice, want: Option<Era>) -> Result<Self, StartError> {
        let configured = |era| StartError::Era(era, "the settings name the other one".to_owned());
        match (choice, want) {
            (EraChoice::Auto, None) => Ok(Self::Probe),
            (EraChoice::Auto | EraChoice::Legacy, Some(Era::Legacy)) | (EraChoice::Legacy, None) => Ok(Self::Legacy),
            (EraChoice::Auto, Some(Era::Stateless)) => Ok(Self::StatelessOnly),
            (EraChoice::Stateless, None | Some(Era::Stateless)) => Ok(Self::Stateless),
            (EraChoice::Legacy, Some(Era::Stateless)) => Err(configured(Era::Stateless)),
            (EraChoice::Stateless, Some(Era::Legacy)) => Err(configured(Era::Legacy)),
        }
    }
}

/// Opens the conversation.
///
/// # Cancel safety
/// Dropping the future leaves the child as it is.
pub(super) async fn open(connection: &Arc<Connection>, plan: Plan) -> Result<Opened, StartError> {
    let can = match plan {
        Plan::Legacy => initialize(connection).await?,
        Plan::Probe => return probe(connection).await,
        Plan::Stateless => {
            connection.settle(Era::Stateless);
            match discover(connection).await {
                Probe::Ended => return Err(ended(connection).await),
                Probe::Other(_) => Capabilities::ASSUMED,
                Probe::Stateless(can) => can,
            }
        }
        Plan::StatelessOnly => match discover(connection).await {
            // It may have ended for any reason, so nothing is known of its era.
            Probe::Ended => return Err(ended(connection).await),
            Probe::Other(words) => return Err(StartError::Era(Era::Stateless, words)),
            Probe::Stateless(can) => {
                connection.settle(Era::Stateless);
                can
            }
        },
    };
    Ok(Opened::Done(can))
}

/// Asks first and falls back to `initialize` on the same child, whatever the refusal, and on silence [R55].
///
/// A probe that is answered late counts for nothing if `initialize` succeeds; but a stateless server that was slow to
/// start refuses `initialize`, and then its late answer decides.
async fn probe(connection: &Arc<Connection>) -> Result<Opened, StartError> {
    let mut asked = pin!(discover(connection));
    let answer = tokio::time::timeout(connection.settings.probe_timeout, &mut asked).await;
    match answer {
        Ok(Probe::Ended) => return Ok(Opened::EndedAtProbe),
        Ok(Probe::Stateless(can)) => {
            connection.settle(Era::Stateless);
            return Ok(Opened::Done(can));
        }
        Ok(Probe::Other(words)) => {
            tracing::debug!(server = %connection.settings.name, words, "no stateless server");
            return initialize(connection).await.map(Opened::Done);
        }
        Err(_) => tracing::debug!(server = %connection.settings.name, "silent at the probe"),
    }
    let mut initialized = pin!(initialize(connection));
    let mut late = None;
    loop {
        tokio::select! {
            biased;
            done = &mut initialized => {
                let Err(refusal) = done else { return done.map(Opened::Done) };
                // Both answers may have come in one read.
                let late = late.or_else(|| asked.now_or_never());
                return match late {
                    Some(Probe::Stateless(can)) if !connection.state.closed.is_cancelled() => {
                        connection.settle(Era::Stateless);
                        Ok(Opened::Done(can))
                    }
                    Some(Probe::Ended | Probe::Other(_) | Probe::Stateless(_)) | None => Err(refusal),
                };
            }
            found = &mut asked, if late.is_none() => late = Some(found),
        }
    }
}

async fn discover(connection: &Arc<Connection>) -> Probe {
    let response = match ask(connection, "server/discover", String::new(), Era::Stateless).await {
        Ok(response) => response,
        Err(_) if connection.state.closed.is_cancelled() => return Probe::Ended,
        Err(reject) => return Probe::Other(reject.public.into_owned()),
    };
    if let Some(error) = response.error() {
        let error = ErrorObject::read(&error);
        if error.code == code::UNSUPPORTED_VERSION
            && error.data.as_ref().is_some_and(|data| names(data.get().as_bytes(), "supported"))
        {
            return Probe::Stateless(Capabilities::ASSUMED);
        }
        return Probe::Other(words(connection, &error));
    }
    let result = response.result().unwrap_or_default();
    if names(&result, "supportedVersions") {
        Probe::Stateless(Capabilities::of_result(&result))
    } else {
        Probe::Other(format!("server/discover does not name {STATELESS_LATEST}"))
    }
}

async fn initialize(connection: &Arc<Connection>) -> Result<Capabilities, StartError> {
    let name = &connection.settings.name;
    connection.initializing();
    let members = agreement::members(connection.features());
    let response = match ask(connection, "initialize", members, Era::Legacy).await {
        Ok(response) => response,
        Err(_) if connection.state.closed.is_cancelled() => return Err(ended(connection).await),
        Err(reject) => return Err(StartError::Failed(reject.public.into_owned())),
    };
    if let Some(error) = response.error() {
        let error = ErrorObject::read(&error);
        let words = format!("server '{name}' refuses initialize: {}", words(connection, &error));
        return Err(match error.code {
            code::UNSUPPORTED_VERSION | code::METHOD_NOT_FOUND => StartError::Era(Era::Legacy, words),
            ErrorCode(_) => StartError::Failed(words),
        });
    }
    let result = response.result().unwrap_or_default();
    let (_, can) = agreement::agreed(&result).map_err(|version| {
        let version = connection.output.clean(version.as_bytes(), WORDS_CHARS);
        StartError::Failed(format!("server '{name}' answers initialize with the unknown protocol version '{version}'"))
    })?;
    connection.settle(Era::Legacy);
    connection.notify(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    Ok(can)
}

fn ask(
    connection: &Arc<Connection>,
    method: &'static str,
    members: String,
    era: Era,
) -> impl Future<Output = Result<Response, Reject>> + use<> {
    let connection = Arc::clone(connection);
    async move {
        let reply: Reply = Arc::clone(&connection).request(Outgoing::Own { method, members }, era).await;
        let nothing = || connection.reject(crate::exchange::RejectKind::Upstream, "sent no answer");
        match reply.into_parts().0 {
            ReplyBody::Done(outcome) => match *outcome {
                Ok(Answer::Upstream { response, .. }) => Ok(*response),
                Ok(
                    Answer::Discovery(_)
                    | Answer::Ended
                    | Answer::InputRequired(_)
                    | Answer::Page(_)
                    | Answer::Unseen(_),
                ) => Err(nothing()),
                Err(reject) => Err(reject),
            },
            // Own requests carry no progress token, so nothing comes before the answer.
            ReplyBody::Events(_) => Err(nothing()),
        }
    }
}

/// Says how the child ended, in words for the operator.
async fn ended(connection: &Connection) -> StartError {
    if tokio::time::timeout(EXIT_GRACE, connection.dead.cancelled()).await.is_err() {
        tracing::debug!(server = %connection.settings.name, "the child lives on without its pipes");
    }
    let words = connection.state.last_words().unwrap_or_else(|| {
        let reason = connection.reason().unwrap_or("is being stopped");
        let tail = connection.output.tail();
        let last = if tail.is_empty() { String::new() } else { format!("; last output: {tail}") };
        format!("server '{}' {reason} before the end of the handshake{last}", connection.settings.name)
    });
    StartError::Failed(words)
}

fn words(connection: &Connection, error: &ErrorObject) -> String {
    format!("{:?} {}", error.code, connection.output.clean(error.message.as_bytes(), WORDS_CHARS))
}

/// Says whether the array `key` of an object names the stateless revision.
fn names(object: &[u8], key: &'static str) -> bool {
    let list = json::members(object).ok().and_then(|members| members.get(key).ok().flatten());
    let list: Option<Vec<String>> = list.and_then(|list| serde_json::from_slice(list.get()).ok());
    list.is_some_and(|list| list.iter().any(|version| version == STATELESS_LATEST.as_str()))
}
