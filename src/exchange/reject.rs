//! A refusal: what the client may read, what the log must hold, and whether trying again helps.
//!
//! Not for: status codes and JSON-RPC codes; `downstream::respond` is that table.

use std::borrow::Cow;
use std::time::Duration;

use crate::codes::Code;
use crate::policy::Denial;
use crate::wire::mcp::Kind;

/// What kind of refusal this is. Closed: a new kind must be answered in `downstream::respond`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectKind {
    /// A rate is used up, or too many calls are under way [LIM-5].
    Busy,
    /// A body, cursor or argument that cannot be read: -32602.
    InvalidParams,
    /// A header disagrees with the body: -32020.
    HeaderMismatch,
    /// The gateway is stopping.
    Draining,
    /// A response over a cap.
    Limit,
    /// A method that is not served.
    MethodNotFound,
    /// A credential that maps to no principal: 403.
    NotMapped,
    /// Too many sessions or streams.
    TooMany,
    /// No or a wrong credential: 401.
    Unauthenticated,
    /// A tool, prompt or resource that is unknown, hidden, or on a server not granted: one answer for all [POL-11].
    Unknown,
    /// The server is down, died, answered rubbish, or asks for what cannot be carried.
    Upstream,
    /// The server did not answer in time.
    UpstreamTimeout,
}

/// Who is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The client.
    Client,
    /// The gateway.
    Gateway,
    /// The server behind it.
    Upstream,
}

/// Whether the same request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After a while.
    After(Duration),
    /// It would fail again, or might be done twice.
    Never,
    /// It never reached a server.
    Safe,
}

/// Why, for log and audit: never shown to the client, because hidden and unknown must look alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReasonCode {
    /// The server asks for what the client did not declare.
    AsksBack,
    /// Bad arguments, cursor or headers.
    BadRequest,
    /// The gateway is stopping.
    Draining,
    /// Hidden by the policy's allow list.
    NotAllowed,
    /// Hidden by the policy's exclude list, or `deny_all_tools`.
    Excluded,
    /// No such path, method, session or stream.
    NotFound,
    /// Over a cap.
    OverLimit,
    /// A rate is used up.
    RateLimited,
    /// The server is not granted by a bundle.
    ServerNotGranted,
    /// Too many calls are under way.
    TooManyCalls,
    /// No or wrong credential.
    Unauthenticated,
    /// Nothing of that name.
    Unknown,
    /// The server failed.
    Upstream,
    /// Hidden by state: its server is down.
    ServerDown,
}

impl From<Denial> for ReasonCode {
    fn from(denial: Denial) -> Self {
        match denial {
            Denial::Excluded => Self::Excluded,
            Denial::NotAllowed => Self::NotAllowed,
            Denial::ServerNotGranted => Self::ServerNotGranted,
        }
    }
}

impl ReasonCode {
    /// Returns the word that a client may read [POL-11].
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::Draining => "draining",
            Self::NotAllowed => "not_allowed",
            Self::Excluded => "excluded",
            Self::NotFound => "not_found",
            Self::OverLimit => "over_limit",
            Self::RateLimited => "rate_limited",
            Self::ServerNotGranted => "not_granted",
            Self::TooManyCalls => "too_many_calls",
            Self::Unauthenticated => "unauthenticated",
            Self::Unknown => "unknown",
            Self::Upstream => "server_failed",
            Self::AsksBack => "asks_back",
            Self::ServerDown => "server_down",
        }
    }

    /// Returns the code that a person can look up [OPS-2].
    #[must_use]
    pub const fn code(self) -> Code {
        match self {
            Self::BadRequest => Code::BadRequest,
            Self::Draining => Code::Draining,
            Self::NotAllowed => Code::NotAllowed,
            Self::Excluded => Code::Excluded,
            Self::NotFound => Code::NotFound,
            Self::OverLimit => Code::OverLimit,
            Self::RateLimited => Code::RateLimited,
            Self::ServerNotGranted => Code::NotGranted,
            Self::TooManyCalls => Code::TooManyCalls,
            Self::Unauthenticated => Code::Unauthenticated,
            Self::Unknown => Code::UnknownTool,
            Self::Upstream => Code::ServerFailed,
            Self::AsksBack => Code::AsksBack,
            Self::ServerDown => Code::ServerDown,
        }
    }
}

