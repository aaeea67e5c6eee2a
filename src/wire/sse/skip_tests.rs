//! Blocks over the limit on a stream that goes on after them.

use bytes::Bytes;
use proptest::prelude::*;

use super::{DecodeError, Decoder, Event, Limits};

const LIMITS: Limits = Limits { event_bytes_max: 100, stream_bytes_max: usize::MAX };

/// Reads a stream in chunks of one size.
fn read(stream: &[u8], chunk: usize) -> (Vec<Event>, Option<DecodeError>) {
    let mut decoder = Decoder::skipping(LIMITS);
    let mut events = Vec::new();
    for part in stream.chunks(chunk) {
        if let Err(err) = decoder.push(Bytes::copy_from_slice(part)) {
            return (events, Some(err));
        }
        loop {
            match decoder.next_event() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(err) => return (events, Some(err)),
            }
        }
    }
    (events, None)
}

fn data(event: &Event) -> Option<&[u8]> {
    event.data.as_deref()
}

/// [LIM-1]: the block alone is lost; its ends say whose it was.
#[test]
fn a_block_over_the_limit_is_skipped() {
    let large = format!("{{\"jsonrpc\":\"2.0\",\"result\":\"{}\",\"id\":7}}", "x".repeat(250));
    for end in ["\n", "\r\n", "\r"] {
        for lines in [format!("data: {large}{end}"), format!("event: message{end}data:{large}{end}: c{end}id: 9{end}")]
        {
            let stream = format!("data: 1{end}{end}{lines}{end}data: 2{end}{end}");
            for chunk in 1..=stream.len() {
                let (events, err) = read(stream.as_bytes(), chunk);
                assert_eq!((events.len(), err), (3, None), "{stream:?} by {chunk}");
                assert_eq!((data(&events[0]), data(&events[2])), (Some(&b"1"[..]), Some(&b"2"[..])));
                let ends = events[1].too_large.as_ref().unwrap();
                assert!(ends.head.starts_with(b"{\"jsonrpc\":\"2.0\","), "{:?}", ends.head);
                assert!(String::from_utf8_lossy(&ends.tail).contains("\"id\":7}"));
                assert!(data(&events[1]).is_none() && !events[1].is_message());
            }
        }
    }
}

/// [LIM-1]: many short lines are one block too.
#[test]
fn short_lines_add_up() {
    let stream = format!("{}\ndata: 2\n\n", "data: abc\n".repeat(30));
    let (events, err) = read(stream.as_bytes(), 7);
    assert_eq!((events.len(), err), (2, None));
    assert!(events[0].too_large.as_ref().unwrap().head.starts_with(b"abc"));
    assert_eq!(data(&events[1]), Some(&b"2"[..]));
}

/// [LIM-1]: without an end after four limits there is no hope; what is kept is bounded.
#[test]
fn a_block_without_an_end_is_given_up() {
    let (events, err) = read(&[b"data: ".to_vec(), vec![b'x'; 1000]].concat(), 50);
    assert!(events.is_empty());
    assert_eq!(err, Some(DecodeError::EventTooLarge { limit: 100 }));
}

proptest! {
    /// [LIM-1]: what comes out does not depend on how the stream was cut.
    #[test]
    fn cuts_do_not_matter(blocks in prop::collection::vec((0usize..350, prop::sample::select(vec!["\n", "\r\n", "\r"])), 1..6), chunk in 1usize..80) {
        let stream: String = blocks.iter().map(|(length, end)| format!("data: {}{end}{end}", "y".repeat(*length))).collect();
        let whole = read(stream.as_bytes(), stream.len());
        prop_assert_eq!(whole.0.len(), blocks.len());
        for (event, (length, _)) in whole.0.iter().zip(&blocks) {
            prop_assert_eq!(event.too_large.is_some(), event.data.is_none());
            prop_assert_eq!(event.data.as_ref().map_or(*length, Bytes::len), *length);
        }
        prop_assert_eq!(read(stream.as_bytes(), chunk), whole);
    }
}
