//! The door against a scripted hall, over real sockets.

mod http;
mod http2;
mod legacy;
mod stateless;
mod streams;
mod support;
