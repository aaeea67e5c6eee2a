//! Reads the YAML that stands in `deploy/`: block maps and lists, scalars, JSON in flow style, literal blocks.
//!
//! Not for YAML at large: what it does not know, it refuses. `tests/lab/manifests` reads the same files with a real parser.

use serde_json::{Map, Value};

/// A line that says something.
struct Line<'t> {
    indent: usize,
    text: &'t str,
    /// Where it stands in the file.
    number: usize,
}

/// Reads every document of a text.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    text.split("\n---\n").map(document).collect()
}

fn document(text: &str) -> Value {
    let raw: Vec<&str> = text.lines().collect();
    let lines = raw.iter().enumerate().map(|(number, line)| {
        let text = line.trim_start();
        Line { indent: line.len() - text.len(), text: without_comment(text), number }
    });
    let lines: Vec<_> = lines.filter(|line| !line.text.is_empty()).collect();
    let mut at = 0;
    let value = block(&raw, &lines, &mut at, 0);
    assert_eq!(at, lines.len(), "line {} was not understood", lines.get(at).map_or(0, |line| line.number + 1));
    value
}

fn without_comment(text: &str) -> &str {
    let end = if text.starts_with('#') { Some(0) } else { text.find(" #").filter(|_| !text.contains('"')) };
    end.and_then(|end| text.get(..end)).unwrap_or(text).trim_end()
}

fn block(raw: &[&str], lines: &[Line<'_>], at: &mut usize, indent: usize) -> Value {
    if lines[*at].text.starts_with("- ") { list(raw, lines, at, indent) } else { map(raw, lines, at, indent) }
}

fn list(raw: &[&str], lines: &[Line<'_>], at: &mut usize, indent: usize) -> Value {
    let mut items = Vec::new();
    while let Some(line) = lines.get(*at).filter(|line| line.indent == indent && line.text.starts_with("- ")) {
        let rest = line.text.trim_start_matches('-').trim_start();
        if entry(rest).is_none() {
            items.push(scalar(rest));
            *at += 1;
            continue;
        }
        // A map whose first line stands behind the dash.
        let inner = indent + line.text.len() - rest.len();
        let mut shifted: Vec<Line<'_>> = vec![Line { indent: inner, text: rest, number: line.number }];
        let more = lines[*at + 1..].iter().take_while(|line| line.indent > indent);
        shifted.extend(more.map(|line| Line { indent: line.indent, text: line.text, number: line.number }));
        let mut inside = 0;
        items.push(map(raw, &shifted, &mut inside, inner));
        assert_eq!(inside, shifted.len(), "line {} was not understood", line.number + 1);
        *at += shifted.len();
    }
    Value::Array(items)
}

fn map(raw: &[&str], lines: &[Line<'_>], at: &mut usize, indent: usize) -> Value {
    let mut members = Map::new();
    while let Some(line) = lines.get(*at).filter(|line| line.indent == indent && !line.text.starts_with("- ")) {
        let (key, value) = entry(line.text).unwrap_or_else(|| panic!("line {}: no key", line.number + 1));
        *at += 1;
        let value = match value {
            "|" => literal(raw, lines, at, indent, line.number + 1),
            "" => match lines.get(*at) {
                Some(next) if next.indent > indent => block(raw, lines, at, next.indent),
                Some(_) | None => Value::Null,
            },
            value => scalar(value),
        };
        assert!(members.insert(key.to_owned(), value).is_none(), "line {}: {key} stands twice", line.number + 1);
    }
    Value::Object(members)
}

/// A literal block: everything that is indented more, comments too.
fn literal(raw: &[&str], lines: &[Line<'_>], at: &mut usize, indent: usize, from: usize) -> Value {
    let blank = |line: &str| line.trim().is_empty();
    let depth = |line: &str| line.len() - line.trim_start().len();
    let block: Vec<_> = raw[from..].iter().take_while(|line| blank(line) || depth(line) > indent).collect();
    let end = from + block.len();
    let inner = block.iter().filter(|line| !blank(line)).map(|line| depth(line)).min().unwrap_or(0);
    let text: String = block.iter().map(|line| format!("{}\n", line.get(inner..).unwrap_or_default())).collect();
    while lines.get(*at).is_some_and(|line| line.number < end) {
        *at += 1;
    }
    Value::String(format!("{}\n", text.trim_end()))
}

/// A key with what stands behind its colon.
fn entry(text: &str) -> Option<(&str, &str)> {
    let (key, value) = text.split_once(": ").or_else(|| Some((text.strip_suffix(':')?, "")))?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    key.chars().all(plain).then_some((key, value.trim()))
}

fn scalar(text: &str) -> Value {
    if text.starts_with(['"', '[', '{']) {
        return serde_json::from_str(text).unwrap_or_else(|err| panic!("{text}: {err}"));
    }
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from),
    }
}
