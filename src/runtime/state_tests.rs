//! One writer, private, whole files [OPS-12].

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::{State, UNFINISHED, write_atomically};

/// A folder that is gone with the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("portcullis-state-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Keeps what the log says.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// [OPS-12]: the folder is made private, and a second process only reads, until the first one ends.
#[test]
fn there_is_one_writer() {
    let place = Place::new("writer");
    let path = place.0.join("a").join("b");
    let first = State::open(Some(&path));
    assert_eq!((mode(&place.0.join("a")), mode(&path)), (0o700, 0o700));
    let lists = first.folder("lists").unwrap();
    assert_eq!(mode(&lists), 0o700);
    let second = State::open(Some(&path));
    assert_eq!((second.folder("lists"), second.read_folder("lists")), (None, Some(lists.clone())));
    drop(first);
    assert_eq!(State::open(Some(&path)).folder("lists"), Some(lists));
}

/// [OPS-12]: a folder that others may look into, a file in its place, and no folder at all: the gateway runs from memory.
#[test]
fn what_cannot_be_used_is_not_used() {
    let place = Place::new("open");
    let open = State::open(Some(&place.0));
    assert_eq!((open.folder("lists"), open.read_folder("lists")), (None, None));
    assert_eq!(mode(&place.0), 0o755, "somebody's folder is left as it is");
    let file = place.0.join("file");
    fs::write(&file, "").unwrap();
    assert_eq!(State::open(Some(&file)).read_folder("lists"), None);
    assert_eq!(State::open(None).read_folder("lists"), None);
}

/// [OPS-12]: what cannot be done is named once, and again only when something else is wrong.
#[test]
fn a_folder_that_cannot_be_used_is_named_once() {
    let place = Place::new("once");
    let state = State::open(Some(&place.0.join("state")));
    let lists = place.0.join("state").join("lists");
    let paper = Paper::default();
    let writer = paper.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    let said = || String::from_utf8(paper.0.lock().unwrap().clone()).unwrap().matches("P507").count();
    tracing::subscriber::with_default(subscriber, || {
        fs::write(&lists, "").unwrap();
        assert_eq!((state.folder("lists"), state.folder("lists"), said()), (None, None, 1));
        fs::remove_file(&lists).unwrap();
        assert!(state.folder("lists").is_some());
        fs::set_permissions(&lists, Permissions::from_mode(0o755)).unwrap();
        assert_eq!((state.folder("lists"), state.folder("lists"), said()), (None, None, 2));
    });
}

/// A file is replaced whole; what a crash has left is taken away.
#[test]
fn a_file_is_replaced_whole() {
    let place = Place::new("whole");
    let state = State::open(Some(&place.0.join("state")));
    let folder = state.folder("lists").unwrap();
    let path = folder.join("one");
    write_atomically(&path, b"first").unwrap();
    write_atomically(&path, b"second").unwrap();
    assert_eq!((fs::read(&path).unwrap().as_slice(), mode(&path)), (&b"second"[..], 0o600));
    assert!(write_atomically(&folder.join("missing").join("two"), b"x").is_err());
    fs::write(folder.join(format!("three.0{UNFINISHED}")), "half").unwrap();
    assert_eq!(state.folder("lists").as_ref(), Some(&folder));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "it may be one that is being written");
    drop(state);
    let state = State::open(Some(&place.0.join("state")));
    assert_eq!(state.folder("lists").as_ref(), Some(&folder));
    let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["one"]);
}
