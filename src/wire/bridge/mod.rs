//! The bridge between eras: requests lowered to what a server speaks, results lifted to what a client reads.
//!
//! Not for: deciding which era is used (`upstream`) or for sockets. Invariant: where nothing must change, nothing does.

mod blocks;
mod input;
mod older;
mod request;
mod result;
mod visits;

pub use input::{InputError, InputRequest, Wanted, answers, answers_kind, named, retry, with_member};
pub use older::for_revision;
pub use request::{Hop, lower_call, own_request};
pub use result::{BridgeRefusal, ClientSide, lift_error, lift_result, server_info};
pub use visits::{Visited, asks_by_error, edit_visits, name_visits, told_visits, visited, wanted_visits};
