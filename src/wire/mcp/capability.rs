//! What a server says it can do, as far as the gateway acts on it, and what the gateway says of itself (protocol §4.3).
//!
//! Not for: what clients can do; that passes as it is.

use crate::wire::json::{self, Raw};

use super::{Kind, Kinds};

/// Capabilities of a server, or of the gateway towards one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Capabilities {
    /// What it lists. Templates belong to resources.
    pub lists: Kinds,
    /// Whose changes it tells of.
    pub tells: Kinds,
    /// It takes subscriptions to single resources.
    pub subscribe: bool,
    /// It completes arguments.
    pub completions: bool,
    /// It sends logs.
    pub logging: bool,
}

// === impl Capabilities ===

impl Capabilities {
    /// What is assumed of a server that does not say: tools.
    pub const ASSUMED: Self = Self {
        lists: Kinds::NONE.with(Kind::Tools),
        tells: Kinds::NONE,
        subscribe: false,
        completions: false,
        logging: false,
    };

    /// Everything.
    pub const ALL: Self =
        Self { lists: Kinds::ALL, tells: Kinds::ALL, subscribe: true, completions: true, logging: true };

    /// Reads the member `capabilities` of a result of `initialize` or `server/discover`. What is malformed is not there.
    #[must_use]
    pub fn of_result(result: &[u8]) -> Self {
        let member = |object: &[u8], key: &'static str| -> Option<Vec<u8>> {
            let members = json::members(object).ok()?;
            members.get(key).ok().flatten().filter(|value| *value != Raw::NULL).map(|value| value.get().to_vec())
        };
        let Some(all) = member(result, "capabilities") else { return Self::default() };
        let flag = |object: &Option<Vec<u8>>, key: &'static str| {
            object.as_ref().and_then(|object| member(object, key)).is_some_and(|value| value == b"true")
        };
        let mut found = Self {
            completions: member(&all, "completions").is_some(),
            logging: member(&all, "logging").is_some(),
            subscribe: flag(&member(&all, "resources"), "subscribe"),
            ..Self::default()
        };
        for kind in Kind::ALL {
            let group = member(&all, kind.capability());
            if flag(&group, "listChanged") {
                found.tells = found.tells.with(kind);
            }
            if group.is_some() {
                found.lists = found.lists.with(kind);
            }
        }
        found
    }

    /// Returns what one or the other can do.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            lists: self.lists.or(other.lists),
            tells: self.tells.or(other.tells),
            subscribe: self.subscribe || other.subscribe,
            completions: self.completions || other.completions,
            logging: self.logging || other.logging,
        }
    }

    /// Spells them as a JSON object.
    #[must_use]
    pub fn spelled(self) -> String {
        let told = |kind| if self.tells.contains(kind) { r#""listChanged":true"# } else { "" };
        let mut members = Vec::new();
        if self.completions {
            members.push(r#""completions":{}"#.to_owned());
        }
        if self.logging {
            members.push(r#""logging":{}"#.to_owned());
        }
        for kind in [Kind::Prompts, Kind::Resources, Kind::Tools].into_iter().filter(|kind| self.lists.contains(*kind))
        {
            let subscribe = if kind == Kind::Resources && self.subscribe { r#""subscribe":true"# } else { "" };
            let flags: Vec<_> = [told(kind), subscribe].into_iter().filter(|flag| !flag.is_empty()).collect();
            members.push(format!(r#""{}":{{{}}}"#, kind.capability(), flags.join(",")));
        }
        format!("{{{}}}", members.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::Capabilities;
    use crate::wire::mcp::{Kind, Kinds};

    fn read(capabilities: &str) -> Capabilities {
        Capabilities::of_result(format!(r#"{{"capabilities":{capabilities},"tools":{{}}}}"#).as_bytes())
    }

    #[test]
    fn what_a_server_can_do_is_read_and_spelled() {
        let all = read(
            r#"{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{},"experimental":{}}"#,
        );
        assert_eq!(all.lists, Kinds::ALL);
        assert_eq!(all.tells.iter().collect::<Vec<_>>(), [Kind::Tools, Kind::Resources, Kind::Templates]);
        assert!(all.subscribe && all.completions && all.logging);
        assert_eq!(
            all.spelled(),
            r#"{"completions":{},"logging":{},"prompts":{},"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true}}"#
        );
        assert_eq!(Capabilities::of_result(format!(r#"{{"capabilities":{}}}"#, all.spelled()).as_bytes()), all);
        assert_eq!(Capabilities::default().spelled(), "{}");
        assert_eq!(all.or(Capabilities::default()), all);
    }

    #[test]
    fn what_is_malformed_is_not_there() {
        for bad in ["null", "[]", "{}", r#"{"tools":null}"#, r#"{"tools":{},"tools":{}}"#, "7"] {
            assert_eq!(read(bad), Capabilities::default(), "{bad}");
        }
        let odd = read(r#"{"tools":{"listChanged":"true"},"resources":[],"logging":7}"#);
        assert_eq!((odd.tells, odd.subscribe, odd.logging), (Kinds::NONE, false, true));
        assert!(odd.lists.contains(Kind::Tools) && odd.lists.contains(Kind::Templates));
    }
}
