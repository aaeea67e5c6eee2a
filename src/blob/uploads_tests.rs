//! Files of uploads.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;

use super::{BlobSettings, FROM, Origin, PutError, Stored, Uploads, folder_name, is_ours};
use crate::blob::origin::tests::origin;
use crate::clock::Clock;
use crate::id::PrincipalId;
use crate::wire::json::Spelled;
use crate::wire::mcp::Base64;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = u64::from_le_bytes(crate::seal::random::<8>().unwrap());
        let path = std::env::temp_dir().join(format!("portcullis-uploads-{name:016x}"));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn settings() -> BlobSettings {
    BlobSettings { upload_bytes_max: 1_000, upload_age: Duration::from_secs(60), ..BlobSettings::default() }
}

fn put(uploads: &Uploads, who: &str, bytes: &[u8]) -> Result<Stored, PutError> {
    let encoded = base64::prelude::BASE64_STANDARD.encode(bytes);
    let base64 = Base64::of(Spelled::inner(encoded.as_bytes()));
    uploads.put(&PrincipalId::new(who), &origin("file:///a"), base64, |_| Some("bin"), &settings())
}

/// What alice's file is known to have come from.
fn told(uploads: &Uploads, name: &str) -> Vec<Origin> {
    let opened = uploads.open(&PrincipalId::new("alice"), name, settings().upload_age).unwrap();
    opened.expect("a file").1
}

/// The names of what lies in a folder, without those that say what came from where.
fn names(folder: &Path) -> Vec<String> {
    let mut names = all_names(folder);
    names.retain(|name| !name.starts_with(FROM));
    names
}

