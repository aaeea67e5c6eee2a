//! What the room promises: the 35 vectors, cuts at every byte, cost, limits, the oracle, and the way there and back.
//!
//! Not for sockets or time; those belong to the integration tests.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use proptest::{collection::vec, prelude::*, sample::Index};

use super::{
    decode::{cost, join_data_lines},
    *,
};

const WIDE: Limits = Limits { event_bytes_max: 1 << 26, stream_bytes_max: usize::MAX };

/// A number, the chunks as they arrive, and the blocks they make.
type Vector = (u8, &'static [&'static [u8]], Vec<Event>);

// === helpers ===

fn blank() -> Event {
    Event::default()
}

fn data(text: &'static str) -> Event {
    Event { data: Some(Bytes::from_static(text.as_bytes())), ..blank() }
}

fn id(id: &str, event: Event) -> Event {
    Event { id: Some(id.to_owned()), ..event }
}

fn retry(retry_ms: u64) -> Event {
    Event { retry_ms: Some(retry_ms), ..blank() }
}

fn named(name: &str) -> Event {
    Event { event: Some(name.to_owned().into()), ..blank() }
}

/// The blocks of a stream, and the error that ended it, if one did.
fn run<C: AsRef<[u8]>>(limits: Limits, chunks: &[C]) -> (Vec<Event>, Option<DecodeError>) {
    let mut decoder = Decoder::new(limits);
    let mut events = Vec::new();
    for chunk in chunks {
        if let Err(error) = decoder.push(Bytes::copy_from_slice(chunk.as_ref())) {
            return (events, Some(error));
        }
        loop {
            match decoder.next_event() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.next_event(), Err(error), "a dead decoder stays dead");
                    assert_eq!(decoder.push(Bytes::new()), Err(error), "a dead decoder takes nothing");
                    return (events, Some(error));
                }
            }
        }
    }
    (events, None)
}

fn events<C: AsRef<[u8]>>(chunks: &[C]) -> Vec<Event> {
    let (events, error) = run(WIDE, chunks);
    assert_eq!(error, None);
    events
}

/// Cuts `input` at the given places, in any order and more than once, which makes empty chunks.
fn cut<'a>(input: &'a [u8], places: &[Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = places.iter().map(|place| place.index(input.len() + 1)).collect();
    places.sort_unstable();
    let mut chunks = Vec::new();
    let mut from = 0;
    for place in places {
        chunks.push(&input[from..place]);
        from = place;
    }
    chunks.push(&input[from..]);
    chunks
}

/// Checks `check` for `input` as one chunk, as single bytes, and in three chunks for every two places.
fn each_cut(input: &[u8], mut check: impl FnMut(&[&[u8]])) {
    check(&[input]);
    check(&input.chunks(1).collect::<Vec<_>>());
    for first in 0..=input.len() {
        for second in first..=input.len() {
            check(&[&input[..first], &input[first..second], &input[second..]]);
        }
    }
}

