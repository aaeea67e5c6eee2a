//! The rules: each takes a tree and returns what breaks it, with file, line and the way out.
//!
//! Not for constants (they stand at the top of `architecture.rs`) and not for reading files.
//!
//! Invariants: a rule reports everything it finds, not the first; a rule never panics on odd input.

use std::fmt;

use crate::{
    DOOR_PLATE_LINES_MAX, EMPTY_NAMES, FENCED, FILE_LINES_MAX, FLOORS, KNOWS_ERAS, REQUIREMENTS, SANS_IO, SYNCHRONOUS,
    packages::PACKAGES,
    source::{File, Tree},
};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Floor {
    pub(crate) number: usize,
    pub(crate) name: &'static str,
    pub(crate) rooms: &'static [&'static str],
}

#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) path: String,
    pub(crate) line: usize,
    what: String,
    fix: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into(), fix: fix.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}\n    fix: {}", self.path, self.line, self.what, self.fix)
    }
}

fn floor_of(room: &str) -> Option<usize> {
    FLOORS.iter().find(|floor| floor.rooms.contains(&room)).map(|floor| floor.number)
}

fn is_in(module: &[String], rooms: &[&str]) -> bool {
    rooms.iter().any(|room| room.split("::").enumerate().all(|(at, name)| module.get(at).is_some_and(|m| m == name)))
}

/// Findings for every identifier of `file` that `names` accepts.
fn identifiers<'a>(file: &'a File, names: impl Fn(&str) -> bool + 'a) -> impl Iterator<Item = (usize, &'a str)> {
    file.tokens.iter().filter_map(move |token| Some((token.line, token.ident().filter(|name| names(name))?)))
}

// === the stairs ===

pub(crate) fn stairs_only_go_down(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.source() {
        let home = tree.module(file);
        let Some((room, floor)) = home.first().and_then(|room| Some((room.as_str(), floor_of(room)?))) else {
            continue; // lib.rs holds no code; a room without a floor is another rule's finding
        };
        for reference in file.references(&home) {
            let judged = judge(room, floor, reference.path.first().map(String::as_str));
            found.extend(judged.map(|(what, fix)| Finding::new(&file.path, reference.line, what, fix)));
        }
    }
    found.dedup_by(|next, before| (next.line, &next.what) == (before.line, &before.what));
    found
}

fn judge(room: &str, floor: usize, target: Option<&str>) -> Option<(String, String)> {
    let Some(target) = target else {
        return Some((
            "the crate root under another name hides which rooms are used".to_owned(),
            "name the room: `use crate::room::Item`".to_owned(),
        ));
    };
    let street = room == "main" && (target == "cli" || floor_of(target).is_none());
    if target == room || street {
        return None;
    }
    if target == "*" {
        return Some((
            "a glob over the crate root hides which rooms are used".to_owned(),
            "name the rooms: `use crate::room::Item`".to_owned(),
        ));
    }
    let Some(above) = floor_of(target) else {
        return Some((
            format!("`{target}` at the crate root is not a room of the floor table"),
            "put it into a room and import it from there; lib.rs only lists modules".to_owned(),
        ));
    };
    (above >= floor).then(|| {
        (
            format!("`{room}` (floor {floor}) imports `{target}` (floor {above}); stairs only go down"),
            format!(
                "move what both need to a floor below {}, or hand it to `{room}` as an argument or a trait of a lower floor",
                floor.min(above)
            ),
        )
    })
}

pub(crate) fn gateway_never_sees_downstream(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.source() {
        let home = tree.module(file);
        if !is_in(&home, &["gateway"]) {
            continue;
        }
        let downstream = file.references(&home).into_iter().filter(|reference| is_in(&reference.path, &["downstream"]));
        found.extend(downstream.map(|reference| {
            let fix = "say it in the terms of `exchange`; `app` alone knows both the hall and the front door";
            Finding::new(&file.path, reference.line, "`gateway` imports `downstream`", fix)
        }));
    }
    found
}

