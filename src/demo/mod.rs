//! A built-in MCP server and the configuration of `serve --demo` [OPS-3]: the first call works offline in a minute.
//!
//! Not for: anything but the demo. It writes no file.

mod server;
mod settings;

pub use server::{serve_http, serve_stdio};
pub use settings::{DemoError, configuration, settings};
