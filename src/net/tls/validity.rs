//! Whether certificates are good at this moment: no longer before they begin, and not yet after they end.
//!
//! rustls has no accessor for their times; but what judges a chain looks at them first, and only then for an issuer.

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};

use crate::clock::Clock;
use crate::telemetry::date;

use super::PROVIDER;

/// Says what is wrong with the time of the first certificate of a chain for which it is; `None` if nothing is.
pub(super) fn untimely(chain: &[CertificateDer<'_>]) -> Option<String> {
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(Clock::real().unix_secs()));
    let (at, why) = chain.iter().enumerate().find_map(|(at, certificate)| Some((at, judge(certificate, now)?)))?;
    Some(match at {
        0 => format!("the certificate {why}"),
        _ => format!("certificate {} of the chain {why}", at + 1),
    })
}

fn judge(certificate: &CertificateDer<'_>, now: UnixTime) -> Option<String> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let (nobody, algorithms) = (RootCertStore::empty(), PROVIDER.signature_verification_algorithms.all);
    let judged = verify_server_cert_signed_by_trust_anchor(&parsed, &nobody, &[], now, algorithms);
    let Err(Error::InvalidCertificate(why)) = judged else { return None };
    if let CertificateError::ExpiredContext { not_after, .. } = why {
        return Some(format!("expired at {}Z", date(not_after.as_secs())));
    }
    if let CertificateError::NotValidYetContext { not_before, .. } = why {
        return Some(format!("is not valid before {}Z", date(not_before.as_secs())));
    }
    None
}
