//! `initialize`: what every server of the older era is asked, and what it agrees to.
//!
//! Not for: sending it; each transport does that in its own way.

use crate::wire::bridge;
use crate::wire::json;
use crate::wire::mcp::{Capabilities, Era, Features, LEGACY_LATEST, ProtocolVersion};

/// Spells the members of its params, without braces.
pub(super) fn members(features: Features) -> String {
    format!(
        r#""protocolVersion":"{LEGACY_LATEST}","capabilities":{},"clientInfo":{}"#,
        features.spelled(Era::Legacy),
        String::from_utf8_lossy(&bridge::server_info())
    )
}

/// Reads a result: the version that is agreed on, and what the server can do. An error is the version as it is spelled,
/// which is none of this era's.
pub(super) fn agreed(result: &[u8]) -> Result<(ProtocolVersion, Capabilities), String> {
    let version = json::members(result).ok().and_then(|members| members.get("protocolVersion").ok().flatten());
    let version = version.and_then(json::text).unwrap_or_default().into_owned();
    match ProtocolVersion::from_text(&version).filter(|version| version.era() == Era::Legacy) {
        Some(agreed) => Ok((agreed, Capabilities::of_result(result))),
        None => Err(version),
    }
}
