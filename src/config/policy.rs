//! `[policies.NAME]`, the files of `policies/`, and their expectations.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::codes::Code;
use crate::id::UpstreamName;
use crate::limit::Own;
use crate::policy::{Action, Decision, EmptyAllow, Narrow, Pattern, Profile, Subject, Which};
use crate::wire::mcp::Kind;

use super::caps;
use super::error::{Diagnostic, Diagnostics, Report, Severity};
use super::inputs::Notes;
use super::load::{FILE_MAX, parse, read_text};
use super::places::{NarrowPlace, PolicyPlace, Spot};
use super::reader::{Table, Value};
use super::upstream::Known;
use super::{keys, limits};

/// What became of one `[[expect]]`.
#[derive(Clone, Debug)]
pub struct ExpectationResult {
    /// The policy.
    pub policy: String,
    /// The tool, as shown.
    pub tool: String,
    /// What the file expects.
    pub expected: bool,
    /// What the policy says.
    pub visible: bool,
    /// The place of the expectation; shown if it failed.
    pub diagnostic: Diagnostic,
}

/// A policy, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) profile: Arc<Profile>,
    pub(super) limits: Option<Own>,
    pub(super) place: Option<Arc<PolicyPlace>>,
}

/// The policies that were read, by name.
#[derive(Debug)]
pub(super) struct Policies<'a> {
    known: &'a Known,
    empty_allow: EmptyAllow,
    /// Where others may stand; `None`: nowhere.
    folder: Option<PathBuf>,
    notes: &'a Notes,
    read: BTreeMap<String, Option<Policy>>,
    pub(super) expectations: Vec<ExpectationResult>,
}

// === impl ExpectationResult ===

impl ExpectationResult {
    /// Says whether the policy does what was expected.
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.expected == self.visible
    }
}

// === impl Policies ===

impl<'a> Policies<'a> {
    /// Reads the policies of the file itself; others are looked for in `policies/` beside it.
    pub(super) fn new(
        table: Option<&Table<'_>>,
        known: &'a Known,
        empty_allow: EmptyAllow,
        folder: Option<PathBuf>,
        notes: &'a Notes,
    ) -> Self {
        let mut policies = Self { known, empty_allow, folder, notes, read: BTreeMap::new(), expectations: Vec::new() };
        for (name, value) in table.iter().flat_map(|table| table.entries()) {
            let profile = value.table().map(|table| policies.policy(name, &table));
            if let (Some(path), Some(table)) = (policies.path(name), table) {
                let words = format!("this policy is defined here and in {}", path.display());
                table.key_error_of(Code::PolicyMissing, name, words);
            }
            policies.read.insert(name.to_owned(), profile);
        }
        policies
    }

    /// Finds the policy that a principal names. If there is none, that is an error, and the principal would have nothing.
    pub(super) fn find(&mut self, name: &str, value: &Value<'_>) -> Policy {
        if !self.read.contains_key(name) {
            let profile = self.file(name, value);
            self.read.insert(name.to_owned(), profile);
        }
        let nothing = || Policy { profile: Arc::new(Profile::deny_all()), limits: None, place: None };
        self.read.get(name).cloned().flatten().unwrap_or_else(nothing)
    }

    /// Finds the file of a policy.
    fn path(&self, name: &str) -> Option<PathBuf> {
        let path = self.folder.as_ref().filter(|_| file_name(name))?.join(format!("{name}.toml"));
        // Noted also where it is not: it may come.
        self.notes.look(&path, FILE_MAX);
        path.symlink_metadata().is_ok().then_some(path)
    }

    fn file(&mut self, name: &str, value: &Value<'_>) -> Option<Policy> {
        let Some(path) = self.path(name) else {
            let names: Vec<_> = self.read.keys().map(String::as_str).collect();
            let near = super::reader::nearest(name, &names).map(|near| format!("did you mean '{near}'?"));
            let help = near
                .unwrap_or_else(|| format!("add [policies.{name}], or the file policies/{name}.toml beside this one"));
            value.error_of(Code::PolicyMissing, "there is no such policy", Some(help));
            return None;
        };
        let text = match read_text(&path, self.notes) {
            Ok(text) => text,
            Err(why) => {
                value.error_of(Code::PolicyMissing, format!("policy file {} {why}", path.display()), None);
                return None;
            }
        };
        parse(&path, &text, value.report(), |root| self.policy(name, &root))
    }

