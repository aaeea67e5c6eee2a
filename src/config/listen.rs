//! `[listen]`, `[limits]` and `[log]`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::downstream::{AccessLog, DownstreamSettings};
use crate::gateway::Auth;
use crate::telemetry::{LogFormat, LogSettings};

use super::reader::{File, One, Placed, Table};

/// `[listen]` as read.
#[derive(Debug)]
pub(super) struct Listen {
    pub(super) settings: DownstreamSettings,
    pub(super) admin: Vec<SocketAddr>,
    /// What the file says; `None` if it says nothing.
    pub(super) auth: Option<Placed<Auth>>,
}

/// Reads `[listen]` and `[limits]`.
pub(super) fn read(listen: Option<Table<'_, '_>>, limits: Option<Table<'_, '_>>, file: &mut File<'_>) -> Listen {
    let mut settings = DownstreamSettings::default();
    let mut admin = vec![SocketAddr::from(([127, 0, 0, 1], 7801))];
    let mut auth = None;
    if let Some(mut table) = listen {
        if let Some(texts) = table.texts(file, "http", One::Allowed) {
            settings.addresses = addresses(&texts, file);
        }
        if let Some(texts) = table.texts(file, "admin", One::Allowed) {
            admin = addresses(&texts, file);
        }
        auth = read_auth(&mut table, file);
        let mut texts = |key| table.texts(file, key, One::Refused).unwrap_or_default();
        settings.allowed_hosts = texts("allowed_hosts").into_iter().map(|text| text.value).collect();
        settings.allowed_origins = texts("allowed_origins").into_iter().map(|text| text.value).collect();
        table.finish(file);
        if let Some(auth) = auth.as_ref().filter(|auth| auth.value == Auth::None)
            && settings.addresses.iter().any(|address| !address.ip().is_loopback())
        {
            file.error(&auth.span, &auth.key, "'none' is for loopback listeners alone");
        }
    }
    if let Some(mut table) = limits {
        let mut number = |key, max| table.number(file, key, 1, max).map(|number| number.value);
        let size =
            |number: Option<u64>, default: usize| number.and_then(|n| usize::try_from(n).ok()).unwrap_or(default);
        settings.body_bytes_max = size(number("request_body_bytes", 1 << 34), settings.body_bytes_max);
        settings.connections_max = size(number("connections", 1 << 20), settings.connections_max);
        settings.sessions_max = size(number("sessions", 1 << 24), settings.sessions_max);
        settings.sessions_per_principal_max =
            size(number("sessions_per_principal", 1 << 24), settings.sessions_per_principal_max);
        settings.session_idle = number("session_idle_secs", 1 << 24).map_or(settings.session_idle, Duration::from_secs);
        settings.keep_alive = number("keep_alive_secs", 3_600).map_or(settings.keep_alive, Duration::from_secs);
        table.finish(file);
    }
    Listen { settings, admin, auth }
}

fn read_auth(table: &mut Table<'_, '_>, file: &mut File<'_>) -> Option<Placed<Auth>> {
    let mut texts = table.texts(file, "auth", One::Allowed)?;
    let key = table.path_of("auth");
    if texts.len() != 1 {
        let span = texts.first().map_or(0..0, |text| text.span.clone());
        file.error(&span, &key, "one of 'none' and 'keys' is supported in this version of portcullis");
        return None;
    }
    let text = texts.pop()?;
    let value = match text.value.as_str() {
        "keys" => Auth::Keys,
        "none" => Auth::None,
        "jwt" | "mtls" => {
            file.error(&text.span, &text.key, "is not supported in this version of portcullis");
            return None;
        }
        _ => {
            file.error(&text.span, &text.key, "must be 'none' or 'keys'");
            return None;
        }
    };
    Some(Placed { value, span: text.span, key: text.key })
}

fn addresses(texts: &[Placed<String>], file: &mut File<'_>) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for text in texts {
        if let Ok(address) = text.value.parse::<SocketAddr>() {
            addresses.push(address);
            continue;
        }
        match text.value.strip_prefix("localhost:").and_then(|port| port.parse::<u16>().ok()) {
            Some(port) => {
                addresses.push(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
                addresses.push(SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port));
            }
            None if text.value.starts_with("unix:") => {
                file.error(&text.span, &text.key, "unix sockets are not supported in this version of portcullis");
            }
            None => file.error(&text.span, &text.key, "must be an address such as 127.0.0.1:7800 or localhost:7800"),
        }
    }
    addresses
}

/// Reads `[log]`.
pub(super) fn log(table: Option<Table<'_, '_>>, file: &mut File<'_>) -> (LogSettings, AccessLog) {
    let (mut settings, mut access) = (LogSettings::default(), AccessLog::Off);
    let Some(mut table) = table else { return (settings, access) };
    if let Some(level) = table.text(file, "level") {
        if tracing_subscriber::EnvFilter::try_new(&level.value).is_err() {
            file.error(&level.span, &level.key, "is no level (error, warn, info, debug, trace) or filter");
        }
        settings.level = level.value;
    }
    if let Some(format) = table.text(file, "format") {
        match format.value.as_str() {
            "json" => settings.format = LogFormat::Json,
            "text" => settings.format = LogFormat::Text,
            _ => file.error(&format.span, &format.key, "must be 'text' or 'json'"),
        }
    }
    if table.flag(file, "access").is_some_and(|flag| flag.value) {
        access = AccessLog::On;
    }
    table.finish(file);
    (settings, access)
}
