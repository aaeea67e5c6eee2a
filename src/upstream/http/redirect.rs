//! What becomes of a request that its server sends elsewhere [TRN-5, TRN-6, FC-HTP-09].
//!
//! Not for: connections and addresses (`net`). Invariants: a request keeps its method and its body or is not sent on; the
//! configured headers go to the configured origin alone, and not there either once another origin has had the request, for
//! that one chose the path; nothing that was meant for https is said over plain http; another
//! origin is a public one, unless the operator allows others; redirects have an end.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, StatusCode, Uri};

use crate::exchange::Reject;
use crate::net::{Dialer, HttpClient, Reach, Response, resolve, same_origin};
use crate::runtime::Tasks;

use super::target::Target;

/// How many times a request is sent on.
const HOPS_MAX: usize = 5;
/// How much of a redirect's own body is read, so that its connection can be used again.
const BODY_MAX: usize = 16 << 10;

/// How a target follows redirects.
pub(super) struct Redirects {
    uri: Uri,
    dialer: Dialer,
    tasks: Tasks,
    /// The last other origin.
    other: Mutex<Option<(Uri, HttpClient)>>,
}

/// The method of a request that is spelled already, and what follows its first line.
struct Spelled<'a> {
    verb: &'a [u8],
    lines: &'a [u8],
}

// === impl Redirects ===

impl Redirects {
    /// Makes the redirects of a server with this URL; other origins are dialled as far as `reach` goes.
    pub(super) fn new(uri: Uri, dialer: Dialer, reach: Reach, tasks: Tasks) -> Self {
        Self { uri, dialer: dialer.with_reach(reach), tasks, other: Mutex::default() }
    }

    /// Makes those of another URL of the same origin.
    pub(super) fn at(&self, uri: &Uri) -> Self {
        Self { uri: uri.clone(), dialer: self.dialer.clone(), tasks: self.tasks.clone(), other: Mutex::default() }
    }

    fn client(&self, uri: &Uri) -> HttpClient {
        let mut other = self.other.lock().unwrap_or_else(PoisonError::into_inner);
        match &*other {
            Some((origin, client)) if same_origin(origin, uri) => client.clone(),
            Some(_) | None => {
                let client = HttpClient::new(&self.tasks, self.dialer.clone(), uri.clone());
                *other = Some((uri.clone(), client.clone()));
                client
            }
        }
    }

    /// Sends a request on for as long as it is redirected; `response` is the first redirect. Returns also the URL of the
    /// last response; none where another origin was on the way.
    pub(super) async fn follow(
        &self,
        target: &Target,
        mut response: Response,
        head: &[u8],
        body: Bytes,
    ) -> Result<(Response, Option<Uri>), Reject> {
        let (mut from, mut left) = (self.uri.clone(), false);
        for _ in 0..HOPS_MAX {
            let Some(to) = self.next(target, &from, &response, head)? else {
                return Ok((response, (!left).then_some(from)));
            };
            // It has told everything with its head.
            let _read = response.body.collect(BODY_MAX).await.is_ok();
            let own = same_origin(&self.uri, &to);
            left |= !own;
            let head = respelled(head, &to, left.then_some(target.configured()));
            let sent = if own {
                target.client.send(&head, &body).await
            } else {
                tracing::debug!(server = %target.name, "a redirect to another origin is followed without the configured headers");
                self.client(&to).send(&head, &body).await
            };
            response = sent.map_err(|err| {
                let public = format!("server '{}' redirects a request to where it cannot be sent", target.name);
                target.reject(public, err.to_string())
            })?;
            from = to;
        }
        match self.next(target, &from, &response, head)? {
            None => Ok((response, (!left).then_some(from))),
            Some(_) => Err(target.reject(
                format!("server '{}' redirects a request more than {HOPS_MAX} times", target.name),
                "configure the url that it ends at".to_owned(),
            )),
        }
    }

    /// Finds where a response sends the request; `None` if it is no redirect.
    fn next(&self, target: &Target, from: &Uri, response: &Response, head: &[u8]) -> Result<Option<Uri>, Reject> {
        let refused = |what: &str| {
            let public = format!("server '{}' redirects a request {what}", target.name);
            target.reject(public, format!("HTTP {}", response.status.as_u16()))
        };
        let keeps_method = match response.status {
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => {
                Spelled::of(head).verb == b"GET"
            }
            _ => return Ok(None),
        };
        let Some(location) = response.headers.get("location") else { return Ok(None) };
        if !keeps_method {
            return Err(refused("in a way that would lose its body: configure the url that it ends at"));
        }
        let Some(to) = resolve(from, location) else { return Err(refused("to what is no http or https URL")) };
        let plain = to.scheme() != Some(&Scheme::HTTPS);
        if plain && (self.dialer.demands_tls() || from.scheme() == Some(&Scheme::HTTPS)) {
            return Err(refused("to plain http, which is refused"));
        }
        Ok(Some(to))
    }
}

// === impl Spelled ===

impl<'a> Spelled<'a> {
    fn of(head: &'a [u8]) -> Self {
        let end = memchr::memmem::find(head, b"\r\n").map_or(head.len(), |at| at + 2);
        let (first, lines) = head.split_at(end);
        Self { verb: first.split(|byte| *byte == b' ').next().unwrap_or_default(), lines }
    }
}

/// Spells a request for another URL: its path, and once it has left its origin the host, without the headers of `drop`.
fn respelled(head: &[u8], to: &Uri, drop: Option<&HeaderMap>) -> Vec<u8> {
    let Spelled { verb, lines } = Spelled::of(head);
    let path = to.path_and_query().map_or("/", PathAndQuery::as_str);
    let mut out = [verb, b" ", path.as_bytes(), b" HTTP/1.1\r\n"].concat();
    let Some(drop) = drop else {
        out.extend_from_slice(lines);
        return out;
    };
    let host = to.authority().map_or("", http::uri::Authority::as_str);
    out.extend_from_slice(&[b"host: ", host.as_bytes(), b"\r\n"].concat());
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        let name = std::str::from_utf8(name).unwrap_or_default();
        if !name.eq_ignore_ascii_case("host") && !drop.contains_key(name) {
            out.extend_from_slice(line);
        }
    }
    out
}

#[cfg(test)]
#[path = "redirect_tests.rs"]
mod tests;