pub(crate) fn every_top_level_module_has_a_floor(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut check = |path: &str, line: usize, name: &str| {
        if floor_of(name).is_none() {
            let what = format!("top-level module `{name}` is in no row of the floor table");
            let fix = "put the code into an existing room; a new room needs a row in FLOORS (tests/architecture.rs), \
                       the same row in ARCHITECTURE.md, and an entry in the decision list there";
            found.push(Finding::new(path, line, what, fix));
        }
    };
    for file in tree.source() {
        if let Some(room) = tree.module(file).first() {
            check(&file.path, 1, room);
        }
        if matches!(file.path.as_str(), "src/lib.rs" | "src/main.rs") {
            file.mods.iter().for_each(|decl| check(&file.path, decl.line, &decl.name));
        }
    }
    found
}

pub(crate) fn files_are_where_their_module_says(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.source() {
        for decl in file.mods.iter().filter(|decl| decl.path.is_some() && decl.test_from.is_none()) {
            let what = format!("`#[path]` on module `{}`: its file does not show its room", decl.name);
            let fix = "move the file to where `mod` looks for it (only `#[cfg(test)]` modules may use `#[path]`)";
            found.push(Finding::new(&file.path, decl.line, what, fix));
        }
        for (line, _) in identifiers(file, |name| name == "include") {
            let fix = "make it a module; `include_str!` and `include_bytes!` are for data";
            found.push(Finding::new(&file.path, line, "`include!` brings code in past the floors", fix));
        }
    }
    found
}

// === words that stay in their rooms ===

pub(crate) fn only_the_doors_know_eras(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.source().filter(|file| !is_in(&tree.module(file), KNOWS_ERAS)) {
        for (line, name) in identifiers(file, |name| matches!(name, "Era" | "ProtocolVersion")) {
            let what = format!("`{name}` is named outside {}", KNOWS_ERAS.join(", "));
            let fix =
                "work on the canonical form; lift or lower at the doors, or ask `exchange` a question without an era";
            found.push(Finding::new(&file.path, line, what, fix));
        }
    }
    found
}

pub(crate) fn sans_io_rooms_name_no_runtime(tree: &Tree) -> Vec<Finding> {
    let runtime =
        |name: &str| ["tokio", "hyper"].contains(&name) || ["tokio_", "hyper_"].iter().any(|p| name.starts_with(p));
    let mut found = Vec::new();
    for file in tree.source().filter(|file| is_in(&tree.module(file), SANS_IO)) {
        for (line, name) in identifiers(file, runtime) {
            let what = format!("`{name}` is named in a room without I/O");
            let fix = "take bytes and time as arguments and leave sockets, tasks and timers to the floors above";
            found.push(Finding::new(&file.path, line, what, fix));
        }
    }
    found
}

pub(crate) fn facts_and_rules_never_await(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.source().filter(|file| is_in(&tree.module(file), SYNCHRONOUS)) {
        for (line, name) in identifiers(file, |name| matches!(name, "async" | "await")) {
            let what = format!("`{name}` in a synchronous room");
            let fix = "fetch in `gateway` or above and pass the result in";
            found.push(Finding::new(&file.path, line, what, fix));
        }
    }
    found
}

pub(crate) fn fenced_packages_stay_in_their_file(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust() {
        for &(package, home) in FENCED.iter().filter(|(_, home)| file.path != *home) {
            for (line, _) in identifiers(file, |name| name == package) {
                let what = format!("`{package}` is named outside {home}, which guards against its traps");
                found.push(Finding::new(&file.path, line, what, format!("call what {home} offers")));
            }
        }
    }
    found
}

// === files ===

