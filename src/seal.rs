//! Handles that leave the gateway: sealed with AEAD and bound to purpose, principal and expiry [TRN-10].
//!
//! Not for: session ids, which are random. Invariant: what opens was sealed by this process for the same purpose and the
//! same principal, and has not expired.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// A key that seals and opens. It lives as long as the process.
#[derive(Debug)]
pub struct Seal(LessSafeKey);

/// The machine gave no randomness, or a handle is not ours, has expired, or belongs to another principal or purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Changed, foreign, or expired.
    #[error("the handle is not valid here, or has expired")]
    Invalid,
    /// No randomness.
    #[error("the machine gives no random bytes")]
    Random,
}

impl Seal {
    /// Makes a fresh key.
    ///
    /// # Errors
    /// [`SealError::Random`].
    pub fn new() -> Result<Self, SealError> {
        let key = random::<32>()?;
        let key = UnboundKey::new(&AES_256_GCM, &key).map_err(|_| SealError::Random)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Seals `payload` until `expires_unix_secs`; the text is base64url.
    ///
    /// # Errors
    /// [`SealError::Random`].
    pub fn seal(
        &self,
        purpose: &str,
        principal: &str,
        expires_unix_secs: u64,
        payload: &[u8],
    ) -> Result<String, SealError> {
        let mut sealed = payload.to_vec();
        // Random, as 96 bits may be for the handles one process seals in its life (NIST SP 800-38D §8.3: 2^32).
        let nonce = random::<NONCE_LEN>()?;
        let bound = Aad::from(bound(purpose, principal, expires_unix_secs));
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), bound, &mut sealed)
            .map_err(|_| SealError::Random)?;
        let mut out = expires_unix_secs.to_be_bytes().to_vec();
        out.extend_from_slice(&nonce);
        out.append(&mut sealed);
        Ok(URL_SAFE_NO_PAD.encode(out))
    }

    /// Opens what [`Seal::seal`] made.
    ///
    /// # Errors
    /// [`SealError::Invalid`].
    pub fn open(&self, purpose: &str, principal: &str, now_unix_secs: u64, text: &str) -> Result<Vec<u8>, SealError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| SealError::Invalid)?;
        let (expires, rest) = bytes.split_at_checked(8).ok_or(SealError::Invalid)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN).ok_or(SealError::Invalid)?;
        let expires = u64::from_be_bytes(expires.try_into().map_err(|_| SealError::Invalid)?);
        if expires < now_unix_secs {
            return Err(SealError::Invalid);
        }
        let nonce: [u8; NONCE_LEN] = nonce.try_into().map_err(|_| SealError::Invalid)?;
        let mut sealed = sealed.to_vec();
        let opened = self
            .0
            .open_in_place(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(bound(purpose, principal, expires)),
                &mut sealed,
            )
            .map_err(|_| SealError::Invalid)?;
        Ok(opened.to_vec())
    }
}

fn bound(purpose: &str, principal: &str, expires: u64) -> Vec<u8> {
    let mut aad = Vec::with_capacity(purpose.len() + principal.len() + 10);
    aad.extend_from_slice(purpose.as_bytes());
    aad.push(0);
    aad.extend_from_slice(principal.as_bytes());
    aad.push(0);
    aad.extend_from_slice(&expires.to_be_bytes());
    aad
}

/// Returns `N` random bytes, from the kernel: the provider's own generator first measures jitter for 100 ms.
///
/// # Errors
/// [`SealError::Random`].
pub fn random<const N: usize>() -> Result<[u8; N], SealError> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let rest = bytes.get_mut(filled..).unwrap_or_default();
        match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(SealError::Random),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{Seal, SealError};

    /// [TRN-10]
    #[test]
    fn a_handle_opens_only_where_it_was_meant_to() {
        let seal = Seal::new().unwrap();
        let handle = seal.seal("cursor", "alice", 100, b"payload").unwrap();
        assert_eq!(seal.open("cursor", "alice", 100, &handle).unwrap(), b"payload");
        for (purpose, principal, now) in [("state", "alice", 1), ("cursor", "bob", 1), ("cursor", "alice", 101)] {
            assert_eq!(seal.open(purpose, principal, now, &handle), Err(SealError::Invalid));
        }
        let other = Seal::new().unwrap();
        assert_eq!(other.open("cursor", "alice", 1, &handle), Err(SealError::Invalid));
        for bad in ["", "AAAA", "!", handle.strip_prefix('A').unwrap_or("A"), &format!("{handle}A")] {
            assert_eq!(seal.open("cursor", "alice", 1, bad), Err(SealError::Invalid), "{bad}");
        }
    }
}
