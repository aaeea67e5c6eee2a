//! How problems are told: all at once, each with its place and its code [OPS-2].

use std::collections::BTreeSet;
use std::path::Path;

use super::kit::{Folder, bad, good, granted, places, refused, server, warned, with};
use crate::codes::Code;
use crate::config::{Color, Diagnostics, load, render};
use crate::gateway::Auth;
use crate::upstream::Transport;

/// [LIM-1]: the default of `max_response_bytes` among the rest.
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
    // [CTX-2, OPS-2]: whichever table such a key stands in, it is one of the product.
    let errors = bad("[listen]\nauth = \"keys\"\n[mcp]\nschema_profile = \"common\"\n");
    assert_eq!((errors.0.len(), errors.0[0].code), (1, Code::Later), "{errors}");
    refused(&server("command = \"x\"\nsandbox = true"), "mcp.servers[0].sandbox", &["not supported in this"]);
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

/// A key in the wrong table is told its own [CFG].
#[test]
fn a_key_in_the_wrong_table_is_sent_home() {
    refused("[listen]\nauth = \"keys\"\ntool_timeout_secs = 1", "listen.tool_timeout_secs", &["[[mcp.servers]]"]);
    refused("[listen]\nauth = \"keys\"\n[mcp]\nexcluded_tools = []", "mcp.excluded_tools", &["[policies.NAME]"]);
    // Two tables have a key 'servers': neither is more likely.
    let errors = bad("[listen]\nauth = \"keys\"\n[log]\nservers = []");
    assert!(!errors.to_string().contains("belongs"), "{errors}");
}

/// Who knows servers from another program's file, or writes a command as in a shell, is told how it is written here [OPS-2].
#[test]
fn words_of_other_files_are_led_home() {
    let principal = "[principals.local]\n";
    for table in ["[mcpServers.a]\ncommand = \"x\"", "[[servers]]\nname = \"a\""] {
        let key = if table.contains("mcpServers") { "mcpServers" } else { "servers" };
        refused(&format!("{principal}{table}"), key, &["[[mcp.servers]]"]);
    }
    refused(&format!("{principal}[mcp.servers.a]\ncommand = \"x\""), "mcp.servers", &["a list", "[[mcp.servers]]"]);
    warned(&good(&server("command = \"npx -y some-server\"")), "mcp.servers[0].command", "args");
    assert_eq!(places(&good(&server("command = \"/opt/my tools/run\"")).warnings), []);
    // An empty name is nothing that could have been meant.
    let text =
        bad(&with("[[mcp.servers]]\nname = \"\"\ncommand = \"x\"\n[mcp_bundles.all]\nservers = [\"x\"]")).to_string();
    assert!(!text.contains("did you mean ''"), "{text}");
}

/// What holds no secret is shown, so that the mistake can be seen.
#[test]
fn a_word_or_a_rate_is_shown_as_it_stands() {
    refused(&with("[limits.rates]\nprincipal = \"600\""), "limits.rates.principal", &["\"600\"", "60/min"]);
    refused(&server("command = \"x\"\nisolation = \"mine\""), "mcp.servers[0].isolation", &["\"mine\""]);
}
