//! Sockets: listeners for the doors, TLS on both sides, and the client the back door speaks HTTP with.
//!
//! Not for: protocol. Invariant: nothing here knows what a byte means, beyond which HTTP it begins.

mod client;
mod connector;
mod dial;
mod listen;
mod local;
#[cfg(test)]
mod scratch;
#[cfg(test)]
pub(crate) mod script;
mod stream;
mod tls;

#[cfg(test)]
pub(crate) use tls::certs;

pub use client::{HttpClient, SendError};
pub use dial::{Demand, DialError, DialedStream, Dialer};
pub use listen::{Connection, Listener, Slots};
pub use stream::{HttpStream, HttpVersion, Stream};
pub use tls::{
    ClientTls, ClientTlsStream, Reread, ServerTls, ServerTlsStream, TlsFailure, TlsFileError, TlsFiles, check_ca_file,
};
