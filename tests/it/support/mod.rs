//! What the tests stand on: a gateway, a raw client, scripted servers.

mod app;
mod certs;
mod client;
mod command;
mod deaths;
mod hostile;
mod hostile_http;
mod piped;
mod process;
pub(crate) mod quiz;
pub(crate) mod rich;
mod side;
mod tunnel;
mod upstream;
pub(crate) mod watched;
mod wire;
pub(crate) mod yaml;

pub(crate) use app::TestApp;
pub(crate) use certs::{Authority, Leaf};
pub(crate) use client::{Answer, Client, Events, body};
pub(crate) use command::{Command, Ended};
pub(crate) use deaths::{At, Deaths};
pub(crate) use hostile::{Framing, Hostile, Siege, Step};
pub(crate) use piped::Piped;
pub(crate) use process::{Child, Gateway, folder, lives, peak_memory_kib, until, within_deadline};
pub(crate) use tunnel::{Secured, Tunnel, connect_tls};
pub(crate) use upstream::{Broken, ODDITIES, STATE, STATELESS_HEAD, Speaks, Upstream};
pub(crate) use wire::{Wire, raw};

/// Both eras, by the version that a client names.
pub(crate) const ERAS: [Era; 2] = [Era::Legacy, Era::Stateless];

/// An era, as the tests say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// 2025-11-25.
    Legacy,
    /// 2026-07-28.
    Stateless,
}

impl Era {
    /// The configuration's word.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Stateless => "stateless",
        }
    }
}

/// A JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
