//! The members of an object, and where they lie.
//!
//! Invariant: every slice returned lies inside the text given, so that its place can be spliced.

use std::borrow::Cow;
use std::ops::Range;

use smallvec::SmallVec;

use super::scan::{DEPTH_MAX, Fault, Key, ScanError, Scanner};
use super::skim::Skim;

/// Why a text cannot be looked into.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// One key of interest stands twice: two readers could see two messages.
    #[error("key '{0}' appears twice")]
    Duplicate(&'static str),
    /// The text is JSON, but not of this kind.
    #[error("not a JSON {0}")]
    Kind(&'static str),
    /// The text is no JSON, nests too deep, or is too large to be looked into (4 GiB).
    #[error(transparent)]
    Scan(#[from] ScanError),
}

/// A value as it is spelled: a part of the text it was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a>(&'a [u8]);

/// Where the members of one object lie in its text, in the order written.
#[derive(Clone, Debug, Default)]
pub struct Outline {
    members: SmallVec<[Member; 6]>,
    /// Some key in it may be one that carries a URI.
    uris: bool,
    /// Some key in it may be one that holds base64.
    marked: bool,
}

/// The members of an object, of one in it, and of one in that.
#[derive(Clone, Debug, Default)]
pub struct Floors {
    /// Those of the object.
    pub outer: Outline,
    /// Those of its member that was wanted, if it is there and an object.
    pub inner: Option<Outline>,
    /// Those of the wanted member of that, if it is there and an object.
    pub third: Option<Outline>,
}

/// The members of one object with its text.
#[derive(Debug)]
pub struct Members<'a> {
    text: &'a [u8],
    outline: Outline,
}

/// One member; places are counted from the beginning of the text.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// Between the key's quotes.
    key: (u32, u32),
    value: (u32, u32),
    escaped: bool,
}

/// Reads the members of the object that `text` holds. All of it is checked to be JSON, and nothing decoded.
///
/// # Errors
/// [`JsonError`] if `text` is anything but one JSON object.
pub fn members(text: &[u8]) -> Result<Members<'_>, JsonError> {
    let (outline, _) = nested(text, DEPTH_MAX, |_| false)?;
    Ok(Members { text, outline })
}

/// Reads the members of an object, and in the same pass those of its last member that is wanted and an object itself.
///
/// # Errors
/// [`JsonError`] if `text` is anything but one JSON object that nests at most `depth_max` deep.
pub fn nested(
    text: &[u8],
    depth_max: usize,
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<(Outline, Option<Outline>), JsonError> {
    let mut found = Floors::default();
    floors(text, depth_max, (wanted, b""), &Skim::default(), &mut found)?;
    Ok((found.outer, found.inner))
}

/// Reads the members of an object, those of its last member that is wanted and an object itself, and in that those of
/// the member `third`, if its key is spelled without escapes and it is an object: three floors in one pass, which passes
/// over what `skim` has seen of the same text. They are written to where they are wanted: to `found`, which is empty before.
///
/// # Errors
/// As [`nested`]; then `found` means nothing.
pub fn floors(
    text: &[u8],
    depth_max: usize,
    (wanted, third): (impl Fn(&[u8]) -> bool, &[u8]),
    skim: &Skim,
    found: &mut Floors,
) -> Result<(), JsonError> {
    if u32::try_from(text.len()).is_err() {
        return Err(ScanError::Expected("less than 4 GiB", text.len()).into());
    }
    let mut scanner = Scanner::new(text, depth_max).skimmed(skim);
    match read_floors(&mut scanner, text, (wanted, third), found) {
        Ok(true) => Ok(()),
        Ok(false) => Err(JsonError::Kind("object")),
        Err(Fault) => Err(scanner.error().into()),
    }
}

/// Reads the floors; `false` if the text is something else than an object.
fn read_floors<'a>(
    scanner: &mut Scanner<'a>,
    text: &'a [u8],
    (wanted, third): (impl Fn(&[u8]) -> bool, &[u8]),
    Floors { outer, inner, third: innermost }: &mut Floors,
) -> Result<bool, Fault> {
    if scanner.next().is_some_and(|first| first != b'{') {
        scanner.value()?;
        scanner.end()?;
        return Ok(false);
    }
    object(scanner, outer, |scanner, key| {
        if scanner.next() != Some(b'{') || !wanted(&member_of(key).key(text)) {
            return scanner.pass_value();
        }
        *innermost = None;
        object(scanner, inner.insert(Outline::default()), |scanner, key| {
            if scanner.next() != Some(b'{') || key.escaped || text.get(key.at.clone()) != Some(third) {
                return scanner.pass_value();
            }
            object(scanner, innermost.insert(Outline::default()), |scanner, _| scanner.pass_value())
        })
    })?;
    scanner.end()?;
    Ok(true)
}

