//! What a result is made smaller by, and what becomes of its attachments [LIM-2, LIM-3, LIM-7, CTX-5].
//!
//! Not for: doing it (`gateway`).

/// What becomes of base64 in a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlobMode {
    /// It goes to a file, and the client gets the path.
    File,
    /// The gateway keeps it, and the client gets a link.
    Link,
    /// It stays, within the caps.
    #[default]
    Pass,
}

/// What becomes of what is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// It is gone.
    Drop,
    /// It can be read for a while.
    #[default]
    Link,
}

/// Who may be given a path of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathsFor {
    /// Every client.
    All,
    /// The client that has started the gateway and therefore sees its files.
    #[default]
    Local,
}

/// What one place of the configuration says; what it leaves open another says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapRules {
    /// What becomes of base64.
    pub blobs: Option<BlobMode>,
    /// Who may be given paths.
    pub blob_paths: Option<PathsFor>,
    /// How many characters of text a result may have.
    pub max_result_chars: Option<usize>,
    /// What becomes of the rest.
    pub overflow: Option<Overflow>,
}

/// What holds for one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// What becomes of base64.
    pub blobs: BlobMode,
    /// Who may be given paths.
    pub blob_paths: PathsFor,
    /// How many characters of text a result may have; `None`: as many as there are.
    pub max_result_chars: Option<usize>,
    /// What becomes of the rest.
    pub overflow: Overflow,
}

impl CapRules {
    /// The least that `max_result_chars` can be: the words that say what was cut count too.
    pub const RESULT_CHARS_MIN: usize = 256;

    /// Adds what is said elsewhere to what is left open here.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self {
            blobs: self.blobs.or(other.blobs),
            blob_paths: self.blob_paths.or(other.blob_paths),
            max_result_chars: self.max_result_chars.or(other.max_result_chars),
            overflow: self.overflow.or(other.overflow),
        }
    }

    /// Says what holds; what is left open has its default.
    #[must_use]
    pub fn settled(&self) -> Caps {
        Caps {
            blobs: self.blobs.unwrap_or_default(),
            blob_paths: self.blob_paths.unwrap_or_default(),
            max_result_chars: self.max_result_chars,
            overflow: self.overflow.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BlobMode, CapRules, Overflow};

    /// [LIM-3]: what the policy says counts before the server, and that before what holds for all.
    #[test]
    fn the_nearer_word_counts() {
        let policy = CapRules { max_result_chars: Some(9), ..CapRules::default() };
        let server = CapRules { blobs: Some(BlobMode::File), ..CapRules::default() };
        let all = CapRules { blobs: Some(BlobMode::Link), overflow: Some(Overflow::Drop), ..CapRules::default() };
        let caps = policy.or(&server).or(&all).settled();
        assert_eq!((caps.blobs, caps.overflow, caps.max_result_chars), (BlobMode::File, Overflow::Drop, Some(9)));
        assert_eq!(CapRules::default().settled().blobs, BlobMode::Pass);
    }
}
