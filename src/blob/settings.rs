//! What may be kept of answers, and how long.

use std::time::Duration;

/// The bounds of attachments and of what was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobSettings {
    /// The largest single attachment, in bytes once decoded [LIM-2].
    pub item_bytes_max: usize,
    /// All uploads of one principal, in bytes; when full, the oldest go.
    pub upload_bytes_max: u64,
    /// How long an upload is kept.
    pub upload_age: Duration,
    /// Everything that was cut, of all principals, in bytes; when full, the oldest of whoever has most go [LIM-7].
    pub overflow_bytes_max: usize,
    /// How long the rest of an answer is kept.
    pub overflow_age: Duration,
    /// Whether the rest is kept in files without a name instead of in memory.
    pub overflow_disk: bool,
}

impl BlobSettings {
    /// How many attachments one result may have [LIM-2].
    pub const ITEMS_MAX: usize = 64;
    /// How many bytes all attachments of one result may have, decoded [LIM-2].
    pub const SUM_BYTES_MAX: usize = 10 << 20;
    /// The default of `item_bytes_max`, and the most it can be.
    pub const ITEM_BYTES_MAX: usize = 10 << 20;
    /// The default of `upload_bytes_max`.
    pub const UPLOAD_BYTES_MAX: u64 = 256 << 20;
    /// The default of `upload_age`.
    pub const UPLOAD_AGE: Duration = Duration::from_secs(24 * 3_600);
    /// The default of `overflow_bytes_max`.
    pub const OVERFLOW_BYTES_MAX: usize = 64 << 20;
    /// The default of `overflow_age`.
    pub const OVERFLOW_AGE: Duration = Duration::from_secs(15 * 60);
}

impl Default for BlobSettings {
    fn default() -> Self {
        Self {
            item_bytes_max: Self::ITEM_BYTES_MAX,
            upload_bytes_max: Self::UPLOAD_BYTES_MAX,
            upload_age: Self::UPLOAD_AGE,
            overflow_bytes_max: Self::OVERFLOW_BYTES_MAX,
            overflow_age: Self::OVERFLOW_AGE,
            overflow_disk: false,
        }
    }
}
