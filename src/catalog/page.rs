//! The content of a cursor of our own lists. The caller seals it.

/// Where the next page begins, and in which list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The first entry of the next page.
    pub index: u64,
    /// The fingerprint of the list it was made for: a changed list refuses it.
    pub fingerprint: u64,
}

impl Cursor {
    /// Writes it as 16 bytes.
    #[must_use]
    pub fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let (index, fingerprint) = bytes.split_at_mut(8);
        index.copy_from_slice(&self.index.to_be_bytes());
        fingerprint.copy_from_slice(&self.fingerprint.to_be_bytes());
        bytes
    }

    /// Reads 16 bytes; `None` if there are not so many.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (index, fingerprint) = bytes.split_at_checked(8)?;
        Some(Self {
            index: u64::from_be_bytes(index.try_into().ok()?),
            fingerprint: u64::from_be_bytes(fingerprint.try_into().ok()?),
        })
    }
}
