//! The JSON Schema of the configuration file, for editors [CFG].
//!
//! Not for: checking, which the reader does with better words and more rules. Invariant: the schema has the keys of `keys`
//! and no others, which a test proves; limits and defaults are those of the settings' types.

use serde_json::{Map, Value, json};

use crate::blob::BlobSettings;
use crate::downstream::DownstreamSettings;
use crate::gateway::GatewaySettings;
use crate::id::UPSTREAM_NAME_MAX;
use crate::limit::Concurrency;
use crate::upstream::{ServerSettings, TargetSet};
use crate::wire::mcp::ProtocolVersion;

use super::caps;
use super::limits::{CALLS_MAX, QUEUED_MAX};
use super::listener::PROCESSES;

/// The keys of one table with their schemas.
type Rows = Vec<(&'static str, Value)>;

/// Returns the schema of `portcullis.toml`. `$defs` holds each kind of table; a file of `policies/` is a `policy`.
#[must_use]
pub fn schema() -> Value {
    let mut schema = table(root(), &[], "The configuration of Portcullis.");
    if let Some(members) = schema.as_object_mut() {
        members.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        members.insert("title".to_owned(), json!("portcullis.toml"));
        members.insert(
            "$defs".to_owned(),
            json!({
                "api_key": table(api_key(), &["sha256"], "One API key of a principal."),
                "concurrency": table(concurrency(), &[], "How many calls may be under way at once."),
                "bundle": table(bundle(), &[], "Servers that are granted together."),
                "expect": table(expect(), &["tool", "visible"], "What a policy must do with a tool."),
                "limits": table(limits(), &[], "Bounds on what clients may take."),
                "listen": table(listen(), &[], "Where and for whom the gateway listens."),
                "log": table(log(), &[], "The log on stderr."),
                "mcp": table(mcp(), &[], "The servers, and what holds for all of them."),
                "policy": table(policy(), &[], "What a principal may use of what its bundles grant."),
                "principal": table(principal(), &[], "Somebody who calls."),
                "rates": table(rates(), &[], "How often a principal may ask; each has rates of its own."),
                "server": server_table(),
                "state": table(state(), &[], "What outlives the process."),
            }),
        );
    }
    schema
}

pub(super) fn root() -> Rows {
    vec![
        ("limits", reference("limits")),
        ("listen", reference("listen")),
        ("log", reference("log")),
        ("mcp", reference("mcp")),
        ("mcp_bundles", named("bundle", "Bundles by name; the only way from a principal to a server.")),
        ("policies", named("policy", "Policies by name; others may stand in policies/NAME.toml beside the file.")),
        ("principals", named("principal", "Principals by name; 'local' is whoever calls without a key.")),
        ("state", reference("state")),
    ]
}

pub(super) fn listen() -> Rows {
    let one = json!({ "enum": ["keys", "none"] });
    let auth = json!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1, "maxItems": 1 }] });
    let http = addresses(&DownstreamSettings::default());
    vec![
        ("admin", with(one_or_more("Where /healthz and /readyz are, as 127.0.0.1:7801."), "default", "127.0.0.1:7801")),
        ("allowed_hosts", texts("Host names beyond loopback that Host may carry, without port.")),
        ("allowed_origins", texts("Origins that a browser page may have, as https://app.example.com.")),
        ("auth", describe(auth, "How callers are known: keys, or none on loopback, where everybody is 'local'.")),
        (
            "health",
            one_or_more("Where /healthz and /readyz are too, for probes from outside the pod, as 0.0.0.0:7802."),
        ),
        (
            "http",
            with(
                one_or_more("Where clients connect, as 127.0.0.1:7800, localhost:7800 or unix:PATH."),
                "default",
                http,
            ),
        ),
        (
            "http_sse",
            flag(
                false,
                "Whether /sse and /sse/SERVER are there too, for clients that know HTTP+SSE of 2024-11-05 alone.",
            ),
        ),
        (
            "public_url",
            text(
                "The gateway's URL as clients behind another proxy see it, as https://example.com/tools: /sse names its path.",
            ),
        ),
        ("tls_cert", text("The certificate and its chain in PEM form; read again when it changes.")),
        ("tls_key", text("Its private key in PEM form, not encrypted.")),
    ]
}

fn addresses(settings: &DownstreamSettings) -> Value {
    settings.addresses.iter().map(ToString::to_string).collect()
}

