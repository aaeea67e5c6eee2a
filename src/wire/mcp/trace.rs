//! Trace context of W3C in `_meta` and headers: checked, and continued with a span of the gateway's own [R123].
//!
//! Not for: exporting spans. Invariant: what is malformed is dropped, never passed on.

use bytes::Bytes;

use crate::wire::json;

/// The keys of `_meta`, which are the names of the headers too.
pub const TRACE_KEYS: [&str; 3] = ["traceparent", "tracestate", "baggage"];
/// The longest `tracestate` that is passed on, in bytes (W3C Trace Context, 3.3.1.5: a longer one may be dropped).
const STATE_MAX: usize = 512;
/// The longest `baggage`, in bytes (W3C Baggage, 3.3.2).
const BAGGAGE_MAX: usize = 8_192;
/// Where the number of the span lies in a `traceparent`.
const SPAN: std::ops::Range<usize> = 36..52;

/// What a request says of the trace that it is part of: `traceparent`, `tracestate`, `baggage`, each valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace([Option<String>; 3]);

impl Trace {
    /// Takes what stands in `_meta`, as JSON texts; where no valid `traceparent` does, that of the headers. No `baggage` is
    /// taken from a header: of a client's headers the trace context alone is passed on [TRN-9].
    #[must_use]
    pub fn read(meta: &[Option<Bytes>; 3], headers: [Option<&str>; 2]) -> Option<Self> {
        let text = |value: &Option<Bytes>| {
            value.as_ref().and_then(|value| json::text_of(value)).map(std::borrow::Cow::into_owned)
        };
        let [parent, state, baggage] = meta;
        let [parent, state, baggage] = [text(parent), text(state), text(baggage)];
        let baggage = baggage.filter(|baggage| is_plain(baggage, BAGGAGE_MAX));
        let (parent, state) = match parent.filter(|parent| is_parent(parent)) {
            Some(parent) => (Some(parent), state),
            None => {
                let [parent, state] = headers;
                (parent.filter(|parent| is_parent(parent)).map(str::to_owned), state.map(str::to_owned))
            }
        };
        // A state means nothing without its parent.
        let state = state.filter(|state| parent.is_some() && is_plain(state, STATE_MAX));
        (parent.is_some() || baggage.is_some()).then_some(Self([parent, state, baggage]))
    }

    /// Returns the context of a span below this one.
    #[must_use]
    pub fn child(&self, span: [u8; 8]) -> Self {
        let [parent, state, baggage] = self.0.clone();
        let parent = parent.map(|parent| {
            let span: String = span.iter().map(|byte| format!("{byte:02x}")).collect();
            let (head, tail) = (parent.get(..SPAN.start), parent.get(SPAN.end..));
            // A number that is all zeros is none.
            match (head, tail) {
                (Some(head), Some(tail)) if span.bytes().any(|digit| digit != b'0') => format!("{head}{span}{tail}"),
                _ => parent,
            }
        });
        Self([parent, state, baggage])
    }

    /// Walks what there is, under the names that keys of `_meta` and headers share.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        TRACE_KEYS.into_iter().zip(&self.0).filter_map(|(key, value)| Some((key, value.as_deref()?)))
    }
}

/// Says whether a text is a `traceparent` (W3C Trace Context, 3.2).
fn is_parent(text: &str) -> bool {
    let hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let set = |part: &str| part.bytes().any(|byte| byte != b'0');
    let mut parts = text.split('-');
    let (Some(version), Some(trace), Some(span), Some(flags)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let lengths = (version.len(), trace.len(), span.len(), flags.len()) == (2, 32, 16, 2);
    // A later version may have more parts; this one has none.
    lengths
        && [version, trace, span, flags].into_iter().all(hex)
        && version != "ff"
        && (version != "00" || parts.next().is_none())
        && set(trace)
        && set(span)
        && text.len() <= STATE_MAX
        && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Says whether a text may stand in a header, and is short enough.
fn is_plain(text: &str, max: usize) -> bool {
    !text.is_empty() && text.len() <= max && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Trace, is_parent};

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn quoted(text: &str) -> Option<Bytes> {
        Some(Bytes::from(format!("\"{text}\"")))
    }

    /// [R123]
    #[test]
    fn a_trace_is_continued_under_a_span_of_ours() {
        let meta = [quoted(PARENT), quoted("vendor=x"), quoted("user=7")];
        let trace = Trace::read(&meta, [Some("00-rubbish"), None]).unwrap();
        let child = trace.child([1, 2, 3, 4, 5, 6, 7, 0xff]);
        assert_eq!(
            child.iter().collect::<Vec<_>>(),
            [
                ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-01020304050607ff-01"),
                ("tracestate", "vendor=x"),
                ("baggage", "user=7"),
            ]
        );
        assert_eq!(trace.child([0; 8]), trace);
    }

    /// [R123, TRN-9]
    #[test]
    fn headers_stand_in_where_meta_has_nothing_valid() {
        let none = [None, None, None];
        let headers = [Some(PARENT), Some("vendor=y")];
        let trace = Trace::read(&none, headers).unwrap();
        assert_eq!(trace.iter().collect::<Vec<_>>(), [("traceparent", PARENT), ("tracestate", "vendor=y")]);
        let broken = [quoted("00-x"), quoted("vendor=x"), None];
        assert_eq!(Trace::read(&broken, headers), Some(trace));
        assert_eq!(Trace::read(&broken, [None, Some("vendor=y")]), None);
        assert_eq!(Trace::read(&[Some(Bytes::from_static(b"7")), None, None], [None, None]), None);
        let baggage = Trace::read(&[None, None, quoted("a=b")], [None, None]).unwrap();
        assert_eq!(baggage.iter().collect::<Vec<_>>(), [("baggage", "a=b")]);
    }

    #[test]
    fn what_is_malformed_is_dropped() {
        assert!(is_parent(PARENT) && is_parent(&PARENT.replace("00-", "01-")));
        assert!(is_parent(&format!("{}-more", PARENT.replace("00-", "01-"))));
        for bad in [
            "",
            "00",
            &PARENT.to_uppercase(),
            &PARENT.replace("00-", "ff-"),
            &format!("{PARENT}-more"),
            &PARENT.replace("b7ad6b7169203331", "0000000000000000"),
            &PARENT.replace("0af7651916cd43dd8448eb211c80319c", "00000000000000000000000000000000"),
            &PARENT.replace("-01", "-1"),
            &format!("{} ", PARENT.replace("00-", "01-")),
        ] {
            assert!(!is_parent(bad), "{bad}");
        }
        let long = "x".repeat(513);
        for bad in ["", "a\\nb", "é", long.as_str()] {
            let trace = Trace::read(&[quoted(PARENT), quoted(bad), None], [None, None]).unwrap();
            assert_eq!(trace.iter().count(), 1, "{bad}");
        }
    }
}
