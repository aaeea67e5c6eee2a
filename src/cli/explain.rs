//! `portcullis explain`: what a code means; why a tool, prompt or resource is shown or hidden, and by which line of which file [POL-14].
//!
//! Not for: deciding. What is visible is what the hall would answer a client; here it is put beside the lines of the files.

use serde_json::json;

use crate::app::Local;
use crate::catalog::{Change, Why, change, full_name};
use crate::codes::{Code, Page};
use crate::config::{Connection, PrincipalPlace, ServerPlace, ServerUse, Spot, nearest};
use crate::gateway::Explained;
use crate::id::{PrincipalId, UpstreamName};
use crate::policy::{Ground, Pattern, Which};
use crate::upstream::Phase;
use crate::wire::mcp::Kind;

use super::args::Explain;
use super::key::table_key;
use super::open::{Opened, block_on, open, speak_for, strip};
use super::output::{self, Paint, data, line, sentence, table};
use super::trouble::{Exit, Trouble};

/// What is to be said of one tool, or of a whole server that is not connected.
#[derive(Debug)]
pub(super) struct Verdict {
    server: UpstreamName,
    /// What it is.
    kind: Kind,
    /// The shown name or URI; `None`: all of the server.
    tool: Option<String>,
    /// The server's own name, where it is known.
    original: Option<String>,
    visible: bool,
    /// Why it is hidden.
    code: Option<Code>,
    /// What decided, and where; the first is decisive.
    reasons: Vec<Reason>,
    /// Why it does not have its own name.
    renamed: Option<Reason>,
    help: Option<String>,
}

#[derive(Debug)]
struct Reason {
    words: String,
    at: Spot,
}

pub(super) fn run(explain: &Explain) -> Result<Exit, Trouble> {
    match explain.what.as_slice() {
        [_, ..] if explain.what.iter().all(|text| looks_like_code(text)) => pages(&explain.what, explain.json),
        [_, other, ..] => {
            let words = format!("one tool at a time, or error codes alone: '{}' is too many", other.escape_debug());
            Err(Trouble::new(Exit::Usage, Code::Usage, words).fix("without a name, all tools are explained"))
        }
        [] | [_] => block_on(tools(explain)),
    }
}

