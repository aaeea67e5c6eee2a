//! A server's log message: how severe it is, and which logger wrote it.
//!
//! Not for: who may read it. Invariant: what is not rewritten stays byte for byte.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::Level;
use crate::wire::json::{self, Outline};
use crate::wire::jsonrpc::Notification;

/// A whole `notifications/message`.
#[derive(Clone, Debug)]
pub struct LogMessage(Form);

#[derive(Clone, Debug)]
enum Form {
    /// It was read: where its members lie is known.
    Read(Notification),
    /// Its text alone.
    Text(Bytes),
}

// === impl LogMessage ===

impl LogMessage {
    /// Takes a notification that was read.
    #[must_use]
    pub const fn of(notification: Notification) -> Self {
        Self(Form::Read(notification))
    }

    /// Takes the text of one.
    #[must_use]
    pub const fn text(raw: Bytes) -> Self {
        Self(Form::Text(raw))
    }

    /// Returns the text.
    #[must_use]
    pub const fn raw(&self) -> &Bytes {
        match &self.0 {
            Form::Read(notification) => &notification.raw,
            Form::Text(raw) => raw,
        }
    }

    /// Takes the text.
    #[must_use]
    pub fn into_raw(self) -> Bytes {
        match self.0 {
            Form::Read(notification) => notification.raw,
            Form::Text(raw) => raw,
        }
    }

    /// Returns where the params begin, and their members.
    fn params(&self) -> Option<(usize, Cow<'_, Outline>)> {
        match &self.0 {
            Form::Read(notification) => {
                let params = notification.params.as_deref()?;
                Some((params.place().start, Cow::Borrowed(params.outline())))
            }
            Form::Text(raw) => {
                let (outer, params) = json::nested(raw, usize::MAX, |key| key == b"params").ok()?;
                Some((outer.at(raw, "params").ok()??.start, Cow::Owned(params?)))
            }
        }
    }

    /// Returns how severe it is; `None` if it does not say in a known word.
    #[must_use]
    pub fn level(&self) -> Option<Level> {
        let (_, params) = self.params()?;
        Level::of_text(self.raw().get(params.at(self.raw(), "level").ok()??)?)
    }

    /// Spells it with a logger whose name begins with `server`, a name that is plain in JSON. What cannot be read stays as
    /// it is.
    #[must_use]
    pub fn named(self, server: &str) -> Self {
        match self.renamed(server.as_bytes()) {
            Some(named) => Self::text(named),
            None => self,
        }
    }

    fn renamed(&self, server: &[u8]) -> Option<Bytes> {
        let raw = self.raw();
        let (start, params) = self.params()?;
        let text = |at: &Range<usize>| raw.get(at.clone()).unwrap_or_default();
        let (at, parts): (Range<usize>, [&[u8]; 3]) = match params.at(raw, "logger").ok()? {
            Some(at) if text(&at).first() == Some(&b'"') => (at.start + 1..at.start + 1, [server, b"/", b""]),
            Some(at) => (at, [b"\"", server, b"\""]),
            None => {
                let end: &[u8] = if params.is_empty() { b"\"" } else { b"\"," };
                (start + 1..start + 1, [b"\"logger\":\"", server, end])
            }
        };
        let added: usize = parts.iter().map(|part| part.len()).sum();
        let mut out = Vec::with_capacity(raw.len() - at.len() + added);
        out.extend_from_slice(text(&(0..at.start)));
        parts.iter().for_each(|part| out.extend_from_slice(part));
        out.extend_from_slice(text(&(at.end..raw.len())));
        Some(Bytes::from(out))
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
        [LogMessage::text(raw), LogMessage::of(read)]
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
        assert_eq!(LogMessage::text(Bytes::from_static(none)).named("up.1").raw(), &none[..]);
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
        assert_eq!(LogMessage::text(Bytes::from_static(b"{}")).level(), None);
    }
}
