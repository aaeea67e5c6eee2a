//! Authorities and certificates of a test's own, made at run time; unit tests use them too.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd};

/// An authority that nobody else trusts.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, in PEM form.
    pub(crate) pem: String,
}

/// A certificate and its key.
#[derive(Clone)]
pub(crate) struct Leaf {
    /// The certificate, in PEM form.
    pub(crate) cert: String,
    /// Its key, in PEM form.
    pub(crate) key: String,
}

impl Authority {
    /// Makes one.
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Authorities are told apart by name before they are by key.
        let name = key.public_key_raw().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        params.distinguished_name.push(DnType::CommonName, format!("test authority {name}"));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Makes a certificate for host names and addresses.
    pub(crate) fn leaf(&self, names: &[&str]) -> Leaf {
        self.signed(&params(names))
    }

    /// Makes one that was good years ago.
    pub(crate) fn expired(&self, names: &[&str]) -> Leaf {
        self.of_years(names, 2001, 2002)
    }

    /// Makes one that is good from the beginning of one year to that of another.
    pub(crate) fn of_years(&self, names: &[&str], first: i32, last: i32) -> Leaf {
        let mut params = params(names);
        params.not_before = date_time_ymd(first, 1, 1);
        params.not_after = date_time_ymd(last, 1, 1);
        self.signed(&params)
    }

    fn signed(&self, params: &CertificateParams) -> Leaf {
        let key = KeyPair::generate().unwrap();
        Leaf { cert: params.signed_by(&key, &self.issuer).unwrap().pem(), key: key.serialize_pem() }
    }
}

impl Leaf {
    /// Writes both into a folder; returns their paths.
    pub(crate) fn write(&self, folder: &Path) -> (PathBuf, PathBuf) {
        let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
        std::fs::write(&cert, &self.cert).unwrap();
        std::fs::write(&key, &self.key).unwrap();
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        (cert, key)
    }
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}
