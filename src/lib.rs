//! Portcullis, a reverse proxy for the Model Context Protocol.
pub mod wire;
