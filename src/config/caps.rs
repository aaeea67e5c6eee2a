//! What results are made smaller by, and what is kept of them: `blobs`, `overflow`, `max_result_chars` and their bounds.

use std::time::Duration;

use crate::blob::BlobSettings;
use crate::policy::{BlobMode, CapRules, Overflow, PathsFor};

use super::reader::{Table, Value};

/// The largest value of `max_result_chars`.
pub(super) const RESULT_CHARS_MAX: u64 = 1 << 30;
/// The largest value of the keys in seconds: a week.
pub(super) const SECS_MAX: u64 = 604_800;
/// The largest value of the keys in bytes.
pub(super) const BYTES_MAX: u64 = 1 << 40;

/// Reads the keys of `[mcp]` or a policy; a table that does not have one of them leaves it open.
pub(super) fn rules(table: &Table<'_>) -> CapRules {
    let chars = table.get("max_result_chars").and_then(|value| {
        let range = 0..=RESULT_CHARS_MAX;
        let chars = usize::try_from(value.number(&range)?).ok()?;
        if (1..CapRules::RESULT_CHARS_MIN).contains(&chars) {
            let least = CapRules::RESULT_CHARS_MIN;
            value.error(format!("must be 0 (no cap) or at least {least}: the words that say what was cut count too"));
        }
        (chars > 0).then_some(chars)
    });
    CapRules {
        blobs: table.get("blobs").and_then(|value| mode(&value)),
        blob_paths: table.get("blob_paths").and_then(|value| value.flag()).map(|all| match all {
            true => PathsFor::All,
            false => PathsFor::Local,
        }),
        max_result_chars: chars,
        overflow: table
            .get("overflow")
            .and_then(|value| value.choice(&[("drop", Overflow::Drop), ("link", Overflow::Link)])),
    }
}

/// Reads `blobs`.
pub(super) fn mode(value: &Value<'_>) -> Option<BlobMode> {
    value.choice(&[("file", BlobMode::File), ("link", BlobMode::Link), ("pass", BlobMode::Pass)])
}

/// Reads the bounds of what is kept, which stand in `[limits]`.
pub(super) fn kept(table: Option<&Table<'_>>) -> BlobSettings {
    let mut settings = BlobSettings::default();
    let Some(table) = table else { return settings };
    let number = |key: &str, most: u64| table.get(key).and_then(|value| value.number(&(1..=most)));
    let size = |key: &str, most: u64| number(key, most).and_then(|number| usize::try_from(number).ok());
    let item = size("blob_item_bytes", BlobSettings::ITEM_BYTES_MAX as u64);
    settings.item_bytes_max = item.unwrap_or(settings.item_bytes_max);
    settings.upload_bytes_max = number("upload_bytes", BYTES_MAX).unwrap_or(settings.upload_bytes_max);
    settings.upload_age = number("upload_secs", SECS_MAX).map_or(settings.upload_age, Duration::from_secs);
    settings.overflow_bytes_max = size("overflow_bytes", BYTES_MAX).unwrap_or(settings.overflow_bytes_max);
    settings.overflow_age = number("overflow_secs", SECS_MAX).map_or(settings.overflow_age, Duration::from_secs);
    settings.overflow_disk = table.get("overflow_disk").and_then(|value| value.flag()).unwrap_or_default();
    settings
}

#[cfg(test)]
#[path = "caps_tests.rs"]
mod tests;
