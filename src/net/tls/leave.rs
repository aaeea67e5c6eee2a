//! The end of a connection that ends without having been shut down: an idle one at its time limit, or at a stop.
//!
//! Not for: a connection that is shut down in order, which says so itself.

use rustls::ConnectionCommon;
use tokio::net::TcpStream;

use super::{ClientTlsStream, ServerTlsStream};

/// A connection that can take its leave.
pub(in crate::net) trait Leave {
    /// Says `close_notify` (RFC 8446 §6.1), once, as far as the socket takes it without waiting. An answer that was cut short
    /// is told by its own framing.
    fn leave(&mut self);
}

impl Leave for ClientTlsStream {
    fn leave(&mut self) {
        let (socket, session) = self.get_mut();
        say(socket, session);
    }
}

impl Leave for ServerTlsStream {
    fn leave(&mut self) {
        let (socket, session) = self.get_mut();
        say(socket, session);
    }
}

fn say<Data>(socket: &TcpStream, session: &mut ConnectionCommon<Data>) {
    session.send_close_notify();
    let mut records = Vec::new();
    // Writing to a Vec cannot fail; a peer that is gone needs no farewell, and one that takes nothing gets none.
    while session.wants_write() && session.write_tls(&mut records).is_ok() {}
    let _taken = socket.try_write(&records).is_ok();
}

#[cfg(test)]
#[path = "leave_tests.rs"]
mod tests;
