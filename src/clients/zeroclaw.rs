//! ZeroClaw's TOML: who uses which servers, and what of it is carried over [CFG-8].
//!
//! Invariant: what protected somebody there and cannot be said here is in `lost`, never dropped silently.

use toml_edit::{DocumentMut, Item, TableLike};

use super::draft::{Draft, Import};
use super::{Entry, jsonc, tables};

/// An agent, which becomes a principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Its alias.
    pub name: String,
    /// Its bundles.
    pub bundles: Vec<String>,
    /// Its risk profile.
    pub policy: Option<String>,
}

/// A bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Its alias.
    pub name: String,
    /// Servers by name.
    pub servers: Vec<String>,
    /// Servers that are taken away.
    pub exclude: Vec<String>,
}

/// A risk profile, which becomes a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its alias.
    pub name: String,
    /// `allowed_tools`, those of MCP servers.
    pub allowed: Vec<String>,
    /// Whether `allowed_tools` named anything: then every MCP tool is let in all the same [POL-3].
    pub auto_admit: bool,
    /// `excluded_tools`, those of MCP servers.
    pub excluded: Vec<String>,
    /// `deny_all_tools`.
    pub deny_all: bool,
    /// Keys with their values that this version cannot read yet, as comments.
    pub later: Vec<String>,
}

/// What the file says beside its servers, in ZeroClaw's own names.
#[derive(Clone, Debug, Default)]
pub struct ZeroClaw {
    agents: Vec<Agent>,
    bundles: Vec<Bundle>,
    profiles: Vec<Profile>,
    notes: Vec<String>,
}

#[derive(Clone, Debug)]
struct Profile {
    name: String,
    full: bool,
    allowed: Vec<String>,
    excluded: Vec<String>,
    auto_approve: Vec<String>,
    always_ask: Vec<String>,
    deny_all: bool,
}

/// Reads a document; `None` if it is not ZeroClaw's.
pub(super) fn read(document: &DocumentMut) -> Option<(Vec<Entry>, ZeroClaw)> {
    let mcp = document.get("mcp")?.as_table_like()?;
    let entries = servers(mcp.get("servers")?)?;
    let mut found = ZeroClaw::default();
    if mcp.get("enabled").and_then(Item::as_bool) == Some(false) {
        found.notes.push("[mcp] enabled = false there: the servers are imported all the same".to_owned());
    }
    for (key, _) in mcp.iter().filter(|(key, _)| !matches!(*key, "servers" | "enabled")) {
        found.notes.push(format!("[mcp] {} is not carried over", key.escape_debug()));
    }
    for (name, table) in tables_of(document, "mcp_bundles") {
        let (servers, exclude) = (texts(table, "servers"), texts(table, "exclude"));
        found.bundles.push(Bundle { name: name.to_owned(), servers, exclude });
    }
    for (name, table) in tables_of(document, "risk_profiles") {
        found.profiles.push(Profile {
            name: name.to_owned(),
            full: table.get("level").and_then(Item::as_str) == Some("full"),
            allowed: texts(table, "allowed_tools"),
            excluded: texts(table, "excluded_tools"),
            auto_approve: texts(table, "auto_approve"),
            always_ask: texts(table, "always_ask"),
            deny_all: table.get("deny_all_tools").and_then(Item::as_bool) == Some(true),
        });
    }
    for (name, table) in tables_of(document, "agents") {
        if table.get("enabled").and_then(Item::as_bool) == Some(false) {
            found.notes.push(format!("agent '{}' is switched off and not imported", name.escape_debug()));
            continue;
        }
        let policy = table.get("risk_profile").and_then(Item::as_str).map(str::to_owned);
        found.agents.push(Agent { name: name.to_owned(), bundles: texts(table, "mcp_bundles"), policy });
        if table.contains_key("tool_filter_groups") {
            found.notes.push(filter_groups(&format!("agent '{}'", name.escape_debug())));
        }
    }
    if document.get("agent").and_then(Item::as_table_like).is_some_and(|agent| agent.contains_key("tool_filter_groups"))
        || document.contains_key("tool_filter_groups")
    {
        found.notes.push(filter_groups("the file"));
    }
    Some((entries, found))
}

fn filter_groups(whose: &str) -> String {
    format!(
        "tool_filter_groups of {whose} is not carried over: it hides tools that may still be called, and here what is \
         hidden cannot be called; use allowed_tools"
    )
}

fn servers(item: &Item) -> Option<Vec<Entry>> {
    let named = |table: &dyn TableLike| table.get("name").and_then(Item::as_str).unwrap_or_default().to_owned();
    if let Some(list) = item.as_array_of_tables() {
        return Some(list.iter().map(|table| tables::entry(&named(table), &Item::Table(table.clone()))).collect());
    }
    let list = item.as_array()?;
    let one = |value: &toml_edit::Value| {
        let table = value.as_inline_table()?;
        Some(tables::entry(&named(table), &Item::Value(value.clone())))
    };
    list.iter().map(one).collect()
}

fn tables_of<'d>(document: &'d DocumentMut, key: &str) -> impl Iterator<Item = (&'d str, &'d dyn TableLike)> {
    let table = document.get(key).and_then(Item::as_table_like);
    table.into_iter().flat_map(|table| table.iter()).filter_map(|(name, item)| Some((name, item.as_table_like()?)))
}

