//! `${…}` in the dialects of the clients, translated to ours [CFG-3, CFG-6].
//!
//! | in the file | here |
//! |---|---|
//! | `${NAME}`, `${env:NAME}` | `${env:NAME}` |
//! | `${NAME:-default}` | `${env:NAME}` where it is set now, else the default |
//! | `${input:id}` | `${env:ID}`, with a note |
//! | `${workspaceFolder}`, `${userHome}`, `${HOME}` and the like | the folder |
//!
//! Invariant: what cannot be translated is a problem with a reason; nothing with a placeholder left in it goes on.

use std::fmt;
use std::path::Path;

/// What a file's references are looked up in.
#[derive(Clone, Copy)]
pub struct Surroundings<'s> {
    /// The environment.
    pub env: &'s dyn Fn(&str) -> Option<String>,
    /// The folder of the project whose file it is; `None` for a user's own file.
    pub workspace: Option<&'s Path>,
}

/// A text cut at its references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A variable of the gateway's environment, and the reference in the client's own words.
    Env { name: String, reference: String },
    /// The text itself.
    Text(String),
}

impl fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}

/// Translates a text; notes what a person should know.
pub(super) fn parts(text: &str, around: &Surroundings<'_>, notes: &mut Vec<String>) -> Result<Vec<Part>, String> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        push(&mut parts, before);
        let Some((reference, after)) = after.split_once('}') else {
            return Err("a '${' has no '}'".to_owned());
        };
        match one(reference, around, notes)? {
            Part::Text(text) => push(&mut parts, &text),
            part @ Part::Env { .. } => parts.push(part),
        }
        rest = after;
    }
    push(&mut parts, rest);
    Ok(parts)
}

/// Translates a text in which no variable may stay: programs and their arguments, which everybody on the machine can read.
pub(super) fn plain(text: &str, around: &Surroundings<'_>) -> Result<String, String> {
    let mut whole = String::new();
    for part in parts(text, around, &mut Vec::new())? {
        match part {
            Part::Text(text) => whole.push_str(&text),
            Part::Env { name, .. } => {
                return Err(format!(
                    "refers to the variable {name}; everyone on the machine can read a program's arguments: \
                     give it to the server in env"
                ));
            }
        }
    }
    Ok(whole)
}

fn push(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(Part::Text(last)) => last.push_str(text),
        Some(Part::Env { .. }) | None => parts.push(Part::Text(text.to_owned())),
    }
}

fn one(reference: &str, around: &Surroundings<'_>, notes: &mut Vec<String>) -> Result<Part, String> {
    let workspace = |what: &str| {
        around.workspace.ok_or_else(|| {
            format!("refers to ${{{what}}}, and this file belongs to no project: write the folder instead")
        })
    };
    let shown = |path: &Path| Part::Text(path.display().to_string());
    let variable = |name: String| Part::Env { name, reference: format!("${{{reference}}}") };
    if let Some(id) = reference.strip_prefix("input:") {
        let name = variable_of(id);
        notes.push(format!("the client asks a person for '{}': set the variable {name} instead", id.escape_debug()));
        return Ok(variable(name));
    }
    match reference {
        "workspaceFolder" => return Ok(shown(workspace(reference)?)),
        "workspaceFolderBasename" => {
            return Ok(shown(Path::new(workspace(reference)?.file_name().unwrap_or_default())));
        }
        "pathSeparator" | "/" => return Ok(Part::Text("/".to_owned())),
        "userHome" | "HOME" | "env:HOME" => {
            let home = (around.env)("HOME").filter(|home| !home.is_empty());
            return home.map(Part::Text).ok_or_else(|| "refers to the home folder, and HOME is not set".to_owned());
        }
        _ => {}
    }
    let name = reference.strip_prefix("env:").unwrap_or(reference);
    let (name, default) = name.split_once(":-").map_or((name, None), |(name, default)| (name, Some(default)));
    if name == "CLAUDE_PROJECT_DIR"
        && let Some(folder) = around.workspace
    {
        return Ok(shown(folder));
    }
    if !is_variable(name) {
        return Err(format!("refers to ${{{}}}, which has no counterpart here", reference.escape_debug()));
    }
    match default {
        Some(default) if (around.env)(name).is_none_or(|value| value.is_empty()) => {
            notes.push(format!("the variable {name} is not set: its default is taken"));
            Ok(Part::Text(default.to_owned()))
        }
        Some(_) | None => Ok(variable(name.to_owned())),
    }
}

/// The variable that stands for a question of the client: its id in capitals.
fn variable_of(id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name: String = id.chars().map(plain).collect();
    if is_variable(&name) { name } else { format!("INPUT_{name}") }
}

pub(super) fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Part, Surroundings, parts, plain};

    fn env(name: &str) -> Option<String> {
        matches!(name, "HOME").then(|| "/home/u".to_owned()).or_else(|| (name == "SET").then(|| "now".to_owned()))
    }

    fn around(workspace: Option<&Path>) -> Surroundings<'_> {
        Surroundings { env: &env, workspace }
    }

    fn text(text: &str) -> Part {
        Part::Text(text.to_owned())
    }

    fn var(name: &str, reference: &str) -> Part {
        Part::Env { name: name.to_owned(), reference: reference.to_owned() }
    }

    /// FC-CFG-01, [CFG-6]
    #[test]
    fn every_dialect_is_translated_or_refused() {
        let project = around(Some(Path::new("/srv/project")));
        let translate = |text: &str| parts(text, &project, &mut Vec::new());
        assert_eq!(translate("Bearer ${T}"), Ok(vec![text("Bearer "), var("T", "${T}")]));
        assert_eq!(translate("${env:T}x"), Ok(vec![var("T", "${env:T}"), text("x")]));
        assert_eq!(translate("${T:-d}/e"), Ok(vec![text("d/e")]));
        assert_eq!(translate("${SET:-d}"), Ok(vec![var("SET", "${SET:-d}")]));
        assert_eq!(translate("${input:api-key}"), Ok(vec![var("API_KEY", "${input:api-key}")]));
        assert_eq!(translate("${input:9}"), Ok(vec![var("INPUT_9", "${input:9}")]));
        assert_eq!(translate("${workspaceFolder}/a"), Ok(vec![text("/srv/project/a")]));
        assert_eq!(translate("${workspaceFolderBasename}"), Ok(vec![text("project")]));
        assert_eq!(translate("${CLAUDE_PROJECT_DIR:-.}/a"), Ok(vec![text("/srv/project/a")]));
        assert_eq!(translate("${userHome}${/}x"), Ok(vec![text("/home/u/x")]));
        assert_eq!(translate("a $HOME $ $$ {x}"), Ok(vec![text("a $HOME $ $$ {x}")]));
        for bad in ["${", "${a b}", "${command:x}", "${}", "${config:a.b}", "${1}"] {
            assert!(translate(bad).is_err(), "{bad}");
        }
        assert!(parts("${workspaceFolder}", &around(None), &mut Vec::new()).unwrap_err().contains("no project"));
    }

    /// FC-CFG-01
    #[test]
    fn a_question_and_a_default_are_said() {
        let mut notes = Vec::new();
        parts("${input:api-key} ${T:-d}", &around(None), &mut notes).unwrap();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("API_KEY") && notes[1].contains('T'));
    }

    /// [CFG-3]: what stands in arguments is public.
    #[test]
    fn no_variable_stays_in_an_argument() {
        assert_eq!(plain("${HOME}/x", &around(None)), Ok("/home/u/x".to_owned()));
        assert!(plain("--key=${API_KEY}", &around(None)).unwrap_err().contains("API_KEY"));
    }
}
