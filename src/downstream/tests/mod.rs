//! The doors against a scripted hall, over real sockets and over pipes in memory.

mod bodies;
mod http;
mod http2;
mod http_sse;
mod legacy;
mod limits;
mod lines;
mod resume;
mod silence;
mod simulation;
mod stateless;
mod stdio;
mod streams;
mod support;
mod watch;
