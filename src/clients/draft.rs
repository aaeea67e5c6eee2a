//! From a client's entry to a server of ours that is not written yet.
//!
//! Invariants: a literal value of a variable or a header becomes a secret with a file of its own, never text [CFG-6]; an
//! entry that cannot be carried whole is refused with a reason.

use std::collections::BTreeSet;
use std::path::Path;

use crate::id::{UPSTREAM_NAME_MAX, UpstreamName};
use crate::secret::Secret;

use super::references::{self, Part, Surroundings};
use super::write::Existing;
use super::zeroclaw::{Agent, Bundle, Policy};
use super::{Entry, How};

/// The largest file of variables that is read, in bytes.
const ENV_FILE_MAX: u64 = 1 << 20;
/// The largest secret, in bytes: what `${file:}` reads.
const SECRET_MAX: usize = 64 << 10;

/// A piece of a value.
#[derive(Clone, Debug)]
pub enum Piece {
    /// A variable of the gateway's environment.
    Env {
        /// Its name.
        name: String,
        /// How the client refers to the same value: what gives it to a gateway that the client starts.
        reference: String,
    },
    /// A secret that gets a file of its own.
    Secret {
        /// The file's name within the server's folder of secrets.
        file: String,
        /// What it holds.
        value: Secret<String>,
    },
    /// Text that may be read by everybody.
    Text(String),
}

/// A value with its name.
pub type Named = (String, Vec<Piece>);

/// How a server is reached.
#[derive(Clone, Debug)]
pub enum DraftTransport {
    /// A URL.
    Http {
        /// The address.
        url: Vec<Piece>,
        /// Headers.
        headers: Vec<Named>,
    },
    /// A program.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables.
        env: Vec<Named>,
        /// Names of variables that it inherits.
        inherit_env: Vec<String>,
        /// Its working folder.
        cwd: Option<String>,
    },
}

/// A server that is not written yet.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Its name here.
    pub name: UpstreamName,
    /// Its name in the client's file.
    pub original: String,
    /// Whether it is switched on.
    pub enabled: bool,
    /// Whether our file has it already, with the same command or URL.
    pub already: bool,
    /// How it is reached.
    pub transport: DraftTransport,
    /// The time of one call in seconds, where the file says one.
    pub tool_timeout_secs: Option<u64>,
    /// What a person should know.
    pub notes: Vec<String>,
}

/// An entry that cannot be carried over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its name in the client's file.
    pub name: String,
    /// Why not.
    pub why: String,
}

/// What one file gives.
#[derive(Debug, Default)]
pub struct Import {
    /// Servers that can be tried and written.
    pub drafts: Vec<Draft>,
    /// Entries that cannot be carried over.
    pub refused: Vec<Refused>,
    /// What a person should know about the file as a whole.
    pub notes: Vec<String>,
    /// What is lost that protected somebody: without `--force` nothing is saved.
    pub lost: Vec<String>,
    /// ZeroClaw's agents; empty for other files.
    pub agents: Vec<Agent>,
    /// ZeroClaw's bundles; empty for other files.
    pub bundles: Vec<Bundle>,
    /// ZeroClaw's risk profiles; empty for other files.
    pub policies: Vec<Policy>,
}

impl Draft {
    /// Returns the variables that the gateway must have for this server, and how the client refers to each.
    #[must_use]
    pub fn variables(&self) -> Vec<(String, String)> {
        let (lists, inherited): (Vec<&[Piece]>, &[String]) = match &self.transport {
            DraftTransport::Http { url, headers } => {
                (std::iter::once(url.as_slice()).chain(headers.iter().map(|named| named.1.as_slice())).collect(), &[])
            }
            DraftTransport::Stdio { env, inherit_env, .. } => {
                (env.iter().map(|named| named.1.as_slice()).collect(), inherit_env)
            }
        };
        let mut found: Vec<(String, String)> = Vec::new();
        let named = lists.into_iter().flatten().filter_map(|piece| match piece {
            Piece::Env { name, reference } => Some((name.clone(), reference.clone())),
            Piece::Secret { .. } | Piece::Text(_) => None,
        });
        let inherited = inherited.iter().map(|name| (name.clone(), format!("${{env:{name}}}")));
        for (name, reference) in named.chain(inherited) {
            if !found.iter().any(|(other, _)| *other == name) {
                found.push((name, reference));
            }
        }
        found
    }

