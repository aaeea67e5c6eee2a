//! `[limits.rates]`, `[limits.concurrency]`, and what servers and policies state.

use std::path::Path;

use crate::config::{Diagnostics, load_text};
use crate::id::{PrincipalId, UpstreamName};
use crate::limit::{Concurrency, LimitSettings, Own, Rates};

fn load(text: &str) -> Result<LimitSettings, Diagnostics> {
    load_text(Path::new("t.toml"), text, &|_| None).map(|loaded| loaded.settings.gateway.limits)
}

/// [LIM-5]
#[test]
fn limits_are_read() {
    let text = r#"
        [limits.rates]
        principal = "600/min burst 50"
        tool = "1/s"
        [limits.concurrency]
        principal = 4
        server = 8
        [[mcp.servers]]
        name = "a"
        command = "x"
        rate = "10/h"
        max_concurrent_calls = 1
        [[mcp.servers]]
        name = "b"
        command = "x"
        [principals.local]
        policy = "one"
        [principals.other]
        policy = "two"
        api_keys = []
        [listen]
        auth = "keys"
        [policies.one]
        rate = "5/s"
        max_queued_calls = 0
        [policies.two]
    "#;
    let rate = |text: &str| text.parse().ok();
    let limits = load(text).unwrap();
    assert_eq!(limits.rates, Rates { principal: rate("600/min burst 50"), server: None, tool: rate("1/s") });
    let queued = Concurrency::QUEUED;
    assert_eq!(limits.concurrency, Concurrency { principal: Some(4), server: Some(8), tool: None, queued });
    let server = Own { rate: rate("10/h"), concurrent: Some(1), queued: None };
    assert_eq!(limits.servers, [(UpstreamName::new("a").unwrap(), server)].into());
    let principal = Own { rate: rate("5/s"), concurrent: None, queued: Some(0) };
    assert_eq!(limits.principals, [(PrincipalId::new("local"), principal)].into());
    assert_eq!(load("[principals.local]").unwrap(), LimitSettings::default());
}

/// [CFG]: what is wrong is named with its place and what is right.
#[test]
fn bad_limits_are_named() {
    for (text, key, words) in [
        ("[limits.rates]\nprincipal = \"60\"", "limits.rates.principal", "must be a rate as \"60/min\""),
        ("[limits.rates]\ntool = 60", "limits.rates.tool", "must be a string, not a whole number"),
        ("[limits.rates]\ntools = \"1/s\"", "limits.rates.tools", "unknown key"),
        ("[limits.concurrency]\nserver = 0", "limits.concurrency.server", "must be from 1 to 100000"),
        ("[limits.concurrency]\nqueued = 10001", "limits.concurrency.queued", "must be from 0 to 10000"),
        ("[policies.p]\nmax_queued_calls = -1", "policies.p.max_queued_calls", "must be from 0 to 10000"),
        ("[[mcp.servers]]\nname = \"s\"\ncommand = \"x\"\nrate = \"1/day\"", "mcp.servers[0].rate", "must be a rate"),
    ] {
        let found = load(&format!("{text}\n[principals.local]\n")).unwrap_err();
        let found: Vec<_> = found.0.iter().filter(|one| one.key == key).collect();
        assert!(found.len() == 1 && found[0].message.contains(words), "{text}: {found:?}");
    }
}
