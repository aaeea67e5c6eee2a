//! Portcullis, a reverse proxy for the Model Context Protocol.
pub mod clock;
pub mod id;
pub mod seal;
pub mod secret;

pub mod wire;

pub mod runtime;
pub mod telemetry;

pub mod identity;

pub mod policy;

pub mod exchange;

pub mod upstream;

pub mod gateway;

pub mod downstream;

pub mod config;
