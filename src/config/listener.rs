//! `[listen]`, `[limits]` and `[log]`.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use http::Uri;

use crate::codes::Code;
use crate::downstream::{AccessLog, DownstreamSettings};
use crate::gateway::Auth;
use crate::telemetry::{LogFormat, LogSettings};

use super::keys;
use super::reader::{Table, Value};

/// Where the admin listener is, if the file does not say.
const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7801);

/// What the file says of `auth`.
#[derive(Debug)]
pub(super) enum AuthKey<'a> {
    /// Nothing.
    Absent,
    /// A word that is known.
    Given(Auth, Value<'a>),
    /// Something wrong, which is noted.
    Wrong,
}

/// Reads `[listen]` into the settings; returns the admin addresses.
pub(super) fn listen(table: Option<&Table<'_>>, settings: &mut DownstreamSettings) -> Vec<SocketAddr> {
    let Some(table) = table else { return vec![ADMIN] };
    table.keys(keys::LISTEN, keys::LISTEN_LATER);
    let mut taken = BTreeSet::new();
    if let Some(found) = table.get("http").and_then(|value| addresses(&value, &mut taken)) {
        settings.addresses = found;
    } else {
        taken.extend(&settings.addresses);
    }
    let admin = table.get("admin").and_then(|value| addresses(&value, &mut taken));
    for (text, item) in table.get("allowed_hosts").and_then(|value| value.texts()).unwrap_or_default() {
        let bracketed = text.starts_with('[') && text.ends_with(']');
        if text.is_empty() || text.contains(['/', '*', ' ', '@']) || (text.contains(':') && !bracketed) {
            item.error("must be a host name without scheme and port");
        }
        settings.allowed_hosts.push(text.to_ascii_lowercase());
    }
    for (text, item) in table.get("allowed_origins").and_then(|value| value.texts()).unwrap_or_default() {
        if !origin(text) {
            item.error("must be an origin, as https://app.example.com");
        }
        settings.allowed_origins.push(text.to_ascii_lowercase());
    }
    admin.unwrap_or_else(|| vec![ADMIN])
}

/// Reads `auth`.
pub(super) fn auth<'a>(table: Option<&Table<'a>>) -> AuthKey<'a> {
    let Some(value) = table.and_then(|table| table.get("auth")) else { return AuthKey::Absent };
    let Some(words) = value.one_or_more() else { return AuthKey::Wrong };
    let later = |word: &str| matches!(word, "jwt" | "mtls");
    for (word, item) in words.iter().filter(|(word, _)| later(word)) {
        item.error_of(Code::Later, format!("\"{word}\" is not supported in this version"), None);
    }
    match words.as_slice() {
        [] => {
            value.error("must not be empty");
            AuthKey::Wrong
        }
        [(word, _)] if later(word) => AuthKey::Wrong,
        [(_, item)] => item
            .choice(&[("keys", Auth::Keys), ("none", Auth::None)])
            .map_or(AuthKey::Wrong, |auth| AuthKey::Given(auth, value.clone())),
        _ => {
            value.error_of(Code::Later, "several ways at once are not supported in this version", None);
            AuthKey::Wrong
        }
    }
}

/// Reads `[limits]`.
pub(super) fn limits(table: Option<&Table<'_>>, settings: &mut DownstreamSettings) {
    let Some(table) = table else { return };
    table.keys(keys::LIMITS, keys::LIMITS_LATER);
    let number = |key: &str, most: u64| table.get(key).and_then(|value| value.number(&(1..=most)));
    let count = |key: &str, most: u64, slot: &mut usize| {
        *slot = number(key, most).and_then(|number| usize::try_from(number).ok()).unwrap_or(*slot);
    };
    count("request_body_bytes", 1 << 32, &mut settings.body_bytes_max);
    count("connections", 1_000_000, &mut settings.connections_max);
    count("sessions", 1_000_000, &mut settings.sessions_max);
    let all = settings.sessions_max;
    count("sessions_per_principal", 1_000_000, &mut settings.sessions_per_principal_max);
    settings.sessions_per_principal_max = settings.sessions_per_principal_max.min(all);
    settings.session_idle = number("session_idle_secs", 604_800).map_or(settings.session_idle, Duration::from_secs);
    settings.keep_alive = number("keep_alive_secs", 3_600).map_or(settings.keep_alive, Duration::from_secs);
}

/// Reads `[log]`; its access line is a matter of the front door.
pub(super) fn log(table: Option<&Table<'_>>, door: &mut DownstreamSettings) -> LogSettings {
    let mut settings = LogSettings::default();
    let Some(table) = table else { return settings };
    table.keys(keys::LOG, &[]);
    if let Some(value) = table.get("level")
        && let Some(text) = value.text()
    {
        match LogSettings::check_level(text) {
            Ok(()) => text.clone_into(&mut settings.level),
            Err(why) => value.error(why),
        }
    }
    let words = [("json", LogFormat::Json), ("text", LogFormat::Text)];
    settings.format = table.get("format").and_then(|value| value.choice(&words)).unwrap_or_default();
    if table.get("access").and_then(|value| value.flag()).unwrap_or_default() {
        door.access = AccessLog::On;
    }
    settings
}

fn addresses(value: &Value<'_>, taken: &mut BTreeSet<SocketAddr>) -> Option<Vec<SocketAddr>> {
    let mut found = Vec::new();
    let items = value.one_or_more()?;
    if items.is_empty() {
        value.error("must not be empty");
    }
    for (text, item) in items {
        if text.starts_with("unix:") {
            item.error_of(Code::Later, "unix sockets are not supported in this version", None);
            continue;
        }
        let port = text.strip_prefix("localhost:").and_then(|port| port.parse::<u16>().ok());
        let list: Vec<SocketAddr> = match (port, text.parse()) {
            (Some(port), _) => vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()],
            (None, Ok(address)) => vec![address],
            (None, Err(_)) => {
                item.error("must be an IP address and a port, as 127.0.0.1:7800, or localhost and a port");
                continue;
            }
        };
        for address in list {
            if address.port() != 0 && !taken.insert(address) {
                item.error(format!("{address} is given twice"));
            }
            found.push(address);
        }
    }
    (!found.is_empty()).then_some(found)
}

fn origin(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else { return false };
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return false };
    !authority.as_str().contains(['@', '*']) && format!("{scheme}://{authority}").eq_ignore_ascii_case(text)
}
