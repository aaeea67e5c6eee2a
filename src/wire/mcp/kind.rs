//! The four kinds of things a server lists. What is said of one kind is said of all, once.

/// A kind of thing that a server lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Tools.
    Tools,
    /// Prompts.
    Prompts,
    /// Resources.
    Resources,
    /// Resource templates.
    Templates,
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kinds(u8);

// === impl Kind ===

impl Kind {
    /// Every kind, in a fixed order.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];
    /// The kinds that a notification tells of: a change of templates is one of resources.
    pub const TOLD: [Self; 3] = [Self::Tools, Self::Prompts, Self::Resources];

    /// Returns the kind's place in [`Kind::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the method that lists it.
    #[must_use]
    pub const fn list_method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// Returns the member of a list's result that holds the definitions.
    #[must_use]
    pub const fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// Returns the member of a definition that names it.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }

    /// Returns the server capability that it belongs to.
    #[must_use]
    pub const fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources | Self::Templates => "resources",
        }
    }

    /// Returns the kind whose notification tells of its changes.
    #[must_use]
    pub const fn told_as(self) -> Self {
        match self {
            Self::Tools | Self::Prompts | Self::Resources => self,
            Self::Templates => Self::Resources,
        }
    }

    /// Returns the notification that tells of a change.
    #[must_use]
    pub const fn changed_method(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources | Self::Templates => "notifications/resources/list_changed",
        }
    }

    /// Finds the kind that a notification tells of.
    #[must_use]
    pub fn of_change(method: &str) -> Option<Self> {
        Self::TOLD.into_iter().find(|kind| kind.changed_method() == method)
    }

    /// Returns the member of a subscription's filter that asks for its changes.
    #[must_use]
    pub const fn filter(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
            Self::Prompts => "promptsListChanged",
            Self::Resources | Self::Templates => "resourcesListChanged",
        }
    }

    /// Returns the word for one of the kind.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::Resources => "resource",
            Self::Templates => "resource template",
        }
    }

    /// Says whether it is named by a URI or a template of one.
    #[must_use]
    pub const fn is_resource(self) -> bool {
        matches!(self, Self::Resources | Self::Templates)
    }
}

// === impl Kinds ===

impl Kinds {
    /// Every kind.
    pub const ALL: Self = Self(0b1111);
    /// None.
    pub const NONE: Self = Self(0);

    /// Adds a kind.
    #[must_use]
    pub const fn with(self, kind: Kind) -> Self {
        Self(self.0 | 1 << kind.index())
    }

    /// Takes a kind out.
    #[must_use]
    pub const fn without(self, kind: Kind) -> Self {
        Self(self.0 & !(1 << kind.index()))
    }

    /// Says whether a kind is in it.
    #[must_use]
    pub const fn contains(self, kind: Kind) -> bool {
        self.0 & 1 << kind.index() != 0
    }

    /// Returns what is in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns what is in one or the other.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Says whether nothing is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Walks the kinds in their order.
    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }
}

impl FromIterator<Kind> for Kinds {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        kinds.into_iter().fold(Self::NONE, Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Kinds};
    use crate::wire::mcp::Method;

    #[test]
    fn every_kind_is_listed_and_told_of() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), index);
            assert_eq!(Method::from_name(kind.list_method()).unwrap().spec().lists, Some(kind));
            assert_eq!(Kind::of_change(kind.changed_method()), Some(kind.told_as()));
            assert!(Kinds::NONE.with(kind).contains(kind) && Kinds::ALL.contains(kind));
        }
        assert_eq!(Kind::of_change("notifications/message"), None);
        let some = Kinds::from_iter([Kind::Prompts, Kind::Templates]);
        assert_eq!(some.iter().collect::<Vec<_>>(), [Kind::Prompts, Kind::Templates]);
        assert!(some.and(Kinds::NONE.with(Kind::Tools)).is_empty() && !some.is_empty());
    }
}