fn member_of(key: &Key) -> Member {
    Member { key: packed(&key.at), value: (0, 0), escaped: key.escaped }
}

/// Returns where the value of `key` lies in the beginning of an object's text; `None` unless it and all before it stand
/// there whole.
#[must_use]
pub fn leading(start: &[u8], key: &str) -> Option<Range<usize>> {
    let mut scanner = Scanner::new(start, DEPTH_MAX);
    if scanner.open(b'{').ok()? {
        return None;
    }
    loop {
        let found = scanner.key().ok()?;
        let value = scanner.value().ok()?;
        // What follows the value shows that it was not cut.
        let more = scanner.more().ok()?;
        if start.get(found.at) == Some(key.as_bytes()) {
            return Some(value);
        }
        if !more {
            return None;
        }
    }
}

/// Returns where the elements of the array that `text` holds lie.
///
/// # Errors
/// [`JsonError`] if `text` is anything but one JSON array.
pub fn elements(text: &[u8]) -> Result<Vec<Range<usize>>, JsonError> {
    let mut scanner = Scanner::new(text, DEPTH_MAX);
    match array(&mut scanner) {
        Ok(found) => found.ok_or(JsonError::Kind("array")),
        Err(Fault) => Err(scanner.error().into()),
    }
}

fn array(scanner: &mut Scanner<'_>) -> Result<Option<Vec<Range<usize>>>, Fault> {
    if scanner.next().is_some_and(|first| first != b'[') {
        scanner.value()?;
        scanner.end()?;
        return Ok(None);
    }
    let mut found = Vec::new();
    let mut more = !scanner.open(b'[')?;
    while more {
        found.push(scanner.value()?);
        more = scanner.more()?;
    }
    scanner.end()?;
    Ok(Some(found))
}

/// Reads the members of an object into an empty outline.
fn object<'a>(
    scanner: &mut Scanner<'a>,
    outline: &mut Outline,
    mut value: impl FnMut(&mut Scanner<'a>, &Key) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut more = !scanner.open(b'{')?;
    while more {
        let key = scanner.key()?;
        scanner.next();
        let start = scanner.place();
        value(scanner, &key)?;
        outline.members.push(Member { value: packed(&(start..scanner.place())), ..member_of(&key) });
        more = scanner.more_members()?;
    }
    (outline.uris, outline.marked) = (scanner.has_uris(), scanner.has_mark());
    Ok(())
}

/// Reads a key as it is spelled between its quotes.
#[inline]
pub(super) fn decoded(spelled: &[u8], escaped: bool) -> Cow<'_, [u8]> {
    if escaped { unescaped(spelled) } else { Cow::Borrowed(spelled) }
}

#[cold]
fn unescaped(spelled: &[u8]) -> Cow<'_, [u8]> {
    let quoted = [b"\"", spelled, b"\""].concat();
    // A lone surrogate has no text; such a key equals none that is looked for, and is passed on as spelled.
    serde_json::from_slice::<String>(&quoted).map_or(Cow::Borrowed(spelled), |key| Cow::Owned(key.into_bytes()))
}

