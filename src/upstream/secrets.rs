//! What of a server's settings must not leave in words: values of variables and headers, and what a URL may hold [CFG-3].
//!
//! Not for: what a tool answers; a result is its server's own. Invariant: the longest is looked for first, so that no part
//! of a longer one stays.

use std::fmt;

use http::Uri;

use crate::secret::Secret;

use super::settings::{ServerSettings, Transport};

/// A shorter secret is not replaced: it would tear holes into ordinary words.
const SECRET_BYTES_MIN: usize = 4;
/// The same for a value in a URL's query, which is more often an ordinary word.
const QUERY_BYTES_MIN: usize = 8;
/// The same for a part of a URL's path.
const SEGMENT_BYTES_MIN: usize = 16;

/// The secrets of one server, each with the name of its key.
pub(super) struct Secrets(Vec<(String, Secret<String>)>);

// === impl Secrets ===

impl Secrets {
    /// Lists what a server's settings hold.
    pub(super) fn of(settings: &ServerSettings) -> Self {
        let mut all = Self(Vec::new());
        match &settings.transport {
            Transport::Http { headers, url, uri } => {
                for (name, value) in headers {
                    all.add(name.as_str(), value.expose());
                    // A server repeats the token alone, without its scheme.
                    all.add_part(name.as_str(), value.expose().split_once(' ').map_or("", |(_, token)| token));
                }
                all.add("url", url.expose());
                all.add_url(uri);
            }
            Transport::Stdio { env, .. } => env.iter().for_each(|(name, value)| all.add(name, value.expose())),
        }
        all.0.sort_by_key(|(_, value)| std::cmp::Reverse(value.expose().len()));
        all
    }

    /// Adds a value; one of several lines by line too, because output is looked at line by line.
    fn add(&mut self, name: &str, value: &str) {
        self.add_part(name, value);
        value.lines().filter(|line| *line != value).for_each(|line| self.add_part(name, line));
    }

    fn add_part(&mut self, name: &str, part: &str) {
        if part.len() >= SECRET_BYTES_MIN {
            self.0.push((name.to_owned(), Secret::new(part.to_owned())));
        }
    }

    fn add_url(&mut self, uri: &Uri) {
        let query = uri.query().unwrap_or_default();
        let values = query.split('&').filter_map(|pair| pair.split_once('=')).map(|(_, value)| value);
        let segments = uri.path().split('/').filter(|segment| segment.len() >= SEGMENT_BYTES_MIN);
        let values = values.filter(|value| value.len() >= QUERY_BYTES_MIN);
        std::iter::once(query).chain(values).chain(segments).for_each(|part| self.add_part("url", part));
    }

    /// Puts `[secret:NAME]` in the place of each.
    pub(super) fn replaced(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.0 {
            if text.contains(value.expose().as_str()) {
                text = text.replace(value.expose().as_str(), &format!("[secret:{name}]"));
            }
        }
        text
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::header::AUTHORIZATION;

    use super::Secrets;
    use crate::id::UpstreamName;
    use crate::secret::Secret;
    use crate::upstream::{ServerSettings, Transport};

    /// [CFG-3] A header is known whole and without its scheme, a URL by its query and its long parts.
    #[test]
    fn what_an_http_server_repeats_of_its_secrets_is_replaced() {
        let url = "https://host.example/hooks/0123456789abcdef/mcp?key=canary-url&mode=read".to_owned();
        let headers = vec![(AUTHORIZATION, Secret::new("Bearer canary-token".to_owned()))];
        let transport = Transport::Http { uri: url.parse().unwrap(), url: Secret::new(url.clone()), headers };
        let secrets = Secrets::of(&ServerSettings::new(UpstreamName::new("s").unwrap(), transport));
        for (said, shown) in [
            ("bad 'Bearer canary-token'", "bad '[secret:authorization]'"),
            ("bad canary-token", "bad [secret:authorization]"),
            ("no Bearer given", "no Bearer given"),
            (url.as_str(), "[secret:url]"),
            ("POST /hooks/0123456789abcdef/mcp?key=canary-url&mode=read", "POST /hooks/[secret:url]/mcp?[secret:url]"),
            ("key canary-url is for mode=read", "key [secret:url] is for mode=read"),
        ] {
            assert_eq!(secrets.replaced(said), shown);
        }
        assert!(!format!("{secrets:?}").contains("canary"));
    }
}
