//! One URI has many spellings; patterns are held against the plainest too, so that none of them slips past [POL-15].
//!
//! Not for: what a server is asked for; that stays as it is spelled.

/// Spells a URI plainly: scheme and host in lower case, percent-encodings read once, no dot segments, no doubled slashes in
/// its path. Two spellings of one resource come to the same text; that some others do too makes a rule wider, never narrower.
pub(super) fn plain(uri: &str) -> String {
    let decoded = decoded(uri);
    let Some((scheme, rest)) = decoded.split_once(':') else { return decoded };
    let mut out = scheme.to_ascii_lowercase();
    out.push(':');
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(after) => {
            let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            out.push_str("//");
            out.push_str(&authority.to_ascii_lowercase());
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
    if path.starts_with('/') {
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
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::plain;

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
            ("a/../b", "a/../b"),
            ("x:%zz%", "x:%zz%"),
            ("x:", "x:"),
            ("x:/", "x:/"),
        ] {
            assert_eq!(plain(uri), text, "{uri}");
        }
    }
}