fn looks_like_code(text: &str) -> bool {
    let digits = text.strip_prefix(['P', 'p']).unwrap_or_default();
    digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Shows the pages of some codes, in the order given; as JSON the one page, or a list of several.
fn pages(texts: &[String], as_json: bool) -> Result<Exit, Trouble> {
    let pages = texts.iter().map(|text| page(text)).collect::<Result<Vec<_>, _>>()?;
    if !as_json {
        let words =
            |page: &Page| format!("{}: {}\n\nCause\n  {}\n\nFix\n  {}\n", page.id, page.title, page.cause, page.fix);
        return data(pages.iter().map(words).collect::<Vec<_>>().join("\n").as_bytes());
    }
    let read = |page: &Page| json!({ "code": page.id, "title": page.title, "cause": page.cause, "fix": page.fix });
    match pages.as_slice() {
        [page] => output::json(&read(page)),
        pages => output::json(&pages.iter().map(read).collect()),
    }
}

fn page(text: &str) -> Result<Page, Trouble> {
    Code::find(text).map(Code::page).ok_or_else(|| {
        let ids: Vec<_> = Code::ALL.iter().map(|code| code.id()).collect();
        Trouble::new(Exit::Usage, Code::Usage, format!("there is no code {text}"))
            .fix(format!("the codes are {}", ids.join(", ")))
    })
}

async fn tools(explain: &Explain) -> Result<Exit, Trouble> {
    let opened = open(&explain.source).await?;
    let principal = opened.principal(explain.principal.as_deref())?;
    let what = explain.what.first().map(String::as_str);
    let needed = match what {
        Some(tool) if opened.loaded.places.server_of(tool).is_some() => opened.needed_for(principal, tool),
        Some(_) | None => Opened::granted(principal),
    };
    opened
        .with_local(&needed, Some(principal), async |local| {
            let verdicts = verdicts(&opened, local, principal, what).await?;
            if let (true, Some(tool)) = (verdicts.is_empty(), what) {
                return Err(unknown(&opened, local, principal, tool).await?);
            }
            if explain.json {
                output::json(&verdicts.iter().map(Verdict::json).collect())?;
            } else if what.is_some() {
                let texts: Vec<_> = verdicts.iter().map(|verdict| verdict.text(&principal.id)).collect();
                data(texts.join("\n").as_bytes())?;
            } else {
                let head = ["NAME", "KIND", "STATE", "CODE", "WHY", "WHERE"].map(str::to_owned);
                let rows = verdicts.iter().map(Verdict::row);
                table(&[head].into_iter().chain(rows).collect::<Vec<_>>())?;
            }
            Ok(Exit::Ok)
        })
        .await
}

async fn unknown(opened: &Opened, local: &Local, principal: &PrincipalPlace, tool: &str) -> Result<Trouble, Trouble> {
    let names: Vec<_> = local.gateway().explain(speak_for(local, principal)?).await;
    let names: Vec<_> = names.iter().map(|explained| explained.shown.as_str()).collect();
    let words = match opened.loaded.places.server_of(tool) {
        Some(server) => format!("server '{}' has no tool '{}'", server.name, tool.escape_debug()),
        None => format!("no server of {} has a tool '{}'", principal.id, tool.escape_debug()),
    };
    let trouble = Trouble::new(Exit::Failure, Code::UnknownTool, words);
    Ok(match nearest(tool, &names) {
        Some(near) => trouble.fix(format!("did you mean {near}?")),
        None => trouble,
    })
}

/// Everything that is to be said, in the order of the file: of one tool, or of all.
pub(super) async fn verdicts(
    opened: &Opened,
    local: &Local,
    principal: &PrincipalPlace,
    tool: Option<&str>,
) -> Result<Vec<Verdict>, Trouble> {
    let explained = local.gateway().explain(speak_for(local, principal)?).await;
    let view = View { opened, local, principal };
    let named = tool.and_then(|tool| opened.loaded.places.server_of(tool));
    let mut verdicts = Vec::new();
    for place in &opened.loaded.places.servers {
        let meant = named.is_some_and(|named| named.name == place.name);
        if tool.is_some() && named.is_some() && !meant {
            continue;
        }
        let whole = view.not_connected(place, tool).or_else(|| view.never_listed(place, tool));
        if let Some(whole) = whole {
            // A name that no server is named in may be any server's own: those that are not connected say nothing of it.
            verdicts.extend((tool.is_none() || meant).then_some(whole));
            continue;
        }
        let own = explained.iter().filter(|one| one.server == place.name);
        let own = own.map(|one| view.verdict(place, one));
        verdicts.extend(own.filter(|verdict| tool.is_none_or(|tool| verdict.is_about(tool))));
    }
    Ok(verdicts)
}

/// What verdicts are made from.
struct View<'v> {
    opened: &'v Opened,
    local: &'v Local,
    principal: &'v PrincipalPlace,
}

// === impl View ===

