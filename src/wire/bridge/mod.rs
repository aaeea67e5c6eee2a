//! The bridge between eras: requests lowered to what a server speaks, results lifted to what a client reads.
//!
//! Not for: deciding which era is used (`upstream`) or for sockets. Invariant: where nothing must change, nothing does.

mod input;
mod request;
mod result;

pub use input::{InputError, InputRequest, Wanted, answers, answers_kind, named, retry, with_member};
pub use request::{Hop, lower_call, own_request};
pub use result::{BridgeRefusal, ClientSide, lift_error, lift_result, server_info};
