//! The door against a scripted hall, over real sockets.

mod http;
mod legacy;
mod stateless;
mod streams;
mod support;
