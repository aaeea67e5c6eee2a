//! No text breaks the readers, and no secret leaves by anything but its file.

use proptest::prelude::*;

use super::{Format, read, read_client};
use crate::clients::{Client, Edit, Grant, Launch, Surroundings, draft, edit, trial, write};

const SAMPLES: [&str; 6] = [
    include_str!("../../tests/fixtures/clients/claude-code-2.1.user.json"),
    include_str!("../../tests/fixtures/clients/codex-0.159.config.toml"),
    include_str!("../../tests/fixtures/clients/cursor-2.mcp.json"),
    include_str!("../../tests/fixtures/clients/vscode-2026-05.mcp.json"),
    include_str!("../../tests/fixtures/clients/zed-2026.settings.json"),
    include_str!("../../tests/fixtures/clients/zeroclaw-0.8.config.toml"),
];

/// [CFG-6]: our own file has the same tables of servers and bundles as ZeroClaw's.
#[test]
fn our_own_file_is_not_taken_for_another() {
    let servers = "[[mcp.servers]]\nname = \"s\"\ncommand = \"x\"\n[mcp_bundles.b]\nservers = [\"s\"]\n";
    for own in ["[principals.ann]\nmcp_bundles = [\"b\"]\n", "[listen]\nauth = \"keys\"\n", "[policies.p]\n"] {
        let err = read(&format!("{servers}{own}")).unwrap_err();
        assert!(err.to_string().contains("of Portcullis already"), "{err}");
    }
    for theirs in ["", "[agents.a]\nmcp_bundles = [\"b\"]\n", "[listen]\n[risk_profiles.r]\n"] {
        assert_eq!(read(&format!("{servers}{theirs}")).unwrap().format, Format::ZeroClaw, "{theirs}");
    }
}

/// A sample with a piece of it replaced.
fn damaged() -> impl Strategy<Value = String> {
    (0..SAMPLES.len(), any::<prop::sample::Index>(), 0_usize..20, "[\\PC\n\"{}\\[\\],:/*=#]{0,6}").prop_map(
        |(sample, at, length, piece)| {
            let text = SAMPLES[sample];
            let start = text.floor_char_boundary(at.index(text.len()));
            let end = text.ceil_char_boundary((start + length).min(text.len()));
            format!("{}{piece}{}", text.get(..start).unwrap(), text.get(end..).unwrap())
        },
    )
}

proptest! {
    /// [CFG-6]
    #[test]
    fn no_text_breaks_the_readers(text in prop_oneof![damaged(), "\\PC{0,60}"]) {
        for client in Client::ALL {
            let _entries = read_client(client, &text).is_ok();
            let launch = Launch::Url("http://127.0.0.1/mcp".to_owned());
            let edits = [Edit { name: "figma".to_owned(), launch }];
            if let Ok(edited) = edit(client, &text, &edits) {
                prop_assert!(read_client(client, &edited).is_ok(), "{edited}");
            }
        }
        let Ok(found) = read(&text) else { return Ok(()) };
        let mut import = draft(found.entries, &Surroundings { env: &|_| None, workspace: None }, &[]);
        if let Some(zeroclaw) = found.zeroclaw {
            zeroclaw.carry(&mut import);
        }
        for grant in [Grant::AsTheFileSays, Grant::To("local".to_owned())] {
            if let Ok(written) = write(None, &import, &grant) {
                prop_assert!(written.text.parse::<toml::Table>().is_ok(), "{}", written.text);
            }
        }
    }

    /// [CFG-3, CFG-6]
    #[test]
    fn a_literal_value_is_in_its_file_alone(value in "[a-zA-Z0-9+/=$ .\"'\\\\-]{12,40}", header in any::<bool>()) {
        let quoted = serde_json::Value::from(value.as_str());
        let server = if header {
            format!(r#"{{"url":"http://h/","headers":{{"K":{quoted}}}}}"#)
        } else {
            format!(r#"{{"command":"x","env":{{"K":{quoted}}}}}"#)
        };
        let found = read(&format!(r#"{{"mcpServers":{{"s":{server}}}}}"#)).unwrap();
        let shown = format!("{found:?}");
        let import = draft(found.entries, &Surroundings { env: &|_| None, workspace: None }, &[]);
        let (trial, written) = (trial(&import), write(None, &import, &Grant::To("local".to_owned())).unwrap());
        prop_assert_eq!(written.secrets.len(), 1);
        prop_assert_eq!(written.secrets[0].value.expose(), &value);
        prop_assert_eq!(trial.variables.values().next().unwrap().expose(), &value);
        let drafted = import.drafts[0].describe() + &format!("{import:?}{written:?}{trial:?}");
        for text in [&written.text, &trial.text, &shown, &drafted] {
            prop_assert!(!text.contains(&value), "{text}");
        }
    }
}
