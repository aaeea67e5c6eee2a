//! Everything a request is judged by, published whole and under one number.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::HashMap;

use crate::catalog::{Catalog, Entry, HeaderRule, Scope, ServerLists, View, Warning};
use crate::exchange::ReasonCode;
use crate::id::{PrincipalId, UpstreamName};
use crate::limit::Limits;
use crate::policy::{Action, BlobMode, CapRules, Caps, Decision, Overflow, Pattern, Profile, Subject};
use crate::upstream::TargetSet;
use crate::wire::mcp::Kind;

use super::GatewaySettings;

/// One state of the world.
#[derive(Debug)]
pub struct Snapshot {
    settings: Arc<GatewaySettings>,
    targets: Arc<TargetSet>,
    limits: Arc<Limits>,
    generation: u64,
    /// How many reloads came before it.
    reloads: u64,
    news: u64,
    principals: HashMap<PrincipalId, Arc<Audience>>,
    nobody: Arc<Audience>,
    catalog: Catalog,
    unmatched: Vec<String>,
    /// Servers by the word that begins their resources' URIs.
    slugs: HashMap<String, UpstreamName>,
}

/// Principals that may see the same share one audience and its view (design §12a).
#[derive(Debug)]
pub(super) struct Audience {
    granted: BTreeSet<UpstreamName>,
    profile: Option<Arc<Profile>>,
    view: View,
    caps: Caps,
    /// Servers whose answers have other caps, or none because nobody looks at them.
    other_caps: HashMap<UpstreamName, Option<Caps>>,
}

impl Snapshot {
    /// Builds a snapshot from the settings and the servers' last good lists.
    #[must_use]
    pub fn build(
        settings: Arc<GatewaySettings>,
        targets: Arc<TargetSet>,
        limits: Arc<Limits>,
        (generation, reloads): (u64, u64),
    ) -> Self {
        let news = *targets.news().borrow();
        let lists: Vec<ServerLists> = targets
            .iter()
            .filter_map(|server| {
                let headers = if server.is_http() { HeaderRule::Check } else { HeaderRule::Ignore };
                server.status().lists.map(|lists| ServerLists { server: server.name().clone(), lists, headers })
            })
            .collect();
        let catalog = Catalog::merge(&lists, settings.name_budget);
        let mut audiences: Vec<Arc<Audience>> = Vec::new();
        let principals = settings
            .principals
            .iter()
            .map(|principal| {
                let known = audiences.iter().find(|audience| {
                    audience.granted == principal.granted && same(&audience.profile, &principal.profile)
                });
                let audience = known.cloned().unwrap_or_else(|| {
                    let new = Arc::new(Audience::build(
                        &catalog,
                        &settings,
                        principal.granted.clone(),
                        principal.profile.clone(),
                    ));
                    audiences.push(Arc::clone(&new));
                    new
                });
                (principal.id.clone(), audience)
            })
            .collect();
        let nobody = Arc::new(Audience::build(&Catalog::default(), &settings, BTreeSet::new(), None));
        let unmatched = unmatched(&settings, &targets, &catalog);
        let slugs = targets.iter().map(|server| (server.name().slug(), server.name().clone())).collect();
        Self { slugs, settings, targets, limits, generation, reloads, news, principals, nobody, catalog, unmatched }
    }

    /// Returns the settings.
    #[must_use]
    pub const fn settings(&self) -> &Arc<GatewaySettings> {
        &self.settings
    }

    /// Returns the servers.
    #[must_use]
    pub const fn targets(&self) -> &Arc<TargetSet> {
        &self.targets
    }

    /// Returns what limits requests and calls.
    #[must_use]
    pub const fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    /// Returns how many reloads came before it.
    #[must_use]
    pub const fn reloads(&self) -> u64 {
        self.reloads
    }

    /// Returns the snapshot's number.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns how many news of servers it has seen; what came later is not in it.
    #[must_use]
    pub const fn news(&self) -> u64 {
        self.news
    }

    /// Returns what was left out of the catalog.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.catalog.warnings
    }

    /// Returns everything that the servers have listed.
    #[must_use]
    pub const fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Returns the policies' patterns that match no known tool [CFG-2]; empty until every server has listed.
    #[must_use]
    pub fn unmatched(&self) -> &[String] {
        &self.unmatched
    }

    /// Says why a name is not visible to a subject, for the log alone: the client cannot tell these apart [POL-11].
    pub(super) fn why_hidden(&self, subject: &Subject<'_>, scope: Scope<'_>, kind: Kind, name: &str) -> ReasonCode {
        let named = |entry: &&Arc<Entry>| match scope {
            Scope::All => *entry.shown == *name,
            Scope::Server(server) => entry.server == *server && *entry.original == *name,
        };
        let Some(entry) = self.catalog.of(kind).find(named) else { return ReasonCode::Unknown };
        match subject.decide(&Action { kind, server: &entry.server, shown: &entry.shown, full: &entry.full }) {
            Decision::Allow => ReasonCode::ServerDown,
            Decision::Deny(denial) => denial.into(),
        }
    }

    /// Finds the server whose resources' URIs begin with a word.
    pub(super) fn of_slug(&self, slug: &str) -> Option<&UpstreamName> {
        self.slugs.get(slug)
    }

    /// Says whether a principal is configured.
    pub(super) fn knows(&self, principal: &PrincipalId) -> bool {
        self.principals.contains_key(principal)
    }

    /// Says whether several principals are configured.
    pub(super) fn is_shared(&self) -> bool {
        self.principals.len() > 1
    }

    /// Returns the audience of a principal; one that is not configured sees nothing.
    pub(super) fn audience(&self, principal: &PrincipalId) -> &Arc<Audience> {
        self.principals.get(principal).unwrap_or(&self.nobody)
    }

    /// Returns the audience that sees nothing.
    pub(super) const fn nobody(&self) -> &Arc<Audience> {
        &self.nobody
    }
}

