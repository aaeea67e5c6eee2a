//! Sockets and pipes: listeners for the doors, TLS on both sides, the client the back door speaks HTTP with, and lines.
//!
//! Not for: protocol. Invariant: nothing here knows what a byte means, beyond which HTTP it begins.

mod client;
mod dial;
mod http1;
mod lines;
mod listen;
mod local;
#[cfg(test)]
mod pieces;
mod reach;
#[cfg(test)]
mod scratch;
#[cfg(test)]
pub(crate) mod script;
mod slots;
mod stream;
mod tls;
mod url;

#[cfg(test)]
pub(crate) use pieces::Pieces;
#[cfg(test)]
pub(crate) use tls::certs;

pub use client::{BodyError, HttpClient, Response, ResponseBody, SendError};
pub use dial::{Demand, DialError, DialedStream, Dialer};
pub use http1::Headers;
pub use lines::{Ends, Frame, LineReader};
pub use listen::{Connection, Listener};
pub use reach::Reach;
pub use slots::{Silence, Slot, Slots};
pub use stream::{HttpStream, HttpVersion, Stream};
pub use tls::{
    ClientTls, ClientTlsStream, Doubts, Reread, ServerTls, ServerTlsStream, TlsFailure, TlsFileError, TlsFiles,
    check_ca_file,
};
pub use url::{resolve, same_origin};
