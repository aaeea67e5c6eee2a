//! The decision, list by list.

use std::collections::BTreeSet;

use super::{Action, Decision, Denial, Subject};
use crate::id::UpstreamName;
use crate::policy::{EmptyAllow, Narrow, Pattern, Profile};
use crate::wire::mcp::Kind;

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::new(text).unwrap()).collect()
}

fn decide(profile: Option<&Profile>, shown: &str, full: &str) -> Decision {
    let server = UpstreamName::new("git").unwrap();
    let granted = BTreeSet::from([server.clone()]);
    Subject { granted: &granted, profile }.decide(&Action { kind: Kind::Tools, server: &server, shown, full })
}

/// [CFG-1, AUT-1]
#[test]
fn a_server_must_be_granted_and_no_policy_means_all_of_it() {
    assert_eq!(decide(None, "git__a", "git__a"), Decision::Allow);
    let other = UpstreamName::new("other").unwrap();
    let subject = Subject { granted: &BTreeSet::new(), profile: None };
    let action = Action { kind: Kind::Tools, server: &other, shown: "other__a", full: "other__a" };
    assert_eq!(subject.decide(&action).permit(()).err(), Some(Denial::ServerNotGranted));
}

/// [POL-1, POL-2]
#[test]
fn deny_wins_and_both_names_count() {
    let profile = Profile {
        allowed_tools: Some(patterns(&["git__*"])),
        excluded_tools: patterns(&["git__a.very_long_original*"]),
        ..Profile::default()
    };
    assert_eq!(decide(Some(&profile), "git__b", "git__b"), Decision::Allow);
    let cut = ("git__a_12345678", "git__a.very_long_original_name");
    assert_eq!(decide(Some(&profile), cut.0, cut.1), Decision::Deny(Denial::Excluded));
    let by_full = Profile { allowed_tools: Some(patterns(&["git__a.very*"])), ..Profile::default() };
    assert_eq!(decide(Some(&by_full), cut.0, cut.1), Decision::Allow);
    assert_eq!(decide(Some(&by_full), "git__b", "git__b"), Decision::Deny(Denial::NotAllowed));
    assert_eq!(decide(Some(&Profile::deny_all()), "git__b", "git__b"), Decision::Deny(Denial::Excluded));
}

/// [POL-3]
#[test]
fn auto_admit_lets_in_what_is_not_excluded() {
    let mut profile = Profile {
        allowed_tools: Some(patterns(&["git__a"])),
        auto_admit: true,
        excluded_tools: patterns(&["git__c"]),
        ..Profile::default()
    };
    assert_eq!(decide(Some(&profile), "git__b", "git__b"), Decision::Allow);
    assert_eq!(decide(Some(&profile), "git__c", "git__c"), Decision::Deny(Denial::Excluded));
    profile.deny_all_tools = true;
    assert_eq!(decide(Some(&profile), "git__b", "git__b"), Decision::Deny(Denial::Excluded));
    let empty = Profile {
        allowed_tools: Some(Vec::new()),
        auto_admit: true,
        empty_allow: EmptyAllow::None,
        ..Profile::default()
    };
    assert_eq!(decide(Some(&empty), "git__b", "git__b"), Decision::Deny(Denial::NotAllowed));
}

/// [POL-2]
#[test]
fn an_empty_allow_list_means_what_the_file_says() {
    let mut profile = Profile { allowed_tools: Some(Vec::new()), ..Profile::default() };
    assert_eq!(decide(Some(&profile), "git__b", "git__b"), Decision::Allow);
    profile.empty_allow = EmptyAllow::None;
    assert_eq!(decide(Some(&profile), "git__b", "git__b"), Decision::Deny(Denial::NotAllowed));
    profile.allowed_tools = None;
    assert_eq!(decide(Some(&profile), "git__b", "git__b"), Decision::Allow);
}

fn decide_on(profile: &Profile, kind: Kind, shown: &str, full: &str) -> Decision {
    let server = UpstreamName::new("git").unwrap();
    let granted = BTreeSet::from([server.clone()]);
    Subject { granted: &granted, profile: Some(profile) }.decide(&Action { kind, server: &server, shown, full })
}

fn allowed(profile: &Profile, uri: &str) -> bool {
    decide_on(profile, Kind::Resources, &format!("git+{uri}"), &format!("git__{uri}")) == Decision::Allow
}

