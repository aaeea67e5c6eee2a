//! `portcullis connect`: the client's own entries run the gateway, and run their servers again after `--undo` [OPS-11].

use std::path::Path;

use crate::app::{Guest, GuestError};
use crate::clients::{self, Backup, Draft, Edit, Launch, Surroundings, Undone};
use crate::config::{self, Loaded};
use crate::gateway::Auth;
use crate::id::PrincipalId;

use super::args;
use super::confirm::{End, confirm, read};
use super::output::{counted, say};
use super::remote::address;
use super::trouble::{Exit, Trouble};

/// The entry that is written where a client has no servers of its own: everything the principal may use.
const ALL: &str = "portcullis";
/// Who calls a gateway that asks for no key.
const LOCAL: &str = "local";

pub(super) fn run(args: &args::Connect) -> Result<Exit, Trouble> {
    if let Some(url) = args.url.as_deref().filter(|_| !args.undo) {
        // A client would only fail with it, later and without a word of why.
        address(url, "write http://HOST:PORT, as http://127.0.0.1:7800")?;
    }
    let done = match args.file.clone().or_else(|| args.client.location(&config::process_env)) {
        None => Err(End::Failed("there is no home folder to look in: name the client's file with --file".to_owned())),
        Some(file) if args.undo => undo(args, &file),
        Some(file) => connect(args, &file),
    };
    done.map_or_else(End::exit, |()| Ok(Exit::Ok))
}

fn connect(args: &args::Connect, file: &Path) -> Result<(), End> {
    if args.url.is_some() && !args.client.takes_urls() {
        let name = args.client.name();
        return Err(End::Failed(format!(
            "{name} starts programs alone: leave --url away, or add the URL in its settings"
        )));
    }
    let loaded = config::load(&args.config, &config::process_env).map_err(End::Config)?;
    if args.url.is_some() && loaded.settings.gateway.auth == Auth::Keys {
        let config = args.config.display();
        return Err(End::Failed(format!(
            "{config} asks callers for a key, and none is written into a client's file: leave --url away"
        )));
    }
    let principal = match (&args.url, Guest::choose(&loaded.settings, args.name.as_deref(), None)) {
        (None, Ok(guest)) => guest.principal,
        // Without anybody nothing is taken over yet, which is said of each entry.
        (None, Err(err)) if args.name.is_some() || err != GuestError::Nobody => return Err(End::Guest(err)),
        (Some(_), _) | (None, Err(_)) => PrincipalId::new(LOCAL),
    };
    let text = read(file)?;
    let before = text.as_ref().map(|text| text.expose().as_str());
    let failed = |why: &str| End::Failed(format!("{} {why}", file.display()));
    let (edits, unconnected) = plan(args, (&loaded, &principal), file, before.unwrap_or_default())?;
    say(&format!("{}:", file.display()));
    edits
        .iter()
        .for_each(|edit| say(&format!("  {:<20} {}", edit.name.escape_debug().to_string(), shown(&edit.launch))));
    for (name, why) in &unconnected {
        say(&format!("  {:<20} stays as it is: {why}", name.escape_debug().to_string()));
    }
    if edits.is_empty() {
        return Err(End::Nothing("nothing was changed"));
    }
    let backup = Backup::of(file);
    if backup.is_there() {
        let name = args.client.name();
        return Err(failed(&format!("is connected already; undo that first: portcullis connect {name} --undo")));
    }
    let after = clients::edit(args.client, before.unwrap_or_default(), &edits).map_err(|why| failed(&why))?;
    confirm("Write this?", args.care)?;
    if let Some(folder) = file.parent().filter(|_| before.is_none()) {
        std::fs::create_dir_all(folder).map_err(|err| failed(&format!("cannot be made: {err}")))?;
    }
    // A person may have taken a while to answer, and clients write their files themselves.
    let now = read(file)?;
    if now.as_ref().map(|now| now.expose().as_str()) != before {
        return Err(failed("has just been changed by somebody else: run this again"));
    }
    backup.replace(before.map(str::as_bytes), after.as_bytes()).map_err(|err| End::Failed(err.to_string()))?;
    say(&format!("{} written; start the client anew", counted(edits.len(), "entry", "entries")));
    let place = args.file.as_ref().map(|file| format!(" --file {}", file.display())).unwrap_or_default();
    say(&format!("undo it with: portcullis connect {} --undo{place}", args.client.name()));
    Ok(())
}

/// An entry that is not touched, and why.
type Left = (String, String);

