//! The demo's configuration: two servers, two principals, loopback alone.

use std::path::Path;

use crate::codes::Code;
use crate::config::{self, Diagnostics, Loaded};
use crate::identity::ApiKeyHash;

/// The demo cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// Its own configuration is wrong.
    #[error("the demo's configuration is wrong:\n{0}")]
    Config(Diagnostics),
    /// Its HTTP server did not start.
    #[error("the demo's server did not start: {0}")]
    Start(#[from] std::io::Error),
}

impl DemoError {
    /// Returns the code that a person can look up [OPS-2].
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Config(_) | Self::Start(_) => Code::Demo,
        }
    }
}

/// The policies of the two principals, as they stand in `policies/`.
const ALICE: &str = include_str!("../../policies/demo-full.toml");
const BOB: &str = include_str!("../../policies/demo-reader.toml");

/// Makes the demo's settings; `program` is this binary, `url` where its server answers over HTTP.
///
/// # Errors
/// [`DemoError::Config`].
pub fn settings(program: &Path, url: &str) -> Result<Loaded, DemoError> {
    let text = configuration(program, url);
    config::load_text(Path::new("the built-in demo"), &text, &|_| None).map_err(DemoError::Config)
}

/// Writes the demo's configuration.
#[must_use]
pub fn configuration(program: &Path, url: &str) -> String {
    let program = toml::Value::from(program.display().to_string());
    let inline = |text: &str, name: &str| text.replace("[[expect]]", &format!("[[policies.{name}.expect]]"));
    format!(
        r#"
[listen]
http = "127.0.0.1:7800"
admin = "127.0.0.1:7801"
auth = "keys"

[[mcp.servers]]
name = "demo"
command = {program}
args = ["demo-server"]
required = true

[[mcp.servers]]
name = "demo-http"
url = "{url}"
required = true

[mcp_bundles.demo]
servers = ["demo", "demo-http"]

[principals.alice]
mcp_bundles = ["demo"]
policy = "demo-full"
api_keys = [{{ sha256 = "{alice}" }}]

[principals.bob]
mcp_bundles = ["demo"]
policy = "demo-reader"
api_keys = [{{ sha256 = "{bob}" }}]

[policies.demo-full]
{full}

[policies.demo-reader]
{reader}
"#,
        alice = ApiKeyHash::of("demo-alice").to_hex(),
        bob = ApiKeyHash::of("demo-bob").to_hex(),
        full = inline(ALICE, "demo-full"),
        reader = inline(BOB, "demo-reader"),
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn the_demo_loads_and_its_expectations_hold() {
        let loaded = super::settings(Path::new("/bin/portcullis"), "http://127.0.0.1:1/mcp").unwrap();
        assert_eq!(loaded.settings.gateway.principals.len(), 2);
        assert!(loaded.warnings.is_empty() && !loaded.expectations.is_empty());
        assert!(loaded.expectations.iter().all(crate::config::ExpectationResult::holds));
    }
}
