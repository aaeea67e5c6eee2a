//! The decision: the server must be granted, then the profile speaks; deny wins.

use std::collections::BTreeSet;

use crate::id::UpstreamName;
use crate::wire::mcp::Kind;

use super::resource::Spellings;
use super::{EmptyAllow, Pattern, Permitted, Profile, Which};

/// On whose behalf: what bundles grant, and the policy. A subject is an audience: principals with equal subjects see the
/// same.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The servers that bundles grant [CFG-1].
    pub granted: &'a BTreeSet<UpstreamName>,
    /// The policy; `None` if the principal has none: all that is granted [AUT-1].
    pub profile: Option<&'a Profile>,
}

/// What is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Action<'a> {
    /// What kind of thing.
    pub kind: Kind,
    /// Its server.
    pub server: &'a UpstreamName,
    /// The name or URI as shown.
    pub shown: &'a str,
    /// The full, uncut `<server>__<original>`.
    pub full: &'a str,
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// `deny_all_tools`, or a pattern of `excluded_tools`.
    Excluded,
    /// Not in a non-empty `allowed_tools`.
    NotAllowed,
    /// No bundle grants the server.
    ServerNotGranted,
}

/// What in the policy decided, for `explain` [POL-14]. Numbers count patterns of a list, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// A pattern of an `allowed_…` list matches.
    Allowed(Which, usize),
    /// No pattern of `allowed_tools` matches, and `auto_admit_mcp_tools` lets it in [POL-3].
    AutoAdmitted,
    /// `deny_all_tools`.
    DenyAll,
    /// A pattern of an `excluded_…` list matches.
    Excluded(Which, usize),
    /// No pattern of a restricting `allowed_…` list matches.
    NotAllowed(Which),
    /// No bundle grants the server.
    ServerNotGranted,
    /// There is no restricting `allowed_…` list, or no policy at all.
    Unrestricted,
}

/// A decision. The only maker of [`Permitted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Decision {
    /// It may happen.
    Allow,
    /// It may not.
    Deny(Denial),
}

impl Subject<'_> {
    /// Decides one action; list and call both ask this [POL-12].
    pub fn decide(&self, action: &Action<'_>) -> Decision {
        self.ground(action).decision()
    }

    /// Says whether a server exists for the subject at all, beside its tools: its prompts, resources, logs [POL-15].
    #[must_use]
    pub fn sees_server(&self, server: &UpstreamName) -> bool {
        self.granted.contains(server)
            && self.profile.is_none_or(|profile| of_server(profile, server).decision() == Decision::Allow)
    }

    /// Finds what decides one action; [`Subject::decide`] is made from it.
    #[must_use]
    pub fn ground(&self, action: &Action<'_>) -> Ground {
        if !self.granted.contains(action.server) {
            return Ground::ServerNotGranted;
        }
        let Some(profile) = self.profile else { return Ground::Unrestricted };
        if action.kind != Kind::Tools {
            let whole = of_server(profile, action.server);
            return if whole.decision() == Decision::Allow { narrowed(profile, action, whole) } else { whole };
        }
        let first = |patterns: &[Pattern]| {
            patterns.iter().position(|pattern| pattern.matches(action.shown) || pattern.matches(action.full))
        };
        if profile.deny_all_tools {
            return Ground::DenyAll;
        }
        if let Some(index) = first(&profile.excluded_tools) {
            return Ground::Excluded(Which::Tools, index);
        }
        match &profile.allowed_tools {
            None => Ground::Unrestricted,
            Some(patterns) if patterns.is_empty() && profile.empty_allow == EmptyAllow::All => Ground::Unrestricted,
            Some(patterns) => match first(patterns) {
                Some(index) => Ground::Allowed(Which::Tools, index),
                None if profile.auto_admit && !patterns.is_empty() => Ground::AutoAdmitted,
                None => Ground::NotAllowed(Which::Tools),
            },
        }
    }
}

/// Finds what decides about all that a server has beside its tools: whether the policy denies it whole [POL-15].
fn of_server(profile: &Profile, server: &UpstreamName) -> Ground {
    let prefix = format!("{}__", server.shown());
    if profile.deny_all_tools {
        return Ground::DenyAll;
    }
    if let Some(index) = profile.excluded_tools.iter().position(|pattern| pattern.covers(&prefix)) {
        return Ground::Excluded(Which::Tools, index);
    }
    match &profile.allowed_tools {
        None => Ground::Unrestricted,
        Some(patterns) if patterns.is_empty() && profile.empty_allow == EmptyAllow::All => Ground::Unrestricted,
        Some(patterns) => match patterns.iter().position(|pattern| pattern.could_match_under(&prefix)) {
            Some(index) => Ground::Allowed(Which::Tools, index),
            None if profile.auto_admit && !patterns.is_empty() => Ground::AutoAdmitted,
            None => Ground::NotAllowed(Which::Tools),
        },
    }
}

/// Finds what decides about one prompt, resource or template of a server that is not denied whole.
fn narrowed(profile: &Profile, action: &Action<'_>, whole: Ground) -> Ground {
    let (which, narrow) = match action.kind {
        Kind::Tools | Kind::Prompts => (Which::Prompts, &profile.prompts),
        Kind::Resources | Kind::Templates => (Which::Resources, &profile.resources),
    };
    if narrow.excluded.is_empty() && narrow.allowed.is_none() {
        return whole;
    }
    let spellings = Spellings::of(action);
    let by_name = |pattern: &Pattern| pattern.matches(action.shown) || pattern.matches(action.full);
    let excluded =
        |pattern: &Pattern| spellings.as_ref().map_or_else(|| by_name(pattern), |it| it.excluded_by(pattern));
    let allowed = |pattern: &Pattern| spellings.as_ref().map_or_else(|| by_name(pattern), |it| it.allowed_by(pattern));
    if let Some(index) = narrow.excluded.iter().position(excluded) {
        return Ground::Excluded(which, index);
    }
    match &narrow.allowed {
        None => whole,
        Some(patterns) if patterns.is_empty() && profile.empty_allow == EmptyAllow::All => whole,
        Some(patterns) => match patterns.iter().position(allowed) {
            Some(index) => Ground::Allowed(which, index),
            None => Ground::NotAllowed(which),
        },
    }
}

impl Ground {
    /// Returns the decision that stands on this ground.
    pub const fn decision(self) -> Decision {
        match self {
            Self::Allowed(..) | Self::AutoAdmitted | Self::Unrestricted => Decision::Allow,
            Self::DenyAll | Self::Excluded(..) => Decision::Deny(Denial::Excluded),
            Self::NotAllowed(_) => Decision::Deny(Denial::NotAllowed),
            Self::ServerNotGranted => Decision::Deny(Denial::ServerNotGranted),
        }
    }
}

impl Decision {
    /// Turns a value into a permitted one.
    ///
    /// # Errors
    /// The [`Denial`].
    pub fn permit<T>(self, value: T) -> Result<Permitted<T>, Denial> {
        match self {
            Self::Allow => Ok(Permitted::new(value)),
            Self::Deny(denial) => Err(denial),
        }
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