impl View<'_> {
    /// Says why a principal is not connected to a server; `None` if it is.
    fn not_connected(&self, place: &ServerPlace, tool: Option<&str>) -> Option<Verdict> {
        let (id, name) = (&self.principal.id, &place.name);
        let (code, words, at, help) = match self.principal.connections.get(name)? {
            Connection::Granted { .. } => return None,
            Connection::Excluded { bundle, at } => (
                Code::NotGranted,
                format!("bundle '{bundle}' of {id} excludes server '{name}'"),
                at.clone(),
                format!("take \"{name}\" out of exclude of [mcp_bundles.{}]", table_key(bundle)),
            ),
            Connection::ExcludedByUnknown { bundle, at } => (
                Code::NotGranted,
                format!("bundle '{bundle}' of {id} does not exist, so it excludes whatever any bundle excludes"),
                at.clone(),
                format!("correct '{bundle}' in mcp_bundles of [principals.{}]", table_key(id.as_str())),
            ),
            Connection::Missing { at } => {
                let words = format!("no bundle of {id} has server '{name}'");
                (Code::NotGranted, words, at.clone(), self.bundle_help(name))
            }
            Connection::Unusable => match &place.usage {
                ServerUse::Disabled(why) => (
                    Code::Secret,
                    format!("server '{name}' is disabled: {why}"),
                    place.at.clone(),
                    Code::Secret.page().fix.to_owned(),
                ),
                ServerUse::Off(at) => (
                    Code::NotGranted,
                    format!("server '{name}' is switched off"),
                    at.clone(),
                    "set enabled = true, or take the line out".to_owned(),
                ),
                ServerUse::Usable => return None,
            },
        };
        Some(whole(place, tool, code, Reason { words, at }, Some(help)))
    }

    fn bundle_help(&self, server: &UpstreamName) -> String {
        let id = &self.principal.id;
        let has = |servers: &[(String, Spot)]| servers.iter().any(|(name, _)| name == server.as_str());
        match self.opened.loaded.places.bundles.iter().find(|bundle| has(&bundle.servers)) {
            Some(bundle) => {
                format!(
                    "add \"{}\" to mcp_bundles of [principals.{}]: it has the server ({})",
                    bundle.name,
                    table_key(id.as_str()),
                    bundle.at
                )
            }
            None => format!("add \"{server}\" to servers of a bundle of {id}"),
        }
    }

    /// Says that a server has never answered a list; `None` if it has.
    fn never_listed(&self, place: &ServerPlace, tool: Option<&str>) -> Option<Verdict> {
        let status = self.local.status(&place.name)?;
        if status.lists.is_some() {
            return None;
        }
        let reason = Reason { words: self.down_words(place), at: place.at.clone() };
        Some(whole(place, tool, Code::ServerDown, reason, None))
    }

    fn down_words(&self, place: &ServerPlace) -> String {
        let cause = match self.local.status(&place.name).map(|status| status.phase) {
            Some(Phase::Down(cause)) => format!(": {}", strip(place, &cause)),
            Some(Phase::Ready | Phase::Starting) | None => String::new(),
        };
        format!("server '{}' is down{cause}", place.name)
    }

    fn verdict(&self, place: &ServerPlace, one: &Explained) -> Verdict {
        let (code, reasons) = self.reasons(place, one);
        Verdict {
            server: one.server.clone(),
            kind: one.kind,
            tool: Some(one.shown.clone()),
            original: Some(one.original.clone()),
            visible: one.visible,
            help: code.filter(|_| !one.visible).map(|code| self.help(code, one)),
            code: code.filter(|_| !one.visible),
            reasons,
            renamed: self.renamed(place, one),
        }
    }

    /// What to change in the policy, word by word; where it decides nothing, what the code says.
    fn help(&self, code: Code, one: &Explained) -> String {
        let policy = self.principal.policy.as_deref().map_or("", |policy| policy.name.as_str());
        match (code, one.ground) {
            (Code::NotAllowed, Ground::NotAllowed(which)) => {
                format!("add \"{}\" to allowed_{}", one.shown, which.ending())
            }
            (Code::Excluded, Ground::DenyAll) => format!("take deny_all_tools out of policy '{policy}'"),
            (Code::Excluded, Ground::Excluded(which, index)) => match self.excluded(which, index) {
                Some(pattern) => format!("take \"{pattern}\" out of excluded_{}", which.ending()),
                None => code.page().fix.to_owned(),
            },
            (_, _) => code.page().fix.to_owned(),
        }
    }

    /// A pattern of the principal's policy.
    fn excluded(&self, which: Which, index: usize) -> Option<&Pattern> {
        let principals = &self.opened.loaded.settings.gateway.principals;
        let profile = principals.iter().find(|one| one.id == self.principal.id)?.profile.as_deref()?;
        let patterns = match which {
            Which::Tools => &profile.excluded_tools,
            Which::Prompts => &profile.prompts.excluded,
            Which::Resources => &profile.resources.excluded,
        };
        patterns.get(index)
    }

    /// What decides, the decisive reason first.
    fn reasons(&self, place: &ServerPlace, one: &Explained) -> (Option<Code>, Vec<Reason>) {
        let policy = self.principal.policy.as_deref();
        let name = policy.map_or("", |policy| policy.name.as_str());
        let at = |spot: Option<&Spot>| spot.cloned().unwrap_or_else(|| self.principal.at.clone());
        let reason = |words: String, spot: Option<&Spot>| Reason { words, at: at(spot) };
        // What is no tool stands and falls with its server in the lists of tools [POL-15].
        let of_tools = matches!(
            one.ground,
            Ground::Excluded(Which::Tools, _) | Ground::NotAllowed(Which::Tools) | Ground::Allowed(Which::Tools, _)
        );
        let it = if of_tools && one.kind != Kind::Tools { "its server" } else { "it" };
        let (code, decisive) = match one.ground {
            Ground::ServerNotGranted => {
                (Some(Code::NotGranted), reason("no bundle grants the server".to_owned(), None))
            }
            Ground::DenyAll => (
                Some(Code::Excluded),
                reason(format!("policy '{name}' has deny_all_tools"), policy.map(|policy| &policy.deny_all)),
            ),
            Ground::Excluded(which, index) => (
                Some(Code::Excluded),
                reason(
                    format!("excluded_{} of policy '{name}' has {it}", which.ending()),
                    policy.and_then(|policy| policy.excluded(which).get(index)),
                ),
            ),
            Ground::NotAllowed(which) => (
                Some(Code::NotAllowed),
                reason(
                    format!("allowed_{} of policy '{name}' does not have {it}", which.ending()),
                    policy.map(|policy| policy.list(which)),
                ),
            ),
            Ground::Allowed(which, index) => (
                None,
                reason(
                    format!("allowed_{} of policy '{name}' has {it}", which.ending()),
                    policy.and_then(|policy| policy.allowed(which).get(index)),
                ),
            ),
            Ground::AutoAdmitted => (
                None,
                reason(
                    format!("auto_admit_mcp_tools of policy '{name}' lets it in"),
                    policy.map(|policy| &policy.auto_admit),
                ),
            ),
            Ground::Unrestricted => match policy {
                Some(policy) => (None, reason(format!("policy '{name}' does not restrict it"), Some(&policy.at))),
                None => (None, reason("the principal has no policy: all that is granted".to_owned(), None)),
            },
        };
        let mut reasons = vec![decisive];
        if let Some(Connection::Granted { bundle, at }) = self.principal.connections.get(&place.name) {
            let words = format!("bundle '{bundle}' grants server '{}'", place.name);
            reasons.push(Reason { words, at: at.clone() });
        }
        match (&one.left_out, code) {
            (None, None) if !one.visible => {
                reasons.insert(0, Reason { words: self.down_words(place), at: place.at.clone() });
                (Some(Code::ServerDown), reasons)
            }
            (Some(why), None) => {
                let spots = self.others(why).into_iter().map(|other| other.at.clone());
                let all = std::iter::once(place.at.clone()).chain(spots.filter(|spot| *spot != place.at));
                let words = sentence(&why.to_string());
                let left_out = all.map(|at| Reason { words: words.clone(), at });
                (Some(why.code()), left_out.chain(reasons).collect())
            }
            (_, code) => (code, reasons),
        }
    }

    /// The servers of the tools that a name clashes with.
    fn others(&self, why: &Why) -> Vec<&ServerPlace> {
        match why {
            Why::Clash { with, .. } => {
                with.iter().filter_map(|(server, _)| self.opened.loaded.places.server(server)).collect()
            }
            Why::Differs | Why::Headers(_) | Why::NoInputSchema => Vec::new(),
        }
    }

    fn renamed(&self, place: &ServerPlace, one: &Explained) -> Option<Reason> {
        let budget = self.opened.loaded.settings.gateway.name_budget;
        let change = change(&one.server, &one.original, budget).filter(|_| !one.kind.is_resource())?;
        let at = match (change, &self.opened.loaded.places.name_budget) {
            (Change::TooLong, Some(spot)) => spot.clone(),
            (Change::Empty | Change::LooksHashed | Change::Replaced | Change::TooLong, _) => place.at.clone(),
        };
        let own = line(&one.original);
        Some(Reason { words: format!("the server's own name '{own}' {}", change_words(change, budget)), at })
    }
}

