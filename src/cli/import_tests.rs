//! What `clients` writes, as `config` reads it.

use std::path::Path;

use crate::clients::{Grant, Import, Surroundings, draft, read, trial, write};
use crate::config;

fn import(servers: &str) -> Import {
    let around = Surroundings { env: &|_| None, workspace: None };
    draft(read(&format!(r#"{{"mcpServers":{servers}}}"#)).unwrap().entries, &around, &[])
}

const TWO: &str = r#"{"a":{"command":"x","args":["1"],"env":{"T":"secret-1","E":""}},"b":{"url":"http://h/$x","headers":{"H":"secret-2"}}}"#;

fn local() -> Grant {
    Grant::To("local".to_owned())
}

/// [CFG-6]
#[test]
fn a_new_file_loads_and_holds_no_secret() {
    let written = write(None, &import(TWO), &local()).unwrap();
    assert!(!written.text.contains("secret-"), "{}", written.text);
    let secrets: Vec<_> =
        written.secrets.iter().map(|secret| (secret.path.as_str(), secret.value.expose().as_str())).collect();
    assert_eq!(secrets, [("secrets/a/T", "secret-1"), ("secrets/b/H", "secret-2")]);
    let loaded = config::load_text(Path::new("x.toml"), &written.text, &|_| None).unwrap();
    // The secret files do not exist: the servers are known, and disabled for that reason alone.
    assert_eq!(loaded.settings.disabled.len(), 2, "{:?}", loaded.settings.disabled);
    assert!(loaded.settings.disabled.iter().all(|(_, why)| why.contains("secret file")));
}

/// [CFG-6]
#[test]
fn the_trial_has_the_same_servers_and_no_files() {
    let import = import(TWO);
    let trial = trial(&import);
    assert!(!trial.text.contains("secret-") && !trial.text.contains("${file:"), "{}", trial.text);
    let env = |name: &str| trial.variables.get(name).map(|value| value.expose().clone());
    let loaded = config::load_text(Path::new("x.toml"), &trial.text, &env).unwrap();
    let names: Vec<_> = loaded.settings.gateway.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(!format!("{trial:?}").contains("secret-"));
}
