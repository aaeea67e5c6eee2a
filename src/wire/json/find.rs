//! Finds strings by where they stand in a text, in one pass.
//!
//! Not for: what stands where; the caller brings a tree of places. Invariant: what the tree does not name is skipped, never
//! built or copied.

use std::ops::Range;

use super::members::{JsonError, decoded};
use super::scan::{DEPTH_MAX, Fault, Scanner};

/// A tree of places. A string is wanted where a [`Place::Here`] stands.
#[derive(Debug)]
pub enum Place {
    /// Here.
    Here,
    /// In each element of an array; what is no array counts as one element.
    Each(&'static Self),
    /// In every member of an object.
    Any(&'static Self),
    /// In some members of an object.
    In(&'static [Member]),
}

/// A member of an object.
#[derive(Debug)]
pub struct Member {
    /// Its key.
    pub key: &'static str,
    /// What the object's `type` must be.
    pub kind: Option<&'static str>,
    /// Where to look in it.
    pub place: &'static Place,
}

/// Returns where the wanted strings lie, quotes included, in the order written.
///
/// # Errors
/// [`JsonError::Scan`] if `text` is no JSON.
pub fn find(text: &[u8], tree: &'static Place) -> Result<Vec<Range<usize>>, JsonError> {
    let mut scanner = Scanner::new(text, DEPTH_MAX);
    let mut found = Vec::new();
    match value(&mut scanner, text, tree, &mut found).and_then(|()| scanner.end()) {
        Ok(()) => Ok(found),
        Err(Fault) => Err(scanner.error().into()),
    }
}

/// Reads a value. The depth of this recursion is that of the tree, whatever the text.
fn value<'a>(
    scanner: &mut Scanner<'a>,
    text: &'a [u8],
    tree: &'static Place,
    found: &mut Vec<Range<usize>>,
) -> Result<(), Fault> {
    match (tree, scanner.next()) {
        (Place::Here, Some(b'"')) => found.push(scanner.value()?),
        (Place::Each(inner), Some(b'[')) => {
            let mut more = !scanner.open(b'[')?;
            while more {
                value(scanner, text, inner, found)?;
                more = scanner.more()?;
            }
        }
        (Place::Each(inner), _) => value(scanner, text, inner, found)?,
        (Place::Any(inner), Some(b'{')) => {
            let mut more = !scanner.open(b'{')?;
            while more {
                scanner.key()?;
                value(scanner, text, inner, found)?;
                more = scanner.more()?;
            }
        }
        (Place::In(members), Some(b'{')) => object(scanner, text, members, found)?,
        (Place::Here | Place::Any(_) | Place::In(_), _) => {
            scanner.value()?;
        }
    }
    Ok(())
}

/// Reads an object; what was found under a condition counts if the object's `type` meets it.
fn object<'a>(
    scanner: &mut Scanner<'a>,
    text: &'a [u8],
    members: &'static [Member],
    found: &mut Vec<Range<usize>>,
) -> Result<(), Fault> {
    let mut conditions: Vec<(Range<usize>, &'static str)> = Vec::new();
    let mut kind = None;
    let mut more = !scanner.open(b'{')?;
    while more {
        let key = scanner.key()?;
        let spelled = text.get(key.at.clone()).unwrap_or_default();
        let name = decoded(spelled, key.escaped);
        if *name == *b"type" {
            scanner.next();
            kind = Some(scanner.value()?);
        } else if let Some(member) = members.iter().find(|member| *name == *member.key.as_bytes()) {
            let before = found.len();
            value(scanner, text, member.place, found)?;
            conditions.extend(member.kind.map(|kind| (before..found.len(), kind)));
        } else {
            scanner.value()?;
        }
        more = scanner.more()?;
    }
    let kind = kind.and_then(|at| super::text_of(text.get(at)?));
    for (range, wanted) in conditions.into_iter().rev() {
        if kind.as_deref() != Some(wanted) {
            found.drain(range);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Member, Place, find};

    const fn member(key: &'static str, kind: Option<&'static str>, place: &'static Place) -> Member {
        Member { key, kind, place }
    }

    static BLOCK: Place = Place::In(&[
        member("uri", Some("link"), &Place::Here),
        member("inner", Some("deep"), &Place::In(&[member("uri", None, &Place::Here)])),
    ]);
    static TREE: Place = Place::In(&[
        member("content", None, &Place::Each(&BLOCK)),
        member("map", None, &Place::Any(&Place::In(&[member("x", None, &Place::Here)]))),
    ]);

    fn found(text: &str) -> Vec<&str> {
        find(text.as_bytes(), &TREE).unwrap().into_iter().map(|at| text.get(at).unwrap()).collect()
    }

    #[test]
    fn strings_are_found_where_they_are_wanted_alone() {
        assert_eq!(
            found(
                r#" {"content":[{"uri":"1","type":"link"},{"type":"l\u0069nk","u\u0072i" : "2"},{"uri":"no"},{"type":"text","uri":"no"},
                {"inner":{"uri":"3","uris":["no"]},"type":"deep","uri":"no"},7,[{"type":"link","uri":"no"}]],
                "uri":"no","map":{"a":{"x":"4","type":7},"b":{"y":"no"},"c":[{"x":"no"}]},"z":{"content":{"type":"link","uri":"no"}}} "#
            ),
            [r#""1""#, r#""2""#, r#""3""#, r#""4""#]
        );
        assert_eq!(found(r#"{"content":{"type":"link","uri":"1"}}"#), [r#""1""#]);
        assert!(found(r#"{"content":{"type":"link","uri":null}}"#).is_empty());
        assert!(found("[]").is_empty() && found("{}").is_empty() && found(r#"{"content":[],"map":{}}"#).is_empty());
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for bad in ["", "{", r#"{"content":[{"uri":"x"}"#, r#"{"a":1}}"#, r#"{"content":{"type":}}"#] {
            assert!(find(bad.as_bytes(), &TREE).is_err(), "{bad}");
        }
        let deep = format!("{}{}", r#"{"content":["#.repeat(600), "]}".repeat(600));
        assert!(find(deep.as_bytes(), &TREE).is_err());
    }
}