/// Text with each CRLF and each CR as LF, as a reader of the stream sees it.
fn with_line_feeds(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

// === the vectors of the standard ===

fn vectors_of_bytes() -> Vec<Vector> {
    vec![
        (1, &[b"data: a\n\n"], vec![data("a")]),
        (2, &[b"data: a\r\n\r\n"], vec![data("a")]),
        (3, &[b"data: a\r\rdata: b\r\r"], vec![data("a"), data("b")]),
        (4, &[b"data: a\r", b"\ndata: b\r\n\r\n"], vec![data("a\nb")]),
        (5, &[b"data: a\r\n\r", b"\ndata: b\r\n\r\n"], vec![data("a"), data("b")]),
        (6, &[b"\xEF\xBB\xBFdata: a\n\n"], vec![data("a")]),
        (7, &[b"\xEF", b"\xBB\xBFdata: a\n\n"], vec![data("a")]),
        (8, &[b"\xEF\xBB\xBF", b"data: a\n\n"], vec![data("a")]),
        (9, &[b"data: a\n\n", b"\xEF\xBB\xBFdata: b\n\n"], vec![data("a")]),
        (10, &[b"data: \xE2\x82", b"\xAC\n\n"], vec![data("€")]),
        (11, &[b"data: \xF0", b"\x9F\x98", b"\x80\n\n"], vec![data("😀")]),
        (13, &[b": \xFF\ndata: b\n\n"], vec![data("b")]),
        (14, &[b"data: a\n\ndata: \xE2\x82"], vec![data("a")]),
        (15, &[b"data:a\n\n"], vec![data("a")]),
        (16, &[b"data:  a\n\n"], vec![data(" a")]),
        (17, &[b"data\n\n"], vec![data("")]),
        (18, &[b"data:\n\n"], vec![data("")]),
        (19, &[b"data\ndata\n\n"], vec![data("\n")]),
        (20, &[b"data: a\ndata: b\n\n"], vec![data("a\nb")]),
    ]
}

fn vectors_of_fields() -> Vec<Vector> {
    vec![
        (21, &[b":\n\n: ping\n\ndata: a\n\n"], vec![data("a")]),
        (22, &[b"id: 7\n\ndata: a\n\n"], vec![id("7", blank()), data("a")]),
        (23, &[b"id: 7\ndata:\n\n"], vec![id("7", data(""))]),
        (24, &[b"id: 7\ndata: a\n\ndata: b\n\n"], vec![id("7", data("a")), data("b")]),
        (25, &[b"id: a\0b\ndata: a\n\n"], vec![data("a")]),
        (26, &[b"retry: 3000\n\ndata: a\n\n"], vec![retry(3000), data("a")]),
        (27, &[b"retry: +3000\ndata: a\n\n"], vec![data("a")]),
        (28, &[b"retry: 3x\ndata: a\n\n"], vec![data("a")]),
        (29, &[b"event: x\n\ndata: a\n\n"], vec![named("x"), data("a")]),
        (30, &[b"data: a\n"], vec![]),
        (31, &[b" data: a\ndata: b\n\n"], vec![data("b")]),
        (32, &[b"foo: a\ndata: b\n\n"], vec![data("b")]),
        (33, &[b"\0: a\ndata: b\n\n"], vec![data("b")]),
        (34, &[b"data: a\n:c\ndata: b\n\n"], vec![data("a\nb")]),
        (35, &[b"data: {\"a\":\"\xE2\x80\xA8\"}\n\n"], vec![data("{\"a\":\"\u{2028}\"}")]),
    ]
}

#[test]
fn vectors_hold_however_they_are_cut() {
    let vectors: Vec<Vector> = vectors_of_bytes().into_iter().chain(vectors_of_fields()).collect();
    assert_eq!(vectors.len(), 34, "vector 12 is an error and stands alone");
    for (number, chunks, expected) in vectors {
        assert_eq!(events(chunks), expected, "vector {number} as it stands");
        each_cut(&chunks.concat(), |chunks| assert_eq!(events(chunks), expected, "vector {number} as {chunks:?}"));
    }
}

#[test]
fn vector_12_data_that_is_not_utf8_ends_the_stream() {
    each_cut(b"data: \xFF\n\ndata: b\n\n", |chunks| {
        assert_eq!(run(WIDE, chunks), (vec![], Some(DecodeError::InvalidUtf8 { field: "data" })));
    });
}

#[test]
fn vector_3_is_seen_at_once() {
    let mut decoder = Decoder::new(WIDE);
    decoder.push(Bytes::from_static(b"data: a\r\r")).unwrap();
    assert_eq!(decoder.next_event(), Ok(Some(data("a"))), "without waiting for a byte that may be LF");
    decoder.push(Bytes::from_static(b"\ndata: b\r")).unwrap();
    assert_eq!(decoder.next_event(), Ok(None), "the LF belonged to the CR");
    decoder.push(Bytes::from_static(b"\r")).unwrap();
    assert_eq!(decoder.next_event(), Ok(Some(data("b"))));
}

#[test]
fn invalid_utf8_is_an_error_where_it_would_be_shown() {
    let run = |input: &[u8]| run(WIDE, &[input]).1;
    assert_eq!(run(b"event: \xFF\n\n"), Some(DecodeError::InvalidUtf8 { field: "event" }));
    assert_eq!(run(b"id: \xFF\n\n"), Some(DecodeError::InvalidUtf8 { field: "id" }));
    assert_eq!(run(b"data: a\ndata: \xFF\ndata: b\n\n"), Some(DecodeError::InvalidUtf8 { field: "data" }));
    assert_eq!(run(b"data: \xE2\ndata: \x82\xAC\n\n"), Some(DecodeError::InvalidUtf8 { field: "data" }));
    assert_eq!(run(b"retry: \xFF\n\xFF: \xFF\n: \xFF\n\n"), None);
}

#[test]
fn the_last_line_of_a_field_wins_and_bad_ones_change_nothing() {
    let block = b"event: x\nevent\nid: 1\nid: 2\nid: 3\0\nretry: 5\nretry: 99999999999999999999999\nretry:\n\n";
    let expected = Event { event: Some("".into()), id: Some("2".to_owned()), retry_ms: Some(5), ..blank() };
    assert_eq!(events(&[block]), [expected]);
}

// === field cases ===

const REPLY: &str = "{\n  \"jsonrpc\": \"2.0\",\n  \"id\": 1,\n  \"result\": {\n    \"content\": [\n      {\n        \
    \"type\": \"text\",\n        \"text\": \"😀\"\n      }\n    ]\n  }\n}";

#[test]
fn field_case_line_ends_are_read_alike() {
    let mut mixed = String::new();
    for (line, end) in REPLY.lines().zip(["\n", "\r\n", "\r"].iter().cycle()) {
        mixed.push_str(&format!("data: {line}{end}"));
    }
    for (first, second) in [("\n", "\n"), ("\r\n", "\r\n"), ("\r", "\r"), ("\r\n", "\r")] {
        let block = REPLY.replace('\n', &format!("{first}data: "));
        let stream = format!("data: {block}{first}{second}{mixed}\r");
        assert_eq!(events(&[&stream]), [data(REPLY), data(REPLY)], "{stream:?}");
    }
}

#[test]
fn field_case_pretty_printed_reply_cut_anywhere() {
    assert_eq!(REPLY.lines().count(), 12);
    let stream = format!("event: message\ndata: {}\n\n", REPLY.replace('\n', "\ndata: "));
    let expected = [Event { event: Some("message".into()), ..data(REPLY) }];
    for place in 0..=stream.len() {
        let (head, tail) = stream.as_bytes().split_at(place);
        assert_eq!(events(&[head, tail]), expected, "cut at {place}");
    }
    assert_eq!(events(&stream.as_bytes().chunks(1).collect::<Vec<_>>()), expected);
}

#[test]
fn field_case_long_data_line() {
    let limits = Limits { event_bytes_max: 6 << 20, ..WIDE };
    for length in [117 << 10, 5 << 20] {
        let stream = [b"data: ".as_slice(), &vec![b'x'; length], b"\n\n"].concat();
        let (events, error) = run(limits, &stream.chunks(16 << 10).collect::<Vec<_>>());
        assert_eq!((events[0].data.as_ref().unwrap().len(), error), (length, None));
    }
    let stream = [b"data: first\n\ndata: ".as_slice(), &vec![b'x'; 7 << 20], b"\n\n"].concat();
    let too_large = Some(DecodeError::EventTooLarge { limit: 6 << 20 });
    assert_eq!(run(limits, &stream.chunks(16 << 10).collect::<Vec<_>>()), (vec![data("first")], too_large));
}

#[test]
fn field_case_only_messages_are_messages() {
    let stream = b"data: 1\n\n: note\n\nevent: other\ndata: 2\n\nretry: 5\n\nid: 9\ndata:\n\nevent:\ndata: 3\n\n\
        event: message\ndata: 4\n\nevent: message\n\n";
    let messages: Vec<_> = events(&[stream]).into_iter().filter(Event::is_message).map(|e| e.data.unwrap()).collect();
    assert_eq!(messages, ["1", "3", "4"]);
    assert_eq!(events(&[stream])[3], id("9", data("")), "the id is there to be remembered");
}

// === cost ===

fn forget_cost() {
    cost::SCANNED.set(0);
    cost::COPIED.set(0);
    cost::HELD_MAX.set(0);
}

#[test]
fn cost_of_one_line_of_4_mib_in_8_kib_chunks() {
    let stream = [b"data: ".as_slice(), &vec![b'x'; 4 << 20], b"\n\n"].concat();
    forget_cost();
    let events = events(&stream.chunks(8 << 10).collect::<Vec<_>>());
    assert_eq!(events[0].data.as_ref().unwrap().len(), 4 << 20);
    assert_eq!(cost::SCANNED.get(), stream.len(), "each byte is searched once");
    assert!(cost::COPIED.get() <= 3 * stream.len(), "copied {}", cost::COPIED.get());
}

#[test]
fn cost_of_40_000_events_in_one_chunk() {
    let chunk = Bytes::from(b"data: {\"a\":1}\n\n".repeat(40_000));
    let mut decoder = Decoder::new(WIDE);
    forget_cost();
    decoder.push(chunk.clone()).unwrap();
    let mut count = 0;
    while let Some(event) = decoder.next_event().unwrap() {
        let payload = event.data.unwrap();
        assert_eq!(payload, "{\"a\":1}");
        assert!(chunk.as_ptr_range().contains(&payload.as_ptr()), "a slice of the chunk, not a copy");
        count += 1;
    }
    assert_eq!(count, 40_000);
    assert_eq!((cost::SCANNED.get(), cost::COPIED.get()), (chunk.len(), 0));
}

#[test]
fn cost_of_16_mib_without_a_line_end_is_the_limit() {
    let limits = Limits { event_bytes_max: 1 << 20, ..WIDE };
    let chunk = vec![b'x'; 8 << 10];
    for start in ["data: ", "unknown: ", "", ": comment"] {
        let mut decoder = Decoder::new(limits);
        decoder.push(Bytes::from_static(start.as_bytes())).unwrap();
        assert_eq!(decoder.next_event(), Ok(None));
        forget_cost();
        let mut taken = 0;
        let error = loop {
            decoder.push(Bytes::copy_from_slice(&chunk)).unwrap();
            taken += chunk.len();
            assert!(taken <= 16 << 20);
            if let Err(error) = decoder.next_event() {
                break error;
            }
        };
        assert_eq!(error, DecodeError::EventTooLarge { limit: 1 << 20 });
        assert!(taken <= (1 << 20) + chunk.len(), "ends as soon as the limit is passed");
        assert!(cost::HELD_MAX.get() <= 2 << 20, "held {}", cost::HELD_MAX.get());
        if start == ": comment" {
            assert_eq!(cost::COPIED.get(), 0, "a comment is not kept");
        }
    }
}

#[test]
fn cost_of_many_data_lines_is_linear() {
    let stream = [b"data\n".repeat(100_000).as_slice(), b"\n"].concat();
    forget_cost();
    let events = events(&stream.chunks(8 << 10).collect::<Vec<_>>());
    assert_eq!(events[0].data.as_ref().unwrap(), &"\n".repeat(99_999));
    assert_eq!(cost::SCANNED.get(), stream.len());
    assert!(cost::COPIED.get() <= 5 * stream.len(), "copied {}", cost::COPIED.get());
    assert!(cost::HELD_MAX.get() <= 3 * stream.len(), "held {}", cost::HELD_MAX.get());
}

// === limits ===

/// [LIM-1]
#[test]
fn limits_are_exact() {
    let stream = b"data: 1\r\n\r\ndata: 2\n\n";
    let limits = |event_bytes_max, stream_bytes_max| Limits { event_bytes_max, stream_bytes_max };
    each_cut(stream, |chunks| {
        let both = vec![data("1"), data("2")];
        assert_eq!(run(limits(9, 20), chunks), (both, None), "a line end is one byte of an event");
        assert_eq!(run(limits(8, 20), chunks), (vec![], Some(DecodeError::EventTooLarge { limit: 8 })));
        let first = vec![data("1")];
        assert_eq!(run(limits(9, 19), chunks), (first.clone(), Some(DecodeError::StreamTooLarge { limit: 19 })));
        assert_eq!(run(limits(9, 10), chunks), (first, Some(DecodeError::StreamTooLarge { limit: 10 })));
        assert_eq!(run(limits(9, 0), chunks), (vec![], Some(DecodeError::StreamTooLarge { limit: 0 })));
    });
}

#[test]
fn keep_alives_never_add_up_to_an_event() {
    let limits = Limits { event_bytes_max: 16, ..WIDE };
    let stream = [b": ping\nunknown: x\n".repeat(1000).as_slice(), b"data: 1\n\n"].concat();
    assert_eq!(run(limits, &[&stream]), (vec![data("1")], None));
    let inside = [b"data: 1\n".as_slice(), b": ping\n".repeat(2).as_slice(), b"\n"].concat();
    assert_eq!(run(limits, &[&inside]).1, Some(DecodeError::EventTooLarge { limit: 16 }));
}

#[test]
fn a_chunk_is_not_taken_while_one_is_unread() {
    let mut decoder = Decoder::new(WIDE);
    decoder.push(Bytes::from_static(b"data: 1\n\ndata: 2\n\n")).unwrap();
    assert_eq!(decoder.next_event(), Ok(Some(data("1"))));
    assert_eq!(decoder.push(Bytes::from_static(b"x")), Err(DecodeError::ChunkPending));
    assert_eq!(decoder.next_event(), Err(DecodeError::ChunkPending));
}

#[test]
fn a_decoder_shows_no_payload() {
    let mut decoder = Decoder::new(WIDE);
    decoder.push(Bytes::from_static(b"data: canary\n")).unwrap();
    assert_eq!(decoder.next_event(), Ok(None));
    assert!(!format!("{decoder:?}").contains("canary"));
}

// === encode ===

fn encoded<P: AsRef<[u8]>>(head: Head<'_>, parts: &[P]) -> Bytes {
    let mut out = BytesMut::new();
    encode_message(head, parts, &mut out);
    out.freeze()
}

#[test]
fn messages_are_always_named() {
    let head = Head { id: EventId::new("s-1"), retry_ms: Some(3000) };
    assert_eq!(encoded(Head::default(), &["{}"]), "event: message\ndata: {}\n\n");
    assert_eq!(encoded(head, &["{\"a\"", ":1}"]), "event: message\nid: s-1\nretry: 3000\ndata: {\"a\":1}\n\n");
    let priming = Event { retry_ms: Some(3000), ..id("s-1", Event { data: Some(Bytes::new()), ..named("message") }) };
    assert_eq!(events(&[encoded::<&str>(head, &[])]), [priming]);
}

#[test]
fn every_line_end_of_a_payload_becomes_a_line() {
    let payload = "\n{\r\n\"a\":\r1\n\r}\n\n\r\r";
    each_cut(payload.as_bytes(), |parts| {
        let event = events(&[encoded(Head::default(), parts)]).remove(0);
        assert_eq!(event.data.unwrap(), with_line_feeds(payload), "{parts:?}");
    });
}

#[test]
fn a_payload_without_line_ends_is_not_copied() {
    let head = Head { id: EventId::new("7"), retry_ms: None };
    for head in [head, Head::default()] {
        let Frame::Around { head: front, tail } = frame_message(head, &["[1,", "2]"]) else {
            panic!("a payload of one line stays outside");
        };
        assert_eq!([front.as_ref(), b"[1,2]", &tail].concat(), encoded(head, &["[1,2]"]));
        assert_eq!(frame_message(head, &["[1,", "\n2]"]), Frame::Whole(encoded(head, &["[1,\n2]"])));
    }
}

#[test]
fn an_id_cannot_add_a_field() {
    for bad in ["a\nb", "a\rb", "a\0b"] {
        assert_eq!(EventId::new(bad), None);
    }
    assert_eq!(EventId::new("").map(EventId::as_str), Some(""));
}

#[test]
fn keep_alive_and_endpoint() {
    let mut out = BytesMut::from(KEEP_ALIVE);
    assert_eq!(events(&[&out]), []);
    encode_endpoint("/messages?s=1\nevent: x", &mut out);
    let expected = Event { data: Some(Bytes::from_static(b"/messages?s=1\nevent: x")), ..named("endpoint") };
    assert_eq!(events(&[&out]), [expected]);
}

// === properties ===

/// Pieces that make field lines, broken ones too.
fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "data", "data:", "data: ", "event", "event: ", "id", "id: ", "retry", "retry: ", ":", " ", "\n", "\r", "\r\n",
        "\n\n", "\r\r", "\r\n\r\n", "a", "{}", "7", "3000", "+", "\0", "\u{feff}", "é", "€", "😀", "message", "foo: ",
    ])
}