    fn policy(&mut self, name: &str, table: &Table<'_>) -> Policy {
        let (profile, place) = profile(name, table, Some(self.known), self.empty_allow);
        self.expectations.extend(expectations(name, table, &profile, Some(self.known)));
        Policy { profile: Arc::new(profile), limits: limits::of_policy(table), place: Some(Arc::new(place)) }
    }
}

/// Reads one policy file without a configuration and judges its expectations.
///
/// # Errors
/// All that is wrong with the file.
pub fn check_policy_file(path: &Path) -> Result<(Vec<ExpectationResult>, Vec<Diagnostic>), Diagnostics> {
    let text = read_text(path, &Notes::default())
        .map_err(|why| Diagnostics::whole(format!("policy file {} {why}", path.display())))?;
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let report = Report::default();
    let results = parse(path, &text, &report, |root| {
        let (profile, _) = profile(&name, &root, None, EmptyAllow::All);
        // Read for what is wrong with it alone.
        let _limits = limits::of_policy(&root);
        expectations(&name, &root, &profile, None)
    });
    Ok((results.unwrap_or_default(), report.finish()?))
}

/// Reads one policy. The places of patterns stand in the order of the patterns.
fn profile(name: &str, table: &Table<'_>, known: Option<&Known>, empty_allow: EmptyAllow) -> (Profile, PolicyPlace) {
    table.keys(keys::POLICY);
    let mut place = PolicyPlace {
        name: name.to_owned(),
        at: table.spot(),
        allowed: table.key_spot("allowed_tools"),
        allowed_tools: Vec::new(),
        excluded_tools: Vec::new(),
        prompts: NarrowPlace::of(table, Which::Prompts),
        resources: NarrowPlace::of(table, Which::Resources),
        deny_all: table.key_spot("deny_all_tools"),
        auto_admit: table.key_spot("auto_admit_mcp_tools"),
    };
    let reading = Reading { table, known, empty_allow };
    let (allowed_tools, spots) = reading.allowed(Which::Tools);
    place.allowed_tools = spots;
    let (excluded_tools, spots) = reading.excluded(Which::Tools);
    place.excluded_tools = spots;
    let prompts = reading.narrow(Which::Prompts, &mut place.prompts);
    let resources = reading.narrow(Which::Resources, &mut place.resources);
    let deny_all_tools = table.get("deny_all_tools").and_then(|value| value.flag()).unwrap_or(false);
    if deny_all_tools && allowed_tools.as_ref().is_some_and(|patterns: &Vec<_>| !patterns.is_empty()) {
        table.key_error("deny_all_tools", "contradicts the non-empty allowed_tools beside it");
    }
    let auto_admit = table.get("auto_admit_mcp_tools").and_then(|value| value.flag()).unwrap_or(false);
    let caps = caps::rules(table);
    let profile =
        Profile { allowed_tools, auto_admit, excluded_tools, deny_all_tools, empty_allow, prompts, resources, caps };
    (profile, place)
}

/// How the lists of one policy are read.
struct Reading<'t> {
    table: &'t Table<'t>,
    known: Option<&'t Known>,
    empty_allow: EmptyAllow,
}

