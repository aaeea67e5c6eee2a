//! Starts servers once, to see whether they can be reached and what they can do [CFG-6].

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::app::AppError;
use crate::catalog::shown_name;
use crate::clock::Clock;
use crate::config;
use crate::gateway::GatewaySettings;
use crate::id::UpstreamName;
use crate::runtime::{self, Ready, Tasks};
use crate::upstream::{Grants, Phase, ServerSettings, TargetSet, TargetStatus};
use crate::wire::mcp::{Definition, Kind};

use super::confirm::End;

/// How long a server may take for start and list; `npx` may have to download it first.
const WAIT: Duration = Duration::from_secs(90);
/// How long servers have to end in order.
const CLOSE: Duration = Duration::from_secs(8);

/// What came of one server.
#[derive(Debug)]
pub(super) struct Tried {
    /// Its name.
    pub(super) name: UpstreamName,
    /// Its tools as shown, or why it cannot be reached.
    pub(super) outcome: Result<Vec<Tool>, String>,
}

/// A tool of it.
#[derive(Debug)]
pub(super) struct Tool {
    /// Its name as shown.
    pub(super) shown: String,
    /// Whether it may do harm [RSK-1].
    pub(super) high_risk: bool,
}

/// Tries servers side by side, and ends them.
pub(super) fn trial(servers: &[ServerSettings]) -> Result<Vec<Tried>, End> {
    let failed = |err: &dyn std::fmt::Display| End::Failed(err.to_string());
    let runtime = runtime::build().map_err(|err| failed(&format!("no runtime: {err}")))?;
    let tried = runtime.block_on(async {
        // Listened to before anything is started: until then an interrupt would end this process alone.
        let mut interrupt =
            signal(SignalKind::interrupt()).map_err(|err| failed(&format!("signals cannot be heard: {err}")))?;
        let tasks = Tasks::new();
        let set = TargetSet::new(servers, &tasks, &Clock::real(), &config::base_env());
        let set = set.map_err(|err| failed(&AppError::from(err)))?;
        // Nobody calls them.
        set.start(|_| Grants::Several, &Ready::new());
        let settled = futures_util::future::join_all(
            set.iter().map(|server| async { tokio::time::timeout(WAIT, server.settled()).await.is_ok() }),
        );
        // Children have groups of their own: an interrupt reaches this process alone, and it ends them.
        let interrupted = tokio::select! {
            _ = settled => false,
            _ = interrupt.recv() => true,
        };
        let tried = set
            .iter()
            .map(|server| Tried { name: server.name().clone(), outcome: outcome(server.name(), server.status()) });
        let tried: Vec<_> = tried.collect();
        let _closed = tokio::time::timeout(CLOSE, set.close()).await.is_ok();
        tasks.cancel();
        if interrupted { Err(End::Failed("interrupted: nothing is saved".to_owned())) } else { Ok(tried) }
    });
    // A child that does not end in time is no reason to wait for ever.
    runtime.shutdown_timeout(CLOSE);
    tried
}

fn outcome(server: &UpstreamName, status: TargetStatus) -> Result<Vec<Tool>, String> {
    match (status.phase, status.lists) {
        (Phase::Ready, lists) => {
            let tools = lists.unwrap_or_default();
            Ok(tools.of(Kind::Tools).iter().map(|tool| judge(server, tool)).collect())
        }
        (Phase::Down(cause), _) => Err(cause),
        (Phase::Starting, _) => Err(format!("did not answer within {} seconds", WAIT.as_secs())),
    }
}

fn judge(server: &UpstreamName, tool: &Definition) -> Tool {
    let shown = shown_name(server, &tool.name, GatewaySettings::NAME_BUDGET);
    Tool { shown, high_risk: is_high_risk(&tool.raw) }
}

/// A tool is high-risk unless its annotations say `readOnlyHint: true` or `destructiveHint: false` [RSK-1].
fn is_high_risk(definition: &[u8]) -> bool {
    let definition: serde_json::Value = serde_json::from_slice(definition).unwrap_or_default();
    let hint = |name: &str| definition.pointer(&format!("/annotations/{name}")).and_then(serde_json::Value::as_bool);
    hint("readOnlyHint") != Some(true) && hint("destructiveHint") != Some(false)
}

#[cfg(test)]
mod tests {
    use super::is_high_risk;

    /// [RSK-1]
    #[test]
    fn without_a_good_word_a_tool_is_high_risk() {
        for (annotations, risky) in [
            ("", true),
            (r#","annotations":{}"#, true),
            (r#","annotations":{"readOnlyHint":true}"#, false),
            (r#","annotations":{"destructiveHint":false}"#, false),
            (r#","annotations":{"readOnlyHint":false,"destructiveHint":true}"#, true),
            (r#","annotations":{"readOnlyHint":"true"}"#, true),
            (r#","annotations":null"#, true),
        ] {
            let definition = format!(r#"{{"name":"x","inputSchema":{{"type":"object"}}{annotations}}}"#);
            assert_eq!(is_high_risk(definition.as_bytes()), risky, "{annotations}");
        }
    }
}
