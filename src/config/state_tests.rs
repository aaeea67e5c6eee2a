//! Where the state folder is: the first of four places that is named [OPS-12].

use std::path::{Path, PathBuf};

use crate::config::load_text;

fn dir(text: &str, env: &[(&str, &str)]) -> Option<PathBuf> {
    let look = |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let text = format!("[listen]\nauth = \"keys\"\n{text}");
    load_text(Path::new("/etc/portcullis/portcullis.toml"), &text, &look).unwrap().settings.state_dir
}

/// [OPS-12]
#[test]
fn the_first_place_that_is_named_counts() {
    let all = [("PORTCULLIS_STATE_DIR", "/own"), ("XDG_STATE_HOME", "/xdg"), ("HOME", "/home/ann")];
    let of = |text, env| dir(text, env).map(|path| path.display().to_string());
    assert_eq!(of("[state]\ndir = \"/named\"\n", &all).unwrap(), "/named");
    assert_eq!(of("[state]\ndir = \"state\"\n", &all).unwrap(), "/etc/portcullis/state");
    assert_eq!(of("", &all).unwrap(), "/own");
    assert_eq!(of("[state]\n", &all[1..]).unwrap(), "/xdg/portcullis");
    assert_eq!(of("", &all[2..]).unwrap(), "/home/ann/.local/state/portcullis");
    assert_eq!(of("", &[("XDG_STATE_HOME", "relative"), ("HOME", "")]), None);
    let wrong = load_text(Path::new("t.toml"), "[state]\ndir = \"\"\n", &|_| None).unwrap_err();
    assert!(wrong.0.iter().any(|one| one.key == "state.dir"), "{wrong}");
}
