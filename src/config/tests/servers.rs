//! The tables of servers.

use super::kit::{bad, good, refused, server};
use crate::upstream::{EraChoice, HttpKind, OnDown, ServerSettings};

/// [CFG-5, FC-NAM-03]
#[test]
fn server_names_are_checked_and_their_slugs_are_unique() {
    let named = |name: &str| server("command = \"x\"").replace("\"s\"", &format!("\"{name}\""));
    for name in ["a__b", "a_", "portcullis", "Portcullis", "mcp", "", "a b", "_a", "a._b"] {
        refused(&named(name), "mcp.servers[0].name", &["server name"]);
    }
    let two = |a: &str, b: &str| format!("{}[[mcp.servers]]\nname = \"{b}\"\ncommand = \"x\"", named(a));
    refused(&two("a.b", "A-b"), "mcp.servers[1].name", &["same slug 'a-b'"]);
    refused(&two("a", "a"), "mcp.servers[1].name", &["two servers 'a'"]);
    refused(&server("command = \"x\"").replace("name = \"s\"\n", ""), "mcp.servers[0]", &["a server needs a name"]);
}

/// [TRN-6]
#[test]
fn headers_are_named_well_and_not_the_gateways_own() {
    let header = |name: &str| server(&format!("url = \"http://h/\"\nheaders = {{ \"{name}\" = \"v\" }}"));
    for name in
        ["Host", "content-length", "Mcp-Session-Id", "MCP-Protocol-Version", "connection", "Transfer-Encoding", "te"]
    {
        refused(&header(name), &format!("mcp.servers[0].headers.{name}"), &["sets itself"]);
    }
    refused(&header("a b"), "mcp.servers[0].headers.\"a b\"", &["no name of a header"]);
    refused(&header("A\" = \"v\", \"a"), "mcp.servers[0].headers.a", &["given twice"]);
    refused(&header("A").replace("\"v\"", "\"v\\n\""), "mcp.servers[0].headers.A", &["no header may hold"]);
    good(&header("User-Agent"));
}

#[test]
fn a_server_is_reached_in_one_way() {
    let at = "mcp.servers[0]";
    refused(&server("command = \"x\"\nurl = \"http://h\""), at, &["both command and url"]);
    refused(&server(""), at, &["needs a command or a url"]);
    refused(&server("transport = \"http\""), at, &["needs a url"]);
    refused(&server("transport = \"stdio\""), at, &["needs a command"]);
    refused(&server("transport = \"sse\""), at, &["needs a url"]);
    refused(&server("transport = \"ws\"\nurl = \"http://h\""), "mcp.servers[0].transport", &["http, sse, stdio"]);
    refused(&server("url = \"http://h\"\nargs = []"), "mcp.servers[0].args", &["no meaning"]);
    refused(&server("command = \"x\"\nheaders = {}"), "mcp.servers[0].headers", &["no meaning"]);
    for (url, part) in [
        ("ftp://h/", "must begin with http:// or https://"),
        ("http://u:p@h/", "no user name"),
        ("http://h/#f", "fragment"),
        ("h", "http://HOST"),
        ("", "must not be empty"),
    ] {
        refused(&server(&format!("url = \"{url}\"")), "mcp.servers[0].url", &[part]);
    }
}

/// [TRN-1]: HTTP+SSE is found out behind a url, or said; it has the older era alone, and its sessions can be idle.
#[test]
fn http_sse_is_a_transport() {
    let kind = |lines: &str| {
        let text = server(&format!("url = \"http://h/sse\"\n{lines}"));
        let loaded = good(&text);
        let server = &loaded.settings.gateway.servers[0];
        (server.http, server.idle_stop, loaded.places.servers[0].transport)
    };
    let idle = Some(ServerSettings::IDLE_STOP);
    assert_eq!(kind(""), (HttpKind::Auto, idle, "http"));
    assert_eq!(kind("transport = \"http\""), (HttpKind::Auto, idle, "http"));
    let minute = Some(std::time::Duration::from_secs(60));
    assert_eq!(kind("transport = \"sse\"\nidle_stop_secs = 60"), (HttpKind::Sse, minute, "sse"));
    assert_eq!(kind("transport = \"sse\"\nprotocol = \"2024-11-05\"").0, HttpKind::Sse);
    for (key, line) in [("era", "era = \"stateless\""), ("protocol", "protocol = \"2026-07-28\"")] {
        let text = server(&format!("url = \"http://h/\"\ntransport = \"sse\"\n{line}"));
        refused(&text, &format!("mcp.servers[0].{key}"), &["contradicts transport \"sse\""]);
    }
    let text = server("url = \"http://h/\"\ntransport = \"sse\"\nmax_processes = 1");
    refused(&text, "mcp.servers[0].max_processes", &["no meaning for transport \"sse\""]);
}

#[test]
fn a_server_that_is_wrong_is_read_to_its_end() {
    let errors = bad(&server("url = \"ftp://h/\"\ntool_timeout_secs = 900\nera = \"x\"").replace("\"s\"", "\"a__b\""));
    let keys: Vec<_> = errors.0.iter().map(|error| error.key.trim_start_matches("mcp.servers[0].")).collect();
    assert_eq!(keys, ["name", "url", "tool_timeout_secs", "era"], "{errors}");
}

/// [LIM-4, TRN-1, TRN-7]: each in its range; a named revision is not probed for.
#[test]
fn numbers_and_words_of_a_server() {
    let loaded = good(&server(
        "command = \"x\"\ncwd = \"/srv\"\ninherit_env = [\"A\"]\nmax_response_bytes = 4096\ntool_timeout_secs = 600\n\
         tool_max_secs = 900\nstart_timeout_secs = 5\nprobe_timeout_secs = 2\nrequired = true\non_down = \"hide\"\nera = \"legacy\"",
    ));
    let server_ = &loaded.settings.gateway.servers[0];
    assert_eq!(
        (server_.max_response_bytes, server_.tool_timeout.as_secs(), server_.tool_max.as_secs()),
        (4096, 600, 900)
    );
    assert_eq!((server_.start_timeout.as_secs(), server_.probe_timeout.as_secs()), (5, 2));
    assert_eq!((server_.required, server_.on_down, server_.era), (true, OnDown::Hide, EraChoice::Legacy));
    for (lines, key) in [
        ("tool_timeout_secs = 0", "tool_timeout_secs"),
        ("tool_timeout_secs = -1", "tool_timeout_secs"),
        ("tool_timeout_secs = 601", "tool_timeout_secs"),
        ("tool_timeout_secs = 99999999999999999999", "tool_timeout_secs"),
        ("tool_max_secs = 59", "tool_max_secs"),
        ("protocol = \"2026-01-01\"", "protocol"),
        ("protocol = \"2026-07-28\"\nera = \"legacy\"", "protocol"),
        ("inherit_env = [\"A=B\"]", "inherit_env[0]"),
        ("env = { \"A=B\" = \"x\" }", "env.\"A=B\""),
    ] {
        refused(&server(&format!("command = \"x\"\n{lines}")), &format!("mcp.servers[0].{key}"), &[]);
    }
    for (version, era) in [("2026-07-28", EraChoice::Stateless), ("2025-03-26", EraChoice::Legacy)] {
        let loaded = good(&server(&format!("command = \"x\"\nprotocol = \"{version}\"")));
        assert_eq!(loaded.settings.gateway.servers[0].era, era);
    }
}