pub(crate) fn no_file_is_too_long(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.source() {
        let lines = tree.lines(file);
        if lines > FILE_LINES_MAX {
            let what = format!("{lines} non-test lines, the ceiling is {FILE_LINES_MAX}");
            found.push(Finding::new(
                &file.path,
                FILE_LINES_MAX,
                what,
                "split it along a noun, never into a second `…2.rs`",
            ));
        }
    }
    found
}

pub(crate) fn every_file_says_what_it_is_for(tree: &Tree) -> Vec<Finding> {
    let unsaid = |file: &&File| !file.text.lines().next().is_some_and(|line| line.starts_with("//!"));
    let finding = |file: &File| {
        let fix = "begin with `//! What this is for.`, then what it is not for, then its invariants";
        Finding::new(&file.path, 1, "the first line is not `//!`", fix)
    };
    tree.rust().filter(unsaid).map(finding).collect()
}

pub(crate) fn no_module_has_an_empty_name(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut check = |path: &str, line: usize, name: &str| {
        if EMPTY_NAMES.contains(&name) {
            let what = format!("a module called `{name}` says nothing about what is inside");
            found.push(Finding::new(
                path,
                line,
                what,
                "name it after the noun it holds, or move each item to its user",
            ));
        }
    };
    for file in tree.rust() {
        file.path.trim_end_matches(".rs").split('/').for_each(|name| check(&file.path, 1, name));
        file.mods
            .iter()
            .filter(|decl| decl.inline_until.is_some())
            .for_each(|decl| check(&file.path, decl.line, &decl.name));
    }
    found
}

pub(crate) fn door_plates_stay_short(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for plate in tree.source().filter(|file| file.stem() == "mod") {
        let inside = format!("{}/", plate.folder());
        let is_room = |file: &File| file.path.starts_with(&inside) && file.path != plate.path && file.stem() != "tests";
        let lines = tree.lines(plate);
        if lines > DOOR_PLATE_LINES_MAX && tree.source().any(is_room) {
            let what = format!("{lines} non-test lines in a door plate, the ceiling is {DOOR_PLATE_LINES_MAX}");
            let fix = "a mod.rs holds docs, `mod` and `pub use`; move the code to a file beside it";
            found.push(Finding::new(&plate.path, DOOR_PLATE_LINES_MAX, what, fix));
        }
    }
    found
}

pub(crate) fn ignored_tests_say_why(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust() {
        for body in file.attributes() {
            let attribute = body.first().and_then(|token| token.ident()).unwrap_or_default();
            let Some(at) = body.iter().position(|token| token.is("ignore")) else { continue };
            let reason = body.get(at + 2).is_some_and(|reason| {
                body.get(at + 1).is_some_and(|token| token.is("=")) && !reason.text.trim().is_empty()
            });
            if matches!(attribute, "ignore" | "cfg_attr") && !reason {
                let line = body.get(at).map_or(1, |token| token.line);
                let fix = "write `#[ignore = \"why, and when it comes back\"]`, or repair the test";
                found.push(Finding::new(&file.path, line, "`#[ignore]` without a reason", fix));
            }
        }
    }
    found
}

// === the tree ===

/// Findings for every line of a file of the tree that `bad` accepts.
fn lines_of(tree: &Tree, bad: impl Fn(&str) -> bool, what: &str, fix: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.files() {
        for (at, line) in file.text.lines().enumerate().filter(|(_, line)| bad(line)) {
            debug_assert!(!line.is_empty(), "an empty line breaks no rule");
            found.push(Finding::new(&file.path, at + 1, what, fix));
        }
    }
    found
}

pub(crate) fn no_private_key_in_the_tree(tree: &Tree) -> Vec<Finding> {
    let (begin, end) = (concat!("-----", "BEGIN "), concat!("PRIVATE ", "KEY-----"));
    let what = "a private key block";
    let fix = "delete it, take the key out of use, and let the test make its own at run time";
    lines_of(
        tree,
        |line| line.find(begin).is_some_and(|at| line.get(at..).is_some_and(|rest| rest.contains(end))),
        what,
        fix,
    )
}

