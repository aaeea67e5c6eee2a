//! Portcullis, a reverse proxy for the Model Context Protocol.
//!
//! ```text
//!    client                                                                          MCP server
//! ┌────────────┐              ┌────────────────── gateway ───────────────────────┐              ┌──────────┐
//! │ downstream ├── Exchange ─►┤ identify → resolve → authorize → admit → dispatch├─ Permitted ─►┤ upstream │
//! │ front door │◄── Reply ────┤                 inspect ◄────────────────────────┤◄── Reply ────┤ back door│
//! └────────────┘              └──────────────────────────────────────────────────┘              └──────────┘
//!  legacy │ stateless                one canonical form, no era inside                      legacy │ stateless
//! ```
//!
//! The rooms stand in floor order; a room imports from floors below its own alone (ARCHITECTURE.md).

pub mod clock;
pub mod codes;
pub mod id;
pub mod seal;
pub mod secret;

pub mod wire;

pub mod net;
pub mod runtime;
pub mod telemetry;

pub mod catalog;
pub mod identity;
pub mod limit;

pub mod policy;

pub mod exchange;

pub mod blob;
pub mod session;

pub mod downstream;
pub mod upstream;

pub mod gateway;

pub mod admin;
pub mod clients;
pub mod config;
pub mod demo;

pub mod app;

pub mod cli;
