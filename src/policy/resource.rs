//! Patterns against resources and templates, whose URIs have many spellings, in what is asked for and in the pattern [POL-15].
//!
//! Not for: tools and prompts, whose names have one. Invariant: both sides come to the same plain spelling of the server's own
//! URI, however that is shown; what subtracts needs one spelling that matches, what grants needs the plain one to match too.

use std::borrow::Cow;

use crate::catalog::own_uri;
use crate::wire::mcp::Kind;

use super::{Action, Pattern, uri};

/// What begins the URI of an app's page.
const APP: &str = "ui://";

/// What one resource or template is called.
#[derive(Debug)]
pub(super) struct Spellings<'a> {
    action: &'a Action<'a>,
    /// The server's own URI or template.
    own: &'a str,
    /// The plain spelling of that, or of what a template says before its first expression.
    plain: String,
    /// What many servers take for the same resource: they do not look at a query or fragment, nor at the host of a file.
    wider: Vec<String>,
    /// The name of an app's page, plainly.
    app: Option<String>,
    slug: String,
}

/// What a pattern says of the server's own URIs.
struct OwnPattern {
    written: Pattern,
    /// It may mean more than what is written.
    plain: Pattern,
}

// === impl Spellings ===

impl<'a> Spellings<'a> {
    /// Finds them; `None` for what is no resource or template.
    pub(super) fn of(action: &'a Action<'a>) -> Option<Self> {
        let own = || action.full.strip_prefix(&server_prefix(action)).unwrap_or(action.full);
        let (own, plain) = match action.kind {
            Kind::Tools | Kind::Prompts => return None,
            Kind::Resources => (own(), uri::plain(own())),
            Kind::Templates => (own(), uri::plain_start(literal(own()))),
        };
        let wider = match action.kind {
            Kind::Tools | Kind::Prompts | Kind::Templates => Vec::new(),
            Kind::Resources => wider(own, &plain),
        };
        let slug = action.server.slug();
        let app = plain.strip_prefix(APP).map(|rest| uri::plain(&format!("{APP}{slug}/{rest}")));
        Some(Self { action, own, plain, wider, app, slug })
    }

    /// Says whether a pattern that subtracts means it: in any spelling, and a template if all that it may become is meant.
    pub(super) fn excluded_by(&self, pattern: &Pattern) -> bool {
        let mut names = [self.action.shown, self.action.full].into_iter().chain(self.app.as_deref());
        let own = self.own_pattern(pattern);
        if self.action.kind == Kind::Templates {
            return names.any(|name| pattern.matches(name) || pattern.covers(literal(name)))
                || own.is_some_and(|own| own.any(|own| own.covers(literal(self.own)) || own.covers(&self.plain)));
        }
        names.any(|name| pattern.matches(name))
            || own.is_some_and(|own| {
                own.matches(self.own) || own.matches(&self.plain) || self.wider.iter().any(|name| own.matches(name))
            })
    }

    /// Says whether a pattern that grants means it: as both are written, and plainly; and a template if something that it
    /// may become is meant.
    pub(super) fn allowed_by(&self, pattern: &Pattern) -> bool {
        let mut names = [self.action.shown, self.action.full].into_iter();
        let own = self.own_pattern(pattern);
        if self.action.kind == Kind::Templates {
            return names.any(|name| pattern.matches(name) || pattern.could_match_under(literal(name)))
                || own.is_some_and(|own| {
                    own.any(|own| own.could_match_under(literal(self.own)) || own.could_match_under(&self.plain))
                });
        }
        // A pattern that ends within the server's name says nothing of URIs.
        let written =
            names.any(|name| pattern.matches(name)) || own.as_ref().is_some_and(|own| own.written.matches(self.own));
        written && own.is_none_or(|own| own.matches(&self.plain))
    }

    /// Finds what a pattern says of this server's own URIs; `None` if it does not go beyond the server's name, or names another.
    fn own_pattern(&self, pattern: &Pattern) -> Option<OwnPattern> {
        let (text, prefix) = pattern.parts();
        let by_name = text.strip_prefix(&server_prefix(self.action)).map(Cow::Borrowed);
        // The beginning of what is encoded is not the beginning of a text.
        let is_encoded = prefix && text.split_once('+').is_some_and(|(_, own)| own.starts_with("raw:"));
        let by_uri = || own_uri(text).filter(|(slug, _)| *slug == self.slug && !is_encoded).map(|(_, own)| own);
        let own = by_name.or_else(by_uri)?;
        let plain = if prefix { uri::plain_start(&own) } else { uri::plain(&own) };
        Some(OwnPattern { plain: pattern.with_text(plain), written: pattern.with_text(own.into_owned()) })
    }
}

// === impl OwnPattern ===

impl OwnPattern {
    fn any(&self, holds: impl Fn(&Pattern) -> bool) -> bool {
        holds(&self.written) || holds(&self.plain)
    }

    fn matches(&self, name: &str) -> bool {
        self.any(|pattern| pattern.matches(name))
    }
}

fn wider(own: &str, plain: &str) -> Vec<String> {
    let bare = own.split(['?', '#']).next().unwrap_or_default();
    let mut wider = vec![uri::without_file_host(plain), uri::without_file_host(&uri::plain(bare)), uri::plain(bare)];
    wider.extend([own, bare].into_iter().filter_map(as_it_is_shown));
    wider.retain(|name| name != plain);
    wider
}

/// The URI of an app's page, spelled plainly as it is shown: what is its host is there a segment of the path.
fn as_it_is_shown(own: &str) -> Option<String> {
    let (scheme, rest) = own.split_at_checked(APP.len())?;
    let shown = uri::plain(&format!("{APP}x/{rest}"));
    shown.strip_prefix("ui://x/").filter(|_| scheme.eq_ignore_ascii_case(APP)).map(|rest| format!("{APP}{rest}"))
}

fn server_prefix(action: &Action<'_>) -> String {
    format!("{}__", action.server.shown())
}

/// What a template says before its first expression.
fn literal(template: &str) -> &str {
    template.split_once('{').map_or(template, |(literal, _)| literal)
}
