//! Tests of the configuration: one per rule.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::{Strategy, any, prop};

use super::{
    Color, Connection, Diagnostic, Diagnostics, ExpectationResult, Loaded, Severity, check_policy_file, load,
    load_text, render,
};
use crate::codes::Code;
use crate::downstream::AccessLog;
use crate::gateway::Auth;
use crate::id::UpstreamName;
use crate::identity::ApiKeyHash;
use crate::policy::{Action, Decision, EmptyAllow, Subject};
use crate::telemetry::LogFormat;
use crate::upstream::{EraChoice, OnDown, Transport};

const CANARY: &str = "CANARY-f00d";

/// A folder of its own, removed at the end.
struct Folder {
    path: PathBuf,
    env: HashMap<String, String>,
}

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("portcullis-config-{}-{number}", std::process::id()));
        std::fs::create_dir_all(path.join("policies")).unwrap();
        Self { path, env: HashMap::new() }
    }

    fn file(self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        std::fs::write(self.path.join(name), bytes).unwrap();
        self
    }

    fn var(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    fn load(&self, text: &str) -> Result<Loaded, Diagnostics> {
        let path = self.path.join("portcullis.toml");
        std::fs::write(&path, text).unwrap();
        load(&path, &|name| self.env.get(name).cloned())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.path));
    }
}

