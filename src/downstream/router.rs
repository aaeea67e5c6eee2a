//! Paths [NAM-5]: `/mcp`, `/mcp/<server>`, each also with a closing slash.

use crate::exchange::Endpoint;
use crate::id::UpstreamName;

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// An endpoint that may be there.
    Endpoint(Endpoint),
    /// A server's endpoint under a name no server can have: answered as an unknown server.
    NoServer,
    /// Nothing of ours.
    Unknown,
}

/// Reads a path.
pub(super) fn route(path: &str) -> Route {
    let Some(rest) = path.strip_prefix("/mcp") else { return Route::Unknown };
    if matches!(rest, "" | "/") {
        return Route::Endpoint(Endpoint::All);
    }
    let Some(name) = rest.strip_prefix('/') else { return Route::Unknown };
    UpstreamName::new(name.strip_suffix('/').unwrap_or(name))
        .map_or(Route::NoServer, |name| Route::Endpoint(Endpoint::Server(name)))
}

#[cfg(test)]
mod tests {
    use super::{Route, route};
    use crate::exchange::Endpoint;
    use crate::id::UpstreamName;

    #[test]
    fn a_closing_slash_makes_no_difference() {
        let server = Route::Endpoint(Endpoint::Server(UpstreamName::new("a.b").unwrap()));
        for (path, expected) in [
            ("/mcp", Route::Endpoint(Endpoint::All)),
            ("/mcp/", Route::Endpoint(Endpoint::All)),
            ("/mcp/a.b", server.clone()),
            ("/mcp/a.b/", server),
            ("/mcp//", Route::NoServer),
            ("/mcp/a/b", Route::NoServer),
            ("/mcp/a%20b", Route::NoServer),
            ("/mcpx", Route::Unknown),
            ("/MCP", Route::Unknown),
            ("/", Route::Unknown),
            ("*", Route::Unknown),
        ] {
            assert_eq!(route(path), expected, "{path}");
        }
    }
}
