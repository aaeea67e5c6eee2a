//! Every URI that is shown is one, names its server, and leads back to what the server calls it.

use proptest::prelude::*;

use super::{is_uri, own_uri, shown_template, shown_uri};

/// The three forms of [NAM-4].
#[test]
fn a_uri_names_its_server() {
    for (own, shown) in [
        ("file:///srv/a", "docs+file:///srv/a"),
        ("https://h.example:8/a?b=c#d", "docs+https://h.example:8/a?b=c#d"),
        ("test+x:a", "docs+test+x:a"),
        ("FILE:///A", "docs+FILE:///A"),
        ("urn:isbn:1", "docs+urn:isbn:1"),
        ("ui://app/index.html", "ui://docs/app/index.html"),
        ("ui://app", "ui://docs/app"),
        ("ui://", "ui://docs/"),
        ("ui:///x//y", "ui://docs//x//y"),
        ("ui://[::1]/x", "docs+ui://[::1]/x"),
        ("ui:x", "docs+ui:x"),
        ("UI://x", "docs+UI://x"),
        ("", "docs+raw:"),
        ("notes/1", "docs+raw:bm90ZXMvMQ"),
        ("a b:c", "docs+raw:YSBiOmM"),
        ("file:///é", "docs+raw:ZmlsZTovLy_DqQ"),
        ("x:%zz", "docs+raw:eDoleno"),
        ("raw:YQ", "docs+raw:cmF3OllR"),
        ("RAW:YQ", "docs+raw:UkFXOllR"),
        ("as-is:x", "docs+raw:YXMtaXM6eA"),
    ] {
        assert_eq!(shown_uri("docs", own), shown);
        assert!(is_uri(shown), "{shown}");
        let (slug, back) = own_uri(shown).unwrap();
        assert_eq!((slug, &*back), ("docs", own));
    }
}

#[test]
fn what_names_no_server_leads_nowhere() {
    for text in
        ["", "x", "file:///x", "ui://docs", "+x:y", "-a+x:y", "9+x:y", "Docs+x:y", "a_b+x:y", "docs+raw:%%", "ui:///x"]
    {
        assert!(own_uri(text).is_none(), "{text}");
    }
    // A scheme with a plus sign may look like one; no server is called so.
    assert_eq!(own_uri("svn+ssh://h/x").map(|(slug, _)| slug), Some("svn"));
}

/// [NAM-4]: the template of what is shown, expanded, is what is shown for the expansion.
#[test]
fn templates_are_wrapped_before_their_first_expression() {
    for (own, shown) in [
        ("test://template/{id}/data", "docs+test://template/{id}/data"),
        ("x:{?a,b*}", "docs+x:{?a,b*}"),
        ("{+uri}", "docs+{+uri}"),
        ("ui://{app}/x", "ui://docs/{app}/x"),
        ("plain:text", "docs+plain:text"),
        ("{scheme}:x", "docs+as-is:{scheme}:x"),
        ("{scheme}://{host}/x{?q}", "docs+as-is:{scheme}://{host}/x{?q}"),
        ("notes/{id}", "docs+as-is:notes/{id}"),
        ("{id}", "docs+as-is:{id}"),
        ("notes {id}", "docs+raw:bm90ZXMge2lkfQ"),
        ("é/{id}", "docs+raw:w6kve2lkfQ"),
        ("x:{", "docs+raw:eDp7"),
        ("x:{}", "docs+raw:eDp7fQ"),
        ("raw:{x}", "docs+as-is:raw:{x}"),
        ("as-is:{x}", "docs+as-is:as-is:{x}"),
    ] {
        assert_eq!(shown_template("docs", own), shown);
        assert_eq!(own_uri(shown).unwrap().1, own);
    }
    for value in ["7", "a%20b", "é".repeat(2).replace('é', "%C3%A9").as_str()] {
        let own = "test://template/{id}/data".replace("{id}", value);
        assert_eq!(shown_template("docs", "test://template/{id}/data").replace("{id}", value), shown_uri("docs", &own));
        let app = "ui://{app}/x".replace("{app}", value);
        assert_eq!(shown_template("docs", "ui://{app}/x").replace("{app}", value), shown_uri("docs", &app));
    }
}

