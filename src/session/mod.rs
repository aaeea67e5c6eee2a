//! What outlives one request of a legacy client: its session, and what it may have missed.
//!
//! Not for: server sessions; those belong to `upstream` and end with [`Session::ended`].

mod replay;
mod state;
mod store;

pub use replay::{Kept, Priming, ReplayLimits, Said, Source, Told};
pub use state::{CallGuard, Session, StreamGuard};
pub use store::{NewSession, SessionError, SessionLimits, SessionStore};