pub(super) fn limits() -> Rows {
    let door = DownstreamSettings::default();
    let question = door.question.as_secs();
    let (alive, idle, kept) = (door.keep_alive.as_secs(), door.session_idle.as_secs(), door.replay.time.as_secs());
    let write = door.write_timeout.as_secs();
    let count = |most: u64, default: usize, words| number(1, most, json!(default), words);
    let blob = BlobSettings::default();
    let secs = |default: std::time::Duration, words| number(1, caps::SECS_MAX, json!(default.as_secs()), words);
    let overflow = "All that was cut of results and can still be read, of all principals.";
    vec![
        (
            "blob_item_bytes",
            count(BlobSettings::ITEM_BYTES_MAX as u64, blob.item_bytes_max, "The largest attachment, decoded."),
        ),
        ("concurrency", reference("concurrency")),
        ("connections", count(1_000_000, door.connections_max, "The most client connections at once.")),
        ("keep_alive_secs", number(1, 3_600, json!(alive), "The pause after which a silent stream gets a comment.")),
        ("overflow_bytes", count(caps::BYTES_MAX, blob.overflow_bytes_max, overflow)),
        ("overflow_disk", flag(blob.overflow_disk, "Whether it is kept in files of the state folder, not in memory.")),
        ("overflow_secs", secs(blob.overflow_age, "How long it can be read.")),
        ("parked_calls", count(100_000, door.parked_max, "The most calls that wait for a stateless client's answers.")),
        (
            "parked_calls_per_principal",
            count(100_000, door.parked_per_principal_max, "The most such calls of one principal."),
        ),
        (
            "processes_per_principal",
            count(
                PROCESSES,
                TargetSet::PROCESSES_PER_PRINCIPAL,
                "The most processes of one principal, over all servers; an idle one makes room, else a call is refused.",
            ),
        ),
        ("question_secs", number(1, 3_600, json!(question), "How long a client may take to answer a server.")),
        ("rates", reference("rates")),
        ("request_body_bytes", count(1 << 32, door.body_bytes_max, "The largest request body.")),
        (
            "resume_bytes_per_session",
            count(
                1 << 30,
                door.replay.session_bytes,
                "The most bytes kept of a session's calls for a lost connection.",
            ),
        ),
        (
            "resume_bytes_per_stream",
            count(
                1 << 30,
                door.replay.stream_bytes,
                "The most bytes kept of one call; a larger answer becomes an error.",
            ),
        ),
        ("resume_secs", number(1, 3_600, json!(kept), "How long they are kept once the call is over.")),
        ("session_idle_secs", number(1, 604_800, json!(idle), "How long a session may be idle.")),
        ("sessions", count(1_000_000, door.sessions_max, "The most sessions, and streams that count as one, in all.")),
        ("sessions_per_principal", count(1_000_000, door.sessions_per_principal_max, "The most of one principal.")),
        (
            "upload_bytes",
            number(
                1,
                caps::BYTES_MAX,
                json!(blob.upload_bytes_max),
                "All attachments of one principal in files; the oldest go.",
            ),
        ),
        ("upload_secs", secs(blob.upload_age, "How long such a file is kept.")),
        ("write_timeout_secs", number(1, 3_600, json!(write), "How long a client may take nothing of its answer.")),
    ]
}

pub(super) fn concurrency() -> Rows {
    let calls = |words| without_default(1, CALLS_MAX, words);
    let queued = number(0, QUEUED_MAX, json!(Concurrency::QUEUED), "How many calls of one principal wait for a turn.");
    vec![
        ("principal", calls("Calls of one principal.")),
        ("queued", queued),
        ("server", calls("Calls at one server, of all principals together.")),
        ("tool", calls("Calls of one tool, of all principals together.")),
    ]
}

pub(super) fn rates() -> Rows {
    vec![
        ("principal", rate("Requests of one principal, as 600/min or 600/min burst 50.")),
        ("server", rate("Calls of one principal to one server.")),
        ("tool", rate("Calls of one principal to one tool.")),
    ]
}

pub(super) fn log() -> Rows {
    vec![
        ("access", flag(false, "Whether every request writes a line; a refusal always does.")),
        ("format", choice(&["json", "text"], None, "How lines look; by default text on a terminal, else json.")),
        ("level", with(text("A level, or directives as info,portcullis::upstream=debug."), "default", "info")),
    ]
}

pub(super) fn state() -> Rows {
    vec![(
        "dir",
        text(
            "The private folder for it; by default $PORTCULLIS_STATE_DIR, $XDG_STATE_HOME/portcullis or \
             ~/.local/state/portcullis.",
        ),
    )]
}

pub(super) fn mcp() -> Rows {
    let (budget, wait) = (GatewaySettings::NAME_BUDGET, GatewaySettings::FIRST_LIST_WAIT.as_secs());
    let servers = json!({ "type": "array", "items": reference("server") });
    vec![
        ("blob_paths", blob_paths()),
        ("blobs", blobs()),
        ("empty_allow", choice(&["all", "none"], Some("all"), "What an empty allowed_tools means.")),
        ("enabled", flag(true, "false: no server is connected.")),
        ("first_list_wait_secs", number(0, 60, json!(wait), "How long a list waits for servers still starting.")),
        (
            "login_path",
            flag(
                true,
                "Whether programs are looked up in the login shell's PATH where the gateway has no terminal and a \
                 system's short PATH.",
            ),
        ),
        ("name_budget", number(1, 64, json!(budget), "The longest shown name, in bytes.")),
        ("overflow", overflow()),
        ("servers", describe(servers, "The servers, in the order in which their tools are listed.")),
    ]
}

