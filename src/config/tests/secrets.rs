//! References to secrets, and that no error shows one [CFG-3].

use super::kit::{CANARY, Folder, bad, granted, refused, server, with};
use crate::config::{Color, Diagnostics, Severity, render};
use crate::upstream::Transport;

/// [CFG-3, FC-CFG-01]: and what is literal is what it says; a '$' is doubled only where it would begin a reference.
#[test]
fn references_expand_in_env_headers_and_url_alone() {
    let folder = Folder::new().var("T", "tok").var("EMPTY", "").file("key", "abc\r\n");
    let text = server(
        "command = \"x\"\nargs = [\"$HOME\", \"a b\", \"*\", \"\", \"$$\"]\n\
         env = { A = \"Bearer ${env:T}\", B = \"${file:key}${env:T}\", C = \"$$x$y$${env:T}\", D = \"\",\
         E = \"pa$$word$$\", F = \"$$${env:T}$$$${\" }",
    );
    let loaded = folder.load(&text).unwrap();
    let Transport::Stdio { env, args, .. } = &loaded.settings.gateway.servers[0].transport else { panic!() };
    let values: Vec<_> = env.iter().map(|(_, value)| value.expose().as_str()).collect();
    assert_eq!(values, ["Bearer tok", "abctok", "$$x$y${env:T}", "", "pa$$word$$", "$tok$${"]);
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