fn stream() -> impl Strategy<Value = String> {
    vec(piece(), 0..40).prop_map(|pieces| pieces.concat())
}

/// Bytes near to a stream, valid or not.
fn stream_bytes() -> impl Strategy<Value = Vec<u8>> {
    let bad = prop::sample::select(vec![b"\xFF".as_slice(), b"\xE2\x82", b"\xEF\xBB", b"\xBF"]);
    let piece = prop_oneof![9 => piece().prop_map(str::as_bytes), 1 => bad];
    vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn places() -> impl Strategy<Value = Vec<Index>> {
    vec(any::<Index>(), 0..12)
}

/// Text of one `data` line.
fn value() -> impl Strategy<Value = String> {
    let piece = prop_oneof![piece().prop_map(str::to_owned), ".{0,4}"];
    vec(piece, 0..6).prop_map(|pieces| pieces.concat().replace(['\r', '\n'], "-"))
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::Value;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "(.|\r|\n){0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        let object = vec((".{0,4}", inner.clone()), 0..5).prop_map(|pairs| Value::Object(pairs.into_iter().collect()));
        prop_oneof![vec(inner, 0..5).prop_map(Value::Array), object]
    })
}

/// The chunks of a test as a stream that is always ready.
struct Chunks(VecDeque<Bytes>);

