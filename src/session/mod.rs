//! What outlives one request of a legacy client: its session.
//!
//! Not for: server sessions; those belong to `upstream` and end with [`Session::ended`].

mod state;
mod store;

pub use state::{CallGuard, Session, StreamGuard};
pub use store::{NewSession, SessionError, SessionLimits, SessionStore};