fn server_table() -> Value {
    let schema = table(server(), &["name"], "One server. To be used it must be in a bundle of a principal.");
    with(schema, "anyOf", json!([{ "required": ["command"] }, { "required": ["url"] }]))
}

pub(super) fn server() -> Rows {
    let bytes = ServerSettings::MAX_RESPONSE_BYTES;
    let versions = ProtocolVersion::SUPPORTED.map(ProtocolVersion::as_str);
    let name = json!({ "type": "string", "minLength": 1, "maxLength": UPSTREAM_NAME_MAX });
    let secs = |key: &'static str, most: u64, default: u64, words| (key, number(1, most, json!(default), words));
    vec![
        ("allow_private_redirects", flag(false, "Whether a redirect may lead to a private address elsewhere.")),
        ("args", texts("The program's arguments. No reference is expanded: argv is public.")),
        ("blobs", blobs()),
        ("command", text("The program: a path, or a name looked up in PATH.")),
        ("cwd", text("The program's working folder.")),
        ("enabled", flag(true, "false: as if it were not granted.")),
        ("env", values("Variables of the program; values may be ${env:NAME} or ${file:PATH}.")),
        ("era", choice(&["auto", "legacy", "stateless"], Some("auto"), "Which era to speak; auto finds out.")),
        ("headers", values("Headers for the server; values may be ${env:NAME} or ${file:PATH}.")),
        secs(
            "idle_stop_secs",
            604_800,
            ServerSettings::IDLE_STOP.as_secs(),
            "How long a process, or a session of HTTP+SSE, may be unused until it is ended; 0: never.",
        ),
        ("inherit_env", texts("Names of variables that pass from the gateway to the program.")),
        ("inspect", choice(&["off", "on"], Some("on"), "off: large answers are passed on as they come, unseen.")),
        (
            "isolation",
            choice(
                &["principal", "session", "shared"],
                None,
                "Who owns a connection; by default principal for a command, session for a url.",
            ),
        ),
        (
            "max_concurrent_calls",
            without_default(1, CALLS_MAX, "Calls at once, of all; else limits.concurrency.server."),
        ),
        (
            "max_processes",
            number(
                1,
                PROCESSES,
                json!(ServerSettings::MAX_PROCESSES),
                "The most processes at once; an idle one makes room, else a call is refused. Of several principals one has at most half of what the others leave.",
            ),
        ),
        ("max_response_bytes", number(0, 1 << 32, json!(bytes), "The largest answer; 0 means the default.")),
        ("name", describe(name, "Its name: A-Z a-z 0-9 _ . -")),
        ("on_down", choice(&["hide", "keep"], Some("keep"), "What happens to its tools while it is down.")),
        secs("probe_timeout_secs", 86_400, 5, "How long it may be silent when asked for its era."),
        ("protocol", choice(&versions, None, "The revision it speaks; skips the probe.")),
        ("rate", rate("Calls of one principal to this server; else limits.rates.server.")),
        ("required", flag(false, "Whether /readyz waits for it, and a missing secret fails the start.")),
        ("show_stderr", flag(false, "Whether errors show a principal the last lines of the program's stderr.")),
        secs("start_timeout_secs", 86_400, 60, "The time from start to the end of the handshake."),
        ("tls_ca_cert_path", text("Authorities in PEM form that are trusted beside the machine's; then https alone.")),
        secs("tool_max_secs", 86_400, 600, "The longest time of one call, however much progress it reports."),
        secs("tool_timeout_secs", 600, 60, "The time of one call without progress."),
        (
            "transport",
            choice(
                &["http", "sse", "stdio"],
                None,
                "By default stdio with a command, http with a url; http finds out whether it is sse, HTTP+SSE of 2024-11-05.",
            ),
        ),
        (
            "url",
            text("The endpoint, as https://HOST/PATH or http://HOST:PORT/PATH; may hold ${env:NAME} or ${file:PATH}."),
        ),
    ]
}

pub(super) fn bundle() -> Rows {
    vec![
        ("exclude", texts("Servers that no bundle of the same principal grants: deny wins.")),
        ("servers", texts("Servers that are granted.")),
    ]
}

pub(super) fn principal() -> Rows {
    let keys = json!({ "type": "array", "items": reference("api_key") });
    vec![
        ("api_keys", describe(keys, "Its keys; portcullis key new NAME makes one.")),
        ("mcp_bundles", texts("Its bundles.")),
        ("policy", text("Its policy; without one it may use all that its bundles grant.")),
    ]
}

