//! The listener: addresses, keys, hosts and limits.

use std::net::SocketAddr;
use std::time::Duration;

use super::kit::{CANARY, bad, good, hash, places, refused, warned};
use crate::downstream::AccessLog;
use crate::gateway::Auth;
use crate::identity::ApiKeyHash;
use crate::telemetry::LogFormat;

/// [OPS-4]
#[test]
fn probes_may_have_an_address_of_their_own() {
    let loaded = good("[listen]\nauth = \"keys\"\nadmin = \"127.0.0.1:7801\"\nhealth = \"0.0.0.0:7802\"");
    let admin: Vec<_> = loaded.settings.admin.iter().map(ToString::to_string).collect();
    assert_eq!(admin, ["127.0.0.1:7801", "0.0.0.0:7802"]);
}

/// [AUT-1]
#[test]
fn auth_may_be_absent_for_local_alone() {
    let loaded = good("[principals.local]\n");
    assert_eq!(loaded.settings.gateway.auth, Auth::None);
    refused("[principals.alice]\n", "", &["sole principal", "auth = \"keys\""]);
    refused("[listen]\n[principals.local]\n[principals.b]\n", "listen", &["sole principal"]);
    refused("", "", &["no principal is defined", "[principals.local]"]);
    refused("[listen]\nhttp = \"0.0.0.0:1\"\n[principals.local]\n", "listen", &["loopback alone"]);
    for word in ["jwt", "mtls"] {
        refused(&format!("[listen]\nauth = \"{word}\""), "listen.auth", &["not supported in this version"]);
    }
    refused("[listen]\nauth = [\"none\", \"keys\"]", "listen.auth", &["several ways"]);
    refused("[listen]\nauth = []", "listen.auth", &["must not be empty"]);
    refused("[listen]\nauth = \"key\"", "listen.auth", &["did you mean 'keys'?"]);
    assert_eq!(good("[listen]\nauth = [\"keys\"]").settings.gateway.auth, Auth::Keys);
}

/// [AUT-1, TRN-6]
#[test]
fn without_authentication_only_loopback_and_only_local() {
    refused("[listen]\nauth = \"none\"\nhttp = [\"127.0.0.1:1\", \"[::]:1\"]", "listen.auth", &["[::]:1"]);
    warned(&good("[listen]\nauth = \"none\""), "listen.auth", "add [principals.local]");
    warned(&good("[listen]\nauth = \"none\"\n[principals.b]\n[principals.local]"), "listen.auth", "nobody can be b");
    let local = "[mcp_bundles.b]\nservers = []\n[principals.local]\nmcp_bundles = [\"b\"]";
    assert_eq!(places(&good(&format!("[listen]\nauth = \"none\"\n{local}")).warnings), []);
}

/// [AUT-1]
#[test]
fn keys_are_hashes_each_of_one_principal() {
    let key = |hash: &str| format!("api_keys = [{{ sha256 = \"{hash}\" }}]\n");
    let text = |a: &str, b: &str| format!("[listen]\nauth = \"keys\"\n[principals.a]\n{a}[principals.b]\n{b}");
    let loaded = good(&text(&key(hash("secret")), ""));
    warned(&loaded, "principals.b", "has no key");
    assert_eq!(loaded.warnings.iter().filter(|one| one.message.contains("key")).count(), 1);
    let text = text(&key(hash("secret")), &key(&hash("secret").to_uppercase()));
    refused(&text, "principals.b.api_keys[0].sha256", &["principal 'a' has the same key"]);
    let text = format!("[listen]\nauth = \"keys\"\n[principals.a]\n{}", key(CANARY));
    refused(&text, "principals.a.api_keys[0].sha256", &["64 hexadecimal digits", "[hidden]"]);
    assert!(!bad(&text).to_string().contains(CANARY));
    assert!(ApiKeyHash::from_hex(hash("other")).is_some());
}

