//! A configuration in a folder of its own, and what is said of it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::{Diagnostic, Diagnostics, Loaded, Severity, load};

pub(super) const CANARY: &str = "CANARY-f00d";

/// A folder of its own, removed at the end.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) env: HashMap<String, String>,
}

impl Folder {
    pub(super) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("portcullis-config-{}-{number}", std::process::id()));
        std::fs::create_dir_all(path.join("policies")).unwrap();
        Self { path, env: HashMap::new() }
    }

    pub(super) fn file(self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        std::fs::write(self.path.join(name), bytes).unwrap();
        self
    }

    pub(super) fn var(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(super) fn load(&self, text: &str) -> Result<Loaded, Diagnostics> {
        let path = self.path.join("portcullis.toml");
        std::fs::write(&path, text).unwrap();
        load(&path, &|name| self.env.get(name).cloned())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.path));
    }
}

pub(super) fn good(text: &str) -> Loaded {
    Folder::new().load(text).unwrap_or_else(|errors| panic!("{errors}"))
}

pub(super) fn bad(text: &str) -> Diagnostics {
    Folder::new().load(text).expect_err("this must be refused")
}

/// One error, and what its text holds.
pub(super) fn refused(text: &str, key: &str, parts: &[&str]) {
    let errors = bad(text);
    let found: Vec<_> = errors.0.iter().filter(|error| error.severity == Severity::Error).collect();
    assert_eq!(found.len(), 1, "{errors}");
    assert_eq!(found[0].key, key, "{errors}");
    for part in parts {
        assert!(found[0].to_string().contains(part), "{part} in\n{errors}");
    }
}

pub(super) fn places(errors: &[Diagnostic]) -> Vec<(usize, usize, &str, &str)> {
    let place = |error: &Diagnostic| error.place.as_ref().map_or((0, 0), |place| (place.line, place.column));
    errors.iter().map(|e| (place(e).0, place(e).1, e.key.as_str(), e.message.as_str())).collect()
}

pub(super) fn warned(loaded: &Loaded, key: &str, part: &str) {
    let text = Diagnostics(loaded.warnings.clone()).to_string();
    assert!(loaded.warnings.iter().any(|w| w.key == key && w.to_string().contains(part)), "{key}: {part} in\n{text}");
}

/// A file with two servers, to which a test adds.
pub(super) fn with(more: &str) -> String {
    format!(
        "[listen]\nauth = \"keys\"\n[[mcp.servers]]\nname = \"git\"\ncommand = \"git-server\"\n[[mcp.servers]]\nname = \
         \"docs\"\nurl = \"http://127.0.0.1:9/mcp\"\n{more}\n"
    )
}

/// A file with one server that a test describes.
pub(super) fn server(lines: &str) -> String {
    format!("[listen]\nauth = \"keys\"\n[[mcp.servers]]\nname = \"s\"\n{lines}\n")
}

pub(super) fn hash(key: &str) -> &'static str {
    match key {
        "secret" => "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
        _ => "0000000000000000000000000000000000000000000000000000000000000000",
    }
}

pub(super) fn granted(loaded: &Loaded, principal: &str) -> Vec<String> {
    let principal = loaded.settings.gateway.principals.iter().find(|p| p.id.as_str() == principal).unwrap();
    principal.granted.iter().map(ToString::to_string).collect()
}