fn good(text: &str) -> Loaded {
    Folder::new().load(text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn bad(text: &str) -> Diagnostics {
    Folder::new().load(text).expect_err("this must be refused")
}

/// One error, and what its text holds.
fn refused(text: &str, key: &str, parts: &[&str]) {
    let errors = bad(text);
    let found: Vec<_> = errors.0.iter().filter(|error| error.severity == Severity::Error).collect();
    assert_eq!(found.len(), 1, "{errors}");
    assert_eq!(found[0].key, key, "{errors}");
    for part in parts {
        assert!(found[0].to_string().contains(part), "{part} in\n{errors}");
    }
}

fn places(errors: &[Diagnostic]) -> Vec<(usize, usize, &str, &str)> {
    let place = |error: &Diagnostic| error.place.as_ref().map_or((0, 0), |place| (place.line, place.column));
    errors.iter().map(|e| (place(e).0, place(e).1, e.key.as_str(), e.message.as_str())).collect()
}

fn warned(loaded: &Loaded, key: &str, part: &str) {
    let text = Diagnostics(loaded.warnings.clone()).to_string();
    assert!(loaded.warnings.iter().any(|w| w.key == key && w.to_string().contains(part)), "{key}: {part} in\n{text}");
}

fn granted(loaded: &Loaded, principal: &str) -> Vec<String> {
    let principal = loaded.settings.gateway.principals.iter().find(|p| p.id.as_str() == principal).unwrap();
    principal.granted.iter().map(ToString::to_string).collect()
}

/// A file with two servers, to which a test adds.
fn with(more: &str) -> String {
    format!(
        "[listen]\nauth = \"keys\"\n[[mcp.servers]]\nname = \"git\"\ncommand = \"git-server\"\n[[mcp.servers]]\nname = \
         \"docs\"\nurl = \"http://127.0.0.1:9/mcp\"\n{more}\n"
    )
}

/// A file with one server that a test describes.
fn server(lines: &str) -> String {
    format!("[listen]\nauth = \"keys\"\n[[mcp.servers]]\nname = \"s\"\n{lines}\n")
}

fn hash(key: &str) -> &'static str {
    match key {
        "secret" => "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
        _ => "0000000000000000000000000000000000000000000000000000000000000000",
    }
}

/// [OPS-4]
#[test]
fn probes_may_have_an_address_of_their_own() {
    let loaded = good("[listen]\nauth = \"keys\"\nadmin = \"127.0.0.1:7801\"\nhealth = \"0.0.0.0:7802\"");
    let admin: Vec<_> = loaded.settings.admin.iter().map(ToString::to_string).collect();
    assert_eq!(admin, ["127.0.0.1:7801", "0.0.0.0:7802"]);
}

#[test]
fn the_example_of_the_product_loads_but_for_what_comes_later() {
    let folder = Folder::new().var("LOG_LEVEL", "info").var("DOCS_TOKEN", "t").file("token", "abc\n");
    let text = r#"
[listen]
http = "127.0.0.1:7800"
admin = "127.0.0.1:7801"
auth = "keys"

[[mcp.servers]]
name = "filesystem"
transport = "stdio"
command = "npx"
args = ["-y", "@modelcontextprotocol/server-filesystem", "/srv/data"]
env = { LOG_LEVEL = "${env:LOG_LEVEL}", TOKEN = "${file:token}" }

[[mcp.servers]]
name = "docs"
transport = "http"
url = "http://docs.example.com/mcp"
headers = { Authorization = "Bearer ${env:DOCS_TOKEN}" }
max_response_bytes = 0
tool_timeout_secs = 60

[mcp_bundles.files]
servers = ["filesystem"]
[mcp_bundles.all]
servers = ["filesystem", "docs"]
exclude = ["docs"]

[principals.alice]
mcp_bundles = ["files"]
policy = "reader"
api_keys = [{ sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b" }]

[policies.reader]
allowed_tools = ["filesystem__read_*", "filesystem__list_directory"]
excluded_tools = ["filesystem__write_file"]
"#;
    let loaded = folder.load(text).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(places(&loaded.warnings), []);
    let gateway = &loaded.settings.gateway;
    assert_eq!((gateway.auth, gateway.name_budget), (Auth::Keys, 64));
    assert_eq!(gateway.keys.find("secret").unwrap().1.as_str(), "alice");
    assert_eq!(granted(&loaded, "alice"), ["filesystem"]);
    let Transport::Stdio { env, args, .. } = &gateway.servers[0].transport else { panic!() };
    assert_eq!(args.len(), 3);
    assert_eq!(env.iter().map(|(_, value)| value.expose().as_str()).collect::<Vec<_>>(), ["info", "abc"]);
    let Transport::Http { headers, uri, .. } = &gateway.servers[1].transport else { panic!() };
    assert_eq!((headers[0].0.as_str(), headers[0].1.expose().as_str()), ("authorization", "Bearer t"));
    assert_eq!(uri.host(), Some("docs.example.com"));
    assert_eq!(gateway.servers[1].max_response_bytes, 16_078_168);

    let later = text.replace("max_response_bytes = 0", "pinned_resources = []").replace("http://docs", "https://docs");
    let errors = folder.load(&later).unwrap_err();
    assert_eq!(places(&errors.0), [(19, 1, "mcp.servers[1].pinned_resources", "not supported in this version"),]);
}

#[test]
fn all_problems_come_at_once_each_with_its_place() {
    let text = "[listen]\nhtp = \"127.0.0.1:7800\"\nauth = 7\n\n[[mcp.servers]]\nname = \"a\"\ncommand = \"x\"\n\
                tool_timeout_secs = 601 # é\nera = \"legasy\"\nrequired = \"yes\"\nargs = [\"ü\", 5]\n\n[log]\n  levl = \"info\"\n";
    let errors = bad(text);
    assert_eq!(
        places(&errors.0),
        [
            (2, 1, "listen.htp", "unknown key"),
            (3, 8, "listen.auth", "must be a string or a list of strings, not a whole number"),
            (8, 21, "mcp.servers[0].tool_timeout_secs", "must be from 1 to 600"),
            (9, 7, "mcp.servers[0].era", "must be one of auto, legacy, stateless"),
            (10, 12, "mcp.servers[0].required", "must be true or false, not a string"),
            (11, 14, "mcp.servers[0].args[1]", "must be a string, not a whole number"),
            (14, 3, "log.levl", "unknown key"),
        ]
    );
    let text = errors.to_string();
    for part in ["portcullis.toml:2:1", "did you mean 'http'?", "did you mean 'legacy'?", "tool_timeout_secs = 601\n"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(!text.contains('\u{1b}') && render(&errors, Color::Always).contains('\u{1b}'));
}

#[test]
fn an_error_reads_like_this() {
    let errors = Folder::new().load("[listen]\nauth = \"keys\"\nhtpp = \"127.0.0.1:1\" # x\n").unwrap_err();
    let text = errors.to_string();
    let place = text.lines().nth(1).unwrap();
    assert!(place.trim_start().starts_with("--> ") && place.ends_with("portcullis.toml:3:1"), "{text}");
    let rest: Vec<_> = text.lines().enumerate().filter(|(index, _)| *index != 1).map(|(_, line)| line).collect();
    assert_eq!(
        rest,
        [
            "error[P102]: listen.htpp: unknown key",
            "  |",
            "3 | htpp = \"[hidden]\"",
            "  | ^^^^",
            "  |",
            "  = help: did you mean 'http'?",
        ],
        "{text}"
    );
}

#[test]
fn a_syntax_error_is_one_problem_with_its_place() {
    for (text, line, column) in [
        ("[listen]\nauth = \"keys\n", 2, 13),
        ("[listen]\nauth = \"keys\"\nauth = \"none\"\n", 3, 1),
        ("[listen\n", 1, 8),
    ] {
        let errors = bad(text);
        assert_eq!(errors.0.len(), 1, "{errors}");
        let place = errors.0[0].place.as_ref().unwrap();
        assert_eq!((place.line, place.column), (line, column), "{errors}");
    }
    assert!(load(Path::new("/nonexistent/p.toml"), &|_| None).unwrap_err().to_string().contains("/nonexistent/p.toml"));
    let latin = Folder::new().file("x.toml", b"[listen]\nauth = \"\xe9\"");
    assert!(load(&latin.path.join("x.toml"), &|_| None).unwrap_err().to_string().contains("is not UTF-8"));
}

#[test]
fn keys_of_later_versions_are_told_from_mistakes() {
    for (text, key) in [
        ("[aliases]\na = 1".to_owned(), "aliases"),
        ("[workflows.x]".to_owned(), "workflows"),
        ("[policies.p]\napproval = \"all\"".to_owned(), "policies.p.approval"),
        ("[mcp]\ndeferred_loading = true".to_owned(), "mcp.deferred_loading"),
        ("[principals.p]\nexternal = true".to_owned(), "principals.p.external"),
    ] {
        let text = format!("listen = {{ auth = \"keys\" }}\n{text}");
        refused(&text, key, &["not supported in this version"]);
    }
    refused("[listen]\nauth = \"keys\"\npublic_url = \"x\"", "listen.public_url", &["not supported in this version"]);
    refused(&server("command = \"x\"\nsandbox = true"), "mcp.servers[0].sandbox", &["not supported in this"]);
}

/// [CFG-1]
#[test]
fn a_grant_is_the_union_of_bundles_less_the_union_of_excludes() {
    let loaded = good(&with(
        "[mcp_bundles.all]\nservers = [\"git\", \"docs\"]\n[mcp_bundles.less]\nexclude = [\"docs\"]\n\
         [principals.a]\nmcp_bundles = [\"all\"]\n[principals.b]\nmcp_bundles = [\"all\", \"less\"]\n[principals.c]\n",
    ));
    assert_eq!(granted(&loaded, "a"), ["docs", "git"]);
    assert_eq!(granted(&loaded, "b"), ["git"]);
    assert_eq!(granted(&loaded, "c"), [""; 0]);
}

/// [CFG-2]
#[test]
fn unknown_names_grant_nothing_and_never_subtract_in_silence() {
    let loaded = good(&with(
        "[mcp_bundles.b]\nservers = [\"gti\"]\n[principals.a]\nmcp_bundles = [\"b\", \"bb\"]\npolicy = \"p\"\n\
         [policies.p]\nallowed_tools = [\"gti__*\"]",
    ));
    warned(&loaded, "mcp_bundles.b.servers[0]", "did you mean 'git'?");
    warned(&loaded, "principals.a.mcp_bundles[1]", "there is no bundle 'bb'");
    warned(&loaded, "policies.p.allowed_tools[0]", "there is no server 'gti'");
    assert_eq!(granted(&loaded, "a"), [""; 0]);
    refused(&with("[mcp_bundles.b]\nexclude = [\"gti\"]"), "mcp_bundles.b.exclude[0]", &["no server 'gti'", "'git'?"]);
    for pattern in ["gti__*", "gi", "x*", "mcp__gti__a"] {
        let text = with(&format!("[policies.p]\nexcluded_tools = [\"{pattern}\"]"));
        refused(&text, "policies.p.excluded_tools[0]", &[]);
    }
    refused(&with("[policies.p]\nexcluded_tools = [\"git__*x\"]"), "policies.p.excluded_tools[0]", &["'*'"]);
    refused(&with("[policies.p]\nallowed_tools = [\"git__*x\"]"), "policies.p.allowed_tools[0]", &["'*'"]);
    let fine = good(&with("[policies.p]\nexcluded_tools = [\"*\", \"g*\", \"mcp__git__a\", \"docs__x*\"]"));
    assert_eq!(places(&fine.warnings), []);
}

/// [CFG-2]: the server part of a pattern is the name as shown.
#[test]
fn a_pattern_names_a_server_as_shown() {
    let text = |pattern: &str| {
        format!(
            "{}[policies.p]\nexcluded_tools = [\"{pattern}\"]",
            server("command = \"x\"").replace("\"s\"", "\"a.b\"")
        )
    };
    good(&text("a_b__x"));
    refused(&text("a.b__x"), "policies.p.excluded_tools[0]", &["there is no server 'a.b'"]);
}

/// [CFG-2]
#[test]
fn a_policy_is_defined_once_and_readable() {
    let principal = with("[principals.a]\npolicy = \"p\"\nmcp_bundles = []");
    refused(&principal, "principals.a.policy", &["there is no such policy", "policies/p.toml"]);
    refused(&with("[principals.a]\npolicy = \"../x\""), "principals.a.policy", &["there is no such policy"]);
    let folder = Folder::new().file("policies/p.toml", "excluded_tools = [\"git__a\"]\n");
    let loaded = folder.load(&principal).unwrap();
    assert_eq!(loaded.settings.gateway.principals[0].profile.as_ref().unwrap().excluded_tools.len(), 1);
    let errors = folder.load(&format!("{principal}\n[policies.p]\n")).unwrap_err();
    assert!(errors.0.iter().any(|error| error.key == "policies.p"), "{errors}");
    assert!(errors.to_string().contains("defined here and in"), "{errors}");
    let folder = Folder::new().file("policies/p.toml", "excluded_tols = []\n\nallowed_tools = 1");
    let errors = folder.load(&principal).unwrap_err();
    assert_eq!(errors.0[0].place.as_ref().unwrap().path, folder.path.join("policies/p.toml"));
    assert_eq!(
        places(&errors.0)[..2],
        [(1, 1, "excluded_tols", "unknown key"), (3, 17, "allowed_tools", "must be a list, not a whole number")]
    );
    std::fs::remove_file(folder.path.join("policies/p.toml")).unwrap();
    std::fs::create_dir(folder.path.join("policies/p.toml")).unwrap();
    assert!(folder.load(&principal).unwrap_err().to_string().contains("cannot be read"));
}

/// [CFG-3, FC-CFG-01]
#[test]
fn references_expand_in_env_headers_and_url_alone() {
    let folder = Folder::new().var("T", "tok").var("EMPTY", "").file("key", "abc\r\n");
    let text = server(
        "command = \"x\"\nargs = [\"$HOME\", \"a b\", \"*\", \"\", \"$$\"]\n\
         env = { A = \"Bearer ${env:T}\", B = \"${file:key}${env:T}\", C = \"$$x$y$${env:T}\", D = \"\" }",
    );
    let loaded = folder.load(&text).unwrap();
    let Transport::Stdio { env, args, .. } = &loaded.settings.gateway.servers[0].transport else { panic!() };
    let values: Vec<_> = env.iter().map(|(_, value)| value.expose().as_str()).collect();
    assert_eq!(values, ["Bearer tok", "abctok", "$x$y${env:T}", ""]);
    assert_eq!(args, &["$HOME", "a b", "*", "", "$$"]);
    for bad in ["${T}", "${T:-d}", "${input:x}", "${env:}", "${env:1}", "${env:T", "${file:}"] {
        let text = server(&format!("command = \"x\"\nenv = {{ A = \"{bad}\" }}"));
        refused(&text, "mcp.servers[0].env.A", &["server 's'", "${env:NAME}"]);
    }
    let text = server("command = \"x\"\nargs = [\"--token=${env:T}\"]");
    refused(&text, "mcp.servers[0].args[0]", &["server 's': ${env:T} is not expanded here", "in env"]);
    refused(&server("command = \"${file:x}\""), "mcp.servers[0].command", &["${file:x} is not expanded here"]);
    let url = folder.load(&server("url = \"http://h/${env:T}?k=${file:key}\"")).unwrap();
    let Transport::Http { url, .. } = &url.settings.gateway.servers[0].transport else { panic!() };
    assert_eq!(url.expose(), "http://h/tok?k=abc");
}

/// [CFG-3]
#[test]
fn a_missing_secret_disables_its_server_alone() {
    let folder = Folder::new().var("EMPTY", "").var("NL", "a\nb").var("PLAIN", "no url");
    let more = "[mcp_bundles.b]\nservers = [\"git\", \"s\"]\n[principals.p]\nmcp_bundles = [\"b\"]\n";
    for (lines, reason) in [
        ("command = \"x\"\nenv = { A = \"${env:NONE}\" }", "environment variable NONE is not set"),
        ("command = \"x\"\nenv = { A = \"${env:EMPTY}\" }", "environment variable EMPTY is empty"),
        ("url = \"http://h/${env:NONE}\"", "environment variable NONE is not set"),
        ("url = \"${env:PLAIN}\"", "is no URL"),
        ("url = \"http://h/\"\nheaders = { A = \"${env:NL}\" }", "holds a character that no header may hold"),
        ("url = \"http://h/\"\nheaders = { A = \"${file:none}\" }", "cannot be read"),
    ] {
        let text = with(&format!("[[mcp.servers]]\nname = \"s\"\n{lines}\n{more}"));
        let loaded = folder.load(&text).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(loaded.settings.disabled[0].0.as_str(), "s");
        assert!(loaded.settings.disabled[0].1.contains(reason), "{:?}", loaded.settings.disabled);
        assert_eq!(loaded.settings.gateway.servers.len(), 2);
        assert_eq!(granted(&loaded, "p"), ["git"]);
        let error = loaded.warnings.iter().find(|warning| warning.severity == Severity::Error).unwrap();
        assert!(error.message.starts_with("server 's' is disabled: "), "{error}");
        let errors = folder.load(&text.replace("name = \"s\"", "name = \"s\"\nrequired = true")).unwrap_err();
        assert!(errors.to_string().contains("required server 's' cannot start: "), "{errors}");
    }
}

/// [FC-CFG-06]
#[test]
fn a_secret_file_loses_one_line_end_and_must_be_one_line() {
    let text = server("command = \"x\"\nenv = { A = \"${file:token}\" }");
    for (bytes, value) in [("abc\n", "abc"), ("abc\r\n", "abc"), ("abc", "abc"), (" a ", " a ")] {
        let loaded = Folder::new().file("token", bytes).load(&text).unwrap();
        let Transport::Stdio { env, .. } = &loaded.settings.gateway.servers[0].transport else { panic!() };
        assert_eq!(env[0].1.expose(), value);
    }
    let long = "a".repeat(70_000);
    for bytes in ["a\nb", "", "\n", "\u{feff}abc", "abc\n\n", "a\u{7f}b", long.as_str()] {
        let loaded = Folder::new().file("token", bytes).load(&text).unwrap();
        let reason = &loaded.settings.disabled[0].1;
        assert!(reason.contains("token") && !reason.contains("abc"), "{reason}");
        assert_eq!(loaded.settings.gateway.servers.len(), 0);
    }
    let loaded = Folder::new().file("token", b"\xff\xfe").load(&text).unwrap();
    assert!(loaded.settings.disabled[0].1.contains("is not UTF-8"));
}

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

/// [CFG-7]
#[test]
fn what_is_switched_off_is_as_if_not_granted() {
    let more = "[mcp_bundles.b]\nservers = [\"git\", \"s\"]\n[principals.p]\nmcp_bundles = [\"b\"]\n";
    let off = "[[mcp.servers]]\nname = \"s\"\nenabled = false\ncommand = \"x\"\nenv = { A = \"${env:NONE}\" }\n";
    let loaded = good(&with(&format!("{off}{more}")));
    assert_eq!(granted(&loaded, "p"), ["git"]);
    assert_eq!((loaded.settings.gateway.servers.len(), loaded.settings.disabled.len()), (2, 0));
    assert_eq!(places(&loaded.warnings).iter().filter(|place| place.2.starts_with("mcp_bundles")).count(), 0);
    let loaded = good(&with(more).replace("[listen]", "[mcp]\nenabled = false\n[listen]").replace(", \"s\"", ""));
    assert_eq!((granted(&loaded, "p").len(), loaded.settings.gateway.servers.len()), (0, 0));
}

/// [NAM-3]
#[test]
fn the_name_budget_has_a_floor() {
    let text = |budget: u32| format!("[mcp]\nname_budget = {budget}\n{}", with("").replace("\"docs\"", "\"handbook\""));
    assert_eq!(good(&text(20)).settings.gateway.name_budget, 20);
    refused(&text(19), "mcp.name_budget", &["at least 20", "'handbook'"]);
    refused(&text(65), "mcp.name_budget", &["from 1 to 64"]);
}

/// [POL-2]
#[test]
fn deny_all_contradicts_a_list_of_what_is_allowed() {
    let key = "policies.p.deny_all_tools";
    refused(&with("[policies.p]\ndeny_all_tools = true\nallowed_tools = [\"git__a\"]"), key, &["contradicts"]);
    good(&with("[policies.p]\ndeny_all_tools = true\nallowed_tools = []"));
    let loaded = good(&with("[policies.p]\nallowed_tools = []\n[principals.a]\npolicy = \"p\""));
    warned(&loaded, "policies.p.allowed_tools", "restricts nothing");
    let none = with("[policies.p]\nallowed_tools = []\n[principals.a]\npolicy = \"p\"");
    let loaded = good(&format!("[mcp]\nempty_allow = \"none\"\n{none}"));
    let profile = loaded.settings.gateway.principals[0].profile.clone().unwrap();
    assert_eq!((profile.empty_allow, profile.allowed_tools.as_deref().map(<[_]>::len)), (EmptyAllow::None, Some(0)));
}

/// [AUT-1]
#[test]
fn auth_may_be_absent_for_local_alone() {
    let loaded = good("[principals.local]\n");
    assert_eq!(loaded.settings.gateway.auth, Auth::None);
    refused("[principals.alice]\n", "", &["sole principal", "auth = \"keys\""]);
    refused("[listen]\n[principals.local]\n[principals.b]\n", "listen", &["sole principal"]);
    refused("", "", &["sole principal"]);
    refused("[listen]\nhttp = \"0.0.0.0:1\"\n[principals.local]\n", "listen", &["loopback alone"]);
    for word in ["jwt", "mtls"] {
        refused(&format!("[listen]\nauth = \"{word}\""), "listen.auth", &["not supported in this version"]);
    }
    refused("[listen]\nauth = [\"none\", \"keys\"]", "listen.auth", &["several ways"]);
    refused("[listen]\nauth = []", "listen.auth", &["must not be empty"]);
    refused("[listen]\nauth = \"key\"", "listen.auth", &["did you mean 'keys'?"]);
    assert_eq!(good("[listen]\nauth = [\"keys\"]").settings.gateway.auth, Auth::Keys);
}

/// [AUT-1]
#[test]
fn without_authentication_only_loopback_and_only_local() {
    refused("[listen]\nauth = \"none\"\nhttp = [\"127.0.0.1:1\", \"[::]:1\"]", "listen.auth", &["[::]:1"]);
    warned(&good("[listen]\nauth = \"none\""), "listen.auth", "add [principals.local]");
    warned(&good("[listen]\nauth = \"none\"\n[principals.b]\n[principals.local]"), "listen.auth", "nobody can be b");
    assert_eq!(places(&good("[listen]\nauth = \"none\"\n[principals.local]").warnings), []);
}

/// [AUT-1]
#[test]
fn keys_are_hashes_each_of_one_principal() {
    let key = |hash: &str| format!("api_keys = [{{ sha256 = \"{hash}\" }}]\n");
    let text = |a: &str, b: &str| format!("[listen]\nauth = \"keys\"\n[principals.a]\n{a}[principals.b]\n{b}");
    let loaded = good(&text(&key(hash("secret")), ""));
    warned(&loaded, "principals.b", "has no key");
    assert_eq!(loaded.warnings.len(), 1);
    let text = text(&key(hash("secret")), &key(&hash("secret").to_uppercase()));
    refused(&text, "principals.b.api_keys[0].sha256", &["principal 'a' has the same key"]);
    let text = format!("[listen]\nauth = \"keys\"\n[principals.a]\n{}", key(CANARY));
    refused(&text, "principals.a.api_keys[0].sha256", &["64 hexadecimal digits", "[hidden]"]);
    assert!(!bad(&text).to_string().contains(CANARY));
    assert!(ApiKeyHash::from_hex(hash("other")).is_some());
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

#[test]
fn a_server_that_is_wrong_is_read_to_its_end() {
    let errors = bad(&server("url = \"ftp://h/\"\ntool_timeout_secs = 900\nera = \"x\"").replace("\"s\"", "\"a__b\""));
    let keys: Vec<_> = errors.0.iter().map(|error| error.key.trim_start_matches("mcp.servers[0].")).collect();
    assert_eq!(keys, ["name", "url", "tool_timeout_secs", "era"], "{errors}");
}

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

/// [FC-OBS-01]
#[test]
fn no_error_shows_a_secret() {
    let c = CANARY;
    let lines = [
        format!("env = {{ A = \"{c}\", B = 5 }}"),
        format!("env = {{ B = 5, A = '{c}' }} # {c}"),
        format!("env = {{ A = \"{c}${{x}}\" }}"),
        format!("env = {{ name = \"{c}\", B = 5 }}"),
        format!("env = [\"{c}\"]"),
        format!("env = \"{c}\""),
        format!("evn = {{ A = \"{c}\" }}"),
        format!("env = {{ A = {{ B = \"{c}\" }} }}"),
        format!("env = {{ \"a=b\" = \"\"\"\n{c}\n{c}\"\"\" }}"),
        format!("env = {{ A = \"\\u0000{c}\" }}"),
        format!("args = [\"--token={c}\", 5]"),
        format!("args = [\"--token={c}${{env:X}}\"]"),
        format!("args = \"{c}\""),
        format!("command = [\"{c}\"]"),
        format!("headers = {{ \"a b\" = \"{c}\" }}"),
        format!("heders = {{ A = \"{c}\" }}"),
        format!("headers = {{ A = \"{c}\\n\" }}"),
        format!("url = \"https://{c}@h/\""),
        format!("url = \"https://u:{c}@h/\""),
        format!("url = \"ftp://h/?key={c}\""),
        format!("url = \"ftp://h/{c}/mcp\""),
        format!("url = 'ftp://h?{c}'"),
        format!("url = \"ftp:\\u002F/{c}\""),
        format!("url = \"{c}\""),
        format!("url = [\"http://h/{c}\"]"),
        format!("token = \"{c}\""),
        format!("tool_timeout_secs = \"{c}\""),
        // files that do not parse
        format!("env = {{ A = \"{c}\" B = 1 }}"),
        format!("env = {{ A = \"{c}\n"),
        format!("url = \"http://{c}\" x"),
        format!("[mcp.servers.env]\nname = \"{c}\" x"),
        format!("args = [\n\"{c}\" 5\n]"),
        format!("args = \"\"\"\nname = {c}\n"),
        c.to_owned(),
    ];
    for line in &lines {
        for start in ["", "command = \"x\"\n", "transport = \"http\"\n"] {
            let text = server(&format!("{start}{line}"));
            let Err(errors) = Folder::new().load(&text) else { continue };
            let shown = format!("{errors}{errors:?}{}", render(&errors, Color::Always));
            assert!(!shown.contains(c), "{line}\n{errors}");
        }
    }
    for keys in [
        format!("\"{c}\""),
        format!("[\"{c}\"]"),
        format!("[{{ sha256 = \"{c}\" }}]"),
        format!("[{{ key = \"{c}\" }}]"),
    ] {
        let errors = bad(&format!("[listen]\nauth = \"keys\"\n[principals.a]\napi_keys = {keys}"));
        assert!(!format!("{errors}{errors:?}").contains(c), "{errors}");
    }
    let folder = Folder::new().var("T", c).file("token", format!("{c}\n{c}"));
    for lines in [
        "url = \"http://h/\"\nheaders = { A = \"${env:T}\" }\nera = 1",
        "url = \"${env:T}\"",
        "url = \"http://h/${env:T}?${env:T}\"\nheaders = { A = \"${env:T}\" }",
        "command = \"x\"\nargs = [\"CANARY-f00d\"]\nenv = { A = \"${env:T}\" }",
        "url = \"http://${env:T} x\"",
        "command = \"x\"\nenv = { A = \"${file:token}\", B = \"${env:T}\" }",
    ] {
        let shown = match folder.load(&server(lines)) {
            Ok(loaded) => format!("{loaded:?}{}", Diagnostics(loaded.warnings.clone())),
            Err(errors) => format!("{errors}{errors:?}"),
        };
        assert!(!shown.contains(c), "{shown}");
    }
}

#[test]
fn a_masked_line_marks_the_right_place() {
    let text = server("command = \"x\"\nenv = { A = \"one two\", B = 5, C = \"é\" }\nera = \"x\" # no");
    let errors = bad(&text);
    let place = errors.0[0].place.as_ref().unwrap();
    assert_eq!((place.line, place.column), (6, 28));
    assert_eq!(place.shown, "env = { A = \"[hidden]\", B = \"[hidden]\", C = \"[hidden]\" }");
    assert_eq!(place.shown.get(..place.marked.start).unwrap(), "env = { A = \"[hidden]\", B = ");
    assert_eq!(place.shown.get(place.marked.clone()).unwrap(), "\"[hidden]\"");
    assert!(errors.0[0].to_string().contains("portcullis.toml:6:28\n"), "{errors}");
    let place = errors.0[1].place.as_ref().unwrap();
    assert_eq!((place.shown.as_str(), place.shown.get(place.marked.clone()).unwrap()), ("era = \"x\"", "\"x\""));
    let errors = bad(&server("url = \"ftp://h:1/a?b\""));
    let place = errors.0[0].place.as_ref().unwrap();
    assert_eq!(place.shown, "url = \"ftp://h:1[hidden]\"");
}

fn failed(results: &[ExpectationResult]) -> Vec<&str> {
    results.iter().filter(|result| !result.holds()).map(|result| result.tool.as_str()).collect()
}

#[test]
fn a_text_has_no_files_beside_it() {
    let folder = Folder::new().file("policies/p.toml", "");
    let text = with("[principals.a]\npolicy = \"p\"");
    assert!(folder.load(&text).is_ok());
    assert!(load_text(&folder.path.join("x.toml"), &text, &|_| None).is_err());
    // Other files there are no concern of this configuration.
    assert!(folder.file("policies/other.toml", "not toml").load(&text).is_ok());
}

#[test]
fn expectations_are_judged_without_servers() {
    let expect = |tool: &str, visible: bool| format!("[[policies.p.expect]]\ntool = \"{tool}\"\nvisible = {visible}\n");
    let loaded = good(&with(&format!(
        "[policies.p]\nallowed_tools = [\"git__a*\"]\nexcluded_tools = [\"git__ab\"]\n{}{}{}{}",
        expect("git__a", true),
        expect("git__ab", false),
        expect("docs__a", true),
        expect("gti__a", true),
    )));
    assert_eq!(failed(&loaded.expectations), ["docs__a", "gti__a"]);
    assert_eq!(loaded.expectations.len(), 4);
    let place = loaded.expectations[2].diagnostic.place.as_ref().unwrap();
    assert_eq!((place.line, place.shown.as_str()), (19, "tool = \"docs__a\""));
    warned(&loaded, "policies.p.expect[3].tool", "did you mean 'git'?");
    let key = "policies.p.expect[0]";
    refused(&with("[[policies.p.expect]]\ntool = \"a\""), key, &["needs a tool and visible"]);
    let text = with("[[policies.p.expect]]\ntool = \"git__a\"\nvisible = true\nannotations = {}");
    refused(&text, "policies.p.expect[0].annotations", &["not supported in this version"]);
}

#[test]
fn the_policies_of_the_demo_do_what_they_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies");
    for name in ["demo-reader", "demo-full"] {
        let (results, warnings) = check_policy_file(&folder.join(format!("{name}.toml"))).unwrap();
        assert_eq!((failed(&results), warnings.len()), (Vec::new(), 0));
        assert!(results.len() >= 2 && results.iter().all(|result| result.policy == name));
    }
    let folder =
        Folder::new().file("p.toml", "excluded_tools = [\"a__b\"]\n[[expect]]\ntool = \"a__b\"\nvisible = true\n");
    assert_eq!(failed(&check_policy_file(&folder.path.join("p.toml")).unwrap().0), ["a__b"]);
    assert!(check_policy_file(&folder.path.join("none.toml")).is_err());
}

/// What each principal may do in a configuration, over all servers and a few tools each.
fn allowed(loaded: &Loaded) -> BTreeSet<(String, String)> {
    let mut all = BTreeSet::new();
    for principal in &loaded.settings.gateway.principals {
        let subject = Subject { granted: &principal.granted, profile: principal.profile.as_deref() };
        for server in ["alpha", "bravo-one", "charlie.two"] {
            let server = UpstreamName::new(server).unwrap();
            for tool in ["read_file", "write_file", "list"] {
                let name = format!("{}__{tool}", server.shown());
                if subject.decide(&Action {
                    kind: crate::wire::mcp::Kind::Tools,
                    server: &server,
                    shown: &name,
                    full: &name,
                }) == Decision::Allow
                {
                    all.insert((principal.id.to_string(), name));
                }
            }
        }
    }
    all
}

const GRANTS: &str = r#"
[mcp_bundles.first]
servers = ["alpha", "bravo-one"]
exclude = ["alpha"]
[mcp_bundles.second]
servers = ["charlie.two", "alpha"]
[principals.ann]
mcp_bundles = ["first", "second"]
policy = "some"
[principals.bob]
mcp_bundles = ["second"]
policy = "other"
[policies.some]
allowed_tools = ["bravo-one__list", "charlie_two__list", "alpha__read_file"]
[policies.other]
allowed_tools = ["alpha__read_file"]
excluded_tools = ["charlie_two__*"]
"#;

/// The places of names in [`GRANTS`]: what stands between quotes.
fn names() -> Vec<(usize, usize)> {
    let quotes: Vec<_> = GRANTS.match_indices('"').map(|(index, _)| index).collect();
    quotes.chunks_exact(2).map(|pair| (pair[0] + 1, pair[1])).collect()
}

fn mistakes() -> impl Strategy<Value = String> {
    (
        prop::sample::select(names()),
        any::<prop::sample::Index>(),
        prop::sample::select(vec!['a', 'z', '_', '.', '*', '-', 'L']),
        0..3,
    )
        .prop_map(|((start, end), index, letter, kind)| {
            let at = start + index.index(end - start);
            let mut text = GRANTS.to_owned();
            match kind {
                0 => text.insert(at, letter),
                1 => drop(text.remove(at)),
                _ => text.replace_range(at..=at, letter.to_string().as_str()),
            }
            text
        })
}

proptest::proptest! {
    /// [CFG-2]
    #[test]
    fn a_mistake_in_a_name_never_widens(text in mistakes()) {
        let mut servers = "[listen]\nauth = \"keys\"\n".to_owned();
        for name in ["alpha", "bravo-one", "charlie.two"] {
            servers += &format!("[[mcp.servers]]\nname = \"{name}\"\ncommand = \"x\"\n");
        }
        let before = allowed(&good(&format!("{servers}{GRANTS}")));
        if let Ok(loaded) = Folder::new().load(&format!("{servers}{text}")) {
            let after = allowed(&loaded);
            proptest::prop_assert!(after.is_subset(&before), "{text}\n{:?}", after.difference(&before));
        }
    }

    /// Whatever the text, the answer is a list of problems or settings.
    #[test]
    fn no_text_breaks_the_reader(text in "[\\[\\]a-z_=\"'#{}., 0-9$\n\u{e9}-]{0,80}") {
        drop(Folder::new().load(&text).map_err(|errors| errors.to_string()));
        let text = format!("[[mcp.servers]]\nname = \"a\"\n{text}");
        drop(Folder::new().load(&text).map_err(|errors| errors.to_string()));
    }
}

/// Every code of the configuration is met by some file, and every problem has one [OPS-2].
#[test]
fn every_code_of_the_configuration_is_met() {
    let policy = |lines: &str| with(&format!("[principals.p]\npolicy = \"q\"\n[policies.q]\n{lines}"));
    let met = [
        ("= 1", Code::Syntax),
        ("x = 1", Code::UnknownKey),
        ("[listen]\ntls_cert = \"x\"\nauth = \"jwt\"", Code::Later),
        ("[listen]\nhttp = 1", Code::WrongType),
        ("[listen]\nhttp = \"here\"", Code::BadValue),
        ("[[mcp.servers]]\nname = \"s\"", Code::Contradiction),
        (&with("[mcp_bundles.b]\nservers = [\"gti\"]"), Code::GrantsNothing),
        (&with("[principals.p]\nmcp_bundles = [\"b\"]"), Code::GrantsNothing),
        (&policy("allowed_tools = [\"gti__*\"]"), Code::GrantsNothing),
        (&with("[mcp_bundles.b]\nexclude = [\"gti\"]"), Code::ProtectsNothing),
        (&policy("excluded_tools = [\"gti__*\"]"), Code::ProtectsNothing),
        (&with("[principals.p]\npolicy = \"absent\""), Code::PolicyMissing),
        (&server("command = \"x\"\nenv = { A = \"${env:NOT_SET}\" }"), Code::Secret),
        (&server("command = \"x\"\nrequired = true\nenv = { A = \"${env:NOT_SET}\" }"), Code::Secret),
        ("[principals.a]\n[principals.b]", Code::OpenDoor),
        ("[listen]\nhttp = \"0.0.0.0:1\"\nauth = \"none\"", Code::OpenDoor),
        ("[listen]\nauth = \"none\"", Code::Doubtful),
        (&policy("allowed_tools = []"), Code::Doubtful),
        (&policy("[[policies.q.expect]]\ntool = \"git__a\"\nvisible = false"), Code::Expectation),
    ];
    for (text, code) in met {
        let found = match Folder::new().load(text) {
            Err(errors) => errors.0,
            Ok(loaded) => {
                let failed = loaded.expectations.into_iter().filter(|expectation| !expectation.holds());
                loaded.warnings.into_iter().chain(failed.map(|expectation| expectation.diagnostic)).collect()
            }
        };
        assert!(found.iter().any(|one| one.code == code), "{code:?}: {}\n{text}", Diagnostics(found));
        let shown = format!("[{}]", code.id());
        assert!(found.iter().any(|one| one.to_string().lines().next().unwrap().contains(&shown)), "{code:?}");
    }
    let unreadable = load(Path::new("absent.toml"), &|_| None).expect_err("no such file");
    assert_eq!(unreadable.0[0].code, Code::Unreadable);
    let met: BTreeSet<_> = met.iter().map(|(_, code)| *code).chain([Code::Unreadable]).collect();
    let all: BTreeSet<_> = Code::ALL.iter().copied().filter(|code| code.id().starts_with("P1")).collect();
    assert_eq!(met, all);
}

/// What is granted is what the connections say, and each names its line [CFG-1, CFG-2, POL-14].
#[test]
fn connections_say_what_grants_and_what_does_not() {
    let loaded = good(&with(
        "[mcp_bundles.a]\nservers = [\"git\"]\n[mcp_bundles.b]\nservers = [\"docs\"]\nexclude = \
         [\"docs\"]\n[principals.p]\nmcp_bundles = [\"a\"]\n[principals.q]\nmcp_bundles = [\"a\", \
         \"b\"]\n[principals.r]\nmcp_bundles = [\"a\", \"c\"]\n[principals.s]",
    ));
    let connection = |principal: &str, server: &str| {
        let place = loaded.places.principal(principal).unwrap();
        let connection = &place.connections[&UpstreamName::new(server).unwrap()];
        assert_eq!(connection.is_granted(), granted(&loaded, principal).contains(&server.to_owned()));
        match connection {
            Connection::Excluded { at, bundle } => ("excluded", at.line, bundle.clone()),
            Connection::ExcludedByUnknown { at, bundle } => ("unknown", at.line, bundle.clone()),
            Connection::Granted { at, bundle } => ("granted", at.line, bundle.clone()),
            Connection::Missing { at } => ("missing", at.line, String::new()),
            Connection::Unusable => ("unusable", 0, String::new()),
        }
    };
    assert_eq!(connection("p", "git"), ("granted", 10, "a".to_owned()));
    assert_eq!(connection("p", "docs"), ("missing", 15, String::new()));
    assert_eq!(connection("q", "docs"), ("excluded", 13, "b".to_owned()));
    assert_eq!(connection("r", "docs"), ("unknown", 19, "c".to_owned()));
    assert_eq!(connection("r", "git"), ("granted", 10, "a".to_owned()));
    assert_eq!(connection("s", "git"), ("missing", 20, String::new()));
}

/// A key in the wrong table is told its own [CFG].
#[test]
fn a_key_in_the_wrong_table_is_sent_home() {
    refused("[listen]\nauth = \"keys\"\ntool_timeout_secs = 1", "listen.tool_timeout_secs", &["[[mcp.servers]]"]);
    refused("[listen]\nauth = \"keys\"\n[mcp]\nexcluded_tools = []", "mcp.excluded_tools", &["[policies.NAME]"]);
    // Two tables have a key 'servers': neither is more likely.
    let errors = bad("[listen]\nauth = \"keys\"\n[log]\nservers = []");
    assert!(!errors.to_string().contains("belongs"), "{errors}");
}
