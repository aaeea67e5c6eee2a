//! What is written into our own file.

use super::{Grant, WriteError, escaped, existing, write};
use crate::clients::{Import, Surroundings, draft, read};

fn import(servers: &str) -> Import {
    let around = Surroundings { env: &|_| None, workspace: None };
    draft(read(&format!(r#"{{"mcpServers":{servers}}}"#)).unwrap().entries, &around, &[])
}

const TWO: &str = r#"{"a":{"command":"x","args":["1"],"env":{"T":"secret-1","E":""}},"b":{"url":"http://h/$x","headers":{"H":"secret-2"}}}"#;

fn local() -> Grant {
    Grant::To("local".to_owned())
}

/// [CFG-6]: what stood in the file stays, byte for byte, around what is added.
#[test]
fn an_existing_file_keeps_its_bytes() {
    let old = "# mine\n[listen]\nauth = \"none\"   # loopback\n\n[[mcp.servers]]\nname = \"old\"  # kept\ncommand = \"y\"\n\n[mcp_bundles.imported]\nservers = [ \"old\" ] # list\n\n[principals]\nlocal = { mcp_bundles = [\"x\"] }\n\n[log]\nlevel = \"info\" # end\n";
    for (old, ends) in [(old.to_owned(), "\n"), (old.replace('\n', "\r\n"), "\r\n"), (format!("\u{feff}{old}"), "\n")] {
        let written = write(Some(&old), &import(TWO), &local()).unwrap().text;
        let mut lines = written.split(ends);
        for line in old.split(ends).filter(|line| !line.contains("servers = [") && !line.contains("local =")) {
            assert!(lines.any(|written| written == line), "{line:?} is gone from {written}");
        }
        assert!(written.contains("servers = [ \"old\" , \"a\", \"b\"] # list"), "{written}");
        assert!(written.contains("local = { mcp_bundles = [\"x\", \"imported\"] }"), "{written}");
        assert_eq!(written.matches('\r').count(), if ends == "\n" { 0 } else { written.matches('\n').count() });
    }
}

/// [CFG-6]
#[test]
fn what_cannot_be_added_to_is_said() {
    let refuse = |text: &str| write(Some(text), &import(TWO), &local()).unwrap_err();
    assert_eq!(refuse("mcp = { servers = [] }\n"), WriteError::Table("mcp".to_owned()));
    assert_eq!(refuse("[mcp]\nservers = []\n"), WriteError::Table("[mcp.servers]".to_owned()));
    assert!(matches!(refuse("[mcp_bundles.imported]\nservers = 1\n"), WriteError::Syntax(_)));
    assert!(matches!(refuse("x = \"secret"), WriteError::Syntax(why) if !why.contains("secret")));
    assert!(matches!(refuse("a = 1\r\nb = 2\n"), WriteError::Syntax(why) if why.contains("line ends")));
    let there = existing("[mcp]\nservers = [{ name = \"a\", command = \"x\", args = [\"1\"] }]\n").unwrap();
    assert_eq!((there.len(), there[0].name.as_str()), (1, "a"));
}

/// [CFG-3]: what a client's file says literally is literal in ours.
#[test]
fn a_dollar_is_doubled_where_it_would_begin_a_reference() {
    for (text, alone, before_reference) in [
        ("pa$$word$", "pa$$word$", "pa$$word$$"),
        ("${x} $$${ $", "$${x} $$$$$${ $", "$${x} $$$$$${ $$"),
        ("", "", ""),
        ("$é{", "$é{", "$é{"),
    ] {
        assert_eq!((escaped(text, false).as_str(), escaped(text, true).as_str()), (alone, before_reference));
    }
}