pub(crate) fn no_machine_paths_in_the_tree(tree: &Tree) -> Vec<Finding> {
    let what = "a path of one machine";
    let fix = "write it relative to the repository, or take it from the environment";
    lines_of(
        tree,
        |line| [concat!("/wo", "rk/"), concat!("/ro", "ot/")].iter().any(|path| names_path(line, path)),
        what,
        fix,
    )
}

/// Whether `line` holds `path` as the beginning of an absolute path.
fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        before.is_none_or(|char| !(char.is_alphanumeric() || "._-~}$*".contains(char)))
    })
}

pub(crate) fn every_dependency_has_a_reason(tree: &Tree) -> Vec<Finding> {
    let Some(manifest) = tree.file("Cargo.toml") else {
        return vec![Finding::new("Cargo.toml", 1, "there is no manifest to read", "run the test from the repository")];
    };
    let direct = direct_dependencies(&manifest.text);
    let mut found = Vec::new();
    for (line, name) in &direct {
        if !PACKAGES
            .iter()
            .any(|package| package.name == name && !package.why.is_empty() && !package.instead.is_empty())
        {
            let what = format!("`{name}` is a direct dependency without a reason");
            let fix =
                "do without, or add it to tests/architecture/packages.rs: what for, and what was considered instead";
            found.push(Finding::new(&manifest.path, *line, what, fix));
        }
    }
    for package in PACKAGES.iter().filter(|package| !direct.iter().any(|(_, name)| name == package.name)) {
        let what = format!("`{}` has a reason but is no longer a dependency", package.name);
        found.push(Finding::new("tests/architecture/packages.rs", 1, what, "remove its entry"));
    }
    found
}

/// Line and package name of everything in the dependency tables of a manifest.
pub(crate) fn direct_dependencies(manifest: &str) -> Vec<(usize, String)> {
    let (mut found, mut inside, mut depth) = (Vec::new(), false, 0_i32);
    let is_table = |name: Option<&String>| {
        name.is_some_and(|name| ["dependencies", "dev-dependencies", "build-dependencies"].contains(&name.as_str()))
    };
    for (at, line) in manifest.lines().enumerate() {
        let line = without_comment(line);
        let continued = depth > 0;
        if !continued && line.trim_start().starts_with('[') {
            let path = keys(line.trim().trim_matches(['[', ']']));
            inside = is_table(path.last());
            if is_table(path.iter().rev().nth(1)) {
                found.extend(path.last().map(|name| (at + 1, name.clone())));
            }
            continue;
        }
        depth += nesting(&line);
        let Some((key, value)) = line.split_once('=').filter(|_| inside && !continued) else { continue };
        let renamed = value.split_once("package").and_then(|(_, rest)| rest.trim_start().strip_prefix('='));
        let renamed = renamed.and_then(|rest| rest.split('"').nth(1).map(str::to_owned));
        found.extend(renamed.or_else(|| keys(key.trim()).first().cloned()).map(|name| (at + 1, name)));
    }
    found.dedup_by(|next, before| next.1 == before.1);
    found
}

/// A dotted TOML key as its parts.
fn keys(dotted: &str) -> Vec<String> {
    let (mut parts, mut quote) = (vec![String::new()], None);
    for char in dotted.chars() {
        match (char, quote) {
            (_, Some(open)) if char == open => quote = None,
            ('"' | '\'', None) => quote = Some(char),
            ('.', None) => parts.push(String::new()),
            (' ' | '\t', None) => {}
            _ => parts.iter_mut().next_back().into_iter().for_each(|part| part.push(char)),
        }
    }
    parts
}

/// A line of TOML up to its comment.
fn without_comment(line: &str) -> String {
    let mut quoted = false;
    let keep = |char: &char| {
        quoted ^= *char == '"';
        *char != '#' || quoted
    };
    line.chars().take_while(keep).collect()
}

