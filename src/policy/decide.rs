//! The decision: the server must be granted, then the profile speaks; deny wins.

use std::collections::BTreeSet;

use crate::id::UpstreamName;
use crate::wire::mcp::Kind;

use super::{EmptyAllow, Pattern, Permitted, Profile};

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
    /// A pattern of `allowed_tools` matches.
    Allowed(usize),
    /// No pattern of `allowed_tools` matches, and `auto_admit_mcp_tools` lets it in [POL-3].
    AutoAdmitted,
    /// `deny_all_tools`.
    DenyAll,
    /// A pattern of `excluded_tools` matches.
    Excluded(usize),
    /// No pattern of a restricting `allowed_tools` matches.
    NotAllowed,
    /// No bundle grants the server.
    ServerNotGranted,
    /// There is no restricting `allowed_tools`, or no policy at all.
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
            return of_server(profile, action.server);
        }
        let first = |patterns: &[Pattern]| {
            patterns.iter().position(|pattern| pattern.matches(action.shown) || pattern.matches(action.full))
        };
        if profile.deny_all_tools {
            return Ground::DenyAll;
        }
        if let Some(index) = first(&profile.excluded_tools) {
            return Ground::Excluded(index);
        }
        match &profile.allowed_tools {
            None => Ground::Unrestricted,
            Some(patterns) if patterns.is_empty() && profile.empty_allow == EmptyAllow::All => Ground::Unrestricted,
            Some(patterns) => match first(patterns) {
                Some(index) => Ground::Allowed(index),
                None if profile.auto_admit && !patterns.is_empty() => Ground::AutoAdmitted,
                None => Ground::NotAllowed,
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
        return Ground::Excluded(index);
    }
    match &profile.allowed_tools {
        None => Ground::Unrestricted,
        Some(patterns) if patterns.is_empty() && profile.empty_allow == EmptyAllow::All => Ground::Unrestricted,
        Some(patterns) => match patterns.iter().position(|pattern| pattern.could_match_under(&prefix)) {
            Some(index) => Ground::Allowed(index),
            None if profile.auto_admit && !patterns.is_empty() => Ground::AutoAdmitted,
            None => Ground::NotAllowed,
        },
    }
}

impl Ground {
    /// Returns the decision that stands on this ground.
    pub const fn decision(self) -> Decision {
        match self {
            Self::Allowed(_) | Self::AutoAdmitted | Self::Unrestricted => Decision::Allow,
            Self::DenyAll | Self::Excluded(_) => Decision::Deny(Denial::Excluded),
            Self::NotAllowed => Decision::Deny(Denial::NotAllowed),
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
mod tests {
    use std::collections::BTreeSet;

    use super::{Action, Decision, Denial, Subject};
    use crate::id::UpstreamName;
    use crate::policy::{EmptyAllow, Pattern, Profile};
    use crate::wire::mcp::Kind;

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| Pattern::new(text).unwrap()).collect()
    }

    fn decide(profile: Option<&Profile>, shown: &str, full: &str) -> Decision {
        let server = UpstreamName::new("git").unwrap();
        let granted = BTreeSet::from([server.clone()]);
        Subject { granted: &granted, profile }.decide(&Action { kind: Kind::Tools, server: &server, shown, full })
    }

    /// [CFG-1, AUT-1]
    #[test]
    fn a_server_must_be_granted_and_no_policy_means_all_of_it() {
        assert_eq!(decide(None, "git__a", "git__a"), Decision::Allow);
        let other = UpstreamName::new("other").unwrap();
        let subject = Subject { granted: &BTreeSet::new(), profile: None };
        let action = Action { kind: Kind::Tools, server: &other, shown: "other__a", full: "other__a" };
        assert_eq!(subject.decide(&action).permit(()).err(), Some(Denial::ServerNotGranted));
    }

    /// [POL-1, POL-2]
    #[test]
    fn deny_wins_and_both_names_count() {
        let profile = Profile {
            allowed_tools: Some(patterns(&["git__*"])),
            excluded_tools: patterns(&["git__a.very_long_original*"]),
            ..Profile::default()
        };
        assert_eq!(decide(Some(&profile), "git__b", "git__b"), Decision::Allow);
        let cut = ("git__a_12345678", "git__a.very_long_original_name");
        assert_eq!(decide(Some(&profile), cut.0, cut.1), Decision::Deny(Denial::Excluded));
        let by_full = Profile { allowed_tools: Some(patterns(&["git__a.very*"])), ..Profile::default() };
        assert_eq!(decide(Some(&by_full), cut.0, cut.1), Decision::Allow);
        assert_eq!(decide(Some(&by_full), "git__b", "git__b"), Decision::Deny(Denial::NotAllowed));
        assert_eq!(decide(Some(&Profile::deny_all()), "git__b", "git__b"), Decision::Deny(Denial::Excluded));
    }

    /// [POL-3]
    #[test]
    fn auto_admit_lets_in_what_is_not_excluded() {
        let mut profile = Profile {
            allowed_tools: Some(patterns(&["git__a"])),
            auto_admit: true,
            excluded_tools: patterns(&["git__c"]),
            ..Profile::default()
        };
        assert_eq!(decide(Some(&profile), "git__b", "git__b"), Decision::Allow);
        assert_eq!(decide(Some(&profile), "git__c", "git__c"), Decision::Deny(Denial::Excluded));
        profile.deny_all_tools = true;
        assert_eq!(decide(Some(&profile), "git__b", "git__b"), Decision::Deny(Denial::Excluded));
        let empty = Profile {
            allowed_tools: Some(Vec::new()),
            auto_admit: true,
            empty_allow: EmptyAllow::None,
            ..Profile::default()
        };
        assert_eq!(decide(Some(&empty), "git__b", "git__b"), Decision::Deny(Denial::NotAllowed));
    }

    /// [POL-2]
    #[test]
    fn an_empty_allow_list_means_what_the_file_says() {
        let mut profile = Profile { allowed_tools: Some(Vec::new()), ..Profile::default() };
        assert_eq!(decide(Some(&profile), "git__b", "git__b"), Decision::Allow);
        profile.empty_allow = EmptyAllow::None;
        assert_eq!(decide(Some(&profile), "git__b", "git__b"), Decision::Deny(Denial::NotAllowed));
        profile.allowed_tools = None;
        assert_eq!(decide(Some(&profile), "git__b", "git__b"), Decision::Allow);
    }
}
