//! `portcullis import`: read, show, try, save; in this order, and nothing is saved unless all went well [CFG-6, CFG-8].

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::clients::{self, Grant, Import, Refused, SecretFile, Surroundings, Written};
use crate::config::{self, Severity};
use crate::upstream::ServerSettings;

use super::args;
use super::confirm::{End, confirm, read};
use super::output::{counted, data, say, tell};
use super::trial::{Tried, trial};
use super::trouble::{Exit, Trouble};

pub(super) fn run(args: &args::Import) -> Result<Exit, Trouble> {
    import(args).or_else(End::exit)
}

fn import(args: &args::Import) -> Result<Exit, End> {
    let text = read(&args.file)?.ok_or_else(|| End::Failed(format!("{} does not exist", args.file.display())))?;
    let before = read(&args.config)?;
    if before.is_some() {
        config::load(&args.config, &config::process_env).map_err(End::Config)?;
    }
    let existing = before.as_ref().map(|text| clients::existing(text.expose())).transpose();
    let existing = existing.map_err(|err| End::Failed(format!("{}: {err}", args.config.display())))?;
    let named = |err: &dyn std::fmt::Display| End::Failed(format!("{} {err}", args.file.display()));
    let found = clients::read(text.expose()).map_err(|err| named(&err))?;
    let servers = counted(found.entries.len(), "server", "servers");
    say(&format!("{}: {}, {servers}", args.file.display(), found.format));
    let workspace = workspace(&args.file);
    let around = Surroundings { env: &config::process_env, workspace: workspace.as_deref() };
    let mut import = clients::draft(found.entries, &around, &existing.unwrap_or_default());
    import.notes.extend(found.notes);
    let whole = found.zeroclaw.is_some();
    if let Some(zeroclaw) = found.zeroclaw {
        zeroclaw.carry(&mut import);
    }
    let settings = settings(&mut import)?;
    show(&import);
    let grant = match &args.name {
        None if whole => Grant::AsTheFileSays,
        name => Grant::To(name.as_deref().unwrap_or("local").to_owned()),
    };
    let written = clients::write(before.as_ref().map(|text| text.expose().as_str()), &import, &grant)
        .map_err(|err| End::Failed(format!("{}: {err}", args.config.display())))?;
    config::load_changed(&args.config, &written.text, &config::process_env).map_err(End::Config)?;
    if args.care.dry_run {
        let _printed = data(written.text.as_bytes()).is_ok();
        return Err(End::Nothing("nothing was run or changed; the configuration above is what would be written"));
    }
    confirm("Run these commands once to try them?", args.care)?;
    let unreached = report(&trial(&settings)?);
    let broken = unreached + import.refused.len() + import.lost.len();
    if broken > 0 && !args.force {
        return Err(End::Failed(format!(
            "{}: nothing is saved; --force saves all the same",
            counted(broken, "problem", "problems")
        )));
    }
    if import.drafts.is_empty() {
        return Err(End::Nothing("there is nothing to save"));
    }
    if before.as_ref().is_some_and(|before| *before.expose() == written.text) {
        return Err(End::Nothing("everything is there already; nothing was changed"));
    }
    save(&args.config, before.is_some(), &written)?;
    after(args, &import, &grant);
    Ok(Exit::Ok)
}

/// The folder of a project whose file it is: `DIR/.mcp.json`, or a file in `DIR/.vscode` and the like.
pub(super) fn workspace(file: &Path) -> Option<PathBuf> {
    let file = std::path::absolute(file).ok()?;
    let folder = file.parent()?;
    let project = if file.file_name()? == ".mcp.json" {
        folder
    } else {
        let hidden = [".codex", ".cursor", ".vscode", ".zed"];
        folder.file_name().filter(|name| hidden.iter().any(|hidden| *name == *hidden))?;
        folder.parent()?
    };
    // In the home folder it is the user's own file.
    let home = config::process_env("HOME").map(PathBuf::from);
    (home.as_deref() != Some(project)).then(|| project.to_path_buf())
}

/// Reads the servers as our own configuration would; those that it refuses are refused.
fn settings(import: &mut Import) -> Result<Vec<ServerSettings>, End> {
    loop {
        let trial = clients::trial(import);
        let env = |name: &str| {
            let own = trial.variables.get(name).map(|value| value.expose().clone());
            own.or_else(|| config::process_env(name))
        };
        let found = match config::load_text(Path::new("import"), &trial.text, &env) {
            Ok(loaded) => {
                // A variable that is not set, most of all.
                for (name, why) in loaded.settings.disabled {
                    import.lost.push(format!("server '{name}' cannot start now: {why}"));
                }
                return Ok(loaded.settings.gateway.servers);
            }
            Err(found) => found,
        };
        let new: Vec<_> = import.drafts.iter().filter(|draft| !draft.already).map(|draft| draft.name.clone()).collect();
        let wrong = found.0.iter().find_map(|problem| {
            let rest = problem.key.strip_prefix("mcp.servers[").filter(|_| problem.severity == Severity::Error)?;
            let (index, key) = rest.split_once(']')?;
            let name = new.get(index.parse::<usize>().ok()?)?.clone();
            Some((name, format!("its {} {}", key.trim_start_matches('.'), problem.message)))
        });
        let Some((name, why)) = wrong else { return Err(End::Config(found)) };
        let at = import.drafts.iter().position(|draft| draft.name == name);
        if let Some(at) = at {
            let draft = import.drafts.remove(at);
            import.refused.push(Refused { name: draft.original, why });
        }
    }
}