impl Reading<'_> {
    /// Reads an `allowed_…` list; `None` if it is not there.
    fn allowed(&self, which: Which) -> (Option<Vec<Pattern>>, Vec<Spot>) {
        let key = format!("allowed_{}", which.ending());
        let Some((items, value)) = self.table.get(&key).and_then(|value| Some((value.texts()?, value))) else {
            return (None, Vec::new());
        };
        if items.is_empty() && self.empty_allow == EmptyAllow::All {
            value.warn("an empty list restricts nothing", Some("deny_all_tools = true allows nothing".to_owned()));
        }
        let read =
            |(text, item): &(&str, Value<'_>)| Some((pattern(text, item, self.known, (which, false))?, item.spot()));
        let (patterns, spots) = items.iter().filter_map(read).unzip();
        (Some(patterns), spots)
    }

    /// Reads an `excluded_…` list.
    fn excluded(&self, which: Which) -> (Vec<Pattern>, Vec<Spot>) {
        let key = format!("excluded_{}", which.ending());
        let items = self.table.get(&key).and_then(|value| value.texts()).unwrap_or_default();
        let read =
            |(text, item): &(&str, Value<'_>)| Some((pattern(text, item, self.known, (which, true))?, item.spot()));
        items.iter().filter_map(read).unzip()
    }

    fn narrow(&self, which: Which, place: &mut NarrowPlace) -> Narrow {
        let (allowed, excluded);
        (allowed, place.allowed) = self.allowed(which);
        (excluded, place.excluded) = self.excluded(which);
        Narrow { allowed, excluded }
    }
}

impl NarrowPlace {
    fn of(table: &Table<'_>, which: Which) -> Self {
        let list = table.key_spot(&format!("allowed_{}", which.ending()));
        Self { list, allowed: Vec::new(), excluded: Vec::new() }
    }
}

/// Reads a pattern. One that nothing of a configured server can match is an error where it subtracts, else a warning.
fn pattern(text: &str, value: &Value<'_>, known: Option<&Known>, (which, subtracts): (Which, bool)) -> Option<Pattern> {
    let pattern = match Pattern::new(text) {
        Ok(pattern) => pattern,
        Err(error) => {
            value.error(error.to_string());
            return None;
        }
    };
    let own = pattern.could_match_under("portcullis__");
    let Some(known) = known.filter(|_| !own) else { return Some(pattern) };
    let named = |(shown, server): (String, Option<&UpstreamName>)| {
        let slug = server.filter(|_| which == Which::Resources).map(UpstreamName::slug);
        pattern.could_match_under(&format!("{shown}__"))
            || slug.is_some_and(|slug| {
                pattern.could_match_under(&format!("{slug}+")) || pattern.could_match_under(&format!("ui://{slug}/"))
            })
    };
    if known.shown().any(named) {
        return Some(pattern);
    }
    let (message, help) = match pattern.server() {
        Some(server) => (format!("there is no server '{server}'"), known.hint(server)),
        None => {
            let (what, how) = match which {
                Which::Tools => ("tool", "a tool is named <server>__<tool>"),
                Which::Prompts => ("prompt", "a prompt is named <server>__<prompt>"),
                Which::Resources => ("resource", "a resource is named <server>__<uri>, or by its URI as it is shown"),
            };
            (format!("no {what} of any server has such a name"), Some(how.to_owned()))
        }
    };
    match (subtracts, help) {
        (true, help) => value.error_of(Code::ProtectsNothing, message, help),
        (false, help) => value.grants_nothing(format!("{message}: this grants nothing"), help),
    }
    Some(pattern)
}

fn expectations(name: &str, table: &Table<'_>, profile: &Profile, known: Option<&Known>) -> Vec<ExpectationResult> {
    let Some(list) = table.get("expect").and_then(|value| value.list()) else { return Vec::new() };
    list.iter().filter_map(|item| expectation(name, &item.table()?, profile, known)).collect()
}

fn expectation(name: &str, table: &Table<'_>, profile: &Profile, known: Option<&Known>) -> Option<ExpectationResult> {
    table.keys(keys::EXPECT);
    let (Some(tool), Some(visible)) = (table.get("tool"), table.get("visible")) else {
        table.error_help("an expectation needs a tool and visible", "write tool = \"demo__add\" and visible = true");
        return None;
    };
    let (text, expected) = (tool.filled(), visible.flag());
    let (text, expected) = (text?, expected?);
    let server = text.split_once("__").map(|(server, _)| server).unwrap_or_default();
    let found = match known {
        None => UpstreamName::new(server).ok(),
        Some(known) => known.shown().find(|(shown, _)| shown == server).and_then(|(_, server)| server.cloned()),
    };
    let granted = known.map_or_else(|| found.iter().cloned().collect::<BTreeSet<_>>(), Known::all);
    let subject = Subject { granted: &granted, profile: Some(profile) };
    let decision =
        found.as_ref().map(|server| subject.decide(&Action { kind: Kind::Tools, server, shown: text, full: text }));
    if decision.is_none() {
        let help = known.and_then(|known| known.hint(server));
        tool.warn("no configured server has such a tool, so it is taken for hidden", help);
    }
    let actual = decision == Some(Decision::Allow);
    let word = |visible: bool| if visible { "visible" } else { "hidden" };
    let message = format!("expected {text} to be {}, but policy '{name}' makes it {}", word(expected), word(actual));
    let diagnostic = tool.diagnostic(Severity::Error, message, None);
    let diagnostic = Diagnostic { code: Code::Expectation, fails: true, ..diagnostic };
    Some(ExpectationResult { policy: name.to_owned(), tool: text.to_owned(), expected, visible: actual, diagnostic })
}

/// Says whether a policy of that name may stand in a file: nothing that leads out of the folder.
fn file_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}
