//! Certificates and keys out of PEM text: the only file that names rustls-pemfile.
//!
//! That package is archived, and its errors repeat lines of what they read, which may be a key: they stop here, and so
//! does a text that goes on after an error. Invariant: nothing that is returned as an error holds a byte of the input.

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls_pemfile::{Item, read_one_from_slice};

/// Reads all certificates; other sections are passed over.
///
/// # Errors
/// The text is malformed, or holds none.
pub(super) fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, &'static str> {
    let mut found = Vec::new();
    each(text, |item| {
        if let Item::X509Certificate(certificate) = item {
            found.push(certificate);
        }
    })?;
    if found.is_empty() { Err("holds no certificate in PEM form") } else { Ok(found) }
}

/// Reads the one private key; other sections are passed over.
///
/// # Errors
/// The text is malformed, or holds no key or several.
pub(super) fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, &'static str> {
    let mut found: Vec<PrivateKeyDer<'static>> = Vec::new();
    each(text, |item| {
        if let Item::Pkcs1Key(key) = item {
            found.push(key.into());
        } else if let Item::Pkcs8Key(key) = item {
            found.push(key.into());
        } else if let Item::Sec1Key(key) = item {
            found.push(key.into());
        }
    })?;
    match (found.pop(), found.is_empty()) {
        (Some(key), true) => Ok(key),
        (None, _) => Err("holds no private key in PEM form that is not encrypted"),
        (Some(_), false) => Err("holds more than one private key"),
    }
}

fn each(text: &[u8], mut take: impl FnMut(Item)) -> Result<(), &'static str> {
    let mut rest = text;
    while let Some((item, after)) = read_one_from_slice(rest).map_err(|_| "is malformed PEM")? {
        take(item);
        rest = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{certificates, private_key};

    fn section(kind: &str, body: &str) -> String {
        format!("-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n")
    }

    /// [TRN-5]
    #[test]
    fn what_is_no_certificate_is_none() {
        let key = section("PRIVATE KEY", "AAAA");
        for text in ["", "no PEM at all", &key] {
            assert_eq!(certificates(text.as_bytes()), Err("holds no certificate in PEM form"), "{text}");
        }
        let two = [section("CERTIFICATE", "AAAA"), key, section("CERTIFICATE", "AAAB")].concat();
        assert_eq!(certificates(two.as_bytes()).unwrap().len(), 2);
        let canary = "-----BEGIN CERTIFICATE-----\ncanary!\n-----END CERTIFICATE-----\n";
        for text in [canary, "-----BEGIN CERTIFICATE-----\nAAAA\n", "-----BEGIN canary\n"] {
            assert_eq!(certificates(text.as_bytes()), Err("is malformed PEM"), "{text}");
        }
    }

    #[test]
    fn a_key_is_one_and_readable() {
        for kind in ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"] {
            let one = section(kind, "AAAA");
            assert!(private_key(one.as_bytes()).is_ok(), "{kind}");
            assert!(private_key(one.repeat(2).as_bytes()).is_err(), "{kind}");
        }
        for text in [section("ENCRYPTED PRIVATE KEY", "AAAA"), section("CERTIFICATE", "AAAA"), String::new()] {
            assert!(private_key(text.as_bytes()).unwrap_err().contains("no private key"), "{text}");
        }
    }
}
