//! Opens a session: the event stream, the URL that its first event names, and the handshake.
//!
//! Not for: limits of time; the connector has them.

use std::sync::Arc;

use bytes::Bytes;
use http::{StatusCode, Uri};

use crate::exchange::{Answer, Reject, ReplyBody};
use crate::net::{resolve, same_origin};
use crate::runtime::Tasks;
use crate::upstream::channel::Conversation;
use crate::upstream::initialize;
use crate::upstream::link::{Outgoing, StartError, Started};
use crate::upstream::{Isolation, ServerSettings};
use crate::wire::jsonrpc::{ErrorObject, Response};
use crate::wire::mcp::{Capabilities, Era, Features};

use super::super::probe::failed;
use super::super::reader::EventReader;
use super::super::target::{Target, Verb};
use super::link::SseLink;
use super::session::Session;

/// Opens a session.
///
/// # Cancel safety
/// Dropping the future closes the stream.
pub(in crate::upstream::http) async fn open(
    target: &Target,
    settings: Arc<ServerSettings>,
    tasks: &Tasks,
    features: Features,
) -> Result<Started, StartError> {
    // One that principals share could ask one of them what belongs to another's call.
    let features = if settings.isolation() == Isolation::Shared { Features::NONE } else { features };
    let (mut reader, at) = stream(target).await?;
    let endpoint = endpoint(target, &mut reader, &at).await?;
    let conversation = Arc::new(Conversation::new(settings, features));
    let endpoint = target.at(&endpoint);
    let posting = endpoint.head(Verb::Post, &[]);
    let session = Arc::new(Session::new(conversation, endpoint, posting));
    // Its drop ends both tasks.
    let link = Arc::new(SseLink(Arc::clone(&session)));
    tasks.spawn("sse read", Arc::clone(&session).read_loop(reader));
    tasks.spawn("sse write", Arc::clone(&session).control_loop());
    let can = handshake(&session).await?;
    Ok(Started { link, can })
}

/// Opens the event stream; returns where it is, if it was redirected.
async fn stream(target: &Target) -> Result<(EventReader, Uri), StartError> {
    let (response, at) = target.send_from(&target.head(Verb::Get, &[]), Bytes::new()).await.map_err(failed)?;
    let code = response.status.as_u16();
    if matches!(response.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return Err(StartError::Failed(format!("needs a credential: HTTP {code}")));
    }
    // Where another origin has had a say, it would choose where the configured headers are sent to.
    let Some(at) = at else {
        return Err(StartError::Failed("is redirected over another origin, which may not name an endpoint".to_owned()));
    };
    match target.shared_events(response).map_err(failed)? {
        Some(reader) => Ok((reader, at)),
        None => Err(StartError::Failed(format!("answered GET with HTTP {code} and no event stream"))),
    }
}

/// Waits for the event that names where messages are posted to, which must be the first.
async fn endpoint(target: &Target, reader: &mut EventReader, at: &Uri) -> Result<Uri, StartError> {
    let refused = |words: &str| StartError::Failed(words.to_owned());
    let data = loop {
        let event = reader.next().await.map_err(|err| failed(target.unreadable(&err)))?;
        let Some(event) = event else { return Err(refused("ended its event stream before it named an endpoint")) };
        match (event.event.as_deref(), event.data) {
            (Some("endpoint"), data) => break data.unwrap_or_default(),
            // An id or a delay alone.
            (None, None) if event.too_large.is_none() => {}
            (None | Some(_), _) => return Err(refused("began its event stream with another event than 'endpoint'")),
        }
    };
    // It holds the session's id, so it is not repeated.
    let Some(endpoint) = resolve(at, &data) else { return Err(refused("named an endpoint that is no URL")) };
    if !same_origin(target.uri(), &endpoint) {
        return Err(refused("named an endpoint of another origin than its url, which is refused"));
    }
    Ok(endpoint)
}

async fn handshake(session: &Arc<Session>) -> Result<Capabilities, StartError> {
    let conversation = &session.conversation;
    conversation.initializing();
    let members = initialize::members(conversation.features());
    let response = ask(session, Outgoing::Own { method: "initialize", members }).await.map_err(failed)?;
    let Some(result) = response.result() else {
        let error = ErrorObject::read(&response.error().unwrap_or_default());
        let words = format!(
            "refuses initialize: error {} {}",
            error.code.0,
            session.endpoint.snippet(error.message.as_bytes())
        );
        return Err(StartError::Failed(words));
    };
    let (_, can) = initialize::agreed(&result).map_err(|version| {
        let version = session.endpoint.snippet(version.as_bytes());
        StartError::Failed(format!("answers initialize with the unknown protocol version '{version}'"))
    })?;
    conversation.settle(Era::Legacy);
    session.notify(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await.map_err(failed)?;
    Ok(can)
}

/// Sends a request of the gateway's own, before which nothing comes.
async fn ask(session: &Arc<Session>, outgoing: Outgoing) -> Result<Response, Reject> {
    let nothing = || session.conversation.reject(crate::exchange::RejectKind::Upstream, "sent no answer");
    match Arc::clone(session).request(outgoing).await.into_parts().0 {
        ReplyBody::Done(outcome) => match (*outcome)? {
            Answer::Upstream { response, .. } => Ok(*response),
            Answer::Discovery(_) | Answer::Ended | Answer::InputRequired(_) | Answer::Page(_) | Answer::Unseen(_) => {
                Err(nothing())
            }
        },
        ReplyBody::Events(_) => Err(nothing()),
    }
}