    /// Says in one line how it is reached, for a person, without any secret.
    #[must_use]
    pub fn describe(&self) -> String {
        let names = |what: &str, list: &[Named]| {
            let names: Vec<_> = list.iter().map(|(name, _)| name.escape_debug().to_string()).collect();
            if names.is_empty() { String::new() } else { format!("   [{what} {}]", names.join(", ")) }
        };
        match &self.transport {
            DraftTransport::Http { url, headers } => {
                let pieces = url.iter().map(|piece| match piece {
                    Piece::Env { name, .. } => format!("${{env:{name}}}"),
                    Piece::Secret { .. } => "[secret]".to_owned(),
                    Piece::Text(text) => text.escape_debug().to_string(),
                });
                format!("{}{}", pieces.collect::<String>(), names("headers", headers))
            }
            DraftTransport::Stdio { command, args, env, .. } => {
                let words = std::iter::once(command).chain(args).map(|word| shell_word(word));
                format!("{}{}", words.collect::<Vec<_>>().join(" "), names("env", env))
            }
        }
    }
}

/// Shows one word of a command so that its ends can be seen and it moves no cursor.
fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=@,+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.escape_debug()) }
}

/// Drafts every entry, in order; `existing` are the servers of our own file.
#[must_use]
pub fn draft(entries: Vec<Entry>, around: &Surroundings<'_>, existing: &[Existing]) -> Import {
    let mut import = Import::default();
    let mut slugs = BTreeSet::new();
    for entry in entries {
        let original = entry.name.clone();
        match one(entry, around, existing, &mut slugs) {
            Ok(draft) => import.drafts.push(draft),
            Err(why) => import.refused.push(Refused { name: original, why }),
        }
    }
    import
}

fn one(
    entry: Entry,
    around: &Surroundings<'_>,
    existing: &[Existing],
    slugs: &mut BTreeSet<String>,
) -> Result<Draft, String> {
    let mut notes = Vec::new();
    let transport = match entry.how {
        How::Not(why) => return Err(why),
        How::Http { url, headers } => DraftTransport::Http {
            url: address(&url, around, &mut notes)?,
            headers: values(headers, "header", around, &mut notes)?,
        },
        How::Stdio { command, args, .. } if is_ours(&command, &args) => {
            return Err("it goes through the gateway already".to_owned());
        }
        How::Stdio { command, args, mut env, env_file, inherit_env, cwd } => {
            if let Some(file) = env_file {
                let file = references::plain(&file, around).map_err(|why| format!("its envFile {why}"))?;
                add_file(&mut env, Path::new(&file), around)?;
            }
            let cwd = cwd.map(|cwd| references::plain(&cwd, around)).transpose().map_err(|why| format!("cwd {why}"))?;
            DraftTransport::Stdio {
                command: references::plain(&command, around).map_err(|why| format!("its command {why}"))?,
                args: arguments(&args, around)?,
                env: values(env, "variable", around, &mut notes)?,
                inherit_env,
                // A project's servers are started in its folder.
                cwd: cwd.or_else(|| Some(around.workspace?.display().to_string())),
            }
        }
    };
    if let DraftTransport::Stdio { command, args, .. } = &transport {
        notes.extend(moving(command, args));
    }
    let (name, already) = name_for(&entry.name, &transport, existing, slugs)?;
    if name.as_str() != entry.name {
        notes.push(format!("it is called '{name}' here"));
    }
    if !entry.unused.is_empty() {
        let keys: Vec<_> = entry.unused.iter().map(|key| key.escape_debug().to_string()).collect();
        notes.push(format!("not carried over: {}", keys.join(", ")));
    }
    let tool_timeout_secs = entry.tool_timeout_secs.map(|secs| secs.clamp(1, 600));
    let (original, enabled) = (entry.name, entry.enabled);
    Ok(Draft { name, original, enabled, already, transport, tool_timeout_secs, notes })
}