/// [FC-CFG-07, R3]
#[test]
fn localhost_is_two_addresses() {
    let loaded =
        good("[listen]\nauth = \"keys\"\nhttp = [\"localhost:7900\", \"10.0.0.1:80\"]\nadmin = \"localhost:7901\"");
    let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
    assert_eq!(loaded.settings.downstream.addresses, addresses(&["127.0.0.1:7900", "[::1]:7900", "10.0.0.1:80"]));
    assert_eq!(loaded.settings.admin, addresses(&["127.0.0.1:7901", "[::1]:7901"]));
    let loaded = good("[listen]\nauth = \"keys\"");
    assert_eq!(loaded.settings.downstream.addresses, addresses(&["127.0.0.1:7800"]));
    assert_eq!(loaded.settings.admin, addresses(&["127.0.0.1:7801"]));
    for (value, part) in [
        ("\"unix:run/p\"", "absolute path"),
        ("\"example.com:80\"", "IP address"),
        ("\"127.0.0.1\"", "IP address"),
        ("[]", "must not be empty"),
        ("\"127.0.0.1:7801\"\nadmin = \"127.0.0.1:7801\"", "given twice"),
    ] {
        assert!(bad(&format!("[listen]\nauth = \"keys\"\nhttp = {value}")).to_string().contains(part), "{value}");
    }
}

/// [LIM-6]: where larger bodies are allowed there is room for as many of them.
#[test]
fn larger_bodies_have_more_room() {
    let loaded = good("[listen]\nauth = \"keys\"\n[limits]\nrequest_body_bytes = 100_000_000");
    let down = &loaded.settings.downstream;
    assert_eq!((down.body_bytes_max, down.bodies_bytes_max), (100_000_000, 1_600_000_000));
}

#[test]
fn hosts_origins_limits_and_log() {
    let loaded = good(
        "[listen]\nauth = \"keys\"\nallowed_hosts = [\"Mcp.example.com\", \"[::2]\"]\nallowed_origins = [\"https://app.example.com:8443\"]\n\
         [limits]\nrequest_body_bytes = 1024\nsessions = 10\nsessions_per_principal = 5\nsession_idle_secs = 60\n\
         keep_alive_secs = 5\nconnections = 7\n[log]\nlevel = \"debug\"\nformat = \"json\"\naccess = true\n[mcp]\nfirst_list_wait_secs = 0",
    );
    let down = &loaded.settings.downstream;
    assert_eq!(down.allowed_hosts, ["mcp.example.com", "[::2]"]);
    assert_eq!(down.allowed_origins, ["https://app.example.com:8443"]);
    assert_eq!((down.body_bytes_max, down.sessions_max, down.sessions_per_principal_max), (1024, 10, 5));
    assert_eq!(down.bodies_bytes_max, 256 << 20, "never less than by default");
    assert_eq!((down.session_idle.as_secs(), down.keep_alive.as_secs(), down.connections_max), (60, 5, 7));
    let log = &loaded.settings.log;
    assert_eq!((log.level.as_str(), log.format, down.access), ("debug", LogFormat::Json, AccessLog::On));
    assert_eq!(loaded.settings.gateway.first_list_wait, Duration::ZERO);
    let text = |lines: &str| format!("[listen]\nauth = \"keys\"\n{lines}");
    refused(&text("allowed_hosts = [\"h:80\"]"), "listen.allowed_hosts[0]", &["without scheme and port"]);
    for origin in ["https://h/x", "h", "*", "null", "https://"] {
        refused(&text(&format!("allowed_origins = [\"{origin}\"]")), "listen.allowed_origins[0]", &["an origin"]);
    }
    refused(&text("[limits]\nsessions = 0"), "limits.sessions", &["from 1"]);
    refused(&text("[log]\nlevel = \"inof\""), "log.level", &["'inof' is no level"]);
    refused(&text("[log]\nformat = \"xml\""), "log.format", &["json, text"]);
}

/// [TRN-1, CFG-1]: of the public URL the path counts; it is the gateway's, not an endpoint's.
#[test]
fn a_public_url_names_the_gateway() {
    let text = |url: &str| format!("[listen]\nauth = \"keys\"\npublic_url = \"{url}\"");
    for (url, path) in [
        ("https://example.com", ""),
        ("https://example.com/", ""),
        ("http://example.com:8443/tools", "/tools"),
        ("https://[::2]/a-b/c.d/", "/a-b/c.d"),
    ] {
        assert_eq!(good(&text(url)).settings.downstream.public_path, path, "{url}");
    }
    for url in [
        "",
        "example.com",
        "/tools",
        "ftp://example.com",
        "https://",
        "https://example.com/a b",
        "https://example.com/a?b",
        "https://example.com/a%20b",
        "https://example.com/a//b",
        "https://example.com/../b",
        "https://u@example.com/b",
    ] {
        refused(&text(url), "listen.public_url", &["as https://example.com/tools"]);
    }
    for url in ["https://example.com/mcp", "https://example.com/tools/sse/"] {
        refused(&text(url), "listen.public_url", &["without /mcp or /sse"]);
    }
}
