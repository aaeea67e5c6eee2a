//! The second front door: one client on a pair of pipes, both eras, one principal [OPS-11, TRN-1].
//!
//! Not for: what a message means; that is a `conversation`'s, whatever carries it. Invariants: whole lines of MCP and
//! nothing else go out; what waits to be written is bounded, and while it waits nothing more is read.

mod door;
mod line;
mod writer;

pub use door::{Parted, PipeClient, Terms};
