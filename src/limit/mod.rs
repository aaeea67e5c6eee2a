//! How much: rates and calls at once, of each principal, server and tool [LIM-5].
//!
//! Not for: waiting or refusing (`gateway::admit`), sizes of messages. Invariants: synchronous, the clock is ours; what is
//! not limited is not counted; every map is bounded; nobody's use takes everything from another.

mod limits;
mod rate;
mod seats;
mod settings;
mod share;
mod slots;

pub use limits::{Exceeded, Limits};
pub use seats::{NoSeat, Seat, Seats};
pub use settings::{Concurrency, LimitSettings, Own, Rate, RateError, Rates};
pub use share::{Tally, share};
pub use slots::{Entered, Permit, Place, Waiting};
