//! The authorities that upstreams' certificates are judged by [TRN-5].
//!
//! Those of the machine; where it has none, those of Mozilla's list as bundled; a server's own file on top.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::RootCertStore;

use super::file::{self, Content, TlsFileError};
use super::pem;

/// Returns the default authorities. The first call reads files; later ones are cheap.
pub(super) fn defaults() -> Arc<RootCertStore> {
    static DEFAULTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    Arc::clone(DEFAULTS.get_or_init(|| {
        let found = rustls_native_certs::load_native_certs();
        for err in &found.errors {
            tracing::debug!(%err, "an authority of this machine cannot be read");
        }
        let mut roots = RootCertStore::empty();
        let (used, passed) = roots.add_parsable_certificates(found.certs);
        if used == 0 {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            tracing::info!(
                bundled = roots.len(),
                "this machine has no certificate authorities: the bundled ones serve"
            );
        } else {
            tracing::debug!(used, passed, "certificate authorities of this machine");
        }
        Arc::new(roots)
    }))
}

/// Returns the default authorities and those of a file that has been read.
///
/// # Errors
/// The file holds no certificate, or one that is no authority's.
pub(super) fn with(path: &Path, content: &Content) -> Result<RootCertStore, TlsFileError> {
    let mut roots = (*defaults()).clone();
    add(&mut roots, path, content)?;
    Ok(roots)
}

/// Says whether a file can be a `tls_ca_cert_path`; for the check of a configuration.
///
/// # Errors
/// [`TlsFileError`].
pub fn check_ca_file(path: &Path) -> Result<(), TlsFileError> {
    add(&mut RootCertStore::empty(), path, &file::read(path)?)
}

fn add(roots: &mut RootCertStore, path: &Path, content: &Content) -> Result<(), TlsFileError> {
    let certificates = pem::certificates(content.bytes.expose()).map_err(|why| TlsFileError::new(path, why))?;
    for certificate in certificates {
        let unusable = |_| TlsFileError::new(path, "holds a certificate that cannot be an authority's");
        roots.add(certificate).map_err(unusable)?;
    }
    Ok(())
}