fn nesting(line: &str) -> i32 {
    let (mut quoted, mut depth) = (false, 0);
    for char in line.chars() {
        match char {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            _ => {}
        }
    }
    depth
}

pub(crate) fn floor_table_is_the_documented_one(tree: &Tree) -> Vec<Finding> {
    let path = "ARCHITECTURE.md";
    let documented = tree.file(path).map(|file| documented_floors(&file.text)).unwrap_or_default();
    let row = |number: usize, name: &str, rooms: &[String]| format!("{number} {name}: {}", rooms.join(" "));
    let enforced = FLOORS.iter().map(|floor| {
        let rooms: Vec<String> = floor.rooms.iter().map(|&room| room.to_owned()).collect();
        row(floor.number, floor.name, &rooms)
    });
    let enforced: Vec<String> = enforced.collect();
    let rows: Vec<String> = documented.iter().map(|(_, number, name, rooms)| row(*number, name, rooms)).collect();
    let fix = "make the table under `## Floors` and FLOORS in tests/architecture.rs the same, and add a decision entry";
    let mut found = Vec::new();
    for missing in enforced.iter().filter(|row| !rows.contains(row)) {
        found.push(Finding::new(path, 1, format!("the test enforces `{missing}`, the document does not say so"), fix));
    }
    for (surplus, (line, ..)) in rows.iter().zip(&documented).filter(|(row, _)| !enforced.contains(row)) {
        found.push(Finding::new(
            path,
            *line,
            format!("the document says `{surplus}`, the test does not enforce it"),
            fix,
        ));
    }
    if found.is_empty() && rows != enforced {
        found.push(Finding::new(path, 1, "the floors stand in another order, or twice", fix));
    }
    found
}

/// What can grow has a bound, and a test of it that exists [LIM-6].
pub(crate) fn every_bound_has_its_test(tree: &Tree) -> Vec<Finding> {
    let path = "ARCHITECTURE.md";
    let fix = "name a test by its function in the last column of the table under `## What can grow`";
    let text = tree.file(path).map(|file| file.text.as_str()).unwrap_or_default();
    let section = text.lines().enumerate().skip_while(|(_, line)| line.trim() != "## What can grow").skip(1);
    let rows = section.take_while(|(_, line)| !line.starts_with("## ")).filter(|(_, line)| line.starts_with('|'));
    let mut rows = rows.skip(2).peekable();
    if rows.peek().is_none() {
        return vec![Finding::new(path, 1, "there is no table of what can grow", fix)];
    }
    let mut found = Vec::new();
    for (at, line) in rows {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let named: Vec<&str> = cells.last().map_or("", |cell| cell).split('`').skip(1).step_by(2).collect();
        let exists = |name: &str| {
            let (sync, parameterless) = (format!("fn {name}()"), format!("fn {name}("));
            tree.rust().any(|file| file.text.contains(&sync) || file.text.contains(&parameterless))
        };
        if cells.len() != 5 || cells.iter().any(|cell| cell.is_empty()) || named.is_empty() {
            found.push(Finding::new(
                path,
                at + 1,
                "a row needs what grows, its bound, its key, what happens when it is full, and a test",
                fix,
            ));
        }
        for name in named.into_iter().filter(|name| !exists(name)) {
            found.push(Finding::new(path, at + 1, format!("there is no test `{name}`"), fix));
        }
    }
    found
}

/// Line, number, name and rooms of each row of the floor table.
fn documented_floors(text: &str) -> Vec<(usize, usize, String, Vec<String>)> {
    let section = text.lines().enumerate().skip_while(|(_, line)| line.trim() != "## Floors").skip(1);
    let rows = section.take_while(|(_, line)| !line.starts_with("## "));
    rows.filter_map(|(at, line)| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let (number, name) = cells.next()?.split_once(' ')?;
        let rooms = cells.next()?.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Some((at + 1, number.parse().ok()?, name.to_owned(), rooms))
    })
    .collect()
}

