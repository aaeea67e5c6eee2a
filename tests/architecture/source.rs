//! Reading: the tree as files, a Rust file as tokens, a module as the paths it names.
//!
//! Not a Rust parser: a lexer that knows comments, strings, raw strings, characters and lifetimes, and enough of the
//! grammar to follow `mod`, attributes and paths. Not for judging: the rules are in `rules.rs`.
//!
//! Invariants: a comment yields no token; a string yields one `Text` token; a path is resolved to the crate root.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ident,
    Other,
    Punct,
    Text,
}

#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) line: usize,
    pub(crate) text: String,
}

impl Token {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.kind != Kind::Text && self.text == text
    }

    pub(crate) fn ident(&self) -> Option<&str> {
        (self.kind == Kind::Ident).then_some(self.text.as_str())
    }
}

/// A `mod name;` or `mod name { … }`.
#[derive(Clone, Debug)]
pub(crate) struct ModDecl {
    pub(crate) line: usize,
    pub(crate) name: String,
    /// Line of the closing brace; `None` when the body is in another file.
    pub(crate) inline_until: Option<usize>,
    /// Behind `#[cfg(test)]`: from this line on.
    pub(crate) test_from: Option<usize>,
    /// The value of `#[path = "…"]`.
    pub(crate) path: Option<String>,
}

/// A path from the crate root that a file names: `["wire", "sse"]`, the last segment possibly `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) line: usize,
    pub(crate) path: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) tokens: Vec<Token>,
    pub(crate) mods: Vec<ModDecl>,
}

impl File {
    fn new(path: String, text: String) -> Self {
        let tokens = if path.ends_with(".rs") { lex(&text) } else { Vec::new() };
        let mods = declarations(&tokens);
        Self { path, text, tokens, mods }
    }

    pub(crate) fn stem(&self) -> &str {
        self.path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs")).unwrap_or_default()
    }

    pub(crate) fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// The folder in which a `mod name;` of this file looks for its body.
    fn children(&self) -> String {
        if matches!(self.stem(), "lib" | "main" | "mod") {
            self.folder().to_owned()
        } else {
            format!("{}/{}", self.folder(), self.stem())
        }
    }

    /// The attributes, each as the tokens between its brackets.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = &[Token]> {
        (0..self.tokens.len()).filter_map(|at| Some(attribute(&self.tokens, at)?.0))
    }

    /// Every path in this file that starts at `crate`, `super`, `self` or `portcullis`, resolved from `home`.
    /// Includes paths in `serde` attributes, which are code in a string.
    pub(crate) fn references(&self, home: &[String]) -> Vec<Reference> {
        let mut walk = Walk { tokens: &self.tokens, module: home.to_vec(), inline: Vec::new(), depth: 0 };
        let mut found = walk.run();
        for body in self.attributes().filter(|body| body.first().is_some_and(|token| token.is("serde"))) {
            for text in body.iter().filter(|token| token.kind == Kind::Text) {
                let tokens = lex(&text.text);
                let mut walk = Walk { tokens: &tokens, module: home.to_vec(), inline: Vec::new(), depth: 0 };
                found.extend(walk.run().into_iter().map(|inner| Reference { line: text.line, path: inner.path }));
            }
        }
        found
    }
}

#[derive(Debug)]
pub(crate) struct Tree {
    root: String,
    files: Vec<File>,
    /// Module paths of files whose declaration carries `#[path = "…"]`.
    moved: HashMap<String, Vec<String>>,
    /// Files, or folders with a final `/`, declared behind `#[cfg(test)]`.
    tests: Vec<String>,
}

impl Tree {
    /// The files git knows or would add; without git, every file outside build output.
    pub(crate) fn read(root: &Path) -> Self {
        let listed = git_files(root).unwrap_or_else(|| walk_files(root));
        let files = listed.into_iter().filter_map(|path| {
            let full = root.join(&path);
            let plain = fs::symlink_metadata(&full).is_ok_and(|meta| meta.is_file());
            let bytes = plain.then(|| fs::read(&full).ok()).flatten()?;
            Some((path, String::from_utf8_lossy(&bytes).into_owned()))
        });
        Self::build(root.display().to_string(), files)
    }