/// A pattern that matches nothing is most likely a typing mistake; one that subtracts then protects nothing. Servers may have
/// more resources than they list, so that nothing is said of patterns of those.
fn unmatched(settings: &GatewaySettings, targets: &TargetSet, catalog: &Catalog) -> Vec<String> {
    if targets.iter().any(|server| server.status().lists.is_none()) {
        return Vec::new();
    }
    let known = |kind: Kind, pattern: &Pattern| {
        catalog.of(kind).any(|entry| pattern.matches(&entry.shown) || pattern.matches(&entry.full))
    };
    let mut sharers: HashMap<*const Profile, usize> = HashMap::default();
    for profile in settings.principals.iter().filter_map(|principal| principal.profile.as_ref()) {
        *sharers.entry(Arc::as_ptr(profile)).or_default() += 1;
    }
    let mut words = Vec::new();
    for principal in &settings.principals {
        let Some(profile) = &principal.profile else { continue };
        // A policy is named once, by the first of its principals.
        let more = match sharers.remove(&Arc::as_ptr(profile)) {
            None => continue,
            Some(1) => String::new(),
            Some(count) => format!(" and {} more of the same policy", count - 1),
        };
        let lists = [
            ("allowed_tools", Kind::Tools, profile.allowed_tools.as_ref()),
            ("excluded_tools", Kind::Tools, Some(&profile.excluded_tools)),
            ("allowed_prompts", Kind::Prompts, profile.prompts.allowed.as_ref()),
            ("excluded_prompts", Kind::Prompts, Some(&profile.prompts.excluded)),
        ];
        for (key, kind, patterns) in lists {
            for pattern in patterns.into_iter().flatten().filter(|pattern| !known(kind, pattern)) {
                let (id, what) = (&principal.id, kind.noun());
                words.push(format!("{key} of principal '{id}'{more}: '{pattern}' matches no known {what}"));
            }
        }
    }
    words
}

impl Audience {
    fn build(
        catalog: &Catalog,
        settings: &GatewaySettings,
        granted: BTreeSet<UpstreamName>,
        profile: Option<Arc<Profile>>,
    ) -> Self {
        let subject = Subject { granted: &granted, profile: profile.as_deref() };
        let view = View::build(catalog, |entry| {
            let action = Action { kind: entry.kind, server: &entry.server, shown: &entry.shown, full: &entry.full };
            subject.decide(&action) == Decision::Allow
        });
        let (caps, other_caps) = caps(settings, profile.as_deref());
        Self { granted, profile, view, caps, other_caps }
    }

    /// Returns how much text one result may have, where no server matters.
    pub(super) const fn read_chars_max(&self) -> Option<usize> {
        self.caps.max_result_chars
    }

    /// Says whether its results may hold links to what the gateway keeps.
    pub(super) fn links(&self) -> bool {
        let links = |caps: &Caps| {
            caps.blobs != BlobMode::Pass || (caps.max_result_chars.is_some() && caps.overflow == Overflow::Link)
        };
        links(&self.caps) || self.other_caps.values().flatten().any(links)
    }

    /// Returns what answers of a server are made smaller by; `None` if they are passed on as they are.
    pub(super) fn caps(&self, server: &UpstreamName) -> Option<Caps> {
        if self.other_caps.is_empty() {
            return Some(self.caps);
        }
        self.other_caps.get(server).copied().unwrap_or(Some(self.caps))
    }

    pub(super) const fn view(&self) -> &View {
        &self.view
    }

    pub(super) fn subject(&self) -> Subject<'_> {
        Subject { granted: &self.granted, profile: self.profile.as_deref() }
    }
}

/// Settles what answers are made smaller by, and for which servers it is otherwise.
fn caps(settings: &GatewaySettings, profile: Option<&Profile>) -> (Caps, HashMap<UpstreamName, Option<Caps>>) {
    let policy = profile.map(|profile| profile.caps.clone()).unwrap_or_default();
    let all = policy.or(&settings.caps).settled();
    let mut others: HashMap<UpstreamName, Option<Caps>> = HashMap::default();
    for (server, blobs) in &settings.server_blobs {
        let server_rules = CapRules { blobs: Some(*blobs), ..CapRules::default() };
        others.insert(server.clone(), Some(policy.or(&server_rules).or(&settings.caps).settled()));
    }
    others.extend(settings.servers.iter().filter(|server| !server.inspect).map(|server| (server.name.clone(), None)));
    (all, others)
}

fn same(one: &Option<Arc<Profile>>, two: &Option<Arc<Profile>>) -> bool {
    match (one, two) {
        (Some(one), Some(two)) => Arc::ptr_eq(one, two),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}
