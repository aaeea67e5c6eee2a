//! A server's log message: how severe it is, and which logger wrote it.
//!
//! Not for: who may read it. Invariant: what is not rewritten stays byte for byte.

use std::ops::Range;

use bytes::Bytes;

use super::Level;
use crate::wire::json::{self, Outline};
use crate::wire::jsonrpc::Notification;

/// A whole `notifications/message`.
#[derive(Clone, Debug)]
pub struct LogMessage {
    raw: Bytes,
    level: Option<Level>,
    logger: Logger,
}

/// Where the logger is named.
#[derive(Clone, Debug)]
enum Logger {
    /// Here, in a JSON value.
    At(Range<usize>),
    /// Nowhere; the params begin here, and have other members or none.
    Absent(usize, bool),
    /// The message cannot be read so far.
    Unknown,
}

// === impl LogMessage ===

impl LogMessage {
    /// Takes a notification that was read; what is asked here costs no further look at its text.
    #[must_use]
    pub fn of(notification: &Notification) -> Self {
        let raw = notification.raw.clone();
        let Some(params) = notification.params.as_deref() else {
            return Self { raw, level: None, logger: Logger::Unknown };
        };
        Self::found(raw, params.place().start, params.outline())
    }

    /// Reads the text of one.
    #[must_use]
    pub fn read(raw: Bytes) -> Self {
        let found = json::nested(&raw, usize::MAX, |key| key == b"params").ok().and_then(|(outer, params)| {
            let start = outer.at(&raw, "params").ok()??.start;
            Some((start, params?))
        });
        match found {
            Some((start, params)) => Self::found(raw, start, &params),
            None => Self { raw, level: None, logger: Logger::Unknown },
        }
    }

    fn found(raw: Bytes, start: usize, params: &Outline) -> Self {
        let level = params.at(&raw, "level").ok().flatten().and_then(|at| Level::of_text(raw.get(at)?));
        let logger = match params.at(&raw, "logger") {
            Ok(Some(at)) => Logger::At(at),
            Ok(None) => Logger::Absent(start, params.is_empty()),
            Err(_) => Logger::Unknown,
        };
        Self { raw, level, logger }
    }

    /// Returns the text.
    #[must_use]
    pub const fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Takes the text.
    #[must_use]
    pub fn into_raw(self) -> Bytes {
        self.raw
    }

    /// Returns how severe it is; `None` if it does not say in a known word.
    #[must_use]
    pub const fn level(&self) -> Option<Level> {
        self.level
    }

    /// Spells it with a logger whose name begins with `server`, a name that is plain in JSON. What cannot be read stays as
    /// it is.
    #[must_use]
    pub fn named(self, server: &str) -> Self {
        let server = server.as_bytes();
        let text = |at: &Range<usize>| self.raw.get(at.clone()).unwrap_or_default();
        let (at, parts): (Range<usize>, [&[u8]; 3]) = match &self.logger {
            Logger::Unknown => return self,
            Logger::At(at) if text(at).first() == Some(&b'"') => (at.start + 1..at.start + 1, [server, b"/", b""]),
            Logger::At(at) => (at.clone(), [b"\"", server, b"\""]),
            Logger::Absent(start, empty) => {
                let end: &[u8] = if *empty { b"\"" } else { b"\"," };
                (start + 1..start + 1, [b"\"logger\":\"", server, end])
            }
        };
        let added: usize = parts.iter().map(|part| part.len()).sum();
        let mut out = Vec::with_capacity(self.raw.len() - at.len() + added);
        out.extend_from_slice(text(&(0..at.start)));
        parts.iter().for_each(|part| out.extend_from_slice(part));
        out.extend_from_slice(text(&(at.end..self.raw.len())));
        Self { raw: Bytes::from(out), level: self.level, logger: Logger::Unknown }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::LogMessage;
    use crate::wire::jsonrpc::{Decoded, Limits, Message, decode};
    use crate::wire::mcp::Level;

    /// The message as a reader of its text alone has it, and as one who has read it as a message.
    fn both(params: &str) -> [LogMessage; 2] {
        let message = format!(r#"{{"method":"notifications/message","params":{params},"jsonrpc":"2.0"}}"#);
        let raw = Bytes::from(message);
        let Ok(Decoded::One(Message::Notification(read))) = decode(&raw, &Limits::UPSTREAM) else { panic!("{params}") };
        [LogMessage::read(raw), LogMessage::of(&read)]
    }

    #[test]
    fn a_log_message_names_its_server() {
        for (params, named) in [
            (r#"{"level":"info","logger":"db","data":1.0}"#, r#"{"level":"info","logger":"up.1/db","data":1.0}"#),
            (r#"{"logger":"\u0064b\n\ud800"}"#, r#"{"logger":"up.1/\u0064b\n\ud800"}"#),
            (r#"{"level":"info","data":{"logger":"x"}}"#, r#"{"logger":"up.1","level":"info","data":{"logger":"x"}}"#),
            (r#"{"logger":7}"#, r#"{"logger":"up.1"}"#),
            (r#"{"logger":""}"#, r#"{"logger":"up.1/"}"#),
            (r#"{ }"#, r#"{"logger":"up.1" }"#),
            (r#"{"logger":"a","logger":"b"}"#, r#"{"logger":"a","logger":"b"}"#),
        ] {
            for message in both(params) {
                let named_text = String::from_utf8(message.named("up.1").raw().to_vec()).unwrap();
                assert!(named_text.contains(&format!(r#""params":{named},"#)), "{named_text}");
            }
        }
        let none = br#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
        assert_eq!(LogMessage::read(Bytes::from_static(none)).named("up.1").raw(), &none[..]);
    }

    #[test]
    fn a_log_message_says_how_severe_it_is() {
        for (params, level) in [
            (r#"{"level":"error","data":1}"#, Some(Level::Error)),
            (r#"{"level":"loud"}"#, None),
            (r#"{"level":7}"#, None),
            ("{}", None),
        ] {
            assert!(both(params).iter().all(|message| message.level() == level), "{params}");
        }
        assert_eq!(LogMessage::read(Bytes::from_static(b"{}")).level(), None);
    }
}
