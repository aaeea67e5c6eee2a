//! One URI has many spellings; patterns are held against the plainest too, so that none of them slips past [POL-15].
//!
//! Not for: what a server is asked for; that stays as it is spelled.

/// Spells a URI plainly: scheme and host in lower case, percent-encodings read once, no control characters, slashes for
/// backslashes, no dot segments, no doubled slashes in its path, and one form of `file` (RFC 8089; the URL standard of
/// browsers, which many servers read by). A query has no segments: it stays behind the path. Two spellings of one resource
/// come to the same text; that some others do too makes a rule wider, never narrower.
pub(super) fn plain(uri: &str) -> String {
    let (uri, tail) = uri.split_at(uri.find(['?', '#']).unwrap_or(uri.len()));
    let mut out = plain_path(uri);
    out.push_str(&decoded(tail));
    out
}

/// Spells the beginning of a URI so, as a pattern with a final `*` has it. Its last segment goes on, so that no `.` or `..` is
/// taken for a whole one: `file:///home/.*` does not become all of `/home`.
pub(super) fn plain_start(start: &str) -> String {
    if start.contains(['?', '#']) {
        return plain(start);
    }
    let Some(at) = start.rfind(['/', '\\']) else {
        let decoded = decoded(start);
        let scheme = decoded.split_once(':').map(|(scheme, rest)| format!("{}:{rest}", scheme.to_ascii_lowercase()));
        return scheme.unwrap_or(decoded);
    };
    let (head, tail) = start.split_at(at + 1);
    let is_host = head.ends_with("://");
    let tail = decoded(tail);
    plain(head) + &if is_host { tail.to_ascii_lowercase() } else { tail }
}

/// Leaves away the host of a file.
pub(super) fn without_file_host(plain: &str) -> String {
    let path = plain.strip_prefix("file://").and_then(|rest| rest.find('/').and_then(|at| rest.get(at..)));
    path.map_or_else(|| plain.to_owned(), |path| format!("file://{path}"))
}

fn plain_path(uri: &str) -> String {
    let decoded = decoded(uri);
    let Some((scheme, rest)) = decoded.split_once(':') else { return decoded };
    let mut out = scheme.to_ascii_lowercase();
    out.push(':');
    let is_file = out == "file:";
    let path = match rest.strip_prefix("//") {
        None => {
            out.push_str(if is_file { "//" } else { "" });
            rest
        }
        Some(after) => {
            let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            let authority = authority.to_ascii_lowercase();
            out.push_str("//");
            out.push_str(if is_file && authority == "localhost" { "" } else { &authority });
            path
        }
    };
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            other => segments.push(other),
        }
    }
    if path.starts_with('/') || (is_file && rest == path) {
        out.push('/');
    }
    out.push_str(&segments.join("/"));
    if path.len() > 1 && path.ends_with('/') && !segments.is_empty() {
        out.push('/');
    }
    out
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let pair = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let value = pair.filter(|_| *byte == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(value.unwrap_or(*byte));
        at += if value.is_some() { 3 } else { 1 };
    }
    let text = String::from_utf8_lossy(&out);
    text.trim().chars().filter(|char| !char.is_control()).map(|char| if char == '\\' { '/' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use super::{plain, plain_start};

    /// The last segment of a beginning goes on.
    #[test]
    fn a_beginning_is_spelled_as_what_begins_so() {
        for (start, text) in [
            ("", ""),
            ("FILE:", "file:"),
            ("file:///", "file:///"),
            ("FILE:///a/../b/.", "file:///b/."),
            ("file:///a/..", "file:///a/.."),
            ("file:///my%20sec", "file:///my sec"),
            ("file:/a/b", "file:///a/b"),
            ("https://Host.Exam", "https://host.exam"),
            ("https://Host.Example/A", "https://host.example/A"),
            ("https://Host.Example/A?x=%41", "https://host.example/A?x=A"),
        ] {
            assert_eq!(plain_start(start), text, "{start}");
        }
    }

    #[test]
    fn spellings_of_one_resource_come_to_one_text() {
        for (uri, text) in [
            ("file:///a/b", "file:///a/b"),
            ("FILE:///a/b", "file:///a/b"),
            ("file:///a/./x/../b", "file:///a/b"),
            ("file:////a//b", "file:///a/b"),
            ("file:///%61/%62", "file:///a/b"),
            ("file:///a%2fb", "file:///a/b"),
            ("file:///../../a/b", "file:///a/b"),
            ("https://Host.Example/A/", "https://host.example/A/"),
            ("urn:x:%41", "urn:x:A"),
            ("file:///%61/b?x=/../../%62#y", "file:///a/b?x=/../../b#y"),
            ("file:/a/b", "file:///a/b"),
            ("file:a/b", "file:///a/b"),
            ("file://LocalHost/a/b", "file:///a/b"),
            ("file://other/a/b", "file://other/a/b"),
            ("file:///a\\x\\..\\b", "file:///a/b"),
            (" fi\tle:///a/\nb", "file:///a/b"),
            ("a/../b", "a/../b"),
            ("x:%zz%", "x:%zz%"),
            ("x:", "x:"),
            ("x:/", "x:/"),
        ] {
            assert_eq!(plain(uri), text, "{uri}");
        }
    }
}
