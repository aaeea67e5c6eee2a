//! API keys: only their SHA-256 is kept, and compared in constant time [AUT-1].

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _};

use arc_swap::ArcSwap;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};

use crate::id::PrincipalId;

/// The SHA-256 of an API key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ApiKeyHash([u8; 32]);

/// All keys of all principals.
#[derive(Clone, Debug, Default)]
pub struct KeyRing {
    keys: HashMap<ApiKeyHash, PrincipalId>,
    known: Known,
}

/// Keys that have been found before, by a keyed hash of 128 bits that only this process can compute (SipHash of
/// the key, and of the key with one byte more): a call need not pay for SHA-256 again. Never more entries than keys.
#[derive(Default)]
struct Known {
    secret: RandomState,
    found: ArcSwap<foldhash::HashMap<(u64, u64), (ApiKeyHash, PrincipalId)>>,
}

impl ApiKeyHash {
    /// Hashes a key as presented.
    #[must_use]
    pub fn of(key: &str) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, key.as_bytes()).as_ref());
        Self(hash)
    }

    /// Reads 64 hexadecimal digits; `None` if the text is anything else.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut hash = [0; 32];
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (index, slot) in hash.iter_mut().enumerate() {
            *slot = u8::from_str_radix(text.get(index * 2..index * 2 + 2)?, 16).ok()?;
        }
        Some(Self(hash))
    }

    /// Writes 64 hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for ApiKeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKeyHash(…)")
    }
}

impl KeyRing {
    /// Adds a key; returns the principal that already has it.
    pub fn insert(&mut self, hash: ApiKeyHash, principal: PrincipalId) -> Option<PrincipalId> {
        self.keys.insert(hash, principal)
    }

    /// Finds the principal of a key as presented.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<(ApiKeyHash, PrincipalId)> {
        let short = self.known.hash(key);
        if let Some(found) = self.known.found.load().get(&short) {
            return Some(found.clone());
        }
        let hash = ApiKeyHash::of(key);
        let (kept, principal) = self.keys.get_key_value(&hash)?;
        verify_slices_are_equal(&kept.0, &hash.0).ok()?;
        self.known.found.rcu(|found| {
            let mut found = foldhash::HashMap::clone(found);
            found.insert(short, (hash, principal.clone()));
            found
        });
        Some((hash, principal.clone()))
    }

    /// Returns whose key it is that was found before; `None` if it is nobody's any more.
    #[must_use]
    pub fn owner(&self, hash: &ApiKeyHash) -> Option<&PrincipalId> {
        self.keys.get(hash)
    }

    /// Returns the keys of a principal.
    #[must_use]
    pub fn of(&self, principal: &PrincipalId) -> HashSet<&ApiKeyHash> {
        self.keys.iter().filter(|(_, owner)| *owner == principal).map(|(hash, _)| hash).collect()
    }
}

impl Known {
    fn hash(&self, key: &str) -> (u64, u64) {
        let mut one = self.secret.build_hasher();
        one.write(key.as_bytes());
        // The second half is that of the key and one byte more: what both share is read once.
        let mut two = one.clone();
        two.write_u8(1);
        (one.finish(), two.finish())
    }
}

/// A copy knows nothing yet.
impl Clone for Known {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Known(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::{ApiKeyHash, KeyRing};
    use crate::id::PrincipalId;

    #[test]
    fn a_key_is_found_by_its_hash_alone() {
        let hash = ApiKeyHash::from_hex("2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b").unwrap();
        assert_eq!(hash, ApiKeyHash::of("secret"));
        let mut ring = KeyRing::default();
        assert!(ring.insert(hash, PrincipalId::new("alice")).is_none());
        for _ in 0..2 {
            assert_eq!(ring.find("secret"), Some((hash, PrincipalId::new("alice"))));
            assert_eq!(ring.find("Secret"), None);
        }
        assert_eq!(ring.known.found.load().len(), 1);
        assert_eq!(ring.owner(&hash), Some(&PrincipalId::new("alice")));
        assert_eq!((ring.of(&PrincipalId::new("alice")).len(), ring.of(&PrincipalId::new("bob")).len()), (1, 0));
        assert!(ApiKeyHash::from_hex("zz").is_none() && ApiKeyHash::from_hex("é".repeat(32).as_str()).is_none());
        assert!(!format!("{ring:?}").contains("2bb8"));
    }
}
