//! Base64 in blocks.

use std::convert::Infallible;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE};
use proptest::prelude::*;

use super::{BLOCK, Base64, Base64Error};
use crate::wire::json::Spelled;

fn decode(spelled: &str) -> Option<Vec<u8>> {
    let (mut out, mut most) = (Vec::new(), 0);
    let done = Base64::of(Spelled::inner(spelled.as_bytes())).decode(|block| {
        most = most.max(block.len());
        out.extend_from_slice(block);
        Ok::<(), Infallible>(())
    });
    assert!(most <= BLOCK / 4 * 3);
    done.ok().map(|()| out)
}

fn estimate(spelled: &str) -> usize {
    Base64::of(Spelled::inner(spelled.as_bytes())).decoded_len()
}

/// [LIM-2]: the estimate has the padding subtracted, so that one byte counts.
#[test]
fn the_estimate_is_exact() {
    for length in [0, 1, 2, 3, 4, 5, 10_485_760, 10_485_761] {
        let encoded = BASE64_STANDARD.encode(vec![7; length]);
        assert_eq!(estimate(&encoded), length);
        assert_eq!(estimate(encoded.trim_end_matches('=')), length);
    }
    assert_eq!(estimate(r"QUJD\nREVG\/w=="), 7);
    // A line break may stand within the padding.
    assert_eq!(estimate(r"QUJDQQ=\n="), 4);
    assert_eq!(estimate(r"QUJDQQ==\n"), 4);
}

/// [FC-CNT-06]
#[test]
fn what_is_often_sent_is_read() {
    let bytes = [0xfb, 0xff, 0xfe, 1, 2];
    for spelled in [
        "+//+AQI=",
        r"+\/\/+AQI=",
        "-__-AQI=",
        "+//+AQI",
        r"+//+\r\nAQI=\n",
        " +//+ AQI= ",
        "data:image/png;base64,+//+AQI=",
        r"\u002b//+AQI=",
    ] {
        assert_eq!(decode(spelled).as_deref(), Some(&bytes[..]), "{spelled}");
    }
    for spelled in ["+//+A", "+//+AQ=I", "not base64!", "QQ==QQ==", "ä", "data:text/plain,abc"] {
        assert_eq!(decode(spelled), None, "{spelled}");
    }
    assert_eq!(decode(""), Some(Vec::new()));
}

#[test]
fn padding_at_the_end_of_a_block_ends_the_text() {
    let mut text = "A".repeat(BLOCK - 2) + "==";
    assert_eq!(decode(&text).map(|bytes| bytes.len()), Some(BLOCK / 4 * 3 - 2));
    text.push_str("AAAA");
    assert_eq!(decode(&text), None);
}

#[test]
fn a_sink_can_stop_it() {
    let text = BASE64_STANDARD.encode(vec![1; 3 * BLOCK]);
    let mut calls = 0;
    let done = Base64::of(Spelled::inner(text.as_bytes())).decode(|_| {
        calls += 1;
        Err("full")
    });
    assert!(matches!(done, Err(Base64Error::Sink("full"))));
    assert_eq!(calls, 1);
}

proptest! {
    #[test]
    fn what_was_encoded_comes_back(bytes in prop::collection::vec(any::<u8>(), 0..60_000), breaks in any::<bool>()) {
        let spelled = [
            BASE64_STANDARD.encode(&bytes),
            BASE64_STANDARD_NO_PAD.encode(&bytes),
            BASE64_URL_SAFE.encode(&bytes),
            BASE64_STANDARD.encode(&bytes).replace('/', r"\/"),
        ];
        for mut spelled in spelled {
            if breaks {
                let lines: Vec<&str> = spelled.as_bytes().chunks(77).map(|line| std::str::from_utf8(line).unwrap()).collect();
                // A break within an escape would be another text.
                if !spelled.contains('\\') {
                    spelled = lines.join(r"\n");
                }
            }
            prop_assert_eq!(estimate(&spelled), bytes.len());
            prop_assert_eq!(decode(&spelled), Some(bytes.clone()));
        }
    }
}
