//! Which era a server speaks (protocol §2.8), and the two handshakes.
//!
//! Not for: keeping the finding. Invariant: an `initialize` is never answered by a probe's guess, and a recognised modern
//! error never leads to one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::HeaderValue;
use serde_json::Value;

use crate::exchange::Reject;
use crate::runtime::Tasks;
use crate::upstream::initialize as agreement;
use crate::upstream::link::{StartError, Started};
use crate::upstream::{EraChoice, Isolation, ServerSettings};
use crate::wire::bridge;
use crate::wire::jsonrpc::{ErrorObject, Message, RequestId, Response, code};
use crate::wire::mcp::{Capabilities, Era, Features, STATELESS_LATEST, name};

use super::session::{Session, SessionLink};
use super::sse;
use super::stateless::{self, StatelessLink};
use super::target::{Answered, Content, Target, Verb, messages};

/// What a request of the handshake was answered with.
struct Asked {
    status: StatusCode,
    session_id: Option<HeaderValue>,
    response: Option<Response>,
    /// The beginning of the body, if it was no answer.
    note: String,
}

enum Finding {
    /// Not stateless, or not to be told; with the reason.
    TryInitialize(String),
    Stateless(Capabilities),
}

/// Why there is no session.
pub(super) struct Refusal {
    pub(super) err: StartError,
    /// It was refused as a server of the HTTP+SSE transport does it.
    elsewhere: bool,
}

/// Opens a link in the era that is wanted.
pub(super) async fn open(
    target: Arc<Target>,
    tasks: Tasks,
    settings: Arc<ServerSettings>,
    (want, features): (Option<Era>, Features),
) -> Result<Started, StartError> {
    let probe_timeout = settings.probe_timeout;
    match (settings.era, want) {
        (EraChoice::Legacy, Some(Era::Stateless)) => {
            Err(StartError::Era(Era::Stateless, "configured as legacy".to_owned()))
        }
        (EraChoice::Stateless, Some(Era::Legacy)) => {
            Err(StartError::Era(Era::Legacy, "configured as stateless".to_owned()))
        }
        (EraChoice::Legacy | EraChoice::Auto, Some(Era::Legacy)) | (EraChoice::Legacy, None) => {
            legacy(target, tasks, settings, (features, want.is_some())).await
        }
        (EraChoice::Stateless, None | Some(Era::Stateless)) => {
            let can = match discover(&target, probe_timeout).await? {
                Finding::Stateless(can) => can,
                Finding::TryInitialize(why) => {
                    tracing::warn!(server = %target.name, why, "configured as stateless, but server/discover says else");
                    Capabilities::ASSUMED
                }
            };
            Ok(stateless(target, tasks, can))
        }
        (EraChoice::Auto, Some(Era::Stateless)) => match discover(&target, probe_timeout).await? {
            Finding::Stateless(can) => Ok(stateless(target, tasks, can)),
            Finding::TryInitialize(why) => Err(StartError::Era(Era::Stateless, why)),
        },
        (EraChoice::Auto, None) => match discover(&target, probe_timeout).await? {
            Finding::Stateless(can) => Ok(stateless(target, tasks, can)),
            Finding::TryInitialize(probed) => {
                legacy(target, tasks, settings, (features, false)).await.map_err(|err| match err {
                    StartError::Era(_, why) => {
                        StartError::Failed(format!("does not speak MCP: server/discover: {probed}; initialize: {why}"))
                    }
                    StartError::Failed(_) | StartError::Full(_) => err,
                })
            }
        },
    }
}

impl From<StartError> for Refusal {
    fn from(err: StartError) -> Self {
        Self { err, elsewhere: false }
    }
}

fn stateless(target: Arc<Target>, tasks: Tasks, can: Capabilities) -> Started {
    let link = Arc::new(StatelessLink::new(target, tasks));
    Started { link, can }
}

