//! What outlives one request: a legacy client's session, with what it may have missed, and a stateless client's call that
//! waits for its answers.
//!
//! Not for: server sessions; those belong to `upstream` and end with [`Session::ended`].

mod parked;
mod parked_call;
mod questions;
mod replay;
mod state;
mod store;
mod told;

pub use parked::{Joining, Live, ParkedCalls, ParkedLimits};
pub use replay::{Kept, Priming, ReplayLimits};
pub use state::{CallGuard, Session, StreamGuard};
pub use store::{NewSession, SessionError, SessionLimits, SessionStore};
pub use told::{Frames, Said, Source, Told};