/// Decides what becomes of each entry.
fn plan(
    args: &args::Connect,
    whose: (&Loaded, &PrincipalId),
    file: &Path,
    text: &str,
) -> Result<(Vec<Edit>, Vec<Left>), End> {
    let failed = |path: &Path, why: &dyn std::fmt::Display| End::Failed(format!("{} {why}", path.display()));
    let entries = clients::read_client(args.client, text).map_err(|err| failed(file, &err))?;
    let own = read(&args.config)?.ok_or_else(|| failed(&args.config, &"does not exist"))?;
    let existing = clients::existing(own.expose()).map_err(|err| failed(&args.config, &err))?;
    let config = std::path::absolute(&args.config).map_err(|err| failed(&args.config, &err))?;
    let program = std::env::current_exe().map_err(|err| End::Failed(format!("this program cannot be found: {err}")))?;
    let launch = |server: Option<&Draft>| launch(args, &program, &config, server);
    if entries.is_empty() {
        return Ok((vec![Edit { name: ALL.to_owned(), launch: launch(None) }], Vec::new()));
    }
    let project = super::import::workspace(file);
    let around = Surroundings { env: &config::process_env, workspace: project.as_deref() };
    let (mut edits, mut left) = (Vec::new(), Vec::new());
    let import = clients::draft(entries, &around, &existing);
    for draft in &import.drafts {
        match obstacle(args, whose, draft) {
            None => edits.push(Edit { name: draft.original.clone(), launch: launch(Some(draft)) }),
            Some(why) => left.push((draft.original.clone(), why)),
        }
    }
    left.extend(import.refused.into_iter().map(|refused| (refused.name, refused.why)));
    Ok((edits, left))
}

/// Says why an entry cannot go through the gateway.
fn obstacle(args: &args::Connect, (loaded, id): (&Loaded, &PrincipalId), draft: &Draft) -> Option<String> {
    let settings = &loaded.settings;
    if !draft.already {
        let config = args.config.display();
        return Some(format!("{config} has no such server; take it over with portcullis import"));
    }
    if let Some((_, why)) = settings.disabled.iter().find(|(name, _)| *name == draft.name) {
        return Some(format!("server '{}' is disabled: {why}", draft.name));
    }
    if !settings.gateway.servers.iter().any(|server| server.name == draft.name) {
        return Some(format!("server '{}' is switched off", draft.name));
    }
    let principal = settings.gateway.principals.iter().find(|principal| principal.id == *id);
    let granted = principal.is_some_and(|principal| principal.granted.contains(&draft.name));
    (!granted).then(|| format!("no bundle grants server '{}' to principal '{id}'", draft.name))
}

/// How an entry reaches one server, or with `None` all of them.
fn launch(args: &args::Connect, program: &Path, config: &Path, server: Option<&Draft>) -> Launch {
    if let Some(url) = &args.url {
        let base = url.trim_end_matches('/');
        let base = base.strip_suffix("/mcp").unwrap_or(base);
        return Launch::Url(server.map_or_else(|| format!("{base}/mcp"), |draft| format!("{base}/mcp/{}", draft.name)));
    }
    let mut words = vec!["stdio".to_owned(), "--config".to_owned(), config.display().to_string()];
    if let Some(name) = &args.name {
        words.extend(["--as".to_owned(), name.clone()]);
    }
    if let Some(draft) = server {
        words.extend(["--server".to_owned(), draft.name.as_str().to_owned()]);
    }
    let variables = server.map(Draft::variables).unwrap_or_default();
    Launch::Program { program: program.display().to_string(), args: words, variables }
}

fn shown(launch: &Launch) -> String {
    match launch {
        Launch::Program { program, args, .. } => format!("{program} {}", args.join(" ")),
        Launch::Url(url) => url.clone(),
    }
}

fn undo(args: &args::Connect, file: &Path) -> Result<(), End> {
    let backup = Backup::of(file);
    if args.care.dry_run {
        let words = if backup.is_there() { "would be put back as it was" } else { "has nothing to undo" };
        say(&format!("{} {words}", file.display()));
        return Err(End::Nothing("nothing was changed"));
    }
    let undone = backup.undo(args.client).map_err(|err| End::Failed(err.to_string()))?;
    let name = file.display();
    match undone {
        Undone::Whole(true) => say(&format!("{name} is as it was, byte for byte")),
        Undone::Whole(false) => say(&format!("{name} is gone, as there was none")),
        Undone::Entries(left) => {
            say(&format!("{name} had changed since: its entries are as they were, all else was kept"));
            left.iter()
                .for_each(|entry| say(&format!("  {} was changed by somebody else and stays", entry.escape_debug())));
        }
    }
    Ok(())
}
