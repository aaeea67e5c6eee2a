//! `portcullis ls`: what the configuration defines, and what a principal sees of it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::app::Local;
use crate::config::{BundlePlace, PrincipalPlace, ServerPlace, ServerUse, Spot};
use crate::id::UpstreamName;
use crate::upstream::Phase;
use crate::wire::mcp::Kind;

use super::args::{Listed, Ls};
use super::open::{Opened, block_on, open, speak_for, strip};
use super::output::{self, data, line, one_line, say, sentence, table};
use super::trouble::{Exit, Trouble};

pub(super) fn run(ls: &Ls) -> Result<Exit, Trouble> {
    block_on(async {
        let opened = open(&ls.source).await?;
        match ls.what {
            Listed::Bundles => bundles(ls, &opened),
            Listed::Principals => principals(ls, &opened),
            Listed::Prompts => items(ls, &opened, Kind::Prompts).await,
            Listed::Resources => items(ls, &opened, Kind::Resources).await,
            Listed::Servers => servers(ls, &opened).await,
            Listed::Templates => items(ls, &opened, Kind::Templates).await,
            Listed::Tools => items(ls, &opened, Kind::Tools).await,
        }
    })
}

/// The principal that was named.
fn named<'o>(ls: &Ls, opened: &'o Opened) -> Result<Option<&'o PrincipalPlace>, Trouble> {
    ls.principal.as_deref().map(|name| opened.principal(Some(name))).transpose()
}

async fn items(ls: &Ls, opened: &Opened, kind: Kind) -> Result<Exit, Trouble> {
    let principal = opened.principal(ls.principal.as_deref())?;
    let needed = Opened::granted(principal);
    opened
        .with_local(&needed, Some(principal), async |local| {
            let items = local.list(&speak_for(local, principal)?, kind).await?;
            if ls.json {
                let items: Vec<_> = items.iter().map(|item| one_line(&item.raw)).collect();
                data(&[b"[", &items.join(&b","[..])[..], b"]\n"].concat())?;
            } else {
                let described = |item: &crate::wire::mcp::Definition| {
                    let definition: Value = serde_json::from_slice(&item.raw).unwrap_or_default();
                    let words = definition.get("description").and_then(Value::as_str).unwrap_or_default();
                    [line(&item.name), line(words)]
                };
                let head = [kind.noun().to_uppercase(), "DESCRIPTION".to_owned()];
                table(&[head].into_iter().chain(items.iter().map(described)).collect::<Vec<_>>())?;
            }
            if items.is_empty() && kind == Kind::Tools {
                say(&format!("no tool is shown: portcullis explain --as '{}' says why", principal.id));
            }
            Ok(opened.report_down(local, &needed))
        })
        .await
}

async fn servers(ls: &Ls, opened: &Opened) -> Result<Exit, Trouble> {
    let principal = named(ls, opened)?;
    let needed = principal.map_or_else(|| opened.usable(), Opened::granted);
    let mut places: Vec<&ServerPlace> = opened.loaded.places.servers.iter().collect();
    if principal.is_some() {
        places.retain(|place| needed.contains(&place.name));
    }
    opened
        .with_local(&needed, principal, async |local| {
            let rows: Vec<Row<'_>> = places.iter().map(|place| Row::of(place, local)).collect();
            if ls.json {
                output::json(&rows.iter().map(Row::json).collect())?;
            } else {
                let head = ["SERVER", "TRANSPORT", "STATE", "TOOLS", "CAUSE", "WHERE"].map(str::to_owned);
                table(&[head].into_iter().chain(rows.iter().map(Row::cells)).collect::<Vec<_>>())?;
                rows.iter().filter_map(Row::long_cause).for_each(|words| say(&words));
            }
            // What is off or disabled is so by the configuration's word.
            let down = rows.iter().any(|row| matches!(row.state, "down" | "starting"));
            Ok(if down { Exit::NotReady } else { Exit::Ok })
        })
        .await
}

/// One server.
#[derive(Debug)]
struct Row<'p> {
    place: &'p ServerPlace,
    transport: &'static str,
    state: &'static str,
    cause: Option<String>,
    tools: Option<usize>,
}