/// A refusal.
#[derive(Clone, Debug)]
pub struct Reject {
    /// What kind.
    pub kind: RejectKind,
    /// Who is to blame.
    pub source: Source,
    /// Whether trying again helps.
    pub retry: Retry,
    /// The words for the client: no address, no path, no stack.
    pub public: Cow<'static, str>,
    /// The words for the operator's log.
    pub detail: String,
    /// The reason for log and audit.
    pub reason: ReasonCode,
}

impl Reject {
    /// Makes a refusal that the client caused.
    #[must_use]
    pub fn client(kind: RejectKind, public: impl Into<Cow<'static, str>>, reason: ReasonCode) -> Self {
        Self { kind, source: Source::Client, retry: Retry::Never, public: public.into(), detail: String::new(), reason }
    }

    /// Makes a refusal that a server caused.
    #[must_use]
    pub fn upstream(kind: RejectKind, public: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Self {
        let reason = if kind == RejectKind::Limit { ReasonCode::OverLimit } else { ReasonCode::Upstream };
        Self {
            kind,
            source: Source::Upstream,
            retry: Retry::Never,
            public: public.into(),
            detail: detail.into(),
            reason,
        }
    }

    /// Returns the code that a person can look up [OPS-2]: the reason's, or more exactly what a server failed in.
    #[must_use]
    pub fn code(&self) -> Code {
        match (self.reason, self.kind) {
            (ReasonCode::Upstream, RejectKind::UpstreamTimeout) => Code::Timeout,
            // Nothing was sent: there was no server to send it to.
            (ReasonCode::Upstream, _) if self.retry == Retry::Safe => Code::ServerDown,
            (reason, _) => reason.code(),
        }
    }

    /// Adds what the log must hold.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Names in the log what is hidden. A name that nothing has is a client's own, and may be anything.
    #[must_use]
    pub fn about(mut self, name: &str) -> Self {
        if self.reason != ReasonCode::Unknown {
            self.detail = name.escape_debug().to_string();
        }
        self
    }

    /// Says that the request never reached a server.
    #[must_use]
    pub const fn safe_to_retry(mut self) -> Self {
        self.retry = Retry::Safe;
        self
    }

    /// The refusal of a `requestState` that is not ours, not this call's, or too old [R92].
    #[must_use]
    pub fn bad_state() -> Self {
        let words = "requestState is not valid here, or has expired";
        Self::client(RejectKind::InvalidParams, words, ReasonCode::BadRequest)
    }

    /// The one answer for what is unknown, hidden or not granted [POL-11]; only the reason differs.
    #[must_use]
    pub fn unknown(kind: Kind, reason: ReasonCode) -> Self {
        let words = match kind {
            Kind::Tools => "Unknown tool",
            Kind::Prompts => "Unknown prompt",
            Kind::Resources | Kind::Templates => "Unknown resource",
        };
        Self::client(RejectKind::Unknown, words, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::{ReasonCode, Reject, RejectKind};
    use crate::codes::Code;

    /// [OPS-2]: each reason has its code, and a server's failure says in what it failed.
    #[test]
    fn every_refusal_has_a_code() {
        for (reason, code) in [
            (ReasonCode::BadRequest, Code::BadRequest),
            (ReasonCode::Draining, Code::Draining),
            (ReasonCode::Excluded, Code::Excluded),
            (ReasonCode::NotAllowed, Code::NotAllowed),
            (ReasonCode::NotFound, Code::NotFound),
            (ReasonCode::OverLimit, Code::OverLimit),
            (ReasonCode::RateLimited, Code::RateLimited),
            (ReasonCode::AsksBack, Code::AsksBack),
            (ReasonCode::ServerDown, Code::ServerDown),
            (ReasonCode::ServerNotGranted, Code::NotGranted),
            (ReasonCode::TooManyCalls, Code::TooManyCalls),
            (ReasonCode::Unauthenticated, Code::Unauthenticated),
            (ReasonCode::Unknown, Code::UnknownTool),
            (ReasonCode::Upstream, Code::ServerFailed),
        ] {
            assert_eq!(reason.code(), code);
            assert_eq!(Reject::client(RejectKind::InvalidParams, "w", reason).code(), code);
        }
        assert_eq!(Reject::upstream(RejectKind::Upstream, "w", "").code(), Code::ServerFailed);
        assert_eq!(Reject::upstream(RejectKind::Upstream, "w", "").safe_to_retry().code(), Code::ServerDown);
        assert_eq!(Reject::upstream(RejectKind::UpstreamTimeout, "w", "").code(), Code::Timeout);
        assert_eq!(Reject::upstream(RejectKind::Limit, "w", "").code(), Code::OverLimit);
    }
}