/// Says whether a program is fetched anew in whatever version is the newest.
fn moving(command: &str, args: &[String]) -> Option<String> {
    let runner = Path::new(command).file_name()?.to_str()?;
    if !matches!(runner, "bunx" | "npx" | "uvx") {
        return None;
    }
    let package = args.iter().find(|arg| !arg.starts_with('-'))?;
    let version = package.trim_start_matches('@').split_once(['@', '=']).map(|(_, version)| version);
    let pinned = version.is_some_and(|version| version.contains(|c: char| c.is_ascii_digit()));
    let package = package.escape_debug();
    (!pinned).then(|| format!("{runner} fetches whatever version of {package} is the newest: pin one"))
}

/// Says whether an entry is one that `connect` writes.
fn is_ours(command: &str, args: &[String]) -> bool {
    Path::new(command).file_name().is_some_and(|name| name == "portcullis")
        && args.first().is_some_and(|word| word == "stdio")
}

fn arguments(args: &[String], around: &Surroundings<'_>) -> Result<Vec<String>, String> {
    let one = |(index, arg): (usize, &String)| {
        let arg = references::plain(arg, around).map_err(|why| format!("its argument {} {why}", index + 1))?;
        if arg.contains('\0') { Err(format!("its argument {} holds a zero byte", index + 1)) } else { Ok(arg) }
    };
    args.iter().enumerate().map(one).collect()
}

fn values(
    list: Vec<(String, Secret<String>)>,
    what: &str,
    around: &Surroundings<'_>,
    notes: &mut Vec<String>,
) -> Result<Vec<Named>, String> {
    let mut files = BTreeSet::new();
    let mut named = Vec::new();
    for (name, value) in list {
        let shown = name.escape_debug().to_string();
        let parts = references::parts(value.expose(), around, notes)
            .map_err(|why| format!("the value of its {what} {shown} {why}"))?;
        let mut pieces = Vec::new();
        let mixed = parts.iter().any(|part| matches!(part, Part::Env { .. }));
        for part in parts {
            pieces.push(match part {
                Part::Env { name, reference } => Piece::Env { name, reference },
                Part::Text(text) if mixed && is_scheme(&text) => Piece::Text(text),
                Part::Text(text) => {
                    let value = Secret::new(text);
                    secret_fits(&value).map_err(|why| format!("the value of its {what} {shown} {why}"))?;
                    Piece::Secret { file: file_name(&name, &mut files), value }
                }
            });
        }
        named.push((name, pieces));
    }
    Ok(named)
}

/// A URL with a query, or one whose path is long, may hold a secret: then all of it is one.
fn address(url: &Secret<String>, around: &Surroundings<'_>, notes: &mut Vec<String>) -> Result<Vec<Piece>, String> {
    let parts = references::parts(url.expose(), around, notes).map_err(|why| format!("its url {why}"))?;
    let secret = url.expose().contains(['?', '@']);
    let mut files = BTreeSet::new();
    let pieces = parts.into_iter().map(|part| match part {
        Part::Env { name, reference } => Ok(Piece::Env { name, reference }),
        Part::Text(text) if !secret => Ok(Piece::Text(text)),
        Part::Text(text) => {
            let value = Secret::new(text);
            secret_fits(&value).map_err(|why| format!("its url {why}"))?;
            Ok(Piece::Secret { file: file_name("url", &mut files), value })
        }
    });
    pieces.collect()
}

/// Says whether a text before or after a variable is only what such values begin with.
fn is_scheme(text: &str) -> bool {
    let word = text.trim().to_ascii_lowercase();
    matches!(word.as_str(), "" | "basic" | "bearer" | "token" | "apikey" | ":" | "/")
}