/// [NAM-4, R88]: what any client makes of a template is a URI, and leads back to what the server would make of its own.
#[test]
fn what_a_template_expands_to_can_be_read_back() {
    for own in
        ["notes/{id}", "{id}", "{id}/x", "{id}:x", "x:{id}", "raw:{id}", "as-is:{id}", "ui://{id}/a", "/{id}", "//{id}"]
    {
        let shown = shown_template("docs", own);
        for value in ["7", "a%20b", "a.b~c", "%C3%A9"] {
            let expanded = shown.replace("{id}", value);
            assert!(is_uri(&expanded), "{expanded}");
            assert_eq!(own_uri(&expanded).unwrap().1, own.replace("{id}", value), "{expanded}");
        }
    }
}

#[test]
fn the_grammar_is_that_of_rfc_3986() {
    // The examples of section 1.1.2, and what is close to them.
    for good in [
        "ftp://ftp.is.co.za/rfc/rfc1808.txt",
        "ldap://[2001:db8::7]/c=GB?objectClass?one",
        "mailto:John.Doe@example.com",
        "news:comp.infosystems.www.servers.unix",
        "tel:+1-816-555-1212",
        "telnet://192.0.2.16:80/",
        "urn:oasis:names:specification:docbook:dtd:xml:4.1.2",
        "a:",
        "a:?",
        "a:/",
        "a://",
        "a://u:p@h:/",
        "a:b#c?d/e",
    ] {
        assert!(is_uri(good), "{good}");
    }
    for bad in [
        "a",
        ":a",
        "1a:b",
        "a b:",
        "a:\"",
        "a:b#c#d",
        "a://h:x/",
        "a://[::1/",
        "a://[]/",
        "a:[",
        "a:%2",
        "a:%g0",
        "a:<b>",
        "a:{b}",
        "a:\\",
        "a:^",
        "a:|",
        "a:`",
        "a:\n",
        "a://u@v@h/",
    ] {
        assert!(!is_uri(bad), "{bad}");
    }
}

/// Texts that servers might call URIs.
fn strange() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "\\PC{0,40}",
        "(ui|UI|raw|RAW|as-is|file|a|x+y|docs|docs\\+raw|)(:|://|:///|)[a-z%\\[\\]{}?#@:/+.é ]{0,20}",
        "ui://[a-z./?#@:\\[\\]]{0,12}",
        "[a-z]{1,4}\\+[a-z]{1,4}:[A-Za-z0-9_-]{0,8}",
    ]
}

fn slug() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9-]{0,12}"
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// [NAM-4, R88]: one to one, reversible, valid.
    #[test]
    fn every_uri_shown_can_be_read_back(own in strange(), other in strange(), slug in slug(), neighbour in slug()) {
        for shown in [shown_uri(&slug, &own), shown_uri(&slug, &other)] {
            prop_assert!(is_uri(&shown), "{}", shown);
        }
        let shown = shown_uri(&slug, &own);
        let (found, back) = own_uri(&shown).expect("it names a server");
        prop_assert_eq!(found, &slug);
        prop_assert_eq!(&*back, &own);
        prop_assert_eq!(shown == shown_uri(&slug, &other), own == other);
        prop_assert_eq!(shown == shown_uri(&neighbour, &own), slug == neighbour);
    }

    #[test]
    fn every_template_shown_leads_back(own in strange(), slug in slug()) {
        let shown = shown_template(&slug, &own);
        let (found, back) = own_uri(&shown).expect("it names a server");
        prop_assert_eq!((found, &*back), (slug.as_str(), own.as_str()));
    }

    /// No text makes it panic, and what it accepts is shown again as it was, up to the spelling of the same URI.
    #[test]
    fn the_way_back_takes_anything(shown in strange()) {
        if let Some((slug, own)) = own_uri(&shown) {
            let again = shown_uri(slug, &own);
            prop_assert_eq!(own_uri(&again).expect("it names a server"), (slug, own));
        }
    }
}
