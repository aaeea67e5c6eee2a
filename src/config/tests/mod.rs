//! Tests of the configuration: one per rule.

mod expectations;
mod grants;
mod kit;
mod listener;
mod mistakes;
mod problems;
mod secrets;
mod servers;