impl<'p> Row<'p> {
    fn of(place: &'p ServerPlace, local: &Local) -> Self {
        let status = local.status(&place.name);
        let tools = status.as_ref().and_then(|status| status.lists.as_ref()).map(|lists| lists.of(Kind::Tools).len());
        let (state, cause) = match (&place.usage, status.map(|status| status.phase)) {
            (ServerUse::Disabled(why), _) => ("disabled", Some(why.clone())),
            (ServerUse::Off(at), _) => ("off", Some(format!("enabled = false at {at}"))),
            (ServerUse::Usable, Some(Phase::Ready)) => ("ready", None),
            (ServerUse::Usable, Some(Phase::Down(cause))) => ("down", Some(strip(place, &cause).to_owned())),
            (ServerUse::Usable, Some(Phase::Starting) | None) => ("starting", None),
        };
        let transport = local.transport(&place.name).unwrap_or(place.transport);
        Self { place, transport, state, cause, tools }
    }

    fn cells(&self) -> [String; 6] {
        let tools = self.tools.map(|tools| tools.to_string()).unwrap_or_default();
        let cause = self.cause.as_deref().map(line).unwrap_or_default();
        let Self { place, transport, state, .. } = self;
        let name = place.name.to_string();
        [name, (*transport).to_owned(), (*state).to_owned(), tools, cause, place.at.to_string()]
    }

    /// A cause that its cell does not hold, whole.
    fn long_cause(&self) -> Option<String> {
        let cause = sentence(self.cause.as_deref()?);
        (cause != line(&cause)).then(|| format!("{}: {cause}", self.place.name))
    }

    fn json(&self) -> Value {
        json!({
            "server": self.place.name.as_str(),
            "transport": self.transport,
            "state": self.state,
            "cause": self.cause,
            "tools": self.tools,
            "file": self.place.at.path.display().to_string(),
            "line": self.place.at.line,
        })
    }
}

fn bundles(ls: &Ls, opened: &Opened) -> Result<Exit, Trouble> {
    let principal = named(ls, opened)?;
    let of = |bundle: &&BundlePlace| {
        principal.is_none_or(|principal| principal.bundles.iter().any(|(name, _)| *name == bundle.name))
    };
    let bundles: Vec<_> = opened.loaded.places.bundles.iter().filter(of).collect();
    let names = |list: &[(String, Spot)]| list.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    if ls.json {
        let row = |bundle: &&BundlePlace| {
            json!({
                "bundle": bundle.name,
                "servers": names(&bundle.servers),
                "exclude": names(&bundle.exclude),
                "file": bundle.at.path.display().to_string(),
                "line": bundle.at.line,
            })
        };
        return output::json(&bundles.iter().map(row).collect());
    }
    let head = ["BUNDLE", "SERVERS", "EXCLUDE", "WHERE"].map(str::to_owned);
    let row = |bundle: &&BundlePlace| {
        let (servers, exclude) = (names(&bundle.servers).join(", "), names(&bundle.exclude).join(", "));
        [bundle.name.clone(), servers, exclude, bundle.at.to_string()]
    };
    table(&[head].into_iter().chain(bundles.iter().map(row)).collect::<Vec<_>>())
}

fn principals(ls: &Ls, opened: &Opened) -> Result<Exit, Trouble> {
    let one = named(ls, opened)?;
    let all = &opened.loaded.places.principals;
    let list: Vec<_> = all.iter().filter(|place| one.is_none_or(|one| one.id == place.id)).collect();
    let bundles = |place: &PrincipalPlace| place.bundles.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let servers = |place: &PrincipalPlace| -> Vec<String> {
        let granted: BTreeSet<UpstreamName> = Opened::granted(place);
        granted.iter().map(ToString::to_string).collect()
    };
    let policy = |place: &PrincipalPlace| place.policy.as_ref().map(|policy| policy.name.clone());
    if ls.json {
        let row = |place: &&PrincipalPlace| {
            json!({
                "principal": place.id.as_str(),
                "policy": policy(place),
                "bundles": bundles(place),
                "servers": servers(place),
                "keys": place.keys,
                "file": place.at.path.display().to_string(),
                "line": place.at.line,
            })
        };
        return output::json(&list.iter().map(row).collect());
    }
    let head = ["PRINCIPAL", "POLICY", "BUNDLES", "SERVERS", "KEYS", "WHERE"].map(str::to_owned);
    let row = |place: &&PrincipalPlace| {
        let policy = policy(place).unwrap_or_default();
        let (bundles, servers) = (bundles(place).join(", "), servers(place).join(", "));
        [place.id.to_string(), policy, bundles, servers, place.keys.to_string(), place.at.to_string()]
    };
    table(&[head].into_iter().chain(list.iter().map(row)).collect::<Vec<_>>())
}
