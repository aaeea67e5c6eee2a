//! The field cases of stdio servers, against children that misbehave.

mod calls;
mod child;
mod handshake;
mod kit;
mod lines;
