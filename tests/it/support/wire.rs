//! HTTP/1.1 by hand: heads, bodies and events as they come off a socket, and JSON members as they are spelled.

use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A head: its first line, and its fields with names in lower case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    /// The first line.
    pub(crate) line: String,
    /// The fields.
    pub(crate) fields: Vec<(String, String)>,
}

/// A connection.
pub(crate) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// After so many bytes.
    Length(usize),
    /// With an empty chunk.
    Chunked,
    /// With the connection.
    Close,
    /// It has.
    Over,
}

impl Head {
    /// Returns the first field of that name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Says how the body ends; a request without length has none.
    pub(crate) fn rest(&self, request: bool) -> Rest {
        if self.field("transfer-encoding").is_some() {
            return Rest::Chunked;
        }
        match self.field("content-length").map(|text| text.parse().unwrap()) {
            Some(0) => Rest::Over,
            Some(length) => Rest::Length(length),
            None if request => Rest::Over,
            None => Rest::Close,
        }
    }
}

impl Wire {
    pub(crate) const fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    /// Writes; `false` if the peer has gone.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// Waits until the peer has gone.
    pub(crate) async fn gone(&mut self) {
        while self.fill().await {}
    }

    async fn fill(&mut self) -> bool {
        let mut chunk = vec![0; 16 << 10];
        match self.stream.read(&mut chunk).await {
            Ok(count) if count > 0 => {
                self.buffer.extend_from_slice(&chunk[..count]);
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    async fn until(&mut self, needle: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = memchr::memmem::find(&self.buffer, needle) {
                let found = self.buffer[..at].to_vec();
                self.buffer.drain(..at + needle.len());
                return Some(found);
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// Reads a head.
    pub(crate) async fn head(&mut self) -> Option<Head> {
        let text = String::from_utf8(self.until(b"\r\n\r\n").await?).unwrap();
        let mut lines = text.lines();
        let line = lines.next()?.to_owned();
        let fields = lines.filter_map(|line| line.split_once(':'));
        let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
        Some(Head { line, fields })
    }

    /// Reads the next part of a body; `None` at its end.
    pub(crate) async fn part(&mut self, rest: &mut Rest) -> Option<Vec<u8>> {
        match *rest {
            Rest::Over => None,
            Rest::Length(length) => {
                self.fill_to(length).await;
                *rest = Rest::Over;
                Some(self.buffer.drain(..length).collect())
            }
            Rest::Chunked => {
                let size = String::from_utf8(self.until(b"\r\n").await?).unwrap();
                let size = usize::from_str_radix(size.trim(), 16).unwrap();
                if !self.fill_to(size + 2).await {
                    return None;
                }
                let chunk: Vec<u8> = self.buffer.drain(..size).collect();
                self.buffer.drain(..2);
                if size == 0 {
                    *rest = Rest::Over;
                    return None;
                }
                Some(chunk)
            }
            Rest::Close => {
                if self.buffer.is_empty() && !self.fill().await {
                    return None;
                }
                Some(std::mem::take(&mut self.buffer))
            }
        }
    }

    async fn fill_to(&mut self, length: usize) -> bool {
        while self.buffer.len() < length {
            if !self.fill().await {
                return false;
            }
        }
        true
    }

    /// Reads a whole body.
    pub(crate) async fn body(&mut self, mut rest: Rest) -> String {
        let mut body = Vec::new();
        while let Some(part) = self.part(&mut rest).await {
            body.extend(part);
        }
        String::from_utf8(body).unwrap()
    }
}

/// Takes complete events' data off the front of an event stream's text.
pub(crate) fn take_events(text: &mut String) -> Vec<String> {
    let mut events = Vec::new();
    while let Some(at) = text.find("\n\n") {
        let event: String = text.drain(..at + 2).collect();
        let data: Vec<&str> = event.lines().filter_map(|line| line.strip_prefix("data:")).collect();
        let data: Vec<&str> = data.into_iter().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        let data = data.join("\n");
        // One without data primes its client with an id.
        if !data.is_empty() {
            events.push(data);
        }
    }
    events
}

/// Returns the member of an object at `path`, as it is spelled; `None` if there is none.
pub(crate) fn raw(object: &str, path: &str) -> Option<String> {
    let mut now = object.to_owned();
    for key in path.split('.') {
        let members: std::collections::BTreeMap<String, Box<RawValue>> = serde_json::from_str(&now).ok()?;
        now = members.get(key)?.get().to_owned();
    }
    Some(now)
}