fn show(import: &Import) {
    for draft in &import.drafts {
        let state = match (draft.already, draft.enabled) {
            (true, _) => "   (is there already)",
            (false, false) => "   (switched off)",
            (false, true) => "",
        };
        say(&format!("  {:<20} {}{state}", draft.name.as_str(), draft.describe()));
        draft.notes.iter().for_each(|note| say(&format!("  {:<20}   note: {note}", "")));
    }
    for refused in &import.refused {
        say(&format!("  {:<20} cannot be carried over: {}", refused.name.escape_debug().to_string(), refused.why));
    }
    import.notes.iter().for_each(|note| say(&format!("  note: {note}")));
    import.lost.iter().for_each(|lost| say(&format!("  problem: {lost}")));
}

/// Says what came of each server; returns how many cannot be reached.
fn report(tried: &[Tried]) -> usize {
    let mut unreached = 0;
    for Tried { name, outcome } in tried {
        let words = match outcome {
            Ok(tools) => {
                let risky: Vec<_> =
                    tools.iter().filter(|tool| tool.high_risk).map(|tool| tool.shown.as_str()).collect();
                let risky = if risky.is_empty() { String::new() } else { format!("; high-risk: {}", risky.join(", ")) };
                format!("ready, {}{risky}", counted(tools.len(), "tool", "tools"))
            }
            Err(why) => {
                unreached += 1;
                // The name stands before it, and that it cannot be reached.
                let why = why.strip_prefix(&format!("server '{name}' ")).unwrap_or(why);
                format!("cannot be reached: {}", why.strip_prefix("cannot be reached: ").unwrap_or(why))
            }
        };
        say(&format!("  {:<20} {words}", name.as_str()));
    }
    unreached
}

/// Writes secrets first, then the configuration; what fails takes back what it has made.
fn save(config: &Path, existed: bool, written: &Written) -> Result<(), End> {
    let folder = config.parent().unwrap_or_else(|| Path::new(""));
    let failed = |path: &Path, why: &dyn std::fmt::Display| End::Failed(format!("{}: {why}", path.display()));
    let mut made = Vec::new();
    let saved = (|| {
        for secret in &written.secrets {
            let path = folder.join(&secret.path);
            if keep(&path, secret).map_err(|err| failed(&path, &err))? {
                made.push(path);
            }
        }
        if existed {
            let copy = PathBuf::from(format!("{}.before-import", config.display()));
            std::fs::copy(config, &copy).map_err(|err| failed(&copy, &err))?;
            say(&format!("{} holds the configuration as it was", copy.display()));
        }
        clients::write_atomically(config, written.text.as_bytes()).map_err(|err| failed(config, &err))
    })();
    if saved.is_err() {
        made.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
    saved
}

/// Writes one secret, 0600 in a folder of 0700; says whether the file is new.
fn keep(path: &Path, secret: &SecretFile) -> std::io::Result<bool> {
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => {
            file.write_all(secret.value.expose().as_bytes())?;
            file.sync_all()?;
            Ok(true)
        }
        Err(err) if err.kind() == std::io::ErrorKind::AlreadyExists => {
            let there = std::fs::read(path)?;
            if there == secret.value.expose().as_bytes() {
                return Ok(false);
            }
            let words = "is there already and holds something else: move it away";
            Err(std::io::Error::new(std::io::ErrorKind::AlreadyExists, words))
        }
        Err(err) => Err(err),
    }
}

/// Says what was saved, what the result is worth, and what to do next.
fn after(args: &args::Import, import: &Import, grant: &Grant) {
    match config::load(&args.config, &config::process_env) {
        Ok(loaded) => tell(&loaded.warnings.into()),
        Err(found) => tell(&found),
    }
    let count = import.drafts.iter().filter(|draft| !draft.already).count();
    say(&format!("{}: {} saved", args.config.display(), counted(count, "server", "servers")));
    match grant {
        Grant::To(name) => say(&format!("principal '{}' may use them (mcp_bundles.imported)", name.escape_debug())),
        Grant::AsTheFileSays => {
            for agent in &import.agents {
                let name = agent.name.escape_debug();
                say(&format!("principal '{name}' needs a key: portcullis key new {name}"));
            }
        }
    }
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;
