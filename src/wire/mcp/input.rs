//! What a server may ask of a client: a form or a visit to a URL, a completion by its model, its roots.
//!
//! Not for: carrying the question (`exchange`) or spelling it for another era (`wire::bridge`).

use bytes::Bytes;

use crate::wire::json;
use crate::wire::jsonrpc::{ErrorCode, code};

use super::{Feature, Features};

/// A kind of question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InputKind {
    /// `elicitation/create`
    Elicitation,
    /// `roots/list`
    Roots,
    /// `sampling/createMessage`
    Sampling,
}

/// Why a client is not asked: the error that the server gets [R98].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unasked {
    /// The code.
    pub code: ErrorCode,
    /// The words.
    pub message: &'static str,
}

// === impl Unasked ===

impl Unasked {
    /// Spells the error, a JSON object.
    #[must_use]
    pub fn error(self) -> Bytes {
        Bytes::from(format!(r#"{{"code":{},"message":"{}"}}"#, self.code.0, self.message))
    }
}

// === impl InputKind ===

impl InputKind {
    /// Finds a kind by its method; case matters.
    #[must_use]
    pub fn from_method(method: &str) -> Option<Self> {
        [Self::Elicitation, Self::Roots, Self::Sampling].into_iter().find(|kind| kind.method() == method)
    }

    /// Returns the method.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation/create",
            Self::Roots => "roots/list",
            Self::Sampling => "sampling/createMessage",
        }
    }

    /// Says whether a client of these features may be asked this, with these params (an object).
    ///
    /// # Errors
    /// [`Unasked`]: the client has not declared the kind or the mode.
    pub fn check(self, params: &[u8], features: Features) -> Result<(), Unasked> {
        let absent = |message| Err(Unasked { code: code::METHOD_NOT_FOUND, message });
        let mode = |message| Err(Unasked { code: code::INVALID_PARAMS, message });
        match self {
            Self::Roots if !features.contains(Feature::Roots) => absent("The client has no roots"),
            Self::Sampling if !features.contains(Feature::Sampling) => absent("The client does no sampling"),
            Self::Sampling if has_tools(params) && !features.contains(Feature::SamplingTools) => {
                mode("The client does no sampling with tools")
            }
            Self::Roots | Self::Sampling => Ok(()),
            Self::Elicitation => {
                let (form, url) = (Feature::ElicitationForm, Feature::ElicitationUrl);
                match (features.contains(form), features.contains(url), is_url(params)) {
                    (true, _, false) | (_, true, true) => Ok(()),
                    (false, false, _) => absent("The client does no elicitation"),
                    (true, false, true) => mode("The client does no elicitation by URL"),
                    (false, true, false) => mode("The client does no elicitation by form"),
                }
            }
        }
    }
}

/// Says whether an elicitation is one by URL; without a mode it is a form.
#[must_use]
pub fn is_url(params: &[u8]) -> bool {
    let Ok(members) = json::members(params) else { return false };
    matches!(members.get("mode"), Ok(Some(mode)) if mode.get() == b"\"url\"")
}

fn has_tools(params: &[u8]) -> bool {
    let Ok(members) = json::members(params) else { return false };
    ["tools", "toolChoice"].iter().any(|key| matches!(members.get(key), Ok(Some(value)) if value.get() != b"null"))
}

#[cfg(test)]
mod tests {
    use super::InputKind::{self, Elicitation, Roots, Sampling};
    use crate::wire::jsonrpc::code::{INVALID_PARAMS, METHOD_NOT_FOUND};
    use crate::wire::mcp::{Features, ProtocolVersion};

    /// [R91, R98]: what a client has not declared it is not asked, and the server is told with the specification's code.
    #[test]
    fn undeclared_kinds_and_modes_are_refused() {
        let (form, url) = (r#"{"message":"m","requestedSchema":{}}"#, r#"{"mode":"url","url":"https://a"}"#);
        let tools = r#"{"messages":[],"tools":[]}"#;
        for (declared, kind, params, expected) in [
            ("{}", Roots, "{}", Some(METHOD_NOT_FOUND)),
            (r#"{"roots":{}}"#, Roots, "{}", None),
            (r#"{"roots":{}}"#, Sampling, "{}", Some(METHOD_NOT_FOUND)),
            (r#"{"sampling":{}}"#, Sampling, "{}", None),
            (r#"{"sampling":{}}"#, Sampling, tools, Some(INVALID_PARAMS)),
            (r#"{"sampling":{"tools":{}}}"#, Sampling, tools, None),
            ("{}", Elicitation, form, Some(METHOD_NOT_FOUND)),
            ("{}", Elicitation, url, Some(METHOD_NOT_FOUND)),
            (r#"{"elicitation":{}}"#, Elicitation, form, None),
            (r#"{"elicitation":{}}"#, Elicitation, url, Some(INVALID_PARAMS)),
            (r#"{"elicitation":{"url":{}}}"#, Elicitation, form, Some(INVALID_PARAMS)),
            (r#"{"elicitation":{"url":{}}}"#, Elicitation, url, None),
        ] {
            let features = Features::read(declared.as_bytes(), ProtocolVersion::V2026_07_28);
            let refused = kind.check(params.as_bytes(), features).err().map(|unasked| unasked.code);
            assert_eq!(refused, expected, "{declared} {kind:?} {params}");
        }
        for kind in [Elicitation, Roots, Sampling] {
            assert_eq!(InputKind::from_method(kind.method()), Some(kind));
        }
        assert_eq!(InputKind::from_method("ping"), None);
    }
}