fn texts(table: &dyn TableLike, key: &str) -> Vec<String> {
    let list = table.get(key).and_then(Item::as_array);
    list.into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

impl ZeroClaw {
    /// Adds principals, bundles and policies to what was drafted of the servers.
    pub fn carry(self, import: &mut Import) {
        import.notes.extend(self.notes.iter().cloned());
        for bundle in &self.bundles {
            let bundle = Bundle {
                name: bundle.name.clone(),
                servers: named(&bundle.servers, &bundle.name, import),
                exclude: named(&bundle.exclude, &bundle.name, import),
            };
            import.bundles.push(bundle);
        }
        for profile in &self.profiles {
            let users: Vec<_> =
                self.agents.iter().filter(|agent| agent.policy.as_deref() == Some(profile.name.as_str())).collect();
            if users.is_empty() {
                continue;
            }
            let policy = policy(profile, import);
            import.policies.push(policy);
        }
        for agent in self.agents {
            let known = |name: &String| self.profiles.iter().any(|profile| profile.name == *name);
            if let Some(name) = agent.policy.as_ref().filter(|name| !known(name)) {
                let (agent, name) = (agent.name.escape_debug(), name.escape_debug());
                import.lost.push(format!("agent '{agent}' names the risk profile '{name}', which does not exist"));
                continue;
            }
            if agent.policy.is_none() {
                let name = agent.name.escape_debug();
                import
                    .lost
                    .push(format!("agent '{name}' has no risk profile: here it may use all that its bundles grant"));
            }
            import.agents.push(agent);
        }
    }
}

/// Our names of a bundle's servers; what names none is said.
fn named(names: &[String], bundle: &str, import: &mut Import) -> Vec<String> {
    let mut found = Vec::new();
    for name in names {
        match import.drafts.iter().find(|draft| draft.original == *name) {
            Some(draft) => found.push(draft.name.as_str().to_owned()),
            None => import.notes.push(format!(
                "bundle '{}' names '{}', which is no server that is imported",
                bundle.escape_debug(),
                name.escape_debug()
            )),
        }
    }
    found
}

fn policy(profile: &Profile, import: &mut Import) -> Policy {
    let shown = profile.name.escape_debug().to_string();
    let (allowed, excluded) = (ours(&profile.allowed, import), ours(&profile.excluded, import));
    for (key, list, kept) in
        [("allowed_tools", &profile.allowed, &allowed), ("excluded_tools", &profile.excluded, &excluded)]
    {
        if kept.len() < list.len() {
            let count = list.len() - kept.len();
            import.notes.push(format!("{key} of '{shown}': {count} names of no imported server's tools are left out"));
        }
        if list.iter().any(|name| matches!(name.as_str(), "mcp_resources" | "mcp_prompts")) {
            import.notes.push(format!("{key} of '{shown}': mcp_resources and mcp_prompts come with a later version"));
        }
    }
    let approval = if profile.full { "off" } else { "all" };
    let mut later = Vec::new();
    if !profile.full {
        import.lost.push(format!(
            "risk profile '{shown}' asks a person before a call (level is not \"full\"); this version cannot ask, so \
             these calls would simply run"
        ));
    } else if !profile.always_ask.is_empty() {
        import.lost.push(format!(
            "risk profile '{shown}' always asks a person before some calls (always_ask); this version cannot ask"
        ));
    }
    later.push(format!("approval = \"{approval}\""));
    for (key, list) in [("auto_approve", &profile.auto_approve), ("always_ask", &profile.always_ask)] {
        let names = ours(list, import);
        if !names.is_empty() {
            // On one line whatever the names hold: it becomes a comment.
            let names = names.iter().map(|name| jsonc::quoted(name)).collect::<Vec<_>>().join(", ");
            later.push(format!("{key} = [{names}]"));
        }
    }
    let auto_admit = !profile.allowed.is_empty();
    Policy { name: profile.name.clone(), allowed, auto_admit, excluded, deny_all: profile.deny_all, later }
}

/// The names of MCP tools, under our names of their servers.
fn ours(list: &[String], import: &Import) -> Vec<String> {
    let one = |name: &String| {
        if name == "*" {
            return Some(name.clone());
        }
        let of = |draft: &Draft| {
            let tool = name.strip_prefix(&draft.original)?.strip_prefix("__")?;
            Some(format!("{}__{tool}", draft.name.shown()))
        };
        import.drafts.iter().find_map(of)
    };
    list.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use crate::clients::{Grant, Surroundings, draft, read, write};

    /// What a hostile file holds stays what it is: text in a value, or in a comment of one line [CFG-8].
    #[test]
    fn nothing_in_a_file_becomes_configuration() {
        let evil = r#"s__x\"\"\"\n[principals.evil]\nmcp_bundles = [\"all\"]\n"#;
        let file = format!(
            "[[mcp.servers]]\nname = \"s\"\ncommand = \"x\"\nargs = [\"{evil}\"]\n\
             [mcp_bundles.\"{evil}\"]\nservers = [\"s\"]\n\
             [agents.\"{evil}\"]\nrisk_profile = \"{evil}\"\nmcp_bundles = [\"{evil}\"]\n\
             [risk_profiles.\"{evil}\"]\nlevel = \"full\"\nallowed_tools = [\"{evil}\"]\n\
             auto_approve = [\"{evil}\"]\nalways_ask = [\"{evil}\"]\n"
        );
        let found = read(&file).unwrap();
        let mut import = draft(found.entries, &Surroundings { env: &|_| None, workspace: None }, &[]);
        found.zeroclaw.unwrap().carry(&mut import);
        let text = write(None, &import, &Grant::AsTheFileSays).unwrap().text;
        let written: toml::Table = text.parse().unwrap();
        let principals = written["principals"].as_table().unwrap();
        assert_eq!(principals.len(), 1, "{text}");
        assert!(!principals.contains_key("evil"), "{text}");
        assert!(import.lost.iter().chain(&import.notes).all(|words| !words.contains('\n')), "{import:?}");
    }
}