    /// A tree in memory, for the self-tests.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        Self::build(String::new(), files.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())))
    }

    fn build(root: String, files: impl Iterator<Item = (String, String)>) -> Self {
        let files: Vec<File> = files.map(|(path, text)| File::new(path, text)).collect();
        let mut tree = Self { root, files, moved: HashMap::new(), tests: Vec::new() };
        for file in &tree.files {
            for decl in file.mods.iter().filter(|decl| decl.inline_until.is_none()) {
                if let Some(path) = &decl.path {
                    let target = format!("{}/{path}", file.folder());
                    let mut module = module_of(&file.path);
                    module.push(decl.name.clone());
                    tree.moved.insert(target.clone(), module);
                    tree.tests.extend(decl.test_from.map(|_| target));
                } else if decl.test_from.is_some() {
                    let base = format!("{}/{}", file.children(), decl.name);
                    tree.tests.extend([format!("{base}.rs"), format!("{base}/")]);
                }
            }
        }
        tree
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    /// Every Rust file of the tree, tests and benches included.
    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files().filter(|file| file.path.ends_with(".rs"))
    }

    /// The Rust files of the crate itself.
    pub(crate) fn source(&self) -> impl Iterator<Item = &File> {
        self.rust().filter(|file| file.path.starts_with("src/"))
    }

    /// The module a file of `src/` holds: `src/wire/sse/mod.rs` is `["wire", "sse"]`, `src/lib.rs` is `[]`.
    pub(crate) fn module(&self, file: &File) -> Vec<String> {
        self.moved.get(&file.path).cloned().unwrap_or_else(|| module_of(&file.path))
    }

    /// Lines of the file that are not test code.
    pub(crate) fn lines(&self, file: &File) -> usize {
        let declared = |test: &String| file.path == *test || (test.ends_with('/') && file.path.starts_with(test));
        if file.stem() == "tests" || self.tests.iter().any(declared) {
            return 0;
        }
        let tests = file.mods.iter().filter_map(|decl| Some((decl.test_from?, decl.inline_until?)));
        let tests: Vec<_> = tests.collect();
        (1..=file.text.lines().count())
            .filter(|line| !tests.iter().any(|(from, to)| (from..=to).contains(&line)))
            .count()
    }
}

fn module_of(path: &str) -> Vec<String> {
    let inner = path.strip_prefix("src/").unwrap_or(path);
    let inner = inner.strip_suffix(".rs").unwrap_or(inner);
    let inner = inner.strip_suffix("/mod").unwrap_or(inner);
    if inner == "lib" { Vec::new() } else { inner.split('/').map(str::to_owned).collect() }
}

fn git_files(root: &Path) -> Option<Vec<String>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(arguments).current_dir(root).output().ok()?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut paths: Vec<String> = listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    paths.sort();
    paths.dedup();
    (output.status.success() && !paths.is_empty()).then_some(paths)
}

fn walk_files(root: &Path) -> Vec<String> {
    let (mut folders, mut paths): (Vec<PathBuf>, Vec<String>) = (vec![root.to_path_buf()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let skipped = ["target", "node_modules", ".git", ".venv", "out", "__pycache__"].contains(&name.as_str());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !skipped => folders.push(path),
                Ok(kind) if kind.is_file() && !skipped => {
                    paths.extend(path.strip_prefix(root).ok().map(|path| path.display().to_string()));
                }
                _ => {}
            }
        }
    }
    paths.sort();
    paths
}

// === paths ===

struct Walk<'a> {
    tokens: &'a [Token],
    module: Vec<String>,
    /// Brace depths at which an inline module began.
    inline: Vec<usize>,
    depth: usize,
}