/// Opens a session. One that calls are made on has its stream first, where it may be asked; that of a list does not wait.
async fn legacy(
    target: Arc<Target>,
    tasks: Tasks,
    settings: Arc<ServerSettings>,
    (features, for_calls): (Features, bool),
) -> Result<Started, StartError> {
    let shared = settings.isolation() == Isolation::Shared;
    let (session, can) = match initialize(&target, &tasks, (1, 1), features).await {
        Ok(opened) => opened,
        // protocol §2.8: then it may be one of HTTP+SSE.
        Err(Refusal { err: StartError::Era(era, posted), elsewhere: true }) => {
            return sse::open(&target, settings, &tasks, features)
                .await
                .map_err(|other| StartError::Era(era, format!("{posted}; as an HTTP+SSE server it {other}")));
        }
        Err(refusal) => return Err(refusal.err),
    };
    let link = Arc::new(SessionLink::new(target, tasks, session, (features, shared)));
    // Shared, its stream is there for the refusals: what is not refused is waited for.
    if for_calls && features.may_be_asked() {
        link.listen_beside().await;
    }
    Ok(Started { link, can })
}

async fn discover(target: &Target, timeout: Duration) -> Result<Finding, StartError> {
    let body = bridge::own_request(0, "server/discover", Era::Stateless, &bridge::server_info(), "");
    let asked =
        match tokio::time::timeout(timeout, ask(target, &stateless::head(target, "server/discover"), body, 0)).await {
            Err(_) => return Ok(Finding::TryInitialize(format!("no answer within {} s", timeout.as_secs_f32()))),
            Ok(asked) => asked?,
        };
    let Asked { status, response, note, .. } = asked;
    let Some(response) = response else {
        if status.is_server_error() {
            return Err(failed_status(status, &note));
        }
        return Ok(Finding::TryInitialize(format!("HTTP {} {note}", status.as_u16())));
    };
    if let Some(result) = response.result() {
        let can = Capabilities::of_result(&result);
        let result: Value = serde_json::from_slice(&result).unwrap_or_default();
        return Ok(if lists_stateless(result.get("supportedVersions")) && status.is_success() {
            Finding::Stateless(can)
        } else {
            Finding::TryInitialize(format!("does not list {STATELESS_LATEST}"))
        });
    }
    let error = ErrorObject::read(&response.error().unwrap_or_default());
    let data: Value = error.data.as_ref().and_then(|data| serde_json::from_str(data.get()).ok()).unwrap_or_default();
    let modern = matches!(error.code, code::HEADER_MISMATCH | code::MISSING_CAPABILITY)
        || error.code == code::UNSUPPORTED_VERSION && lists_stateless(data.get("supported"));
    if modern && status == StatusCode::BAD_REQUEST {
        return Ok(Finding::Stateless(Capabilities::ASSUMED));
    }
    Ok(Finding::TryInitialize(format!(
        "HTTP {}, error {} {}",
        status.as_u16(),
        error.code.0,
        target.snippet(error.message.as_bytes())
    )))
}

/// Makes the handshake of a session: `initialize`, then `notifications/initialized` until it is acknowledged (FC-SES-08).
pub(super) async fn initialize(
    target: &Arc<Target>,
    tasks: &Tasks,
    (id, generation): (u64, u64),
    features: Features,
) -> Result<(Session, Capabilities), Refusal> {
    let body = bridge::own_request(id, "initialize", Era::Legacy, b"", &agreement::members(features));
    let asked = ask(target, &target.head(Verb::Post, &[]), body, id).await?;
    let code = asked.status.as_u16();
    // An answer to the very request is none of a server that takes requests elsewhere.
    let ours = |response: &Response| response.id.as_ref().and_then(|id| id.as_u64()) == Some(id);
    let elsewhere = matches!(code, 400 | 404 | 405) && !asked.response.as_ref().is_some_and(ours);
    let not_legacy = |why: String| Refusal { err: StartError::Era(Era::Legacy, why), elsewhere };
    let Some(response) = asked.response else {
        if asked.status.is_server_error() {
            return Err(failed_status(asked.status, &asked.note).into());
        }
        return Err(not_legacy(format!("HTTP {code} {}", asked.note)));
    };
    let Some(result) = response.result().filter(|_| asked.status.is_success()) else {
        let error = ErrorObject::read(&response.error().unwrap_or_default());
        let words = target.snippet(error.message.as_bytes());
        return Err(not_legacy(format!("HTTP {code}, error {} {words}", error.code.0)));
    };
    let (version, can) = agreement::agreed(&result).map_err(|version| {
        not_legacy(format!("initialize was answered with version '{}'", target.snippet(version.as_bytes())))
    })?;
    let session = Session::new(target, generation, asked.session_id, version);
    if let Err(err) = acknowledge(target, &session).await {
        drop(session.spawn_delete(target, tasks));
        return Err(err.into());
    }
    Ok((session, can))
}