/// Why a name was changed.
pub(super) fn change_words(change: Change, budget: usize) -> String {
    match change {
        Change::Empty => "is empty".to_owned(),
        Change::LooksHashed => "looks like a changed name".to_owned(),
        Change::Replaced => "has characters outside A-Z a-z 0-9 _ -".to_owned(),
        Change::TooLong => format!("is too long: name_budget is {budget}"),
    }
}

/// A verdict on a server as a whole, or on one tool of it that nobody can be asked about.
fn whole(place: &ServerPlace, tool: Option<&str>, code: Code, reason: Reason, help: Option<String>) -> Verdict {
    Verdict {
        server: place.name.clone(),
        kind: Kind::Tools,
        tool: tool.map(str::to_owned),
        original: None,
        visible: false,
        code: Some(code),
        reasons: vec![reason],
        renamed: None,
        help: Some(help.unwrap_or_else(|| code.page().fix.to_owned())),
    }
}

// === impl Verdict ===

impl Verdict {
    /// Says whether a person who names a tool means this one: by its shown name, its full name, or the server's own.
    pub(super) fn is_about(&self, tool: &str) -> bool {
        self.tool.as_deref() == Some(tool)
            || self.original.as_deref().is_some_and(|own| own == tool || full_name(&self.server, own) == tool)
    }

