//! Servers with a URL: the connector, a link per era of Streamable HTTP, and one of HTTP+SSE.
//!
//! Not for: choosing or pooling links (`upstream::server`).

#[cfg(test)]
mod any_bytes_tests;
mod call;
mod connector;
mod listen;
mod probe;
mod questions;
mod reader;
mod redirect;
mod session;
mod sse;
mod stateless;
mod target;

pub(super) use connector::connector;
