//! Policies and their expectations, inline or in `policies/NAME.toml` [POL-1, POL-2, CFG-2].

use std::collections::BTreeSet;
use std::path::Path;

use toml::de::DeTable;

use crate::id::UpstreamName;
use crate::policy::{Action, Decision, EmptyAllow, Pattern, Profile, Subject};

use super::error::{Diagnostic, Severity};
use super::reader::{File, One, Placed, Table};

/// An `[[expect]]` of a policy and what came of it; judged without servers, its tool's server counts as granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The policy.
    pub policy: String,
    /// The tool.
    pub tool: String,
    /// What the file expects.
    pub visible: bool,
    /// Whether it is so.
    pub met: bool,
}

/// Whether a file knows the names of all servers, so that patterns can be checked against them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Servers<'s> {
    /// These, as their names are shown.
    Known(&'s BTreeSet<String>),
    /// A policy file on its own.
    Unknown,
}

/// Reads one policy's table.
pub(super) fn read(
    mut table: Table<'_, '_>,
    name: &str,
    empty_allow: EmptyAllow,
    servers: Servers<'_>,
    file: &mut File<'_>,
) -> (Profile, Vec<Expectation>) {
    let allowed = table.texts(file, "allowed_tools", One::Refused);
    let excluded = table.texts(file, "excluded_tools", One::Refused).unwrap_or_default();
    let deny_all = table.flag(file, "deny_all_tools");
    let expects = table.tables(file, "expect");
    let allowed_tools = allowed.as_ref().map(|allowed| patterns(allowed, Grants::Yes, servers, file));
    if let Some(deny_all) = deny_all.as_ref().filter(|flag| flag.value)
        && allowed.as_ref().is_some_and(|allowed| !allowed.is_empty())
    {
        file.error(&deny_all.span, &deny_all.key, "cannot stand beside a non-empty allowed_tools");
    }
    // A list that was not empty in the file must not become one by a mistake in it: that would widen.
    let broken = allowed.as_ref().is_some_and(|allowed| !allowed.is_empty())
        && allowed_tools.as_ref().is_some_and(Vec::is_empty);
    let profile = Profile {
        allowed_tools,
        excluded_tools: patterns(&excluded, Grants::No, servers, file),
        deny_all_tools: deny_all.is_some_and(|flag| flag.value) || broken,
        empty_allow,
    };
    let mut expectations = Vec::new();
    for (mut expect, span) in expects {
        let tool = expect.text(file, "tool");
        let visible = expect.flag(file, "visible");
        let key = expect.path_of("tool");
        expect.finish(file);
        match (tool, visible) {
            (Some(tool), Some(visible)) => {
                let expectation = judge(&profile, name, &tool.value, visible.value);
                if !expectation.met {
                    let is = if visible.value { "hidden" } else { "visible" };
                    file.error(&tool.span, &key, format!("expected otherwise: '{}' is {is}", tool.value));
                }
                expectations.push(expectation);
            }
            _ => file.error(&span, &key, "an expectation has 'tool' and 'visible'"),
        }
    }
    table.finish(file);
    (profile, expectations)
}

fn judge(profile: &Profile, policy: &str, tool: &str, visible: bool) -> Expectation {
    let server = tool.split_once("__").map_or(tool, |(server, _)| server);
    let met = UpstreamName::new(server).is_ok_and(|server| {
        let granted = BTreeSet::from([server.clone()]);
        let subject = Subject { granted: &granted, profile: Some(profile) };
        (subject.decide(&Action { server: &server, shown: tool, full: tool }) == Decision::Allow) == visible
    });
    Expectation { policy: policy.to_owned(), tool: tool.to_owned(), visible, met }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Grants {
    /// What grants: an unknown name grants nothing, with a warning.
    Yes,
    /// What subtracts: an unknown name is an error.
    No,
}

fn patterns(texts: &[Placed<String>], grants: Grants, servers: Servers<'_>, file: &mut File<'_>) -> Vec<Pattern> {
    let mut patterns = Vec::new();
    for text in texts {
        let pattern = match Pattern::new(&text.value) {
            Ok(pattern) => pattern,
            Err(why) => {
                file.error(&text.span, &text.key, why.to_string());
                continue;
            }
        };
        if let (Servers::Known(known), Some(server)) = (servers, pattern.server())
            && !known.contains(server)
        {
            let words = format!("'{server}' is no server of this configuration");
            match grants {
                Grants::Yes => file.warn(&text.span, &text.key, format!("{words}: this grants nothing")),
                Grants::No => file.error(&text.span, &text.key, words),
            }
        }
        patterns.push(pattern);
    }
    patterns
}

/// Checks a policy file on its own and runs its expectations.
///
/// # Errors
/// Every problem in it.
pub fn check_policy_file(path: &Path) -> Result<Vec<Expectation>, Vec<Diagnostic>> {
    let text = std::fs::read_to_string(path)
        .map_err(|err| vec![Diagnostic::file(Severity::Error, path, format!("cannot be read: {err}"))])?;
    let mut file = File::new(path, &text);
    let expectations = match DeTable::parse(&text) {
        Ok(root) => read(Table::new(root.get_ref(), ""), "", EmptyAllow::All, Servers::Unknown, &mut file).1,
        Err(err) => {
            file.error(&err.span().unwrap_or(0..0), "", err.message());
            Vec::new()
        }
    };
    if file.found.iter().any(|found| found.severity == Severity::Error) { Err(file.found) } else { Ok(expectations) }
}