fn all_names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// [LIM-3, FC-CNT-04]: the name is the hash, the file is the owner's alone, and each principal has a folder.
#[test]
fn a_file_is_named_by_its_hash() {
    let (folder, clock) = (Folder::new(), Clock::manual());
    let uploads = Uploads::new(folder.0.clone(), clock);
    let stored = put(&uploads, "alice", b"abc").unwrap();
    assert_eq!(stored.name, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad.bin");
    assert_eq!(std::fs::read(&stored.path).unwrap(), b"abc");
    assert_eq!(std::fs::metadata(&stored.path).unwrap().permissions().mode() & 0o777, 0o600);
    let place = stored.path.parent().unwrap();
    assert_eq!(std::fs::metadata(place).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(place.parent().unwrap(), folder.0);
    // The same bytes once more are the same file; another principal has its own.
    assert_eq!(put(&uploads, "alice", b"abc").unwrap(), stored);
    let other = put(&uploads, "../bob/\0", b"abc").unwrap();
    assert_ne!(other.path, stored.path);
    assert_eq!((names(place), names(&folder.0).len()), (vec![stored.name.clone()], 2));
    assert_eq!(other.path.parent().unwrap().parent().unwrap(), folder.0);
    assert!(folder_name(&PrincipalId::new("a.b")) != folder_name(&PrincipalId::new("ab")));
}

/// [FC-CNT-04]: what has the name already is neither followed nor overwritten.
#[test]
fn a_link_of_the_expected_name_is_left_alone() {
    let (folder, clock) = (Folder::new(), Clock::manual());
    let uploads = Uploads::new(folder.0.clone(), clock);
    let stored = put(&uploads, "alice", b"abc").unwrap();
    let victim = folder.0.join("victim");
    std::fs::write(&victim, "mine").unwrap();
    for plant in [0, 1, 2] {
        std::fs::remove_file(&stored.path).unwrap();
        match plant {
            0 => symlink(&victim, &stored.path).unwrap(),
            1 => std::fs::write(&stored.path, "xyz").unwrap(),
            _ => std::fs::hard_link(&victim, &stored.path).unwrap(),
        }
        let second = put(&uploads, "alice", b"abc").unwrap();
        assert!(second.name.contains("-2."), "{second:?}");
        assert_eq!(std::fs::read(&second.path).unwrap(), b"abc");
        assert_eq!(std::fs::read(&victim).unwrap(), b"mine");
        std::fs::remove_file(second.path).unwrap();
    }
    // A link is not read either.
    std::fs::remove_file(&stored.path).unwrap();
    symlink(&victim, &stored.path).unwrap();
    let alice = PrincipalId::new("alice");
    assert!(uploads.open(&alice, &stored.name, Duration::from_secs(60)).unwrap().is_none());
    // Nor is a folder that is a link.
    let place = folder.0.join(folder_name(&PrincipalId::new("carol")));
    symlink(&folder.0, place).unwrap();
    assert!(matches!(put(&uploads, "carol", b"abc"), Err(PutError::Write(_))));
}

/// [LIM-3, LIM-6]: a quota, for each principal; the oldest go.
#[test]
fn the_oldest_make_room() {
    let (folder, clock) = (Folder::new(), Clock::manual());
    let uploads = Uploads::new(folder.0.clone(), clock.clone());
    let first = put(&uploads, "alice", &[1; 600]).unwrap();
    clock.advance(Duration::from_secs(1));
    let second = put(&uploads, "alice", &[2; 200]).unwrap();
    clock.advance(Duration::from_secs(1));
    let bob = put(&uploads, "bob", &[1; 600]).unwrap();
    // What is put again is as new.
    let again = put(&uploads, "alice", &[1; 600]).unwrap();
    assert_eq!(again, first);
    clock.advance(Duration::from_secs(1));
    let third = put(&uploads, "alice", &[3; 500]).unwrap();
    assert!(third.path.exists() && bob.path.exists());
    let left: u64 = [&first, &second, &third].iter().filter(|one| one.path.exists()).map(|one| one.bytes).sum();
    assert!(left <= 1_000, "{left}");
    assert!(matches!(put(&uploads, "alice", &[4; 1_001]), Err(PutError::Quota)));
    assert!(third.path.exists());
}

/// [LIM-3, LIM-6]: what a file came from has its room in the quota before it is written, so that there is never more.
#[test]
fn what_it_came_from_has_its_room() {
    let (folder, clock) = (Folder::new(), Clock::manual());
    let uploads = Uploads::new(folder.0.clone(), clock.clone());
    let alice = PrincipalId::new("alice");
    let (near, far) = (origin(""), origin(&format!("file:///{}", "x".repeat(100))));
    let place = folder.0.join(folder_name(&alice));
    let lies =
        || -> u64 { std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum() };
    for (number, bytes) in [(1_u8, 300_usize), (2, 500), (3, 10), (4, 400)] {
        let encoded = base64::prelude::BASE64_STANDARD.encode(vec![number; bytes]);
        let base64 = Base64::of(Spelled::inner(encoded.as_bytes()));
        let of = if number == 1 { &near } else { &far };
        uploads.put(&alice, of, base64, |_| Some("bin"), &settings()).unwrap();
        clock.advance(Duration::from_secs(1));
        assert!(lies() <= settings().upload_bytes_max, "{} bytes after file {number}", lies());
    }
    // A file that fits alone does not fit with it.
    let encoded = base64::prelude::BASE64_STANDARD.encode([5; 900]);
    let base64 = Base64::of(Spelled::inner(encoded.as_bytes()));
    assert!(matches!(uploads.put(&alice, &far, base64, |_| Some("bin"), &settings()), Err(PutError::Quota)));
}

/// [LIM-3, LIM-6]: a file of which it cannot be told what it came from goes again; one that lay there before stays, and counts.
#[test]
fn a_file_that_nothing_can_be_told_of_goes() {
    let (folder, clock) = (Folder::new(), Clock::manual());
    let uploads = Uploads::new(folder.0.clone(), clock.clone());
    let kept = put(&uploads, "alice", b"kept").unwrap();
    let place = kept.path.parent().unwrap();
    // sha256("abc"); a folder in its place cannot be written over.
    let name = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad.bin";
    let note = place.join(format!("{FROM}{name}"));
    std::fs::create_dir(&note).unwrap();
    assert!(matches!(put(&uploads, "alice", b"abc"), Err(PutError::Write(_))));
    assert_eq!(names(place), [kept.name.as_str()]);
    std::fs::remove_dir(&note).unwrap();
    clock.advance(Duration::from_secs(1));
    let stored = put(&uploads, "alice", b"abc").unwrap();
    std::fs::remove_file(&note).unwrap();
    std::fs::create_dir(&note).unwrap();
    assert!(matches!(put(&uploads, "alice", b"abc"), Err(PutError::Write(_))));
    assert!(stored.path.exists() && kept.path.exists());
    clock.advance(Duration::from_secs(1));
    put(&uploads, "alice", &[1; 850]).unwrap();
    assert!(!stored.path.exists() && !kept.path.exists(), "both are counted, and make room");
}

/// [LIM-3, POL-12]: what a file came from is known as long as the file lies there, also to the next process; nothing that lies
/// in its place is followed, and a file that nothing is told of came from nowhere.
#[test]
fn it_is_told_what_a_file_came_from() {
    let (folder, clock) = (Folder::new(), Clock::manual());
    let uploads = Uploads::new(folder.0.clone(), clock.clone());
    let stored = put(&uploads, "alice", b"abc").unwrap();
    let encoded = Base64::of(Spelled::inner(b"YWJj"));
    let second = origin("file:///b");
    let again = uploads.put(&PrincipalId::new("alice"), &second, encoded, |_| Some("bin"), &settings()).unwrap();
    assert_eq!(again, stored);
    let both = [origin("file:///a"), second];
    assert_eq!(told(&Uploads::new(folder.0.clone(), clock), &stored.name), both);
    let place = stored.path.parent().unwrap();
    let note = place.join(format!("{FROM}{}", stored.name));
    assert_eq!(std::fs::metadata(&note).unwrap().permissions().mode() & 0o777, 0o600);
    // It counts [LIM-6], and it goes with its file, also where that was removed by somebody else.
    let mut looked = super::Folder::default();
    looked.look(&super::fs::open(place, super::FOLDER, super::Mode::empty()).unwrap(), 0).unwrap();
    let bytes = looked.files.unwrap()[&stored.name].0;
    assert_eq!(bytes, 3 + std::fs::metadata(&note).unwrap().len());
    let victim = folder.0.join("victim");
    std::fs::write(&victim, std::fs::read(&note).unwrap()).unwrap();
    std::fs::remove_file(&note).unwrap();
    assert_eq!(told(&uploads, &stored.name), []);
    symlink(&victim, &note).unwrap();
    assert_eq!(told(&uploads, &stored.name), []);
    put(&uploads, "alice", b"abc").unwrap();
    assert_eq!(told(&uploads, &stored.name), [origin("file:///a")]);
    std::fs::remove_file(&stored.path).unwrap();
    uploads.sweep(&settings());
    assert!(all_names(place).is_empty());
}

/// [LIM-3]: an age limit, also for what lay there at the start.
#[test]
fn what_is_old_goes() {
    let (folder, clock) = (Folder::new(), Clock::manual());
    clock.advance(Duration::from_secs(10_000));
    let alice = PrincipalId::new("alice");
    let stored = put(&Uploads::new(folder.0.clone(), clock.clone()), "alice", b"abc").unwrap();
    let place = stored.path.parent().unwrap();
    std::fs::write(place.join(".part-0000"), "left by a crash").unwrap();
    let old = std::fs::File::open(place.join(".part-0000")).unwrap();
    rustix::fs::futimens(&old, &super::times(0)).unwrap();
    let uploads = Uploads::new(folder.0.clone(), clock.clone());
    clock.advance(Duration::from_secs(59));
    uploads.sweep(&settings());
    assert_eq!(names(place), [stored.name.as_str()]);
    assert!(uploads.open(&alice, &stored.name, Duration::from_secs(60)).unwrap().is_some());
    clock.advance(Duration::from_secs(1));
    assert!(uploads.open(&alice, &stored.name, Duration::from_secs(60)).unwrap().is_none());
    uploads.sweep(&settings());
    assert!(all_names(place).is_empty());
}

/// [LIM-3]: what is not written leaves nothing.
#[test]
fn what_is_refused_leaves_nothing() {
    let (folder, clock) = (Folder::new(), Clock::manual());
    let uploads = Uploads::new(folder.0.clone(), clock);
    let alice = PrincipalId::new("alice");
    let bad = Base64::of(Spelled::inner(b"QUJD!"));
    assert!(matches!(uploads.put(&alice, &origin(""), bad, |_| Some("bin"), &settings()), Err(PutError::Base64)));
    let good = Base64::of(Spelled::inner(b"QUJD"));
    let refused = uploads.put(&alice, &origin(""), good, |head| (head != b"ABC").then_some("bin"), &settings());
    assert!(matches!(refused, Err(PutError::Refused)));
    assert!(all_names(&folder.0.join(folder_name(&alice))).is_empty());
}

#[test]
fn only_our_names_are_opened() {
    let hash = "0".repeat(64);
    assert!(is_ours(&format!("{hash}.png")) && is_ours(&format!("{hash}-9.bin")));
    for odd in [
        "..",
        "../x",
        "x.png",
        &hash,
        &format!("{hash}.png/../x"),
        &format!("{hash}-10.png"),
        &format!("{hash}.PNG"),
        &format!("{hash}."),
        &format!("{hash}.tar.gz"),
    ] {
        assert!(!is_ours(odd), "{odd}");
    }
}
