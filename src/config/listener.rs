//! `[listen]`, `[limits]` and `[log]`.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;

use crate::codes::Code;
use crate::downstream::{AccessLog, DownstreamSettings, HttpSse};
use crate::gateway::Auth;
use crate::net::TlsFiles;
use crate::telemetry::{LogFormat, LogSettings};
use crate::upstream::TargetSet;

use super::keys;
use super::reader::{Table, Value};

/// Where the admin listener is, if the file does not say.
const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7801);

/// The most processes that may be allowed.
pub(super) const PROCESSES: u64 = 10_000;

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

/// Where something listens.
#[derive(Debug, Default)]
struct Places {
    addresses: Vec<SocketAddr>,
    sockets: Vec<PathBuf>,
}

/// Reads `[listen]` into the settings; returns the admin addresses. Relative paths start at `base`.
pub(super) fn listen(table: Option<&Table<'_>>, base: &Path, settings: &mut DownstreamSettings) -> Vec<SocketAddr> {
    let Some(table) = table else { return vec![ADMIN] };
    table.keys(keys::LISTEN);
    let mut taken = BTreeSet::new();
    if let Some(found) = table.get("http").and_then(|value| places(&value, &mut taken)) {
        (settings.addresses, settings.sockets) = (found.addresses, found.sockets);
    } else {
        taken.extend(&settings.addresses);
    }
    if table.get("http_sse").and_then(|value| value.flag()).unwrap_or_default() {
        settings.http_sse = HttpSse::On;
    }
    if let Some(value) = table.get("public_url")
        && let Some(text) = value.text()
    {
        match public_path(text) {
            Ok(path) => path.clone_into(&mut settings.public_path),
            Err(why) => value.error(why),
        }
    }
    let admin = table.get("admin").and_then(|value| probed(&value, &mut taken));
    settings.tls = tls(table, base);
    if let (Some(value), true) = (table.get("tls_cert"), settings.addresses.is_empty()) {
        let help = "it is for IP addresses; a local socket is guarded by its mode".to_owned();
        value.warn("has no effect: the gateway listens on local sockets alone", Some(help));
    }
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
    // Both serve the two probes and nothing else; `health` stays so when `admin` grows [OPS-4].
    let health = table.get("health").and_then(|value| probed(&value, &mut taken)).unwrap_or_default();
    admin.unwrap_or_else(|| vec![ADMIN]).into_iter().chain(health).collect()
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
    table.keys(keys::LIMITS);
    let number = |key: &str, most: u64| table.get(key).and_then(|value| value.number(&(1..=most)));
    let count = |key: &str, most: u64, slot: &mut usize| {
        *slot = number(key, most).and_then(|number| usize::try_from(number).ok()).unwrap_or(*slot);
    };
    let mut body = settings.body_bytes_max;
    count("request_body_bytes", 1 << 32, &mut body);
    settings.set_body_bytes_max(body);
    count("connections", 1_000_000, &mut settings.connections_max);
    count("sessions", 1_000_000, &mut settings.sessions_max);
    let all = settings.sessions_max;
    count("sessions_per_principal", 1_000_000, &mut settings.sessions_per_principal_max);
    settings.sessions_per_principal_max = settings.sessions_per_principal_max.min(all);
    count("parked_calls", 100_000, &mut settings.parked_max);
    let all = settings.parked_max;
    count("parked_calls_per_principal", 100_000, &mut settings.parked_per_principal_max);
    settings.parked_per_principal_max = settings.parked_per_principal_max.min(all);
    settings.question = number("question_secs", 3_600).map_or(settings.question, Duration::from_secs);
    let replay = &mut settings.replay;
    count("resume_bytes_per_session", 1 << 30, &mut replay.session_bytes);
    count("resume_bytes_per_stream", 1 << 30, &mut replay.stream_bytes);
    replay.stream_bytes = replay.stream_bytes.min(replay.session_bytes);
    replay.time = number("resume_secs", 3_600).map_or(replay.time, Duration::from_secs);
    settings.session_idle = number("session_idle_secs", 604_800).map_or(settings.session_idle, Duration::from_secs);
    settings.write_timeout = number("write_timeout_secs", 3_600).map_or(settings.write_timeout, Duration::from_secs);
    settings.keep_alive = number("keep_alive_secs", 3_600).map_or(settings.keep_alive, Duration::from_secs);
}

/// Reads how many processes one principal may have.
pub(super) fn processes(limits: Option<&Table<'_>>) -> usize {
    let value = limits.and_then(|table| table.get("processes_per_principal"));
    let number = value.and_then(|value| value.number(&(1..=PROCESSES))).and_then(|number| usize::try_from(number).ok());
    number.unwrap_or(TargetSet::PROCESSES_PER_PRINCIPAL)
}