fn secret_fits(value: &Secret<String>) -> Result<(), &'static str> {
    if value.expose().len() > SECRET_MAX {
        return Err("is longer than 65536 bytes");
    }
    if value.expose().chars().any(char::is_control) {
        return Err("holds a line end or another control character, which no secret file can carry");
    }
    if value.expose().starts_with("enc:") || value.expose().starts_with("enc2:") {
        return Err(
            "is encrypted by the program it comes from: write the value itself, or ${env:NAME}, and import again",
        );
    }
    Ok(())
}

/// A file's name for a secret: its name with what no path should hold replaced.
fn file_name(name: &str, files: &mut BTreeSet<String>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let base: String = name.chars().take(100).map(plain).collect();
    let base = if base.is_empty() { "_".to_owned() } else { base };
    let mut count = 1_u32;
    let mut file = base.clone();
    while !files.insert(file.clone()) {
        count += 1;
        file = format!("{base}.{count}");
    }
    file
}

/// Reads `NAME=VALUE` lines; what the entry itself says wins.
fn add_file(env: &mut Vec<(String, Secret<String>)>, path: &Path, around: &Surroundings<'_>) -> Result<(), String> {
    use std::io::Read as _;
    let path = around.workspace.map_or_else(|| path.to_path_buf(), |folder| folder.join(path));
    let failed = |why: String| format!("its envFile {} {why}", path.display());
    let mut text = String::new();
    let file = std::fs::File::open(&path).map_err(|err| failed(format!("cannot be read: {err}")))?;
    file.take(ENV_FILE_MAX).read_to_string(&mut text).map_err(|err| failed(format!("cannot be read: {err}")))?;
    let text = Secret::new(text);
    for line in text.expose().lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((name, value)) = line.split_once('=') else {
            return Err(failed("has a line without '='".to_owned()));
        };
        let (name, value) = (name.trim(), value.trim());
        let quoted = |quote: char| value.strip_prefix(quote).and_then(|value| value.strip_suffix(quote));
        let value = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
        if !env.iter().any(|(other, _)| other == name) {
            env.push((name.to_owned(), Secret::new(value.to_owned())));
        }
    }
    Ok(())
}

/// Finds a name that [CFG-5] allows, a function of the original unless another server has its slug; says whether our file
/// has this very server under it.
fn name_for(
    original: &str,
    transport: &DraftTransport,
    existing: &[Existing],
    slugs: &mut BTreeSet<String>,
) -> Result<(UpstreamName, bool), String> {
    let base = allowed_name(original);
    let short = base.get(..UPSTREAM_NAME_MAX - 4).unwrap_or(&base).trim_end_matches(['_', '.', '-']).to_owned();
    for count in 1..1000_u32 {
        let text = if count == 1 { base.clone() } else { format!("{short}-{count}") };
        let name = UpstreamName::new(&text).map_err(|why| format!("its name {why}"))?;
        let slug = name.slug();
        let there = existing.iter().find(|other| other.slug() == slug);
        let same = there.filter(|other| other.name == text && other.is(&name, transport));
        if (there.is_none() || same.is_some()) && slugs.insert(slug) {
            return Ok((name, same.is_some()));
        }
    }
    Err("there are a thousand servers of that name".to_owned())
}

/// Returns the name that a client's name for a server has here.
fn allowed_name(original: &str) -> String {
    if UpstreamName::new(original).is_ok() {
        return original.to_owned();
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '-' };
    let mut name = String::new();
    for c in original.chars().map(plain) {
        // What is doubled would not be allowed, or would not be pretty.
        let doubled = matches!(c, '_' | '.' | '-') && name.ends_with(['_', '.', '-']);
        if !doubled {
            name.push(c);
        }
    }
    let name = name.trim_matches(['_', '.', '-']);
    let name = name.get(..UPSTREAM_NAME_MAX).unwrap_or(name).trim_end_matches(['_', '.', '-']);
    match name {
        "" => "server".to_owned(),
        "portcullis" | "mcp" => format!("{name}-server"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
#[path = "draft_tests.rs"]
mod tests;