    /// Puts it as the refusal of a call.
    pub(super) fn denial(self, principal: &PrincipalId) -> Trouble {
        if self.visible {
            // The name that was called is not the one it is shown under.
            let words = format!("{principal} sees this {} under the name {}", self.kind.noun(), self.subject());
            return Trouble::new(Exit::Denied, Code::Renamed, words).at(self.renamed.map(|reason| reason.at));
        }
        let words = format!("{} is hidden from {principal}: {}", self.subject(), sentence(self.why()));
        let code = self.code.unwrap_or(Code::UnknownTool);
        // A server that is disabled for want of a secret is not up, as one that is down.
        let exit = if matches!(code, Code::ServerDown | Code::Secret) { Exit::NotReady } else { Exit::Denied };
        let trouble = Trouble::new(exit, code, words).at(self.reasons.into_iter().next().map(|reason| reason.at));
        self.help.into_iter().fold(trouble, Trouble::fix)
    }

    fn subject(&self) -> String {
        self.tool.clone().map_or_else(|| format!("{}__*", self.server.shown()), |tool| line(&tool))
    }

    fn why(&self) -> &str {
        self.reasons.first().map_or("", |reason| reason.words.as_str())
    }

    fn row(&self) -> [String; 6] {
        let state = if self.visible { "shown" } else { "hidden" };
        let code = self.code.map_or("", Code::id);
        let at = self.reasons.first().map(|reason| reason.at.to_string()).unwrap_or_default();
        let kind = self.kind.noun().to_owned();
        [self.subject(), kind, state.to_owned(), code.to_owned(), line(self.why()), at]
    }

    fn text(&self, principal: &PrincipalId) -> String {
        let state = match self.code {
            None => format!("shown to {principal}"),
            Some(code) => Paint::for_stdout().error(&format!("hidden from {principal} [{}]", code.id())),
        };
        let mut text = format!("{}: {state}\n", self.subject());
        for reason in self.reasons.iter().chain(&self.renamed) {
            text.push_str(&format!("  {}\n    --> {}\n", sentence(&reason.words), reason.at));
        }
        if let Some(help) = &self.help {
            text.push_str(&format!("  help: {help}\n"));
        }
        text
    }

    fn json(&self) -> serde_json::Value {
        let reason = |reason: &Reason| json!({ "words": reason.words, "file": reason.at.path.display().to_string(), "line": reason.at.line });
        json!({
            "kind": self.kind.noun(),
            "tool": self.tool,
            "server": self.server.as_str(),
            "original": self.original,
            "visible": self.visible,
            "code": self.code.map(Code::id),
            "reasons": self.reasons.iter().map(reason).collect::<Vec<_>>(),
            "renamed": self.renamed.as_ref().map(reason),
            "help": self.help,
        })
    }
}