/// Reads `[log]`; its access line is a matter of the front door.
pub(super) fn log(table: Option<&Table<'_>>, door: &mut DownstreamSettings) -> LogSettings {
    let mut settings = LogSettings::default();
    let Some(table) = table else { return settings };
    table.keys(keys::LOG);
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

/// Reads `tls_cert` and `tls_key`, and tries what they name.
fn tls(table: &Table<'_>, base: &Path) -> Option<TlsFiles> {
    let (cert, key) = (table.get("tls_cert"), table.get("tls_key"));
    let (cert, key) = match (&cert, &key) {
        (Some(cert), Some(key)) => (cert, key),
        (None, None) => return None,
        (Some(cert), None) => {
            cert.error_help("needs tls_key", "give the file of the certificate's private key");
            return None;
        }
        (None, Some(key)) => {
            key.error_help("needs tls_cert", "give the file of the certificate and its chain");
            return None;
        }
    };
    let files = TlsFiles { cert: base.join(cert.path()?), key: base.join(key.path()?) };
    match files.check() {
        Ok(doubts) => {
            if let Some(why) = doubts.untimely {
                let help = "renew it; a gateway that runs takes the new one by itself".to_owned();
                cert.warn(format!("{}: {why}, so clients refuse it", files.cert.display()), Some(help));
            }
            if doubts.open_to_all {
                let help = format!("chmod 600 {}", files.key.display());
                key.warn(format!("everybody on this machine may read the key {}", files.key.display()), Some(help));
            }
            Some(files)
        }
        Err(err) => {
            let value = if err.path == files.key { key } else { cert };
            value.error(err.to_string());
            None
        }
    }
}

/// Reads where probes are answered.
fn probed(value: &Value<'_>, taken: &mut BTreeSet<SocketAddr>) -> Option<Vec<SocketAddr>> {
    let found = places(value, taken)?;
    if !found.sockets.is_empty() {
        value.error("probes are answered on an IP address alone");
    }
    (!found.addresses.is_empty()).then_some(found.addresses)
}

fn places(value: &Value<'_>, taken: &mut BTreeSet<SocketAddr>) -> Option<Places> {
    let mut found = Places::default();
    let items = value.one_or_more()?;
    if items.is_empty() {
        value.error("must not be empty");
    }
    for (text, item) in items {
        if let Some(path) = text.strip_prefix("unix:") {
            socket(path, &item, &mut found.sockets);
            continue;
        }
        let port = text.strip_prefix("localhost:").and_then(|port| port.parse::<u16>().ok());
        let list: Vec<SocketAddr> = match (port, text.parse()) {
            (Some(port), _) => vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()],
            (None, Ok(address)) => vec![address],
            (None, Err(_)) => {
                item.error(
                    "must be an IP address and a port, as 127.0.0.1:7800, or localhost and a port, or unix: and a path",
                );
                continue;
            }
        };
        for address in list {
            if address.port() != 0 && !taken.insert(address) {
                item.error(format!("{address} is given twice"));
            }
            found.addresses.push(address);
        }
    }
    (!found.addresses.is_empty() || !found.sockets.is_empty()).then_some(found)
}

fn socket(text: &str, item: &Value<'_>, sockets: &mut Vec<PathBuf>) {
    let path = PathBuf::from(text);
    if !path.is_absolute() || text.ends_with('/') || text.contains('\0') {
        item.error("must be unix: and the absolute path of a file, as unix:/run/portcullis/mcp.sock");
    } else if sockets.contains(&path) {
        item.error(format!("unix:{text} is given twice"));
    } else {
        sockets.push(path);
    }
}

/// Reads the path of the gateway's public URL: nothing, or segments that look the same in every proxy, each after a slash.
fn public_path(text: &str) -> Result<&str, &'static str> {
    const WORDS: &str = "must be the URL of the gateway as clients see it, as https://example.com/tools";
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).ok_or(WORDS)?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = path.strip_suffix('/').unwrap_or(path);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let segment = |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(plain);
    let mut segments = path.split('/').skip(1);
    if !origin(&format!("https://{authority}")) || !segments.clone().all(segment) {
        return Err(WORDS);
    }
    if segments.any(|segment| matches!(segment, "mcp" | "sse")) {
        return Err("must be the URL of the gateway, without /mcp or /sse");
    }
    Ok(path)
}

fn origin(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else { return false };
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return false };
    !authority.as_str().contains(['@', '*']) && format!("{scheme}://{authority}").eq_ignore_ascii_case(text)
}