// === what the tests prove ===

pub(crate) fn every_requirement_has_its_row(tree: &Tree) -> Vec<Finding> {
    let path = "tests/README.md";
    let text = tree.file(path).map_or("", |file| file.text.as_str());
    let rows: Vec<(usize, usize, &str)> = text.lines().enumerate().filter_map(|(at, line)| row(at + 1, line)).collect();
    let mut found = Vec::new();
    for number in 1..=REQUIREMENTS {
        let count = rows.iter().filter(|row| row.1 == number).count();
        if count != 1 {
            let fix = "give each requirement one row: where it is proved, or why not";
            found.push(Finding::new(path, 1, format!("R{number} has {count} rows"), fix));
        }
    }
    for (line, number, place) in rows {
        let tests: Vec<(&str, &str)> =
            place.split('`').skip(1).step_by(2).filter_map(|one| one.split_once("::")).collect();
        let excused =
            ["by construction: ", "not needed: ", "not yet: ", "partly: "].iter().any(|word| place.starts_with(word));
        let mut wrong = |what: String, fix: &str| found.push(Finding::new(path, line, what, fix));
        if number == 0 || number > REQUIREMENTS {
            wrong(format!("there is no R{number}"), "take the row out");
        }
        if tests.is_empty() && !excused {
            wrong(format!("R{number} has neither a test nor a reason"), "name `file::test`, or say why there is none");
        }
        for (file, test) in tests {
            match tree.file(file).map(|file| function(&file.text, test)) {
                None => wrong(format!("there is no file {file}"), "name the file that has the test"),
                Some(None) => wrong(format!("{file} has no `fn {test}`"), "name the test as it is called now"),
                Some(Some(text)) if !cites(&text, number) => {
                    wrong(
                        format!("`{test}` does not cite R{number}"),
                        "cite it, [R1], in its doc comment, or name another test",
                    );
                }
                Some(Some(_)) => {}
            }
        }
    }
    found
}

/// Line, number and last cell of a row of requirements.
fn row(at: usize, line: &str) -> Option<(usize, usize, &str)> {
    let mut cells = line.strip_prefix("| R")?.strip_suffix('|')?.splitn(3, '|').map(str::trim);
    let number = cells.next()?.parse().ok()?;
    Some((at, number, cells.nth(1)?))
}

/// A function with what stands above it, up to its closing brace.
fn function(text: &str, name: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let head = format!("fn {name}(");
    let at = lines.iter().position(|line| line.contains(&head) && !line.trim_start().starts_with("//"))?;
    let (before, from) = lines.split_at_checked(at)?;
    let is_above = |line: &&&str| ["//", "#["].iter().any(|mark| line.trim_start().starts_with(mark));
    let above = before.iter().rev().take_while(is_above);
    let first = from.first()?;
    let close = format!("{}}}", " ".repeat(first.len() - first.trim_start().len()));
    let body = from.iter().take_while(|line| **line != close);
    Some(above.chain(body).copied().collect::<Vec<_>>().join("\n"))
}

/// Says whether a text cites a requirement: `R7`, or a range as `R5-R9`.
fn cites(text: &str, wanted: usize) -> bool {
    let (mut last, mut word) = (None, String::new());
    for char in text.chars().chain([' ']) {
        if char.is_alphanumeric() || char == '_' {
            word.push(char);
            continue;
        }
        let number = word.strip_prefix('R').and_then(|digits| digits.parse::<usize>().ok());
        match (last.take(), number) {
            (Some(from), Some(to)) if (from..=to).contains(&wanted) => return true,
            (_, Some(number)) if number == wanted => return true,
            _ => {}
        }
        last = number.filter(|_| char == '-' || char == '–');
        word.clear();
    }
    false
}
