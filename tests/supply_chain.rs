//! What is built into the binary: licences, banned packages, sources, doubled versions, features that change what we read.
//!
//! The lists stand in `deny.toml`; this test judges the packages that cargo would build by them, offline, so that no tool has
//! to be installed. Not for advisories: their database is not in the tree. Invariants: the packages are those of the lock
//! file; a package, licence or version that no list knows fails.

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::process::Command;
    use std::sync::LazyLock;

    use serde_json::Value;

    /// A package: name and version.
    type Package = (String, String);

    /// What cargo says about the tree.
    struct Tree {
        /// Everything of the lock file that this platform could need, by package.
        known: BTreeMap<Package, Value>,
        /// The features of each of these.
        features: BTreeMap<Package, BTreeSet<String>>,
        /// What is really built, for the binary, its tests and its build.
        built: BTreeSet<Package>,
    }

    static TREE: LazyLock<Tree> = LazyLock::new(Tree::read);
    static DENY: LazyLock<toml::Table> = LazyLock::new(|| file("deny.toml").parse().unwrap());

    fn file(name: &str) -> String {
        std::fs::read_to_string(format!("{}/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    fn cargo(args: &[&str]) -> String {
        let output = Command::new(env!("CARGO")).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        assert!(output.status.success(), "cargo {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The platform that cargo builds for when nobody says one.
    fn host() -> String {
        let said = cargo(&["version", "--verbose"]);
        said.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
    }

    impl Tree {
        fn read() -> Self {
            let host = host();
            let metadata =
                cargo(&["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", &host]);
            let metadata: Value = serde_json::from_str(&metadata).unwrap();
            let text = |value: &Value, key: &str| value[key].as_str().unwrap().to_owned();
            let mut tree = Self { known: BTreeMap::new(), features: BTreeMap::new(), built: BTreeSet::new() };
            let mut ids = BTreeMap::new();
            for package in metadata["packages"].as_array().unwrap() {
                let key = (text(package, "name"), text(package, "version"));
                ids.insert(text(package, "id"), key.clone());
                tree.known.insert(key, package.clone());
            }
            for node in metadata["resolve"]["nodes"].as_array().unwrap() {
                let features = node["features"].as_array().unwrap().iter();
                let features = features.map(|feature| feature.as_str().unwrap().to_owned()).collect();
                tree.features.insert(ids[&text(node, "id")].clone(), features);
            }
            // The metadata holds packages that a feature could bring in and does not; the tree holds what is built.
            let lines = cargo(&["tree", "--locked", "--offline", "--prefix", "none", "--format", "{p}", "-e", "all"]);
            for line in lines.lines() {
                let mut words = line.split(' ');
                let (Some(name), Some(version)) = (words.next(), words.next().and_then(|word| word.strip_prefix('v')))
                else {
                    continue; // the features that `-e all` shows between the packages
                };
                tree.built.insert((name.to_owned(), version.to_owned()));
            }
            assert!(tree.built.len() > 50, "cargo tree was not understood: {:?}", tree.built);
            tree
        }

        /// The packages that are built and come from elsewhere.
        fn foreign(&self) -> impl Iterator<Item = (&Package, &Value)> {
            let own = (env!("CARGO_PKG_NAME").to_owned(), env!("CARGO_PKG_VERSION").to_owned());
            let found = self.built.iter().filter(move |package| **package != own);
            found.map(|package| {
                (package, self.known.get(package).unwrap_or_else(|| panic!("{package:?} has no metadata")))
            })
        }
    }

    /// A list of `deny.toml`.
    fn list(section: &str, key: &str) -> Vec<toml::Value> {
        DENY[section][key].as_array().unwrap().clone()
    }

    fn texts(values: &[toml::Value]) -> BTreeSet<String> {
        values.iter().map(|value| value.as_str().unwrap().to_owned()).collect()
    }

    /// Judges an SPDX expression: `Some` with the rest of its words if it can be met by allowed licences alone.
    ///
    /// `or := and (OR and)*`, `and := one (AND one)*`, `one := '(' or ')' | ID [WITH ID]`.
    fn permits(expression: &str, allowed: &BTreeSet<String>) -> bool {
        let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut at = 0;
        let good = any(&words, &mut at, allowed);
        assert_eq!(at, words.len(), "no SPDX expression: {expression}");
        good
    }

    fn any(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
        let mut good = all(words, at, allowed);
        while words.get(*at) == Some(&"OR") {
            *at += 1;
            good |= all(words, at, allowed);
        }
        good
    }

    fn all(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
        let mut good = one(words, at, allowed);
        while words.get(*at) == Some(&"AND") {
            *at += 1;
            good &= one(words, at, allowed);
        }
        good
    }

    fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
        let word = words[*at];
        *at += 1;
        if word == "(" {
            let good = any(words, at, allowed);
            assert_eq!(words.get(*at), Some(&")"), "{words:?}");
            *at += 1;
            return good;
        }
        if words.get(*at) == Some(&"WITH") {
            let licence = format!("{word} WITH {}", words[*at + 1]);
            *at += 2;
            return allowed.contains(&licence);
        }
        allowed.contains(word)
    }

    #[test]
    fn spdx_expressions_are_judged_as_they_read() {
        let allowed = texts(&["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(toml::Value::from));
        for (expression, good) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT/GPL-3.0", true),
            ("MIT AND GPL-3.0", false),
            ("MIT AND (GPL-3.0 OR ISC)", true),
            ("(GPL-3.0 OR MIT) AND (ISC AND BSD-3-Clause)", false),
            ("GPL-3.0 OR MIT AND ISC", true),
            ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true),
            ("Apache-2.0", false),
        ] {
            assert_eq!(permits(expression, &allowed), good, "{expression}");
        }
    }

    #[test]
    fn every_licence_is_allowed() {
        let allowed = texts(&list("licenses", "allow"));
        let bad = TREE
            .foreign()
            .filter(|(_, metadata)| metadata["license"].as_str().is_none_or(|licence| !permits(licence, &allowed)));
        let bad: Vec<_> = bad.map(|(package, metadata)| format!("{package:?}: {}", metadata["license"])).collect();
        assert!(bad.is_empty(), "licences that deny.toml does not allow: {bad:#?}");
    }

    #[test]
    fn no_banned_package_is_built() {
        let bans = list("bans", "deny");
        let banned: BTreeMap<_, _> = bans
            .iter()
            .map(|ban| (ban["crate"].as_str().unwrap(), ban["reason"].as_str().expect("a ban says why")))
            .collect();
        for name in ["ring", "openssl-sys", "rsa"] {
            assert!(banned.contains_key(name), "deny.toml no longer bans {name}");
        }
        for ((name, version), _) in TREE.foreign() {
            if let Some(why) = banned.get(name.as_str()) {
                panic!("{name} {version} is built, and deny.toml bans it: {why}; see `cargo tree -i {name}`");
            }
        }
    }

    #[test]
    fn every_package_comes_from_the_one_registry_with_its_checksum() {
        let allowed: BTreeSet<_> =
            texts(&list("sources", "allow-registry")).into_iter().map(|url| format!("registry+{url}")).collect();
        assert!(list("sources", "allow-git").is_empty());
        for (package, metadata) in TREE.foreign() {
            let source = metadata["source"].as_str().unwrap_or("a folder");
            assert!(allowed.contains(source), "{package:?} comes from {source}");
        }
        // The lock file names the packages of every platform.
        let lock: toml::Table = file("Cargo.lock").parse().unwrap();
        for package in lock["package"].as_array().unwrap() {
            if package["name"].as_str() != Some(env!("CARGO_PKG_NAME")) {
                let source = package.get("source").and_then(toml::Value::as_str).unwrap_or("a folder");
                assert!(allowed.contains(source), "{package}");
                assert!(package.get("checksum").is_some(), "{package} has no checksum");
            }
        }
    }

    #[test]
    fn doubled_versions_are_known_and_no_others() {
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for ((name, version), _) in TREE.foreign() {
            versions.entry(name).or_default().insert(version);
        }
        let skips = list("bans", "skip");
        let known: BTreeSet<_> = skips.iter().map(|skip| skip["crate"].as_str().unwrap()).collect();
        assert!(skips.iter().all(|skip| skip["reason"].as_str().is_some_and(|why| !why.is_empty())), "a skip says why");
        for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
            let unknown: Vec<_> =
                versions.iter().filter(|version| !known.contains(format!("{name}@{version}").as_str())).collect();
            assert!(
                unknown.len() <= 1,
                "{name} is built in versions {versions:?}: move to one of them, or add all but the newest to bans.skip of \
             deny.toml with the reason"
            );
        }
        for skip in known {
            let (name, version) = skip.split_once('@').expect("a skip names package@version");
            let doubled = versions.get(name).is_some_and(|versions| versions.len() > 1 && versions.contains(version));
            assert!(doubled, "{skip} is no longer doubled: take it out of bans.skip in deny.toml");
        }
    }

    #[test]
    fn unified_features_do_not_change_what_is_read() {
        let rules = DENY["bans"]["features"].as_array().unwrap();
        let mut exact = 0;
        for rule in rules {
            let name = rule["crate"].as_str().unwrap();
            assert!(rule["reason"].as_str().is_some(), "the rule for {name} says why");
            let features = |key: &str| rule.get(key).map(|list| texts(list.as_array().unwrap())).unwrap_or_default();
            let built = TREE.features.iter().filter(|(package, _)| package.0 == name && TREE.built.contains(package));
            for (package, found) in built {
                let denied: Vec<_> = found.intersection(&features("deny")).cloned().collect();
                assert!(denied.is_empty(), "{package:?} is built with {denied:?}");
                if rule.get("exact").and_then(toml::Value::as_bool) == Some(true) {
                    exact += 1;
                    assert_eq!(*found, features("allow"), "{package:?}");
                }
            }
        }
        assert!(exact > 0, "no rule says exactly how serde_json is built");
    }

    #[test]
    fn an_exception_from_an_advisory_says_why() {
        for ignored in list("advisories", "ignore") {
            let id = ignored.get("id").and_then(toml::Value::as_str).unwrap_or_default();
            let why = ignored.get("reason").and_then(toml::Value::as_str).unwrap_or_default();
            assert!(id.starts_with("RUSTSEC-") && !why.is_empty(), "{ignored}");
        }
    }
}
