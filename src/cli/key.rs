//! `portcullis key new`: makes a key and prints it once. No file is touched [OPS-1, AUT-1].

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::codes::Code;
use crate::identity::ApiKeyHash;
use crate::seal;
use crate::secret::Secret;

use super::args::{Key, KeyAction};
use super::output::{data, say};
use super::trouble::{Exit, Trouble};

/// Begins every key, so that a scanner for leaked secrets can find one.
const PREFIX: &str = "portcullis_";
/// The randomness of a key, in bytes.
const BYTES: usize = 32;

pub(super) fn run(key: &Key) -> Result<Exit, Trouble> {
    let KeyAction::New { name } = &key.action;
    if name.is_empty() || name.chars().any(char::is_control) {
        let words = "the name of a principal must not be empty or hold control characters";
        return Err(Trouble::new(Exit::Usage, Code::Usage, words).fix("name a principal: portcullis key new alice"));
    }
    let random = seal::random::<BYTES>().map_err(|err| Trouble::new(Exit::Failure, Code::Machine, err.to_string()))?;
    let key = Secret::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random)));
    say(&format!("# add to [principals.{}]; the key itself is shown this once", table_key(name)));
    say(&format!("api_keys = [{{ sha256 = \"{}\" }}]", ApiKeyHash::of(key.expose()).to_hex()));
    data(format!("{}\n", key.expose()).as_bytes())
}

/// A name as it stands in the head of a table.
pub(super) fn table_key(name: &str) -> String {
    let bare = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if bare { name.to_owned() } else { toml::Value::from(name).to_string() }
}