/// [POL-15]: all that is no tool exists if the server is granted and not denied whole.
#[test]
fn a_server_that_is_denied_whole_has_nothing() {
    let rows = [
        (Profile::default(), true),
        (Profile::deny_all(), false),
        (Profile { excluded_tools: patterns(&["git__*"]), ..Profile::default() }, false),
        (Profile { excluded_tools: patterns(&["gi*"]), ..Profile::default() }, false),
        (Profile { excluded_tools: patterns(&["*"]), ..Profile::default() }, false),
        (Profile { excluded_tools: patterns(&["git__a*"]), ..Profile::default() }, true),
        (Profile { allowed_tools: Some(patterns(&["git__a"])), ..Profile::default() }, true),
        (Profile { allowed_tools: Some(patterns(&["g*"])), ..Profile::default() }, true),
        (Profile { allowed_tools: Some(patterns(&["other__*"])), ..Profile::default() }, false),
        (Profile { allowed_tools: Some(patterns(&["other__*"])), auto_admit: true, ..Profile::default() }, true),
        (Profile { allowed_tools: Some(Vec::new()), ..Profile::default() }, true),
        (Profile { allowed_tools: Some(Vec::new()), empty_allow: EmptyAllow::None, ..Profile::default() }, false),
    ];
    for (profile, sees) in rows {
        let server = UpstreamName::new("git").unwrap();
        let granted = BTreeSet::from([server.clone()]);
        let subject = Subject { granted: &granted, profile: Some(&profile) };
        assert_eq!(subject.sees_server(&server), sees, "{profile:?}");
        for kind in [Kind::Prompts, Kind::Resources, Kind::Templates] {
            assert_eq!(decide_on(&profile, kind, "x", "git__x") == Decision::Allow, sees, "{kind:?} {profile:?}");
        }
        assert!(!Subject { granted: &BTreeSet::new(), profile: Some(&profile) }.sees_server(&server));
    }
}

/// [POL-15]: the lists of prompts and resources narrow further, each its own kind alone.
#[test]
fn prompts_and_resources_are_narrowed_by_their_own_lists() {
    let narrow = |allowed: Option<&[&str]>, excluded: &[&str]| Narrow {
        allowed: allowed.map(patterns),
        excluded: patterns(excluded),
    };
    let profile = Profile {
        prompts: narrow(Some(&["git__a*"]), &["git__ab"]),
        resources: narrow(None, &["git__file:///secret/*", "git+x:no"]),
        ..Profile::default()
    };
    let prompt = |name: &str| decide_on(&profile, Kind::Prompts, name, name) == Decision::Allow;
    assert!(prompt("git__a") && prompt("git__ac") && !prompt("git__ab") && !prompt("git__b"));
    assert!(allowed(&profile, "file:///open") && !allowed(&profile, "file:///secret/x") && !allowed(&profile, "x:no"));
    assert_eq!(decide_on(&profile, Kind::Tools, "git__b", "git__b"), Decision::Allow);
    // A server's tool may be denied, and its resources read.
    let tools = Profile { excluded_tools: patterns(&["git__b"]), ..Profile::default() };
    assert!(allowed(&tools, "file:///open"));
}

/// [POL-15]: another spelling of a URI is no way around a rule.
#[test]
fn no_spelling_of_a_uri_slips_past() {
    let without = Profile {
        resources: Narrow { excluded: patterns(&["git__file:///secret*"]), ..Narrow::default() },
        ..Profile::default()
    };
    let only = Profile {
        resources: Narrow { allowed: Some(patterns(&["git__file:///pub/*"])), ..Narrow::default() },
        ..Profile::default()
    };
    for uri in [
        "FILE:///secret",
        "file:///%73ecret",
        "file:///x/../secret",
        "file:////secret",
        "file:///x/%2e%2e/secret",
        "file:///./secret",
        "file:/secret",
        "file:secret",
        "file://localhost/secret",
        "file:///x\\..\\secret",
        "fi\tle:///sec\nret",
        "file:///%73ecret?x=/../pub/b",
        "file:///%73ecret#/../pub/b",
    ] {
        assert!(!allowed(&without, uri) && !allowed(&only, uri), "{uri}");
    }
    for uri in [
        "file:///pub/../secret",
        "file:///pub/%2e%2e/secret",
        "file:///pub/..%2fsecret",
        "file:///pub/..%2fsecret?/../pub/b",
    ] {
        assert!(!allowed(&without, uri) && !allowed(&only, uri), "{uri}");
    }
    assert!(allowed(&only, "file:///pub/a%20b") && allowed(&without, "file:///pub/a%20b"));
}

/// A profile that subtracts this from the resources.
fn without(pattern: &str) -> Profile {
    Profile { resources: Narrow { excluded: patterns(&[pattern]), ..Narrow::default() }, ..Profile::default() }
}

/// A profile that grants these resources alone.
fn only(pattern: &str) -> Profile {
    Profile { resources: Narrow { allowed: Some(patterns(&[pattern])), ..Narrow::default() }, ..Profile::default() }
}

/// The decision about a resource as a client of all servers asks for it.
fn reads(profile: &Profile, own: &str) -> bool {
    let shown = crate::catalog::shown_uri("git", own);
    decide_on(profile, Kind::Resources, &shown, &format!("git__{own}")) == Decision::Allow
}

