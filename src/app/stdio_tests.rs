//! Who the client on the pipe is: nothing is guessed [OPS-11].

use std::path::Path;

use super::{Guest, GuestError};
use crate::config::{self, Settings};
use crate::exchange::Endpoint;

fn settings(principals: &[&str]) -> Settings {
    let mut text = String::from(
        "[listen]\nauth = \"keys\"\n\
         [[mcp.servers]]\nname = \"files\"\ncommand = \"true\"\n\
         [[mcp.servers]]\nname = \"notes\"\ncommand = \"true\"\n\
         [[mcp.servers]]\nname = \"locked\"\ncommand = \"true\"\nenv = { KEY = \"${env:NOT_SET}\" }\n\
         [mcp_bundles.desk]\nservers = [\"files\", \"locked\"]\n",
    );
    for name in principals {
        text.push_str(&format!("[principals.{name}]\nmcp_bundles = [\"desk\"]\n"));
    }
    config::load_text(Path::new("test.toml"), &text, &|_| None).unwrap().settings
}

fn chosen(principals: &[&str], name: Option<&str>) -> Result<String, GuestError> {
    Guest::choose(&settings(principals), name, None).map(|guest| guest.principal.as_str().to_owned())
}

#[test]
fn the_principal_is_named_sole_or_local() {
    assert_eq!(chosen(&["ann", "bob"], Some("bob")).unwrap(), "bob");
    assert_eq!(chosen(&["ann"], None).unwrap(), "ann");
    assert_eq!(chosen(&["ann", "local"], None).unwrap(), "local");
    assert_eq!(chosen(&["ann", "bob"], None), Err(GuestError::Ambiguous("ann, bob".to_owned())));
    assert_eq!(chosen(&[], None), Err(GuestError::Nobody));
    assert_eq!(chosen(&[], Some("ann")), Err(GuestError::Nobody));
    let unknown = chosen(&["ann"], Some("a\u{1b}")).unwrap_err();
    assert_eq!(unknown.to_string(), "there is no principal 'a\\u{1b}'; configured are: ann");
}

#[test]
fn a_server_that_cannot_be_shown_says_why() {
    let choose = |server| Guest::choose(&settings(&["ann"]), None, Some(server));
    let guest = choose("files").unwrap();
    assert!(matches!(guest.endpoint, Endpoint::Server(name) if name.as_str() == "files"));
    let words = |server| choose(server).unwrap_err().to_string();
    assert!(matches!(choose("notes"), Err(GuestError::NotGranted(..))));
    assert_eq!(
        words("notes"),
        "server 'notes' is granted to principal 'ann' by none of its bundles; it is granted: files"
    );
    assert_eq!(words("note"), "there is no server 'note'; configured are: files, notes");
    assert!(words("locked").starts_with("server 'locked' is disabled: "), "{}", words("locked"));
}
