//! Rates and calls at once: `[limits.rates]`, `[limits.concurrency]`, and what servers and policies state of their own.

use crate::limit::{Concurrency, LimitSettings, Own, Rate, Rates};

use super::keys;
use super::reader::{Table, Value};

/// The most calls that a bound on them can name.
pub(super) const CALLS_MAX: u64 = 100_000;
/// The most calls of one principal that may wait.
pub(super) const QUEUED_MAX: u64 = 10_000;

/// Reads what holds for all.
pub(super) fn common(limits: Option<&Table<'_>>) -> LimitSettings {
    let mut settings = LimitSettings::default();
    if let Some(table) = limits.and_then(|table| table.table("rates")) {
        table.keys(keys::RATES);
        let [principal, server, tool] = ["principal", "server", "tool"].map(|key| rate(&table, key));
        settings.rates = Rates { principal, server, tool };
    }
    if let Some(table) = limits.and_then(|table| table.table("concurrency")) {
        table.keys(keys::CONCURRENCY);
        let [principal, server, tool] = ["principal", "server", "tool"].map(|key| calls(&table, key));
        let queued = queued(&table, "queued").unwrap_or(Concurrency::QUEUED);
        settings.concurrency = Concurrency { principal, server, tool, queued };
    }
    settings
}

/// Reads what a server states.
pub(super) fn of_server(table: &Table<'_>) -> Option<Own> {
    stated(Own { rate: rate(table, "rate"), concurrent: calls(table, "max_concurrent_calls"), queued: None })
}

/// Reads what a policy states for each of its principals.
pub(super) fn of_policy(table: &Table<'_>) -> Option<Own> {
    stated(Own {
        rate: rate(table, "rate"),
        concurrent: calls(table, "max_concurrent_calls"),
        queued: queued(table, "max_queued_calls"),
    })
}

fn stated(own: Own) -> Option<Own> {
    (own != Own::default()).then_some(own)
}

fn rate(table: &Table<'_>, key: &str) -> Option<Rate> {
    let value = table.get(key)?;
    value.text()?.parse().map_err(|err: crate::limit::RateError| value.error(err.to_string())).ok()
}

fn calls(table: &Table<'_>, key: &str) -> Option<usize> {
    number(&table.get(key)?, 1, CALLS_MAX)
}

fn queued(table: &Table<'_>, key: &str) -> Option<usize> {
    number(&table.get(key)?, 0, QUEUED_MAX)
}

fn number(value: &Value<'_>, least: u64, most: u64) -> Option<usize> {
    value.number(&(least..=most)).and_then(|number| usize::try_from(number).ok())
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