impl Walk<'_> {
    fn run(&mut self) -> Vec<Reference> {
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some(token) = self.tokens.get(at) {
            at = self.step(at, token, &mut found);
        }
        found
    }

    fn step(&mut self, at: usize, token: &Token, found: &mut Vec<Reference>) -> usize {
        if token.is("{") {
            self.depth += 1;
        } else if token.is("}") {
            self.depth = self.depth.saturating_sub(1);
            if self.inline.last() == Some(&self.depth) {
                self.inline.pop();
                self.module.pop();
            }
        } else if token.is("mod") && self.is_at(at + 2, "{") {
            self.module.extend(self.tokens.get(at + 1).map(|name| name.text.clone()));
            self.inline.push(self.depth);
            return at + 2;
        } else if let Some(base) = self.start(at, token) {
            return self.tree(at + 1, base, found);
        }
        at + 1
    }

    /// Where a path that begins at this token starts from, if one does.
    fn start(&self, at: usize, token: &Token) -> Option<Vec<String>> {
        let continued = at > 0 && self.is_at(at - 1, "::");
        let path = self.is_at(at + 1, "::");
        let whole = self.is_at(at + 1, "as") || (at > 0 && self.is_at(at - 1, "extern") && self.is_at(at + 1, "self"));
        match token.ident()? {
            "crate" if !continued && (path || whole) => Some(Vec::new()),
            "portcullis" if path => Some(Vec::new()),
            "self" if !continued && path => Some(self.module.clone()),
            "super" if !continued && (path || whole) => {
                Some(self.module.split_last().map(|(_, rest)| rest.to_vec()).unwrap_or_default())
            }
            _ => None,
        }
    }

    /// Follows `::a::b`, `::*` and `::{…}`; returns the index of the first token that is no longer the path.
    fn tree(&self, mut at: usize, mut base: Vec<String>, found: &mut Vec<Reference>) -> usize {
        while self.is_at(at, "::") {
            let Some(next) = self.tokens.get(at + 1) else { break };
            if next.is("{") {
                return self.group(at + 2, &base, found);
            }
            if !segment(&mut base, next) {
                break;
            }
            at += 2;
        }
        let line = self.tokens.get(at - 1).map_or(0, |last| last.line);
        found.push(Reference { line, path: base });
        at
    }

    fn group(&self, mut at: usize, base: &[String], found: &mut Vec<Reference>) -> usize {
        while let Some(token) = self.tokens.get(at) {
            let mut inner = base.to_vec();
            at += 1;
            if token.is("}") {
                return at;
            } else if token.is("{") {
                at = self.group(at, base, found);
            } else if token.is("as") {
                at += 1;
            } else if segment(&mut inner, token) {
                at = self.tree(at, inner, found);
            }
        }
        at
    }

    fn is_at(&self, at: usize, text: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is(text))
    }
}

fn segment(base: &mut Vec<String>, token: &Token) -> bool {
    match token.ident() {
        Some("self") => {}
        Some("super") => {
            base.pop();
        }
        Some(name) => base.push(name.to_owned()),
        None if token.is("*") => base.push("*".to_owned()),
        None => return false,
    }
    true
}

// === declarations ===

/// The attribute that begins at `at`: the tokens between its brackets, and the index after it.
fn attribute(tokens: &[Token], at: usize) -> Option<(&[Token], usize)> {
    let mut from = at + 1;
    if !tokens.get(at)?.is("#") {
        return None;
    }
    if tokens.get(from)?.is("!") {
        from += 1;
    }
    let until = tokens.get(from)?.is("[").then(|| closing(tokens, from)).flatten()?;
    Some((tokens.get(from + 1..until)?, until + 1))
}