async fn acknowledge(target: &Target, session: &Session) -> Result<(), StartError> {
    let body = Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let response = target.send(session.posting(), &body).await.map_err(failed)?;
    if response.status.is_success() {
        return Ok(());
    }
    Err(StartError::Failed(format!("refused notifications/initialized with HTTP {}", response.status.as_u16())))
}

/// Sends a request of a handshake and waits for its answer, whatever else comes first.
async fn ask(target: &Target, head: &[u8], body: Bytes, id: u64) -> Result<Asked, StartError> {
    let response = target.send(head, &body).await.map_err(failed)?;
    let status = response.status;
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return Err(StartError::Failed(format!("needs a credential: HTTP {}", status.as_u16())));
    }
    let visible = |value: &&[u8]| value.iter().all(u8::is_ascii_graphic) && !value.is_empty();
    let session_id = response.headers.get(name::SESSION_ID.as_str()).filter(visible);
    let session_id = session_id.and_then(|value| HeaderValue::from_bytes(value).ok()).map(|mut value| {
        value.set_sensitive(true);
        value
    });
    let Answered { content, .. } = target.read(response, None).await.map_err(failed)?;
    let (response, note) = match content {
        Content::Foreign(note) => (None, note),
        Content::Messages(all) => (answer(all, id, !status.is_success()), String::new()),
        // Nothing is passed on unseen in a handshake.
        Content::Unseen(_) => (None, "an answer that was not read".to_owned()),
        Content::Stream(mut reader) => loop {
            match reader.next().await.map_err(|err| failed(target.unreadable(&err)))? {
                None => break (None, "the event stream ended".to_owned()),
                Some(event) => {
                    let all = event.data.as_ref().filter(|_| event.is_message()).and_then(messages);
                    if let Some(response) = answer(all.unwrap_or_default(), id, false) {
                        break (Some(response), String::new());
                    }
                }
            }
        },
    };
    Ok(Asked { status, session_id, response, note })
}

/// Finds the answer; an error needs no id that is ours where the status says that it is one.
fn answer(all: impl IntoIterator<Item = Message>, id: u64, on_error_status: bool) -> Option<Response> {
    let id = RequestId::number(id);
    all.into_iter().find_map(|message| match message {
        Message::Response(response)
            if response.id.as_ref() == Some(&id)
                || response.error().is_some() && (on_error_status || response.id.is_none()) =>
        {
            Some(*response)
        }
        Message::Response(_) | Message::Request(_) | Message::Notification(_) => None,
    })
}

fn lists_stateless(versions: Option<&Value>) -> bool {
    let versions = versions.and_then(Value::as_array);
    versions.is_some_and(|all| all.iter().any(|version| version.as_str() == Some(STATELESS_LATEST.as_str())))
}

fn failed_status(status: StatusCode, note: &str) -> StartError {
    StartError::Failed(format!("answered HTTP {} {note}", status.as_u16()))
}

/// Says why a start failed, in words for the operator.
pub(super) fn failed(reject: Reject) -> StartError {
    StartError::Failed(if reject.detail.is_empty() {
        reject.public.into_owned()
    } else {
        format!("{}: {}", reject.public, reject.detail)
    })
}
