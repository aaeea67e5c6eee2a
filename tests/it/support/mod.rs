//! What every test here needs: an application on free ports, scripted servers, and a client that shows raw bytes.

mod app;
mod client;

pub(crate) use app::{Era, HttpUpstream, TestApp, server_toml};
pub(crate) use client::{Client, eventually};
