//! `portcullis status`: is the gateway of this configuration running, and ready? Good as a probe: 0 says yes, 4 no.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::StatusCode;
use serde_json::json;

use crate::codes::Code;
use crate::config;

use super::args::Status;
use super::open::block_on;
use super::output::{self, data, line};
use super::remote;
use super::trouble::{Exit, Trouble};

pub(super) fn run(status: &Status) -> Result<Exit, Trouble> {
    block_on(async {
        let base = match &status.url {
            Some(url) => url.clone(),
            None => {
                let loaded = config::load(&status.config, &config::process_env)?;
                let admin = loaded.settings.admin.first().copied();
                let admin = admin.ok_or_else(|| Trouble::new(Exit::Failure, Code::Unreachable, "no admin address"))?;
                format!("http://{}", reachable(admin))
            }
        };
        let (code, text) = remote::probe(&base, "/readyz").await.map_err(|trouble| {
            // A gateway that ends its answer is not ready either.
            let exit = trouble.told();
            Trouble::Told(if exit == Exit::Failure { Exit::NotReady } else { exit })
        })?;
        let words = line(&text);
        let ready = code == StatusCode::OK && words == "ready";
        let waiting: Vec<_> =
            words.strip_prefix("waiting for: ").map(|names| names.split(", ").collect()).unwrap_or_default();
        let draining = words == "draining";
        if !ready && !draining && waiting.is_empty() {
            let words =
                format!("{base} answered HTTP {} '{words}': this is no admin address of a gateway", code.as_u16());
            return Err(Trouble::new(Exit::Failure, Code::Unreachable, words).fix(remote::ADMIN));
        }
        if status.json {
            output::json(&json!({ "admin": base, "ready": ready, "draining": draining, "waiting_for": waiting }))?;
        } else {
            data(format!("{words}\n").as_bytes())?;
        }
        if ready { Ok(Exit::Ok) } else { Err(Trouble::new(Exit::NotReady, Code::NotReady, format!("{base}: {words}"))) }
    })
}

/// Where a listener can be asked: one on every address, on loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::reachable;

    #[test]
    fn a_listener_on_every_address_is_asked_on_loopback() {
        for (bound, asked) in [("0.0.0.0:7801", "127.0.0.1:7801"), ("[::]:1", "[::1]:1"), ("10.0.0.1:2", "10.0.0.1:2")]
        {
            assert_eq!(reachable(bound.parse().unwrap()).to_string(), asked);
        }
    }
}
