//! Who is connected to what, and the patterns of policies [CFG-1, CFG-2, CFG-7].

use super::kit::{Folder, good, granted, places, refused, server, warned, with};
use crate::codes::Code;
use crate::config::Connection;
use crate::id::UpstreamName;
use crate::policy::EmptyAllow;

/// [CFG-1]: a principal without a bundle is connected to nothing, and told so with what to do.
#[test]
fn a_principal_without_bundles_is_named() {
    let loaded = good(&with("[principals.p]\n[principals.q]\nmcp_bundles = []\n"));
    let add = "add [mcp_bundles.NAME]";
    warned(&loaded, "principals.p", add);
    warned(&loaded, "principals.q.mcp_bundles", add);
    let bundle = "[mcp_bundles.b]\nservers = [\"git\"]\n";
    let loaded = good(&with(&format!("{bundle}[principals.p]\n[principals.q]\nmcp_bundles = [\"b\"]\n")));
    warned(&loaded, "principals.p", "mcp_bundles = [\"b\"]");
    let about: Vec<_> = loaded.warnings.iter().filter(|one| one.message.contains("names no bundle")).collect();
    assert!(about.len() == 1 && about[0].code == Code::Doubtful, "{about:?}");
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