/// Packs a place in a text that is known to be short enough.
#[expect(clippy::cast_possible_truncation, reason = "`floors` refuses a longer text")]
const fn packed(at: &Range<usize>) -> (u32, u32) {
    (at.start as u32, at.end as u32)
}

fn unpacked((start, end): (u32, u32)) -> Range<usize> {
    start as usize..end as usize
}

// === impl Raw ===

impl<'a> Raw<'a> {
    /// `null`
    pub const NULL: Raw<'static> = Raw(b"null");

    /// Takes a part of a text that has been scanned.
    pub(in crate::wire) const fn new(text: &'a [u8]) -> Self {
        Self(text)
    }

    /// Returns the JSON text: UTF-8 without white space around it.
    #[must_use]
    pub const fn get(self) -> &'a [u8] {
        self.0
    }

    /// Says whether this is an object.
    #[must_use]
    pub fn is_object(self) -> bool {
        self.0.first() == Some(&b'{')
    }

    /// Parses the JSON text as a Rust value: for numbers.
    #[must_use]
    pub fn parse<T: std::str::FromStr>(self) -> Option<T> {
        std::str::from_utf8(self.0).ok()?.parse().ok()
    }
}

// === impl Outline ===

impl Outline {
    /// Returns where the value of `key` lies in `text`, the text this outline is of; `None` if it is absent.
    ///
    /// # Errors
    /// [`JsonError::Duplicate`] if the key stands twice.
    #[inline(always)]
    pub fn at(&self, text: &[u8], key: &'static str) -> Result<Option<Range<usize>>, JsonError> {
        let mut found = None;
        for member in &self.members {
            if member.is(text, key) && found.replace(member.value).is_some() {
                return Err(JsonError::Duplicate(key));
            }
        }
        Ok(found.map(unpacked))
    }

    /// Returns the value of `key` in `text`, the text this outline is of; `None` if it is absent. `null` is a value.
    ///
    /// # Errors
    /// [`JsonError::Duplicate`] if the key stands twice.
    #[inline]
    pub fn get<'a>(&self, text: &'a [u8], key: &'static str) -> Result<Option<Raw<'a>>, JsonError> {
        Ok(self.at(text, key)?.map(|at| Raw(text.get(at).unwrap_or_default())))
    }

