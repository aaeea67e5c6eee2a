//! What policies expect of themselves, judged without servers.

use std::path::Path;

use super::kit::{Folder, good, refused, warned, with};
use crate::config::{ExpectationResult, check_policy_file, load_text};

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
