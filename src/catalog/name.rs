//! The name a tool is shown under [NAM-1, NAM-2, NAM-3].

use aws_lc_rs::digest::{SHA256, digest};

use crate::id::UpstreamName;

/// `_` and eight hexadecimal digits.
const HASH_ENDING: usize = 9;

/// Why a name is not shown as `<server>__<original>` [NAM-7].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing follows the prefix.
    Empty,
    /// It looks as if it ended in a hash.
    LooksHashed,
    /// A character outside `A-Za-z0-9_-` became `_`.
    Replaced,
    /// It is longer than the budget.
    TooLong,
}

/// Returns why a name must be changed, the first reason there is; `None` if it is shown as it is.
#[must_use]
pub fn change(server: &UpstreamName, original: &str, budget: usize) -> Option<Change> {
    let length = server.as_str().len() + 2 + original.len();
    if original.is_empty() {
        Some(Change::Empty)
    } else if !original.chars().all(is_plain) {
        Some(Change::Replaced)
    } else if length > budget {
        Some(Change::TooLong)
    } else {
        looks_hashed(&full_name(server, original)).then_some(Change::LooksHashed)
    }
}

/// Returns the shown name, at most `budget` bytes of `A-Za-z0-9_-`; a function of server and original alone.
#[must_use]
pub fn shown_name(server: &UpstreamName, original: &str, budget: usize) -> String {
    let mut name = server.shown();
    name.push_str("__");
    let prefix = name.len();
    name.extend(original.chars().map(|c| if is_plain(c) { c } else { '_' }));
    if change(server, original, budget).is_none() {
        return name;
    }
    name.truncate(budget.saturating_sub(HASH_ENDING).max(prefix));
    let mut input = server.as_str().as_bytes().to_vec();
    input.push(0);
    input.extend_from_slice(original.as_bytes());
    name.push('_');
    for byte in digest(&SHA256, &input).as_ref().iter().take(4) {
        name.push_str(&format!("{byte:02x}"));
    }
    name
}

/// Returns the full, uncut `<server>__<original>` that patterns are matched on too [POL-1].
#[must_use]
pub fn full_name(server: &UpstreamName, original: &str) -> String {
    format!("{}__{original}", server.shown())
}

const fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn looks_hashed(name: &str) -> bool {
    name.len()
        .checked_sub(HASH_ENDING)
        .and_then(|at| name.get(at..))
        .and_then(|ending| ending.strip_prefix('_'))
        .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Change, change, shown_name};
    use crate::id::UpstreamName;

    fn shown(server: &str, original: &str) -> String {
        shown_name(&UpstreamName::new(server).unwrap(), original, 64)
    }

    /// [NAM-2, FC-NAM-01, FC-NAM-02, FC-NAM-03]
    #[test]
    fn only_what_must_change_changes() {
        assert_eq!(shown("files", "read_file"), "files__read_file");
        assert_eq!(shown("a.b", "c"), "a_b__c");
        assert_eq!(shown("a", "b__c"), "a__b__c");
        assert_eq!(shown("x-1", "__t"), "x-1____t");
        let server = "s".repeat(20);
        assert_eq!(shown(&server, &"t".repeat(42)).len(), 64);
        for original in ["t".repeat(43).as_str(), "t".repeat(128).as_str(), "a.b", "a b", "読む", "", "x_deadbeef"] {
            let name = shown(&server, original);
            assert!(name.len() <= 64 && name.starts_with(&format!("{server}__")), "{name}");
            let (_, hash) = name.rsplit_once('_').unwrap();
            assert!(hash.len() == 8 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
        }
        assert_ne!(shown("a", "a.b"), shown("a", "a/b"));
    }

    /// [NAM-7]
    #[test]
    fn every_change_has_its_reason() {
        let long = "t".repeat(62);
        for (original, why) in [
            ("b", None),
            ("", Some(Change::Empty)),
            ("a.b", Some(Change::Replaced)),
            ("x_deadbeef", Some(Change::LooksHashed)),
            (long.as_str(), Some(Change::TooLong)),
        ] {
            let server = UpstreamName::new("s").unwrap();
            assert_eq!(change(&server, original, 64), why, "{original}");
            assert_eq!(shown("s", original) == format!("s__{original}"), why.is_none(), "{original}");
        }
    }

    proptest! {
        /// [NAM-1, NAM-2, R72]
        #[test]
        fn every_name_is_valid_bounded_and_its_own(
            original in "\\PC{0,300}", other in "\\PC{0,300}", budget in 52_usize..=64,
        ) {
            let server = UpstreamName::new("a-server.of_some-length").unwrap();
            let name = shown_name(&server, &original, budget);
            prop_assert!(name.len() <= budget);
            prop_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'));
            prop_assert!(name.starts_with("a-server_of_some-length__"));
            prop_assert_eq!(&name, &shown_name(&server, &original, budget));
            if original != other {
                prop_assert_ne!(name, shown_name(&server, &other, budget));
            }
        }
    }
}