/// [POL-15, NAM-4]: a pattern may be spelled in each way in which a URI is shown or written, and means the same resources.
#[test]
fn no_spelling_of_a_pattern_lets_slip() {
    for (pattern, uris) in [
        ("git+file:///secret/*", ["file:///secret/b c", "file:///secret/\u{e9}", "file:///secret/a|b[{\"%"].as_slice()),
        ("git__file:///secret/*", &["file:///secret/b c", "file:///x/../secret/my%20notes.txt"]),
        (
            "git+file:///my%20secret/*",
            &["file:///%6dy%20secret/b", "file:///my secret/b", "file:///x/../my%20secret/b"],
        ),
        ("git+https://Docs.Example/*", &["https://docs.example/a", "HTTPS://DOCS.EXAMPLE/a"]),
        ("git+https://Docs.Exam*", &["https://docs.example/a"]),
        (
            "ui://git/x/*",
            &["ui://x/y", "ui://X/y", "ui://%78/y", "UI://x/y", "ui://./x/y", "ui:///x/y", "ui://a/../../x/y?z"],
        ),
        ("ui://git/%78/*", &["ui://x/y", "ui://./x/y"]),
        ("ui://git/X/*", &["ui://x/y"]),
        ("ui://g*", &["ui://x/y", "UI://x/y"]),
        ("git+raw:ZmlsZTovLy9zZWNyZXQvYSBi", &["file:///secret/a b", "file:///secret/a%20b"]),
        ("git+file:///secret/a", &["file://127.0.0.1/secret/a", "file://user@/secret/a?x", "file://:80/secret/a"]),
        ("git+file:///home/.*", &["file:///home/.ssh", "file:///home/%2essh"]),
    ] {
        for uri in uris {
            assert!(!reads(&without(pattern), uri), "{pattern}: {uri}");
        }
    }
    assert!(reads(&without("git+file:///home/.*"), "file:///home/a"));
    assert!(reads(&without("git+raw:ZmlsZTov*"), "file:///a"));
    for (pattern, uri) in [
        ("git+file:///pub/my%20doc.txt", "file:///pub/my%20doc.txt"),
        ("git+file:///pub/*", "file:///pub/my doc.txt"),
        ("git+file:///pub/*", "file:///pub/\u{e9}"),
        ("git+https://Docs.Example/*", "https://Docs.Example/a"),
        ("ui://git/x/*", "ui://x/My%20App"),
        ("git+raw:ZmlsZTovLy9zZWNyZXQvYSBi", "file:///secret/a b"),
        ("git__*", "file:///a b"),
        ("*", "file:///a b"),
    ] {
        assert!(reads(&only(pattern), uri), "{pattern}: {uri}");
    }
    for uri in ["file:///x/../pub/a", "file:///pub/../x", "file://other/pub/a", "file:///%70ub/a"] {
        assert!(!reads(&only("git+file:///pub/*"), uri), "{uri}");
    }
    // What grants is not widened by its plain spelling.
    for (pattern, uri) in [
        ("git+file:///my%20*", "file:///mysecret"),
        ("git__file:///my *", "file:///mysecret"),
        ("git+file:///pub%2fa/*", "file:///pub/a/b"),
        ("git+file:///pub/.*", "file:///pub/../secret"),
    ] {
        assert!(!reads(&only(pattern), uri), "{pattern}: {uri}");
    }
    let template = |profile: &Profile, own: &str| {
        let shown = crate::catalog::shown_template("git", own);
        decide_on(profile, Kind::Templates, &shown, &format!("git__{own}")) == Decision::Allow
    };
    for own in ["file:///secret/my dir/{x}", "file:///secret/{x}", "FILE:///x/../secret/{x}", "file:///%73ecret/{x}"] {
        assert!(!template(&without("git+file:///secret/*"), own), "{own}");
        assert!(!template(&only("git+file:///pub/*"), own), "{own}");
    }
    assert!(template(&only("git+file:///pub/*"), "file:///pub/my dir/{x}"));
    assert!(template(&without("git+file:///secret/*"), "file:///{x}"));
}

/// [POL-15]: a template is shown if something that it may become can be read, and hidden if nothing can.
#[test]
fn a_template_is_judged_by_what_it_may_become() {
    let template = |profile: &Profile, template: &str| {
        decide_on(profile, Kind::Templates, &format!("git+{template}"), &format!("git__{template}")) == Decision::Allow
    };
    let without = |pattern: &str| Profile {
        resources: Narrow { excluded: patterns(&[pattern]), ..Narrow::default() },
        ..Profile::default()
    };
    assert!(!template(&without("git__file:///a/*"), "file:///a/{x}"));
    assert!(template(&without("git__file:///a/b*"), "file:///a/{x}"));
    let only = |pattern: &str| Profile {
        resources: Narrow { allowed: Some(patterns(&[pattern])), ..Narrow::default() },
        ..Profile::default()
    };
    assert!(template(&only("git__file:///a/b*"), "file:///a/{x}") && template(&only("git+file:*"), "file:///a/{x}"));
    assert!(!template(&only("git__file:///b*"), "file:///a/{x}"));
}
