//! A list survives the process, and a broken file does not matter [TRN-8, OPS-12].

use std::fs;
use std::path::PathBuf;

use bytes::Bytes;

use super::{Kept, file, parse, prune, spell};
use crate::catalog::Lists;
use crate::id::{PrincipalId, UpstreamName};
use crate::runtime::State;
use crate::secret::Secret;
use crate::upstream::{ServerSettings, Transport};
use crate::wire::mcp::{Capabilities, Definition, Kind};

const TOOLS: [&str; 2] =
    [r#"{"name":"a","inputSchema":{"type":"object"},"n":1.10}"#, r#"{ "name" : "\u0062", "x" : null }"#];

fn settings(name: &str, args: &[&str]) -> ServerSettings {
    let transport = Transport::Stdio {
        command: "python3".to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: vec![("KEY".to_owned(), Secret::new("one secret".to_owned()))],
        inherit_env: Vec::new(),
        cwd: None,
    };
    ServerSettings::new(UpstreamName::new(name).unwrap(), transport)
}

const RESOURCE: &str = r#"{"uri":"x:y","name":"n"}"#;
const CAN: Capabilities = Capabilities { subscribe: true, completions: true, ..Capabilities::ALL };

fn lists() -> Lists {
    let mut lists = Lists::default();
    let read = |kind, text: &'static str| Definition::read(kind, Bytes::from_static(text.as_bytes())).unwrap();
    lists.set(Kind::Tools, TOOLS.map(|text| read(Kind::Tools, text)).into());
    lists.set(Kind::Resources, [read(Kind::Resources, RESOURCE)].into());
    lists
}

fn state(name: &str) -> (PathBuf, Kept) {
    let path = std::env::temp_dir().join(format!("portcullis-kept-{}-{name}", std::process::id()));
    let kept = Kept::default();
    kept.settle(State::open(Some(&path)));
    (path, kept)
}

/// [TRN-8]: byte for byte what the server said, and nothing else that is known of it.
#[test]
fn a_list_comes_back_as_it_was() {
    let (path, kept) = state("back");
    let server = settings("up.1", &["serve"]);
    assert!(kept.read(&server, None).is_none(), "nothing was kept yet");
    let text = spell(&server, &lists(), CAN);
    assert!(!String::from_utf8(text.clone()).unwrap().contains("secret"));
    fs::write(path.join("lists").join(file(&server, None)), &text).unwrap();
    let (back, can) = kept.read(&server, None).unwrap();
    assert_eq!(can, CAN);
    assert!(back.same(&lists()) && back.of(Kind::Prompts).is_empty());
    let back = back.of(Kind::Tools);
    assert_eq!(
        back.iter().map(|tool| tool.raw.clone()).collect::<Vec<_>>(),
        TOOLS.map(str::as_bytes).map(Bytes::from_static)
    );
    assert_eq!((&*back[0].name, &*back[1].name), ("a", "b"));
    assert!(kept.read(&settings("up.1", &["serve", "--more"]), None).is_none(), "another command is another server");
    assert!(kept.read(&settings("up-1", &["serve"]), None).is_none());
    let ann = PrincipalId::new("ann");
    assert!(kept.read(&server, Some(&ann)).is_none(), "everybody's list is read as everybody's");
    fs::rename(path.join("lists").join(file(&server, None)), path.join("lists").join(file(&server, Some(&ann))))
        .unwrap();
    assert!(kept.read(&server, Some(&ann)).is_some());
    assert!(kept.read(&server, None).is_none() && kept.read(&server, Some(&PrincipalId::new("bob"))).is_none());
    fs::remove_dir_all(path).unwrap();
}

/// [OPS-12]: cut at every byte, of another form, or no file at all: ignored.
#[test]
fn a_broken_file_is_ignored() {
    let (path, kept) = state("broken");
    let server = settings("up", &[]);
    let text = spell(&server, &lists(), CAN);
    for end in 0..text.len() {
        assert!(parse(&Bytes::copy_from_slice(&text[..end])).is_err(), "cut at {end}");
    }
    assert!(parse(&Bytes::from(text.clone())).is_ok());
    let other = String::from_utf8(text).unwrap().replace("\"form\":2", "\"form\":3");
    assert_eq!(parse(&Bytes::from(other)).unwrap_err(), "it is of another form");
    assert!(parse(&Bytes::from_static(br#"{"form":2,"capabilities":{},"tools":[{"x":1}]}"#)).is_err());
    fs::create_dir(path.join("lists").join(file(&server, None))).unwrap();
    assert!(kept.read(&server, None).is_none());
    fs::remove_dir_all(path).unwrap();
}

/// What of an URL may be a secret decides nothing.
#[test]
fn no_secret_is_in_a_files_name() {
    let http = |url: &str| {
        let transport =
            Transport::Http { uri: url.parse().unwrap(), url: Secret::new(url.to_owned()), headers: Vec::new() };
        file(&ServerSettings::new(UpstreamName::new("up").unwrap(), transport), None)
    };
    assert_eq!(http("https://a.example/mcp?key=1"), http("https://a.example/other?key=2"));
    assert_ne!(http("https://a.example/mcp"), http("https://b.example/mcp"));
    assert_ne!(http("https://a.example/mcp"), http("https://a.example:444/mcp"));
}

/// [LIM-6]: no more files than the bound, the newest stay.
#[test]
fn the_files_are_bounded() {
    let (path, _kept) = state("bounded");
    let lists = path.join("lists");
    for number in 0..300 {
        let file = fs::File::create(lists.join(format!("s-{number:03}.json"))).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(number)).unwrap();
    }
    prune(&lists);
    let mut left: Vec<_> =
        fs::read_dir(&lists).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!((left.len(), left[0].as_str()), (256, "s-044.json"));
    fs::remove_dir_all(path).unwrap();
}
