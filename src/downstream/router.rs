//! Paths [NAM-5]: `/mcp`, `/mcp/<server>`, and where it is on, `/sse`, `/sse/<server>`; each also with a closing slash.

use crate::exchange::Endpoint;
use crate::id::UpstreamName;

use super::settings::HttpSse;

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// An endpoint that may be there.
    Endpoint(Transport, Endpoint),
    /// A server's endpoint under a name no server can have: answered as an unknown server.
    NoServer,
    /// Nothing of ours.
    Unknown,
}

/// How messages travel at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// HTTP+SSE, of 2024-11-05.
    HttpSse,
    /// Streamable HTTP.
    Streamable,
}

// === impl Transport ===

impl Transport {
    /// The verbs of its endpoints.
    pub(super) const fn verbs(self) -> &'static str {
        match self {
            Self::HttpSse => "GET, POST, OPTIONS",
            Self::Streamable => "GET, POST, DELETE, OPTIONS",
        }
    }
}

/// Reads a path, which may begin with the gateway's public one: another proxy takes that off, or does not.
pub(super) fn route(path: &str, public_path: &str, http_sse: HttpSse) -> Route {
    let found = own(path, http_sse);
    match path.strip_prefix(public_path) {
        Some(path) if found == Route::Unknown => own(path, http_sse),
        Some(_) | None => found,
    }
}

fn own(path: &str, http_sse: HttpSse) -> Route {
    let (transport, rest) = match (path.strip_prefix("/mcp"), http_sse) {
        (Some(rest), _) => (Transport::Streamable, rest),
        (None, HttpSse::Off) => return Route::Unknown,
        (None, HttpSse::On) => match path.strip_prefix("/sse") {
            Some(rest) => (Transport::HttpSse, rest),
            None => return Route::Unknown,
        },
    };
    if matches!(rest, "" | "/") {
        return Route::Endpoint(transport, Endpoint::All);
    }
    let Some(name) = rest.strip_prefix('/') else { return Route::Unknown };
    UpstreamName::new(name.strip_suffix('/').unwrap_or(name))
        .map_or(Route::NoServer, |name| Route::Endpoint(transport, Endpoint::Server(name)))
}

#[cfg(test)]
mod tests {
    use super::{HttpSse, Route, Transport, route};
    use crate::exchange::Endpoint;
    use crate::id::UpstreamName;

    #[test]
    fn a_closing_slash_makes_no_difference() {
        let server = |transport| Route::Endpoint(transport, Endpoint::Server(UpstreamName::new("a.b").unwrap()));
        let all = |transport| Route::Endpoint(transport, Endpoint::All);
        for (rest, expected) in [
            ("", Some(all as fn(Transport) -> Route)),
            ("/", Some(all)),
            ("/a.b", Some(server)),
            ("/a.b/", Some(server)),
            ("//", None),
            ("/a/b", None),
            ("/a%20b", None),
        ] {
            let of = |transport| expected.map_or(Route::NoServer, |expected| expected(transport));
            for on in [HttpSse::Off, HttpSse::On] {
                assert_eq!(route(&format!("/mcp{rest}"), "", on), of(Transport::Streamable), "{rest}");
            }
            assert_eq!(route(&format!("/sse{rest}"), "", HttpSse::On), of(Transport::HttpSse), "{rest}");
            assert_eq!(route(&format!("/sse{rest}"), "", HttpSse::Off), Route::Unknown, "{rest}");
        }
        for path in ["/mcpx", "/MCP", "/ssex", "/SSE", "/", "*", "/messages"] {
            assert_eq!(route(path, "", HttpSse::On), Route::Unknown, "{path}");
        }
    }
    /// [NAM-5]: a request may come with the gateway's public path or without it.
    #[test]
    fn the_public_path_may_be_left_out() {
        for (path, found) in [
            ("/tools/sse", true),
            ("/tools/mcp", true),
            ("/tools/mcp/a", true),
            ("/sse", true),
            ("/tools", false),
            ("/toolsmcp", false),
            ("/tools/tools/mcp", false),
            ("/other/mcp", false),
        ] {
            assert_eq!(route(path, "/tools", HttpSse::On) != Route::Unknown, found, "{path}");
        }
        assert_eq!(route("/tools/mcp", "", HttpSse::On), Route::Unknown);
    }
}
