//! What results are made smaller by, as the file says it.

use std::path::Path;
use std::time::Duration;

use crate::config::{Loaded, load_text};
use crate::id::UpstreamName;
use crate::policy::{BlobMode, CapRules, Overflow, PathsFor};

fn load(text: &str) -> Result<Loaded, Vec<String>> {
    load_text(Path::new("portcullis.toml"), text, &|_| None)
        .map_err(|found| found.0.into_iter().map(|one| format!("{}: {}", one.key, one.message)).collect())
}

/// [LIM-2, LIM-3, LIM-7, CTX-5]
#[test]
fn every_key_is_read() {
    let loaded = load(
        r#"
[mcp]
blobs = "link"
blob_paths = true
overflow = "drop"
[[mcp.servers]]
name = "one"
command = "x"
blobs = "pass"
[limits]
blob_item_bytes = 1000
overflow_bytes = 2000
overflow_disk = true
overflow_secs = 60
upload_bytes = 3000
upload_secs = 120
[principals.local]
policy = "p"
[policies.p]
blobs = "file"
blob_paths = false
max_result_chars = 8000
overflow = "link"
"#,
    )
    .unwrap();
    let gateway = loaded.settings.gateway;
    let all = CapRules {
        blobs: Some(BlobMode::Link),
        blob_paths: Some(PathsFor::All),
        max_result_chars: None,
        overflow: Some(Overflow::Drop),
    };
    assert_eq!(gateway.caps, all);
    assert_eq!(gateway.server_blobs.get(&UpstreamName::new("one").unwrap()), Some(&BlobMode::Pass));
    let policy = CapRules {
        blobs: Some(BlobMode::File),
        blob_paths: Some(PathsFor::Local),
        max_result_chars: Some(8000),
        overflow: Some(Overflow::Link),
    };
    assert_eq!(gateway.principals[0].profile.as_ref().unwrap().caps, policy);
    let kept = gateway.blob;
    assert_eq!((kept.item_bytes_max, kept.overflow_bytes_max, kept.upload_bytes_max), (1000, 2000, 3000));
    assert_eq!((kept.overflow_age, kept.upload_age), (Duration::from_secs(60), Duration::from_secs(120)));
    assert!(kept.overflow_disk);
}

/// [LIM-2, LIM-3, LIM-7]: what holds where nothing is said.
#[test]
fn the_defaults_are_those_of_the_product() {
    let gateway = load("[principals.local]\n").unwrap().settings.gateway;
    let kept = gateway.blob;
    let bytes = (kept.item_bytes_max, kept.upload_bytes_max, kept.overflow_bytes_max);
    assert_eq!(bytes, (10_485_760, 268_435_456, 67_108_864));
    assert_eq!((kept.overflow_age, kept.upload_age), (Duration::from_secs(900), Duration::from_secs(86_400)));
    assert!(!kept.overflow_disk && gateway.caps.max_result_chars.is_none());
}

#[test]
fn what_cannot_be_is_said() {
    let local = "[principals.local]\nmcp_bundles = [\"b\"]\n[mcp_bundles.b]\nservers = []\n";
    let found = load(&format!("{local}[mcp]\nblobs = \"links\"\n[limits]\nblob_item_bytes = 10485761\n")).unwrap_err();
    assert_eq!(found.len(), 2, "{found:?}");
    let found = load(&format!("{local}[policies.p]\nmax_result_chars = 255\n")).unwrap_err();
    assert!(found[0].contains("at least 256"), "{found:?}");
    let none = load("[principals.local]\npolicy = \"p\"\n[policies.p]\nmax_result_chars = 0\n").unwrap();
    let profile = none.settings.gateway.principals[0].profile.clone().unwrap();
    assert_eq!(profile.caps.max_result_chars, None);
}

/// [LIM-1]: whose answers nobody looks at, no rule applies to.
#[test]
fn a_rule_for_what_is_not_looked_at_is_doubtful() {
    let text = "[[mcp.servers]]\nname = \"one\"\nurl = \"http://127.0.0.1:1/\"\ninspect = \"off\"\nblobs = \"link\"\n\
                [principals.local]\n";
    let words: Vec<String> = load(text).unwrap().warnings.into_iter().map(|one| one.message).collect();
    assert!(words.iter().any(|words| words.contains("no rule for blobs, text or names applies")), "{words:?}");
    assert!(words.iter().any(|words| words.contains("has no effect")), "{words:?}");
}