impl Stream for Chunks {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

/// What another implementation of raw blocks makes of the chunks.
fn oracle(chunks: &[&[u8]]) -> Vec<Event> {
    let chunks = Chunks(chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk)).collect());
    let mut blocks = pin!(sse_stream::SseByteStream::new(chunks));
    let mut context = Context::from_waker(Waker::noop());
    let mut events = Vec::new();
    while let Poll::Ready(Some(block)) = blocks.as_mut().poll_next(&mut context) {
        let sse_stream::Sse { event, data, id, retry } = block.unwrap();
        events.push(Event {
            event: event.map(Into::into),
            data: data.map(Bytes::from),
            id,
            retry_ms: retry,
            ..blank()
        });
    }
    events
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_sse_stream(stream in stream(), places in places()) {
        let chunks = cut(stream.as_bytes(), &places);
        prop_assert_eq!(events(&chunks), oracle(&chunks));
    }

    #[test]
    fn cuts_and_limits_do_not_matter(
        stream in stream_bytes(), places in places(), event_bytes_max in 0..48_usize, stream_bytes_max in 0..200_usize,
    ) {
        for limits in [WIDE, Limits { event_bytes_max, stream_bytes_max }] {
            let whole = run(limits, &[&stream]);
            prop_assert_eq!(&run(limits, &cut(&stream, &places)), &whole);
            prop_assert_eq!(&run(limits, &stream.chunks(1).collect::<Vec<_>>()), &whole);
        }
    }

    #[test]
    fn the_fast_path_and_the_assembler_agree(value in value(), places in places()) {
        let block = format!("data: {value}\n\n");
        let fast = events(&cut(block.as_bytes(), &places)).remove(0).data.unwrap();
        prop_assert_eq!(&fast, &join_data_lines(format!("data: {value}\n").as_bytes()).unwrap());
        prop_assert_eq!(fast, value);
    }

    #[test]
    fn several_lines_are_joined_with_line_feeds(values in vec(value(), 2..6), places in places()) {
        let block: String = values.iter().map(|value| format!("data: {value}\n")).collect();
        let joined = events(&cut(format!("{block}\n").as_bytes(), &places)).remove(0).data.unwrap();
        prop_assert_eq!(&joined, &join_data_lines(block.as_bytes()).unwrap());
        prop_assert_eq!(joined, values.join("\n"));
    }

    #[test]
    fn any_text_comes_back(text in "(.|\r|\n|\r\n|data: ){0,24}", parts in places(), places in places()) {
        let out = encoded(Head::default(), &cut(text.as_bytes(), &parts));
        let back = events(&cut(&out, &places));
        prop_assert_eq!(back.len(), 1);
        prop_assert_eq!(back[0].event.as_deref(), Some("message"));
        prop_assert_eq!(back[0].data.as_ref().unwrap(), &with_line_feeds(&text));
    }

    #[test]
    fn any_json_comes_back(json in json(), end in "\n|\r|\r\n", parts in places(), places in places()) {
        for text in [json.to_string(), serde_json::to_string_pretty(&json).unwrap().replace('\n', &end)] {
            let out = encoded(Head::default(), &cut(text.as_bytes(), &parts));
            let back = events(&cut(&out, &places)).remove(0);
            prop_assert!(back.is_message());
            prop_assert_eq!(back.data.as_ref().unwrap(), &with_line_feeds(&text));
            prop_assert_eq!(&serde_json::from_slice::<serde_json::Value>(&back.data.unwrap()).unwrap(), &json);
        }
    }
}
