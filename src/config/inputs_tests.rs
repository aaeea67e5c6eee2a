//! What counts as a change of the files of a configuration [CFG-4].

use std::fs;
use std::path::PathBuf;

use super::super::{Inputs, load, reload};

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("portcullis-inputs-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _removed = fs::remove_dir_all(&self.0).is_ok();
    }
}

const FILE: &str = r#"
[listen]
auth = "none"
[[mcp.servers]]
name = "up"
command = "up"
env = { KEY = "${file:secret}" }
[mcp_bundles.all]
servers = ["up"]
[principals.local]
mcp_bundles = ["all"]
policy = "reader"
"#;

fn changed(inputs: &Inputs) -> bool {
    inputs.look() != *inputs
}

/// [CFG-4] The file, a policy beside it and a secret are each seen by what they hold; a touch is not a change.
#[test]
fn content_counts_and_nothing_else() {
    let folder = Folder::new("content");
    let path = folder.write("portcullis.toml", FILE);
    let policy = folder.write("policies/reader.toml", "excluded_tools = [\"up__a\"]\n");
    let secret = folder.write("secret", "canary-1\n");
    let mut inputs = load(&path, &|_| None).unwrap().inputs;
    assert_eq!(inputs.path(), Some(path.as_path()));
    assert!(!changed(&inputs));
    for (path, text) in [(&path, format!("{FILE}\n")), (&policy, String::new()), (&secret, "canary-2\n".to_owned())] {
        let before = fs::read(path).unwrap();
        fs::write(path, &before).unwrap();
        assert!(!changed(&inputs), "{} was only touched", path.display());
        fs::write(path, text).unwrap();
        assert!(changed(&inputs), "{}", path.display());
        reload(&mut inputs, &|_| None).unwrap();
        assert!(!changed(&inputs));
    }
    assert!(!format!("{inputs:?}").contains("canary"));
}

/// [CFG-4] What was missing or wrong is looked at too: it may come.
#[test]
fn what_is_missing_is_looked_for() {
    let folder = Folder::new("missing");
    let path = folder.write("portcullis.toml", FILE);
    let mut inputs = load(&folder.write("other.toml", "[listen]\nauth = \"none\"\n"), &|_| None).unwrap().inputs;
    inputs.root = Some(path);
    assert!(reload(&mut inputs, &|_| None).is_err(), "there is no policy yet");
    assert!(!changed(&inputs));
    folder.write("policies/reader.toml", "excluded_tools = [\"up__a\"]\n");
    assert!(changed(&inputs));
    let loaded = reload(&mut inputs, &|_| None).unwrap();
    assert_eq!(loaded.settings.disabled.len(), 1, "there is no secret yet");
    folder.write("secret", "canary");
    assert!(changed(&inputs));
    let loaded = reload(&mut inputs, &|_| None).unwrap();
    assert!(loaded.settings.disabled.is_empty() && !changed(&inputs));
}

/// [CFG-4] A folder that is swapped by its symbolic link, as Kubernetes does with a ConfigMap.
#[test]
fn a_swapped_link_is_a_change() {
    let folder = Folder::new("swap");
    folder.write("..one/portcullis.toml", "[listen]\nauth = \"none\"\n");
    folder.write("..two/portcullis.toml", "[listen]\nauth = \"keys\"\n");
    let (data, path) = (folder.0.join("..data"), folder.0.join("portcullis.toml"));
    std::os::unix::fs::symlink("..one", &data).unwrap();
    std::os::unix::fs::symlink("..data/portcullis.toml", &path).unwrap();
    let inputs = load(&path, &|_| None).unwrap().inputs;
    assert!(!changed(&inputs));
    std::os::unix::fs::symlink("..two", folder.0.join("..new")).unwrap();
    fs::rename(folder.0.join("..new"), &data).unwrap();
    assert!(changed(&inputs));
}
