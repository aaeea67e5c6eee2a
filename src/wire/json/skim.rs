//! The first look at a large text, as it comes: which parts of it can only be the inside of a string.
//!
//! What takes long in a large message is one long string. To look at its text in pieces, while the next ones are on
//! their way, holds up nobody; the scan then passes over what is known. Not for: texts of many small values, which are left to
//! the scan as they are. Invariant: in a part that is marked, no byte is a quote, a backslash, a control character, or not ASCII.

use std::ops::Range;

use super::scan::extremes;

/// So much is marked, or not, as a whole.
const BLOCK: usize = 64 << 10;

/// The parts of a text that were seen to be plain.
#[derive(Clone, Debug, Default)]
pub struct Skim {
    /// How much was looked at.
    seen: usize,
    /// In order, and never side by side.
    plain: Vec<Range<usize>>,
}

// === impl Skim ===

impl Skim {
    /// Looks at what has come since the last time; `text` is all of it.
    pub fn look(&mut self, text: &[u8]) {
        self.look_by(text, BLOCK);
    }

    fn look_by(&mut self, text: &[u8], size: usize) {
        while let Some(block) = text.get(self.seen..self.seen + size) {
            let (from, to) = (self.seen, self.seen + size);
            self.seen = to;
            if !is_plain(block) {
                continue;
            }
            match self.plain.last_mut().filter(|last| last.end == from) {
                Some(last) => last.end = to,
                None => self.plain.push(from..to),
            }
        }
    }

    /// Returns how many bytes are plain.
    #[must_use]
    pub fn plain_bytes(&self) -> usize {
        self.plain.iter().map(Range::len).sum()
    }

    /// Returns the plain parts.
    pub(super) fn parts(&self) -> &[Range<usize>] {
        &self.plain
    }
}

fn is_plain(block: &[u8]) -> bool {
    if memchr::memchr2(b'"', b'\\', block).is_some() {
        return false;
    }
    let (least, all) = extremes(block);
    least >= b' ' && all.is_ascii()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};

    use super::Skim;
    use crate::wire::json::{Floors, floors};

    /// Texts of long and short strings, some of which are broken.
    fn text() -> impl Strategy<Value = String> {
        let string = prop_oneof![
            4 => "[a-z ]{0,60}",
            2 => r#"[a-z]{0,40}(\\|\"|\n|\u00e9|é){1,3}[a-z]{0,40}"#,
            1 => "[a-z]{20,40}[\u{0}-\u{1f}][a-z]{0,40}",
        ];
        let member = string.prop_map(|string| format!(r#"{{"k":"{string}"}},"#));
        (prop::collection::vec(member, 1..6), any::<bool>()).prop_map(|(members, ends)| {
            let all: String = members.concat();
            format!(r#"{{"result":{{"content":[{}0]}}{}"#, all, if ends { "}" } else { "" })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        /// What was seen before changes nothing of what a scan finds, however the text came.
        #[test]
        fn a_skimmed_text_is_read_alike(text in text(), pieces in prop::collection::vec(1_usize..50, 0..20)) {
            let text = text.as_bytes();
            let mut skim = Skim::default();
            let mut come = 0;
            for piece in pieces {
                come = text.len().min(come + piece);
                skim.look_by(text.get(..come).unwrap(), 8);
            }
            let read = |skim: &Skim| {
                let mut found = Floors::default();
                let wanted = (|key: &[u8]| key == b"result", &b"_meta"[..]);
                format!("{:?}", floors(text, 8, wanted, skim, &mut found).map(|()| found))
            };
            prop_assert_eq!(read(&skim), read(&Skim::default()));
        }
    }

    #[test]
    fn what_may_be_more_than_the_inside_of_a_string_is_not_plain() {
        let mut skim = Skim::default();
        let text = b"abcdefgh01234567abc\"efghabc\\efghabc\nefghabc\xC3\xA9fghABCDEFGHabc";
        skim.look_by(&text[..20], 8);
        skim.look_by(text, 8);
        assert_eq!(skim.parts(), [0..16, 48..56]);
        assert_eq!(skim.plain_bytes(), 24);
    }
}
