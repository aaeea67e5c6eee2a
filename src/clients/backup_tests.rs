//! Copies and their use.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Backup, BackupError, Undone, write_atomically};
use crate::clients::Client;

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("portcullis-backup-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0).is_ok();
    }
}

const BEFORE: &[u8] = b"\xef\xbb\xbf{\r\n \"mcpServers\": {} }";
const AFTER: &[u8] = b"{}";

/// [OPS-11]
#[test]
fn an_undo_restores_bytes_and_mode_and_leaves_nothing() {
    let folder = Folder::new();
    let file = folder.0.join("c.json");
    std::fs::write(&file, BEFORE).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let backup = Backup::of(&file);
    assert!(matches!(backup.undo(Client::Cursor), Err(BackupError::Nothing(_))));
    backup.replace(Some(BEFORE), AFTER).unwrap();
    assert!(backup.is_there());
    assert_eq!(std::fs::read(&file).unwrap(), AFTER);
    assert_eq!(folder.names(), ["c.json", "c.json.after-portcullis", "c.json.before-portcullis"]);
    for copy in ["c.json.after-portcullis", "c.json.before-portcullis"] {
        let mode = std::fs::metadata(folder.0.join(copy)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{copy}");
    }
    assert_eq!(backup.undo(Client::Cursor).unwrap(), Undone::Whole(true));
    assert_eq!(std::fs::read(&file).unwrap(), BEFORE);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(folder.names(), ["c.json"]);
}

/// [OPS-11]: also where the client has removed its file meanwhile, or cannot be read any more.
#[test]
fn an_undo_works_on_what_it_finds() {
    let folder = Folder::new();
    let file = folder.0.join("c.json");
    std::fs::write(&file, BEFORE).unwrap();
    Backup::of(&file).replace(Some(BEFORE), AFTER).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(Backup::of(&file).undo(Client::Cursor).unwrap(), Undone::Whole(true));
    assert_eq!(std::fs::read(&file).unwrap(), BEFORE);

    Backup::of(&file).replace(Some(BEFORE), AFTER).unwrap();
    std::fs::write(&file, "no JSON").unwrap();
    let err = Backup::of(&file).undo(Client::Cursor).unwrap_err();
    assert!(err.to_string().contains("c.json.before-portcullis holds it as it was"), "{err}");
    assert_eq!(std::fs::read(&file).unwrap(), b"no JSON");
    assert_eq!(folder.names().len(), 3, "the copies stay");

    std::fs::remove_file(&file).unwrap();
    let fresh = folder.0.join("d.json");
    Backup::of(&fresh).replace(None, AFTER).unwrap();
    assert_eq!(Backup::of(&fresh).undo(Client::Cursor).unwrap(), Undone::Whole(false));
    assert!(!fresh.exists());
}

/// A file that cannot be replaced leaves no copy behind [OPS-11].
#[test]
fn what_fails_leaves_nothing_behind() {
    let folder = Folder::new();
    let file = folder.0.join("c.json");
    std::fs::create_dir(&file).unwrap();
    assert!(Backup::of(&file).replace(None, AFTER).is_err());
    assert!(write_atomically(&folder.0.join("none/x"), AFTER).is_err());
    assert_eq!(folder.names(), ["c.json"]);
}
