//! A request's headers, and where those stand in them that every request is asked for.
//!
//! One walk finds them all: a look into the map hashes a name anew, and a call has ten of them. Not for: what a header means.
//! Invariant: what may stand once and stands twice is never taken for either.

use http::{HeaderMap, HeaderValue};

/// The headers of a request.
#[derive(Debug, Default)]
pub(super) struct Headers {
    map: HeaderMap,
    /// For each of [`Known`], how many others stand before it, and one; 0 if it is absent. `None` where some header stands
    /// twice.
    places: Option<[u8; Known::ALL.len()]>,
}

/// The headers that may stand once and that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// `Accept`, of which there may be more.
    Accept,
    /// `x-api-key`.
    ApiKey,
    /// `Authorization`.
    Authorization,
    /// `Content-Type`.
    ContentType,
    /// `Host`.
    Host,
    /// `Last-Event-ID`.
    LastEventId,
    /// `Mcp-Method`.
    Method,
    /// `Mcp-Name`.
    Name,
    /// `Origin`.
    Origin,
    /// `MCP-Protocol-Version`.
    ProtocolVersion,
    /// `Mcp-Session-Id`.
    SessionId,
    /// `traceparent`.
    TraceParent,
    /// `tracestate`.
    TraceState,
}

/// A header that may stand once stands twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Twice;

/// A header that may stand once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Single<'a> {
    /// It is not there.
    Absent,
    /// It stands twice, or is no visible ASCII.
    Bad,
    /// Its value without surrounding white space [R9].
    Value(&'a str),
}

// === impl Known ===

impl Known {
    const ALL: [Self; 13] = [
        Self::Accept,
        Self::ApiKey,
        Self::Authorization,
        Self::ContentType,
        Self::Host,
        Self::LastEventId,
        Self::Method,
        Self::Name,
        Self::Origin,
        Self::ProtocolVersion,
        Self::SessionId,
        Self::TraceParent,
        Self::TraceState,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::ApiKey => "x-api-key",
            Self::Authorization => "authorization",
            Self::ContentType => "content-type",
            Self::Host => "host",
            Self::LastEventId => "last-event-id",
            Self::Method => "mcp-method",
            Self::Name => "mcp-name",
            Self::Origin => "origin",
            Self::ProtocolVersion => "mcp-protocol-version",
            Self::SessionId => "mcp-session-id",
            Self::TraceParent => "traceparent",
            Self::TraceState => "tracestate",
        }
    }

    /// Reads a name in lower case. A match of texts of different lengths, which the compiler tells apart by these.
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "accept" => Self::Accept,
            "x-api-key" => Self::ApiKey,
            "authorization" => Self::Authorization,
            "content-type" => Self::ContentType,
            "host" => Self::Host,
            "last-event-id" => Self::LastEventId,
            "mcp-method" => Self::Method,
            "mcp-name" => Self::Name,
            "origin" => Self::Origin,
            "mcp-protocol-version" => Self::ProtocolVersion,
            "mcp-session-id" => Self::SessionId,
            "traceparent" => Self::TraceParent,
            "tracestate" => Self::TraceState,
            _ => return None,
        })
    }
}

// === impl Headers ===

impl Headers {
    /// Takes the headers of a request.
    pub(super) fn new(map: HeaderMap) -> Self {
        let mut places = None;
        // Nearly always no header stands twice, and there are few.
        if map.len() == map.keys_len() && map.len() < usize::from(u8::MAX) {
            let mut found = [0; Known::ALL.len()];
            for (at, name) in (1..).zip(map.keys()) {
                if let Some(place) = Known::of(name.as_str()).and_then(|known| found.get_mut(known as usize)) {
                    *place = at;
                }
            }
            places = Some(found);
        }
        Self { map, places }
    }

    /// Returns all of them.
    pub(super) const fn all(&self) -> &HeaderMap {
        &self.map
    }

    /// Gives them back.
    pub(super) fn into_map(self) -> HeaderMap {
        self.map
    }

    /// Returns the value of a header that may stand once.
    pub(super) fn single(&self, known: Known) -> Result<Option<&HeaderValue>, Twice> {
        if let Some(places) = &self.places {
            let place = places.get(known as usize).copied().unwrap_or_default();
            return Ok(usize::from(place).checked_sub(1).and_then(|before| self.map.values().nth(before)));
        }
        let mut values = self.map.get_all(known.name()).iter();
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => Err(Twice),
        }
    }

    /// Reads the text of a header that may stand once.
    pub(super) fn text(&self, known: Known) -> Single<'_> {
        match self.single(known) {
            Ok(None) => Single::Absent,
            Ok(Some(value)) => value.to_str().map_or(Single::Bad, |text| Single::Value(trimmed(text))),
            Err(Twice) => Single::Bad,
        }
    }
}

/// Takes the white space off that may surround a value: nearly always there is none.
pub(super) fn trimmed(text: &str) -> &str {
    match text.as_bytes() {
        [b' ' | b'\t', ..] | [.., b' ' | b'\t'] => text.trim_matches([' ', '\t']),
        _ => text,
    }
}

#[cfg(test)]
impl FromIterator<(http::HeaderName, HeaderValue)> for Headers {
    fn from_iter<T: IntoIterator<Item = (http::HeaderName, HeaderValue)>>(lines: T) -> Self {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(name, value);
        }
        Self::new(map)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::{Headers, Known, Single, Twice};

    fn headers(lines: &[(&'static str, &'static str)]) -> Headers {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn each_is_found_under_its_own_name() {
        for (index, known) in Known::ALL.into_iter().enumerate() {
            assert_eq!((known as usize, Known::of(known.name())), (index, Some(known)));
        }
        let lines: Vec<_> = Known::ALL.map(|known| (known.name(), known.name())).into();
        for lines in [lines.clone(), lines.iter().copied().rev().chain([("other", "x")]).collect()] {
            let headers = headers(&lines);
            for known in Known::ALL {
                assert_eq!(headers.text(known), Single::Value(known.name()));
            }
        }
        assert!(Known::ALL.iter().all(|known| headers(&[("other", "x")]).text(*known) == Single::Absent));
        assert_eq!(Headers::default().single(Known::Host), Ok(None));
    }

    #[test]
    fn what_stands_twice_is_neither() {
        let headers = headers(&[("host", "a"), ("other", "b"), ("other", "c"), ("origin", "d"), ("host", "e")]);
        assert_eq!(headers.single(Known::Host), Err(Twice));
        assert_eq!(headers.text(Known::Host), Single::Bad);
        assert_eq!(headers.text(Known::Origin), Single::Value("d"));
        assert_eq!(headers.text(Known::Accept), Single::Absent);
    }

    /// [R9]
    #[test]
    fn a_text_is_visible_ascii_without_white_space_around_it() {
        for (value, expected) in [
            ("a b\tc", Single::Value("a b\tc")),
            (" \ta\t ", Single::Value("a")),
            ("", Single::Value("")),
            (" ", Single::Value("")),
            ("ä", Single::Bad),
        ] {
            assert_eq!(headers(&[("mcp-name", value)]).text(Known::Name), expected, "{value:?}");
        }
    }
}