/// The index of the bracket that closes the one at `from`.
fn closing(tokens: &[Token], from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(from).filter(|(_, token)| token.kind == Kind::Punct) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

fn declarations(tokens: &[Token]) -> Vec<ModDecl> {
    let (mut found, mut at) = (Vec::new(), 0);
    let (mut test_from, mut path) = (None, None);
    while let Some(token) = tokens.get(at) {
        if let Some((body, next)) = attribute(tokens, at) {
            let names = |name: &str| body.iter().any(|token| token.ident() == Some(name));
            if body.first().is_some_and(|token| token.is("cfg")) && names("test") && !names("not") {
                test_from = Some(token.line);
            }
            if body.first().is_some_and(|token| token.is("path")) {
                path = body.last().map(|token| token.text.clone());
            }
            at = next;
        } else if token.is("pub") {
            let scope = tokens.get(at + 1).is_some_and(|next| next.is("("));
            at = scope.then(|| closing(tokens, at + 1)).flatten().unwrap_or(at) + 1;
        } else {
            found.extend(declaration(tokens, at, test_from.take(), path.take()));
            at += 1;
        }
    }
    found
}

fn declaration(tokens: &[Token], at: usize, test_from: Option<usize>, path: Option<String>) -> Option<ModDecl> {
    let (keyword, name, body) = (tokens.get(at)?, tokens.get(at + 1)?, tokens.get(at + 2)?);
    if !keyword.is("mod") || name.kind != Kind::Ident || !(body.is(";") || body.is("{")) {
        return None;
    }
    let inline_until = if body.is("{") { Some(tokens.get(closing(tokens, at + 2)?)?.line) } else { None };
    Some(ModDecl { line: keyword.line, name: name.text.clone(), inline_until, test_from, path })
}

// === lexer ===

/// The tokens of a Rust source; comments are gone, a string is one token with its content.
pub(crate) fn lex(text: &str) -> Vec<Token> {
    Lexer { chars: text.chars().collect(), at: 0, line: 1, tokens: Vec::new() }.run()
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
    tokens: Vec<Token>,
}

impl Lexer {
    fn run(mut self) -> Vec<Token> {
        while let Some(next) = self.peek(0) {
            match (next, self.peek(1)) {
                ('/', Some('/')) => {
                    self.take_while(|char| char != '\n');
                }
                ('/', Some('*')) => self.block_comment(),
                ('"', _) => self.string(),
                ('\'', _) => self.quote(),
                (':', Some(':')) => {
                    self.bump();
                    self.bump();
                    self.push(Kind::Punct, "::".to_owned(), self.line);
                }
                (digit, _) if digit.is_ascii_digit() => self.number(),
                (start, _) if start == '_' || start.is_alphabetic() => self.word(),
                (space, _) if space.is_whitespace() => {
                    self.bump();
                }
                (other, _) => {
                    self.bump();
                    self.push(Kind::Punct, other.to_string(), self.line);
                }
            }
        }
        self.tokens
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn bump(&mut self) -> Option<char> {
        let char = self.peek(0)?;
        self.at += 1;
        self.line += usize::from(char == '\n');
        Some(char)
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            self.bump();
        }
    }

    fn push(&mut self, kind: Kind, text: String, line: usize) {
        self.tokens.push(Token { kind, line, text });
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> String {
        let mut taken = String::new();
        while self.peek(0).is_some_and(&keep) {
            taken.extend(self.bump());
        }
        taken
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        while let Some(char) = self.bump() {
            match (char, self.peek(0)) {
                ('/', Some('*')) => depth += 1,
                ('*', Some('/')) => depth -= 1,
                _ => continue,
            }
            self.bump();
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        let (line, mut text) = (self.line, String::new());
        self.bump();
        while let Some(char) = self.bump() {
            match char {
                '"' => break,
                '\\' => text.extend(self.bump()),
                other => text.push(other),
            }
        }
        self.push(Kind::Text, text, line);
    }

    fn raw_string(&mut self, hashes: usize) {
        let (line, mut text) = (self.line, String::new());
        self.skip(hashes + 1);
        while let Some(char) = self.bump() {
            if char == '"' && (0..hashes).all(|ahead| self.peek(ahead) == Some('#')) {
                self.skip(hashes);
                break;
            }
            text.push(char);
        }
        self.push(Kind::Text, text, line);
    }

    /// A character or a lifetime.
    fn quote(&mut self) {
        let line = self.line;
        self.bump();
        if self.peek(0) == Some('\\') {
            self.bump();
            self.bump();
            self.take_while(|char| char != '\'');
            self.bump();
        } else if self.peek(1) == Some('\'') {
            self.bump();
            self.bump();
        } else {
            self.take_while(|char| char == '_' || char.is_alphanumeric());
        }
        self.push(Kind::Other, "'".to_owned(), line);
    }

    fn number(&mut self) {
        let line = self.line;
        let mut text = String::new();
        loop {
            text += &self.take_while(|char| char == '_' || char.is_alphanumeric());
            let fraction = self.peek(0) == Some('.') && self.peek(1).is_some_and(|char| char.is_ascii_digit());
            if !fraction {
                break;
            }
            text.extend(self.bump());
        }
        self.push(Kind::Other, text, line);
    }

    fn word(&mut self) {
        let line = self.line;
        let word = self.take_while(|char| char == '_' || char.is_alphanumeric());
        let prefix = matches!(word.as_str(), "b" | "br" | "c" | "cr" | "r");
        let hashes = (0..).take_while(|&ahead| self.peek(ahead) == Some('#')).count();
        match self.peek(hashes) {
            Some('"') if prefix && word.contains('r') => self.raw_string(hashes),
            Some('"') if prefix && hashes == 0 => self.string(),
            Some('\'') if word == "b" && hashes == 0 => self.quote(),
            Some(start) if word == "r" && hashes == 1 && (start == '_' || start.is_alphabetic()) => {
                self.bump();
                let raw = self.take_while(|char| char == '_' || char.is_alphanumeric());
                self.push(Kind::Ident, raw, line);
            }
            _ => self.push(Kind::Ident, word, line),
        }
    }
}
