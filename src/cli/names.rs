//! `portcullis names`: original, shown name, length, and why it was changed [NAM-7].

use std::collections::BTreeSet;

use serde_json::json;

use crate::app::Local;
use crate::catalog::{change, shown_name};
use crate::codes::Code;
use crate::config::nearest;
use crate::id::UpstreamName;
use crate::wire::mcp::Kind;

use super::args::Names;
use super::explain::change_words;
use super::open::{Opened, block_on, open};
use super::output::{self, line, table};
use super::trouble::{Exit, Trouble};

pub(super) fn run(names: &Names) -> Result<Exit, Trouble> {
    block_on(async {
        let opened = open(&names.source).await?;
        let needed = needed(&opened, &names.servers)?;
        opened
            .with_local(&needed, None, async |local| {
                let rows = rows(&opened, local);
                if names.json {
                    output::json(&rows.iter().map(Row::json).collect())?;
                } else {
                    let head = ["SHOWN", "LENGTH", "KIND", "SERVER", "ORIGINAL", "CHANGED"].map(str::to_owned);
                    table(&[head].into_iter().chain(rows.iter().map(Row::cells)).collect::<Vec<_>>())?;
                }
                Ok(opened.report_down(local, &needed))
            })
            .await
    })
}

fn needed(opened: &Opened, named: &[String]) -> Result<BTreeSet<UpstreamName>, Trouble> {
    let usable = opened.usable();
    if named.is_empty() {
        return Ok(usable);
    }
    let find = |name: &String| {
        usable.iter().find(|server| server.as_str() == name).cloned().ok_or_else(|| {
            let words = format!("there is no server '{}' that can be connected to", name.escape_debug());
            let trouble = Trouble::new(Exit::Usage, Code::UnknownServer, words);
            let names: Vec<_> = usable.iter().map(UpstreamName::as_str).collect();
            match nearest(name, &names) {
                Some(near) => trouble.fix(format!("did you mean '{near}'?")),
                None => trouble,
            }
        })
    };
    named.iter().map(find).collect()
}

/// One name.
#[derive(Debug)]
struct Row {
    kind: Kind,
    server: UpstreamName,
    original: String,
    shown: String,
    changed: Option<String>,
    /// Why nobody sees it.
    hidden: Option<String>,
}

fn rows(opened: &Opened, local: &Local) -> Vec<Row> {
    let budget = opened.loaded.settings.gateway.name_budget;
    let row = |kind: Kind, server: &UpstreamName, original: &str, hidden: Option<String>| Row {
        kind,
        server: server.clone(),
        original: original.to_owned(),
        shown: shown_name(server, original, budget),
        changed: change(server, original, budget).map(|change| change_words(change, budget)),
        hidden,
    };
    let snapshot = local.gateway().snapshot();
    let catalog = snapshot.catalog();
    // A resource is named by its URI, which is never cut.
    let shown = catalog.entries.iter().filter(|entry| !entry.kind.is_resource());
    let shown = shown.map(|entry| row(entry.kind, &entry.server, &entry.original, None));
    let hidden = catalog.warnings.iter().filter(|warning| warning.why.hides() && !warning.kind.is_resource());
    let hidden = hidden.map(|warning| row(warning.kind, &warning.server, &warning.name, Some(warning.why.to_string())));
    shown.chain(hidden).collect()
}

// === impl Row ===

impl Row {
    fn cells(&self) -> [String; 6] {
        let why: Vec<_> = self.changed.iter().chain(&self.hidden).map(|words| line(words)).collect();
        let length = self.shown.len().to_string();
        let kind = self.kind.noun().to_owned();
        [self.shown.clone(), length, kind, self.server.to_string(), line(&self.original), why.join("; ")]
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "shown": self.shown,
            "length": self.shown.len(),
            "kind": self.kind.noun(),
            "server": self.server.as_str(),
            "original": self.original,
            "changed": self.changed,
            "hidden": self.hidden,
        })
    }
}