    /// Returns where the values of several keys lie in `text`, the text this outline is of; one walk for all of them.
    ///
    /// # Errors
    /// [`JsonError::Duplicate`] if one of the keys stands twice.
    #[inline(always)]
    pub fn find<const N: usize>(
        &self,
        text: &[u8],
        keys: [&'static str; N],
    ) -> Result<[Option<Range<usize>>; N], JsonError> {
        let mut found = [const { None }; N];
        for member in &self.members {
            let name = member.key(text);
            // Where the keys are known to the compiler, each of these is a compare or two.
            for (key, place) in keys.iter().zip(&mut found) {
                if *name == *key.as_bytes() {
                    if place.replace(unpacked(member.value)).is_some() {
                        return Err(JsonError::Duplicate(key));
                    }
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Walks the members of `text`, the text this outline is of.
    pub fn iter<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = (Cow<'a, [u8]>, Raw<'a>)> + 'a {
        self.members
            .iter()
            .map(move |member| (member.key(text), Raw(text.get(unpacked(member.value)).unwrap_or_default())))
    }

    /// Says whether the object is `{}`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Says whether some key of the text that was read with this object, at any depth, may be one that carries a URI:
    /// `uri`, `resourceUri` and the like.
    #[must_use]
    pub const fn has_uris(&self) -> bool {
        self.uris
    }

    /// Says whether some key of the text that was read with this object, at any depth, is `blob` or `data`: only then can it
    /// hold base64 that the gateway looks at [LIM-2].
    #[must_use]
    pub const fn is_marked(&self) -> bool {
        self.marked
    }

    /// Returns which parts of `text`, the text this outline is of, go when some members go, each with its comma. They do
    /// not overlap.
    pub fn without(&self, text: &[u8], goes: impl Fn(&[u8]) -> bool) -> SmallVec<[Range<usize>; 4]> {
        let mut cuts = SmallVec::new();
        let mut kept: Option<usize> = None;
        let mut members = self.members.iter().peekable();
        while let Some(member) = members.next() {
            if !goes(&member.key(text)) {
                kept = Some(member.place().end);
                continue;
            }
            let start = member.place().start;
            let mut end = member.place().end;
            while let Some(next) = members.next_if(|next| goes(&next.key(text))) {
                end = next.place().end;
            }
            cuts.push(match (members.peek(), kept) {
                (Some(next), _) => start..next.place().start,
                (None, Some(kept)) => kept..end,
                (None, None) => start..end,
            });
        }
        cuts
    }
}

// === impl Member ===

impl Member {
    fn key<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        decoded(text.get(unpacked(self.key)).unwrap_or_default(), self.escaped)
    }

    /// From the key's opening quote to the value's end.
    fn place(&self) -> Range<usize> {
        unpacked(self.key).start.saturating_sub(1)..unpacked(self.value).end
    }

    #[inline(always)]
    fn is(&self, text: &[u8], key: &str) -> bool {
        if self.escaped {
            return *self.key(text) == *key.as_bytes();
        }
        text.get(unpacked(self.key)) == Some(key.as_bytes())
    }
}

// === impl Members ===

impl<'a> Members<'a> {
    /// Returns the value of `key`, `None` if it is absent. `null` is a value.
    ///
    /// # Errors
    /// [`JsonError::Duplicate`] if the key stands twice.
    pub fn get(&self, key: &'static str) -> Result<Option<Raw<'a>>, JsonError> {
        self.outline.get(self.text, key)
    }

    /// Returns where the value of `key` lies, `None` if it is absent.
    ///
    /// # Errors
    /// [`JsonError::Duplicate`] if the key stands twice.
    pub fn at(&self, key: &'static str) -> Result<Option<Range<usize>>, JsonError> {
        self.outline.at(self.text, key)
    }

    /// Returns where the values of several keys lie; one walk for all of them.
    ///
    /// # Errors
    /// [`JsonError::Duplicate`] if one of the keys stands twice.
    pub fn find<const N: usize>(&self, keys: [&'static str; N]) -> Result<[Option<Range<usize>>; N], JsonError> {
        self.outline.find(self.text, keys)
    }

    /// Spells the object anew: without the members `drop`, and with `add` in the place of the first of them, else at the
    /// end. All others stay as they are spelled.
    #[must_use]
    pub fn rebuilt(&self, drop: &[&str], add: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = Vec::from(*b"{");
        let mut pending = Some(add);
        let mut write = |part: &[&[u8]]| {
            if out.len() > 1 {
                out.push(b',');
            }
            part.iter().for_each(|piece| out.extend_from_slice(piece));
        };
        let mut put = |write: &mut dyn FnMut(&[&[u8]])| {
            for (key, value) in pending.take().unwrap_or_default() {
                write(&[b"\"", key.as_bytes(), b"\":", value]);
            }
        };
        for member in &self.outline.members {
            if drop.iter().any(|key| member.is(self.text, key)) {
                put(&mut write);
            } else {
                write(&[self.text.get(member.place()).unwrap_or_default()]);
            }
        }
        put(&mut write);
        out.push(b'}');
        out
    }

    /// Returns which parts of the text go when some members go, each with its comma. They do not overlap.
    pub fn without(&self, goes: impl Fn(&[u8]) -> bool) -> SmallVec<[Range<usize>; 4]> {
        self.outline.without(self.text, goes)
    }

    /// Walks the members in the order written; keys are decoded.
    pub fn iter(&self) -> impl Iterator<Item = (Cow<'_, [u8]>, Raw<'_>)> {
        self.outline.iter(self.text)
    }

    /// Says whether the object is `{}`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.outline.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Skim;
    use super::{Floors, JsonError, elements, floors, leading, members, nested};

    #[test]
    fn members_lie_in_the_text() {
        let whole = br#" {"a": 1e2, "\u0062" :null,"c":"\ud800", "\ud800":[1] } "#;
        let read = members(whole).unwrap();
        assert_eq!(read.get("a").unwrap().unwrap().get(), b"1e2");
        assert_eq!(&whole[read.at("b").unwrap().unwrap()], b"null");
        assert!(super::super::text(read.get("c").unwrap().unwrap()).is_none());
        assert!(read.get("d").unwrap().is_none());
        assert_eq!(&*read.iter().last().unwrap().0, br"\ud800");
    }

    #[test]
    fn duplicates_and_other_kinds_are_refused() {
        let twice = members(br#"{"a":1,"\u0061":2}"#).unwrap();
        assert_eq!(twice.get("a").err(), Some(JsonError::Duplicate("a")));
        for (bad, kind) in [("[]", true), ("1", true), ("", false), ("{} x", false), ("{\"a\":}", false)] {
            let err = members(bad.as_bytes()).err().unwrap();
            assert_eq!(err == JsonError::Kind("object"), kind, "{bad:?}: {err}");
        }
    }

    #[test]
    fn one_pass_reads_two_floors() {
        let whole = br#"{"x":{"k":0},"params":{"name":"n","k":[{"deep":1}]},"y":{"z":1}}"#;
        let (outer, inner) = nested(whole, 8, |key| key == b"params").unwrap();
        assert_eq!(&whole[inner.unwrap().at(whole, "k").unwrap().unwrap()], br#"[{"deep":1}]"#);
        assert_eq!(&whole[outer.at(whole, "y").unwrap().unwrap()], br#"{"z":1}"#);
        assert!(nested(whole, 3, |_| true).is_err());
    }

    /// [LIM-2]: what may hold base64 is seen by the one scan.
    #[test]
    fn keys_that_may_hold_base64_leave_a_mark() {
        let marked = |whole: &str| {
            let (_, inner) = nested(whole.as_bytes(), 8, |key| key == b"result").unwrap();
            inner.unwrap().is_marked()
        };
        assert!(marked(r#"{"result":{"content":[{"data":""}]}}"#));
        assert!(marked(r#"{"result":{"a":[{"r":{"blob":1}}],"b":2}}"#));
        assert!(marked(r#"{"result":{"a":{"\u0064ata":1}}}"#));
        assert!(!marked(
            r#"{"result":{"content":[{"type":"text","text":"\"data\":\"blob\""}],"datas":{"dat":[]}},"data":1}"#
        ));
    }

    #[test]
    fn an_object_is_spelled_anew() {
        let whole = br#"{ "a":1 , "\u0062" : [2],"c":"x" }"#;
        let read = members(whole).unwrap();
        assert_eq!(read.rebuilt(&["b"], &[("n", b"0"), ("m", b"{}")]), br#"{"a":1,"n":0,"m":{},"c":"x"}"#);
        assert_eq!(read.rebuilt(&["z"], &[("n", b"0")]), br#"{"a":1,"\u0062" : [2],"c":"x","n":0}"#);
        assert_eq!(read.rebuilt(&["a", "b", "c"], &[]), b"{}");
    }

    #[test]
    fn one_pass_reads_three_floors() {
        let third = |text: &str| {
            let mut found = Floors::default();
            let wanted = (|key: &[u8]| key == b"params", &b"_meta"[..]);
            floors(text.as_bytes(), 8, wanted, &Skim::default(), &mut found).unwrap();
            (
                found.inner.is_some(),
                found
                    .third
                    .and_then(|third| third.at(text.as_bytes(), "k").unwrap())
                    .map(|at| text.get(at).unwrap().to_owned()),
            )
        };
        let one = || Some("1".to_owned());
        assert_eq!(third(r#"{"params":{"_meta": {"k":1,"_meta":{"k":2}},"k":3}}"#), (true, one()));
        assert_eq!(third(r#"{"_meta":{"k":4},"params":{"x":{"_meta":{"k":5}}}}"#), (true, None));
        assert_eq!(third(r#"{"params":{"_meta":{"k":6}},"params":{}}"#), (true, None));
        assert_eq!(third(r#"{"params":{"_meta":[]}}"#), (true, None));
        assert_eq!(third(r#"{"params":{"\u005fmeta":{"k":7}}}"#), (true, None));
        assert_eq!(third(r#"{"params":[{"_meta":{"k":8}}]}"#), (false, None));
        let deep = br#"{"params":{"_meta":{"a":{"b":[]}}}}"#;
        let is_ok = |depth| {
            let wanted = (|_: &[u8]| true, &b"_meta"[..]);
            floors(deep, depth, wanted, &Skim::default(), &mut Floors::default()).is_ok()
        };
        assert!(is_ok(5) && !is_ok(4));
    }

    #[test]
    fn members_go_with_their_commas() {
        for (goes, left) in [
            ("", r#"{ "a":1 , "b" : [2] ,"c":"3" }"#),
            ("a", r#"{ "b" : [2] ,"c":"3" }"#),
            ("b", r#"{ "a":1 , "c":"3" }"#),
            ("c", r#"{ "a":1 , "b" : [2] }"#),
            ("ab", r#"{ "c":"3" }"#),
            ("ac", r#"{ "b" : [2] }"#),
            ("bc", r#"{ "a":1 }"#),
            ("abc", "{  }"),
        ] {
            let mut text = r#"{ "a":1 , "b" : [2] ,"c":"3" }"#.to_owned();
            let cuts = members(text.as_bytes()).unwrap().without(|key| goes.as_bytes().contains(&key[0]));
            cuts.into_iter().rev().for_each(|cut| text.replace_range(cut, ""));
            assert_eq!(text, left);
        }
    }

    #[test]
    fn keys_that_may_carry_uris_are_noticed_at_any_depth() {
        let has = |text: &str| nested(text.as_bytes(), 64, |key| key == b"result").unwrap().1.unwrap().has_uris();
        assert!(has(r#"{"result":{"a":[{"uri":"x"}]}}"#) && has(r#"{"result":{"ui/resourceUri":1}}"#));
        assert!(has(r#"{"result":{"u\u0072i":"x"}}"#) && has(r#"{"result":{"uri":"x"}}"#));
        assert!(!has(r#"{"result":{"text":"uri","i":[{"ur":1}]}}"#));
    }

    #[test]
    fn a_member_is_found_in_the_beginning_of_a_text() {
        let whole = br#"{"jsonrpc":"2.0","x":{"id":1},"id":77,"result":{"a":"#;
        assert_eq!(&whole[leading(whole, "id").unwrap()], b"77");
        for cut in 0..whole.len() {
            let found = leading(&whole[..cut], "id");
            assert_eq!(found.is_some(), cut > 37, "{cut}");
        }
        assert_eq!(leading(whole, "result"), None);
        assert_eq!(leading(b"{}", "id"), None);
        assert_eq!(leading(b"[1]", "id"), None);
    }

    #[test]
    fn elements_are_found() {
        let whole = br#" [1, [2,3] ,{"a":[]}] "#;
        let found: Vec<&[u8]> = elements(whole).unwrap().into_iter().map(|at| &whole[at]).collect();
        assert_eq!(found, [&b"1"[..], b"[2,3]", br#"{"a":[]}"#]);
        assert!(elements(b"[]").unwrap().is_empty());
        assert_eq!(elements(b"{}").err(), Some(JsonError::Kind("array")));
        assert!(elements(b"[1,]").is_err() && elements(b"[1}").is_err());
    }
}
