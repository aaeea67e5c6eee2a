//! A mistake in a name never widens what somebody may do.

use std::collections::BTreeSet;

use proptest::prelude::{Strategy, any, prop};

use super::kit::{Folder, good};
use crate::config::Loaded;
use crate::id::UpstreamName;
use crate::policy::{Action, Decision, Subject};

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
