//! Pauses between starts; lists that fail, hang or change one by one.

use super::{BACKOFF_MAX, BACKOFF_MIN, backoff};

#[test]
fn pauses_grow_and_are_bounded() {
    assert!(backoff(0) >= BACKOFF_MIN && backoff(1) <= BACKOFF_MIN * 2);
    assert!(backoff(4) >= BACKOFF_MIN * 8);
    assert!(backoff(u32::MAX) >= BACKOFF_MAX && backoff(u32::MAX) <= BACKOFF_MAX * 2);
}