pub(super) fn api_key() -> Rows {
    let digest = json!({ "type": "string", "minLength": 64, "maxLength": 64 });
    vec![("sha256", describe(digest, "The SHA-256 of the key in hexadecimal digits, not the key."))]
}

pub(super) fn policy() -> Rows {
    let expect = json!({ "type": "array", "items": reference("expect") });
    vec![
        ("allowed_prompts", texts("Names, or prefixes with a final *. If it is not empty, these prompts alone.")),
        (
            "allowed_resources",
            texts("URIs as shown, or <server>__<uri>, or prefixes with a final *. If it is not empty, these alone."),
        ),
        ("allowed_tools", texts("Names, or prefixes with a final *. If it is not empty, these tools alone.")),
        ("auto_admit_mcp_tools", flag(false, "Whether a non-empty allowed_tools lets in what it does not name too.")),
        ("blob_paths", blob_paths()),
        ("blobs", blobs()),
        ("deny_all_tools", flag(false, "Nothing at all.")),
        ("excluded_prompts", texts("Names, or prefixes with a final *. They win over allowed_prompts.")),
        (
            "excluded_resources",
            texts("URIs as shown, or <server>__<uri>, or prefixes with a final *. They win over allowed_resources."),
        ),
        ("excluded_tools", texts("Names, or prefixes with a final *. They win over allowed_tools.")),
        ("expect", describe(expect, "What check holds the policy to.")),
        (
            "max_concurrent_calls",
            without_default(1, CALLS_MAX, "Calls of each principal at once; else limits.concurrency."),
        ),
        (
            "max_queued_calls",
            without_default(0, QUEUED_MAX, "Calls that wait for a turn; else limits.concurrency.queued."),
        ),
        (
            "max_result_chars",
            number(0, caps::RESULT_CHARS_MAX, json!(0), "The most characters of text in a result; 0: no cap."),
        ),
        ("overflow", overflow()),
        ("rate", rate("Requests of each principal; else limits.rates.principal.")),
    ]
}

fn blobs() -> Value {
    choice(&["file", "link", "pass"], Some("pass"), "What becomes of images and other base64 in results.")
}

fn blob_paths() -> Value {
    flag(false, "Whether blobs = \"file\" gives paths to clients other than the one that starts the gateway.")
}

fn overflow() -> Value {
    choice(&["drop", "link"], Some("link"), "What becomes of the rest of a text that was cut.")
}

pub(super) fn expect() -> Rows {
    vec![
        ("tool", text("A tool by its shown name.")),
        ("visible", describe(json!({ "type": "boolean" }), "Whether the policy lets it be seen.")),
    ]
}

fn table(rows: Rows, required: &[&str], words: &str) -> Value {
    let properties: Map<String, Value> = rows.into_iter().map(|(key, schema)| (key.to_owned(), schema)).collect();
    let mut schema = json!({ "type": "object", "additionalProperties": false, "properties": properties });
    if !required.is_empty() {
        schema = with(schema, "required", json!(required));
    }
    describe(schema, words)
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

fn named(name: &str, words: &str) -> Value {
    describe(json!({ "type": "object", "additionalProperties": reference(name) }), words)
}

fn values(words: &str) -> Value {
    describe(json!({ "type": "object", "additionalProperties": { "type": "string" } }), words)
}

fn text(words: &str) -> Value {
    describe(json!({ "type": "string" }), words)
}

fn texts(words: &str) -> Value {
    describe(json!({ "type": "array", "items": { "type": "string" } }), words)
}

fn one_or_more(words: &str) -> Value {
    let list = json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 });
    describe(json!({ "anyOf": [{ "type": "string" }, list] }), words)
}

fn flag(default: bool, words: &str) -> Value {
    describe(json!({ "type": "boolean", "default": default }), words)
}

fn rate(words: &str) -> Value {
    text(words)
}

fn without_default(least: u64, most: u64, words: &str) -> Value {
    describe(json!({ "type": "integer", "minimum": least, "maximum": most }), words)
}

fn number(least: u64, most: u64, default: Value, words: &str) -> Value {
    let schema = json!({ "type": "integer", "minimum": least, "maximum": most });
    describe(with(schema, "default", default), words)
}

fn choice(known: &[&str], default: Option<&str>, words: &str) -> Value {
    let schema = describe(json!({ "enum": known }), words);
    match default {
        Some(default) => with(schema, "default", default),
        None => schema,
    }
}

fn describe(schema: Value, words: &str) -> Value {
    with(schema, "description", words)
}

fn with(mut schema: Value, key: &str, value: impl Into<Value>) -> Value {
    if let Some(members) = schema.as_object_mut() {
        members.insert(key.to_owned(), value.into());
    }
    schema
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
