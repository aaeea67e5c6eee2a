//! The integration tests, in one binary: the whole gateway between real sockets, pipes and processes.
//!
//! Invariants: nothing sleeps to be in step, what must come true is polled for; no time is asserted; the network is
//! loopback.

#[cfg(test)]
mod asking_tools;
#[cfg(test)]
mod attachments;
#[cfg(test)]
mod caps;
#[cfg(test)]
mod change;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod command_line;
#[cfg(test)]
mod deploy;
#[cfg(test)]
mod desktop_policy;
#[cfg(test)]
mod down;
#[cfg(test)]
mod eras;
#[cfg(test)]
mod explain;
#[cfg(test)]
mod features;
#[cfg(test)]
mod first_answer;
#[cfg(test)]
mod gone;
#[cfg(test)]
mod help;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod hostile_bodies;
#[cfg(test)]
mod hostile_questions;
#[cfg(test)]
mod hostile_starts;
#[cfg(test)]
mod hostile_streams;
#[cfg(test)]
mod http_sse;
#[cfg(test)]
mod ids;
#[cfg(test)]
mod kept;
#[cfg(test)]
mod leave;
#[cfg(test)]
mod lists;
#[cfg(test)]
mod log_lines;
#[cfg(test)]
mod login_path;
#[cfg(test)]
mod manual;
#[cfg(test)]
mod matrix;
#[cfg(test)]
mod older_questions;
#[cfg(test)]
mod orphans;
#[cfg(test)]
mod pool;
#[cfg(test)]
mod questions;
#[cfg(test)]
mod rates;
#[cfg(test)]
mod reaper;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod revoked;
#[cfg(test)]
mod roots;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod shipped_policies;
#[cfg(test)]
mod soak;
#[cfg(test)]
mod start_stop;
#[cfg(test)]
mod stdio;
#[cfg(test)]
mod stdio_reload;
#[cfg(test)]
mod subscriptions;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tls_down;
#[cfg(test)]
mod tls_up;
#[cfg(test)]
mod tokens;
#[cfg(test)]
mod two_urls;
#[cfg(test)]
mod unread;
#[cfg(test)]
mod visible;
#[cfg(test)]
mod visits;
#[cfg(test)]
mod wrong_turns;
