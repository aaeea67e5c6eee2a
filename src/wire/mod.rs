//! Sans-io protocol words.
pub mod sse;
