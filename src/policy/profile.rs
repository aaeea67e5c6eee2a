//! A policy as the file states it [POL-2].

use super::{CapRules, Pattern};

/// What an `allowed_tools` that is empty means [POL-2].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmptyAllow {
    /// No restriction.
    #[default]
    All,
    /// Nothing is allowed.
    None,
}

/// Which pair of a policy's lists, `allowed_…` and `excluded_…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those of tools.
    Tools,
    /// Those of prompts.
    Prompts,
    /// Those of resources and templates.
    Resources,
}

/// What narrows the prompts or the resources that a principal has anyhow [POL-15].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Narrow {
    /// `None` if the key is absent: no restriction.
    pub allowed: Option<Vec<Pattern>>,
    /// Always subtracts.
    pub excluded: Vec<Pattern>,
}

/// One named policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// `None` if the key is absent: no restriction.
    pub allowed_tools: Option<Vec<Pattern>>,
    /// A non-empty `allowed_tools` still lets every tool of a server in, as in ZeroClaw [POL-3].
    pub auto_admit: bool,
    /// Always subtracts.
    pub excluded_tools: Vec<Pattern>,
    /// Nothing at all.
    pub deny_all_tools: bool,
    /// What an empty `allowed_tools` means.
    pub empty_allow: EmptyAllow,
    /// What narrows prompts.
    pub prompts: Narrow,
    /// What narrows resources and templates.
    pub resources: Narrow,
    /// What results are made smaller by.
    pub caps: CapRules,
}

impl Which {
    /// Returns the end of both lists' names.
    #[must_use]
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
        }
    }
}

impl Profile {
    /// A policy that denies everything: what a principal has whose policy turns out to be missing [CFG-2].
    #[must_use]
    pub fn deny_all() -> Self {
        Self { deny_all_tools: true, ..Self::default() }
    }
}
