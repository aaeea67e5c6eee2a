//! TLS on both sides: certificates from files, the listener's handshake, the authorities that upstreams are judged by.
//!
//! Not for: sockets, HTTP. Invariants: every call of rustls is in this folder; the provider is aws-lc-rs and is always
//! named; a file that cannot be used is an error, never a reason to trust more or to speak less.

#[cfg(test)]
#[path = "../../../tests/it/support/certs.rs"]
pub(crate) mod certs;
mod client;
mod file;
mod leave;
mod pem;
mod roots;
mod server;
mod validity;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;

pub use client::{ClientTls, ClientTlsStream, TlsFailure};
pub use file::TlsFileError;
pub(super) use leave::Leave;
pub use roots::check_ca_file;
pub(super) use server::Handshake;
pub use server::{Doubts, Reread, ServerTls, ServerTlsStream, TlsFiles};

/// The one provider of cryptography.
static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
