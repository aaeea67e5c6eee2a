//! The one integration binary: the application over real sockets, in front of scripted servers.

#![expect(clippy::indexing_slicing, clippy::expect_used, reason = "tests may fail loudly")]

mod caps;
mod change;
mod eras;
mod ids;
mod start_stop;
mod support;
