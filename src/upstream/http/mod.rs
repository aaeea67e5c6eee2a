//! Servers behind Streamable HTTP: the connector, a link per era.
//!
//! Not for: choosing or pooling links (`upstream::server`), redirects, or the HTTP+SSE transport of 2024-11-05.

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
mod stateless;
mod target;

pub(super) use connector::connector;
