//! The keys of every section: those that are read, and those of the product that this version does not build.

pub(super) const ROOT: &[&str] = &["limits", "listen", "log", "mcp", "mcp_bundles", "policies", "principals", "state"];

pub(super) const LISTEN: &[&str] = &[
    "admin",
    "allowed_hosts",
    "allowed_origins",
    "auth",
    "health",
    "http",
    "http_sse",
    "public_url",
    "tls_cert",
    "tls_key",
];

pub(super) const MCP: &[&str] = &[
    "blob_paths",
    "blobs",
    "empty_allow",
    "enabled",
    "first_list_wait_secs",
    "login_path",
    "name_budget",
    "overflow",
    "servers",
];

pub(super) const SERVER: &[&str] = &[
    "allow_private_redirects",
    "args",
    "blobs",
    "command",
    "cwd",
    "enabled",
    "env",
    "era",
    "headers",
    "idle_stop_secs",
    "inherit_env",
    "inspect",
    "isolation",
    "max_concurrent_calls",
    "max_processes",
    "max_response_bytes",
    "name",
    "on_down",
    "probe_timeout_secs",
    "protocol",
    "rate",
    "required",
    "show_stderr",
    "start_timeout_secs",
    "tls_ca_cert_path",
    "tool_max_secs",
    "tool_timeout_secs",
    "transport",
    "url",
];

pub(super) const BUNDLE: &[&str] = &["exclude", "servers"];

pub(super) const PRINCIPAL: &[&str] = &["api_keys", "mcp_bundles", "policy"];

pub(super) const API_KEY: &[&str] = &["sha256"];

pub(super) const POLICY: &[&str] = &[
    "allowed_prompts",
    "allowed_resources",
    "allowed_tools",
    "auto_admit_mcp_tools",
    "blob_paths",
    "blobs",
    "deny_all_tools",
    "excluded_prompts",
    "excluded_resources",
    "excluded_tools",
    "expect",
    "max_concurrent_calls",
    "max_queued_calls",
    "max_result_chars",
    "overflow",
    "rate",
];
pub(super) const EXPECT: &[&str] = &["tool", "visible"];

pub(super) const LIMITS: &[&str] = &[
    "blob_item_bytes",
    "concurrency",
    "connections",
    "keep_alive_secs",
    "overflow_bytes",
    "overflow_disk",
    "overflow_secs",
    "parked_calls",
    "parked_calls_per_principal",
    "processes_per_principal",
    "question_secs",
    "rates",
    "request_body_bytes",
    "resume_bytes_per_session",
    "resume_bytes_per_stream",
    "resume_secs",
    "session_idle_secs",
    "sessions",
    "sessions_per_principal",
    "upload_bytes",
    "upload_secs",
    "write_timeout_secs",
];
pub(super) const CONCURRENCY: &[&str] = &["principal", "queued", "server", "tool"];
pub(super) const RATES: &[&str] = &["principal", "server", "tool"];

pub(super) const LOG: &[&str] = &["access", "format", "level"];

pub(super) const STATE: &[&str] = &["dir"];

/// What the product has and this version does not, in whichever table.
const LATER: &[&str] = &[
    "aliases",
    "allow",
    "allow_config_exposure",
    "always_ask",
    "annotations",
    "announce_changes",
    "approval",
    "approval_hold_secs",
    "arguments",
    "ask",
    "audit",
    "audit_keep_days",
    "auto_approve",
    "autonomy",
    "bind",
    "claims",
    "deferred_loading",
    "description_max_bytes",
    "external",
    "interactive",
    "leak_guard",
    "mark_untrusted",
    "max_calls",
    "max_queued_tasks",
    "max_running_tasks",
    "max_work_secs",
    "off",
    "on_audit_failure",
    "overrides",
    "pin_tools",
    "pinned_max_bytes",
    "pinned_resources",
    "required_scope",
    "resource_tools",
    "sandbox",
    "schema_profile",
    "scoped_tools",
    "scopes",
    "scrub",
    "self_start_gap_secs",
    "speak",
    "strict_arguments",
    "task_idle_secs",
    "tool_groups",
    "trust",
    "trust_task_id",
    "workflows",
    "world",
];

/// The tables that a key could have been meant for, and their heads.
const TABLES: &[(&str, &[&str])] = &[
    ("[listen]", LISTEN),
    ("[mcp]", MCP),
    ("[[mcp.servers]]", SERVER),
    ("[mcp_bundles.NAME]", BUNDLE),
    ("[principals.NAME]", PRINCIPAL),
    ("[policies.NAME]", POLICY),
    ("[limits]", LIMITS),
    ("[limits.concurrency]", CONCURRENCY),
    ("[limits.rates]", RATES),
    ("[log]", LOG),
    ("[state]", STATE),
];

/// How servers are written, for who knows them from another program's file.
pub(super) const SERVERS_HELP: &str = "write [[mcp.servers]] and name = \"NAME\" for each server";
/// How other programs name the list of servers.
const SERVERS: &[&str] = &["context_servers", "mcpServers", "mcp_servers", "server", "servers"];

/// Says whether a key at the top is another program's for our `[[mcp.servers]]`.
pub(super) fn means_servers(key: &str) -> bool {
    SERVERS.contains(&key)
}

/// Finds the table that has a key; `None` if no table has it, or more than one.
pub(super) fn home_of(key: &str) -> Option<&'static str> {
    let mut homes = TABLES.iter().filter(|(_, keys)| keys.contains(&key)).map(|(head, _)| *head);
    let first = homes.next()?;
    homes.next().is_none().then_some(first)
}

/// Says whether a later version has a key of that name, wherever it belongs then.
pub(super) fn is_later(key: &str) -> bool {
    LATER.contains(&key)
}
