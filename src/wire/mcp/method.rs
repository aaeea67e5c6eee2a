//! The one table of methods [POL-19]: what is not in it reaches no server.

use super::Kind;

/// A method the gateway knows by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// `completion/complete`
    CompletionComplete,
    /// `server/discover`
    Discover,
    /// `initialize`
    Initialize,
    /// `logging/setLevel`
    LoggingSetLevel,
    /// `ping`
    Ping,
    /// `prompts/get`
    PromptsGet,
    /// `prompts/list`
    PromptsList,
    /// `resources/list`
    ResourcesList,
    /// `resources/read`
    ResourcesRead,
    /// `resources/subscribe`
    ResourcesSubscribe,
    /// `resources/templates/list`
    ResourcesTemplatesList,
    /// `resources/unsubscribe`
    ResourcesUnsubscribe,
    /// `subscriptions/listen`
    SubscriptionsListen,
    /// `tools/call`
    ToolsCall,
    /// `tools/list`
    ToolsList,
}

/// Who sends a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Both sides.
    Both,
    /// The client alone.
    ClientToServer,
}

/// Which member of the params names the target, and so `Mcp-Name` [R7].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// `params.name`
    Name,
    /// Nothing.
    None,
    /// `params.ref`, by `name` or `uri`; no header repeats it.
    Ref,
    /// `params.uri`
    Uri,
}

/// What a method is answered with, where that is content for a client's model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The messages of `prompts/get`.
    Prompt,
    /// The contents of `resources/read`.
    Read,
    /// The blocks of `tools/call`.
    Tool,
}

impl Content {
    /// Returns the member of the result that holds it.
    #[must_use]
    pub const fn member(self) -> &'static str {
        match self {
            Self::Prompt => "messages",
            Self::Read => "contents",
            Self::Tool => "content",
        }
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct MethodSpec {
    /// The method.
    pub method: Method,
    /// Its name on the wire.
    pub name: &'static str,
    /// Exists from 2024-11-05 to 2025-11-25.
    pub legacy: bool,
    /// Exists in 2026-07-28.
    pub stateless: bool,
    /// Who sends it.
    pub direction: Direction,
    /// What names its target.
    pub target: Target,
    /// Which kind of list it asks for.
    pub lists: Option<Kind>,
    /// Whether this version of the gateway serves it; what is not served is not advertised and answered -32601.
    pub served: bool,
}

const TABLE: [MethodSpec; 15] = [
    row(Method::CompletionComplete, "completion/complete", (true, true), Target::Ref, true),
    row(Method::Discover, "server/discover", (false, true), Target::None, true),
    row(Method::Initialize, "initialize", (true, false), Target::None, true),
    row(Method::LoggingSetLevel, "logging/setLevel", (true, false), Target::None, true),
    MethodSpec { direction: Direction::Both, ..row(Method::Ping, "ping", (true, false), Target::None, true) },
    row(Method::PromptsGet, "prompts/get", (true, true), Target::Name, true),
    list(Method::PromptsList, Kind::Prompts, true),
    list(Method::ResourcesList, Kind::Resources, true),
    row(Method::ResourcesRead, "resources/read", (true, true), Target::Uri, true),
    row(Method::ResourcesSubscribe, "resources/subscribe", (true, false), Target::Uri, true),
    list(Method::ResourcesTemplatesList, Kind::Templates, true),
    row(Method::ResourcesUnsubscribe, "resources/unsubscribe", (true, false), Target::Uri, true),
    row(Method::SubscriptionsListen, "subscriptions/listen", (false, true), Target::None, true),
    row(Method::ToolsCall, "tools/call", (true, true), Target::Name, true),
    list(Method::ToolsList, Kind::Tools, true),
];

const fn row(method: Method, name: &'static str, eras: (bool, bool), target: Target, served: bool) -> MethodSpec {
    let (direction, lists) = (Direction::ClientToServer, None);
    MethodSpec { method, name, legacy: eras.0, stateless: eras.1, direction, target, lists, served }
}

const fn list(method: Method, kind: Kind, served: bool) -> MethodSpec {
    MethodSpec { lists: Some(kind), ..row(method, kind.list_method(), (true, true), Target::None, served) }
}

// === impl Method ===

impl Method {
    /// Finds a method by its name; case matters.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|spec| spec.name == name).map(|spec| spec.method)
    }

    /// Returns what it is answered with; `None` where that is no content.
    #[must_use]
    pub const fn content(self) -> Option<Content> {
        match self {
            Self::PromptsGet => Some(Content::Prompt),
            Self::ResourcesRead => Some(Content::Read),
            Self::ToolsCall => Some(Content::Tool),
            Self::CompletionComplete
            | Self::Discover
            | Self::Initialize
            | Self::LoggingSetLevel
            | Self::Ping
            | Self::PromptsList
            | Self::ResourcesList
            | Self::ResourcesSubscribe
            | Self::ResourcesTemplatesList
            | Self::ResourcesUnsubscribe
            | Self::SubscriptionsListen
            | Self::ToolsList => None,
        }
    }

    /// Says whether it may be answered with `input_required` in 2026-07-28 [R90]: what content is returned for.
    #[must_use]
    pub const fn asks_back(self) -> bool {
        self.content().is_some()
    }

    /// Returns the method's row.
    #[must_use]
    pub fn spec(self) -> &'static MethodSpec {
        #[expect(clippy::expect_used, reason = "a test walks every variant")]
        TABLE.iter().find(|spec| spec.method == self).expect("every method has a row")
    }
}

#[cfg(test)]
mod tests {
    use super::{Method, TABLE};

    #[test]
    fn every_row_is_found_by_name_and_method() {
        for spec in &TABLE {
            assert_eq!(Method::from_name(spec.name), Some(spec.method));
            assert_eq!(spec.method.spec().name, spec.name);
        }
        assert_eq!(Method::from_name("TOOLS/LIST"), None);
    }
}
