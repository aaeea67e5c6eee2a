//! A gateway without doors: the whole hall in this process, for a command that asks something and ends.
//!
//! Not for: arguments or output (`cli`). Invariant: every list and call goes through [`Handler`], as a client's does.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::blob::Blobs;
use crate::clock::Clock;
use crate::exchange::{
    Answer, Call, Caller as _, ClientFacts, Endpoint, Event, Exchange, Handler as _, Outcome, Owner, ReasonCode,
    Reject, RejectKind, Reply, ServerCall, Told,
};
use crate::gateway::{Gateway, GatewaySettings, Identified};
use crate::id::{PrincipalId, UpstreamName};
use crate::runtime::{Ready, Tasks};
use crate::upstream::{Grants, TargetSet, TargetStatus};
use crate::wire::bridge;
use crate::wire::json;
use crate::wire::jsonrpc::{Decoded, Limits, Message, Request, Response, decode};
use crate::wire::mcp::{CallParams, Definition, Kind, Method, RequestMeta, STATELESS_LATEST, Target};

use super::AppError;

/// How long servers have to end in order: stdin, TERM, KILL.
const CLOSE_GRACE: Duration = Duration::from_secs(8);

/// A hall without doors, and the servers it needs.
#[derive(Debug)]
pub struct Local {
    gateway: Arc<Gateway>,
    targets: Arc<TargetSet>,
    tasks: Tasks,
}

/// Why a request did not get its answer.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The request cannot be read.
    #[error("the request cannot be read: {0}")]
    Malformed(String),
    /// It was refused.
    #[error("{}", .0.public)]
    Refused(Reject),
}

// === impl Local ===

impl Local {
    /// Builds the hall and starts the servers that are needed, for one principal if they are to be called; no other is built.
    /// Needs a runtime.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn start(
        mut settings: GatewaySettings,
        base_env: &Arc<[(OsString, OsString)]>,
        needed: &BTreeSet<UpstreamName>,
        principal: Option<&PrincipalId>,
    ) -> Result<Self, AppError> {
        settings.servers.retain(|server| needed.contains(&server.name));
        // An answer is read whole here.
        settings.servers.iter_mut().for_each(|server| server.inspect = true);
        let (tasks, clock) = (Tasks::new(), Clock::real());
        let targets = Arc::new(TargetSet::new(&settings.servers, &tasks, &clock, base_env)?);
        let gateway = Gateway::new(settings, Arc::clone(&targets), Blobs::new(None, None, &clock), &tasks, clock)?;
        // Nobody else is served here, so that the child a list is read from is its own.
        let grants = principal.map_or(Grants::Several, |principal| Grants::One(principal.clone()));
        targets.start(|_| grants.clone(), &Ready::new());
        Ok(Self { gateway, targets, tasks })
    }

    /// Returns the hall.
    #[must_use]
    pub const fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Waits until no server is starting any more, and the hall knows it. Each server's own limits bound this.
    pub async fn settled(&self) {
        futures_util::future::join_all(self.targets.iter().map(|server| server.settled())).await;
        let news = *self.targets.news().borrow();
        self.gateway.caught_up(news).await;
    }

    /// Returns what is known of a server; `None` if it was not needed.
    #[must_use]
    pub fn status(&self, server: &UpstreamName) -> Option<TargetStatus> {
        self.targets.get(server).map(|server| server.status())
    }

    /// Names a server's transport as it is spoken; `None` if it was not needed.
    #[must_use]
    pub fn transport(&self, server: &UpstreamName) -> Option<&'static str> {
        self.targets.get(server).map(|server| server.transport())
    }

    /// Lists what a caller sees of a kind; nothing where no server has any.
    ///
    /// # Errors
    /// The hall's refusal.
    pub async fn list(&self, caller: &Identified, kind: Kind) -> Result<Vec<Definition>, LocalError> {
        let (mut items, mut cursor) = (Vec::new(), None);
        loop {
            let call = Call::List { kind, cursor, told: Told::default() };
            let page = match outcome(self.ask(caller, call).await, &mut |_| {}).await {
                Ok(Answer::Page(page)) => page,
                Err(reject) if reject.kind == RejectKind::MethodNotFound => return Ok(items),
                Err(reject) => return Err(LocalError::Refused(reject)),
                Ok(_) => return Err(no_answer()),
            };
            let list = json::elements(&page.items).map_err(|err| LocalError::Malformed(err.to_string()))?;
            items.extend(list.into_iter().filter_map(|at| Definition::read(kind, page.items.slice(at)).ok()));
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(items);
            }
        }
    }

    /// Sends a request that one server answers, whole and of the newest revision; `progress` hears of the server's notifications.
    ///
    /// # Errors
    /// The request is malformed, or refused.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call at the server.
    pub async fn call(
        &self,
        caller: &Identified,
        request: Bytes,
        progress: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<Response, LocalError> {
        let call = Call::ToServer(Arc::new(server_call(&request).map_err(LocalError::Malformed)?));
        match outcome(self.ask(caller, call).await, progress).await.map_err(LocalError::Refused)? {
            Answer::Upstream { response, .. } => Ok(response.settled()),
            Answer::Discovery(_) | Answer::Ended | Answer::InputRequired(_) | Answer::Page(_) | Answer::Unseen(_) => {
                Err(no_answer())
            }
        }
    }

    /// Ends every server in order.
    pub async fn close(self) {
        let closed = tokio::time::timeout(CLOSE_GRACE, self.targets.close()).await.is_ok();
        self.tasks.cancel();
        self.tasks.wait().await;
        tracing::debug!(closed, "the servers of this command have ended");
    }

    async fn ask(&self, caller: &Identified, call: Call) -> Reply {
        let owner = Owner::principal(caller.principal().clone());
        let client = ClientFacts::new(STATELESS_LATEST, Some(bridge::server_info()), Bytes::from_static(b"{}"));
        let exchange = Exchange { endpoint: Endpoint::All, client, owner, call };
        self.gateway.call(caller.clone(), exchange).await
    }
}

fn server_call(raw: &Bytes) -> Result<ServerCall, String> {
    let request: Request = match decode(raw, &Limits::DOWNSTREAM) {
        Ok(Decoded::One(Message::Request(request))) => request,
        Ok(Decoded::Batch(_) | Decoded::One(Message::Notification(_) | Message::Response(_))) => {
            return Err("not one request".to_owned());
        }
        Err(err) => return Err(err.kind.to_string()),
    };
    let method = Method::from_name(&request.method).filter(|method| method.spec().target != Target::None);
    let method = method.ok_or("no method that a server answers")?;
    let params = request.params.as_deref().ok_or("no params")?;
    let params = CallParams::read(method, params).map_err(|err| err.to_string())?;
    let meta = RequestMeta::read(request.params.as_deref()).map_err(|err| err.to_string())?;
    // Nobody stands between this caller and the hall whose headers could disagree with the body.
    Ok(ServerCall { request, params, meta, param_headers: None, trace: None })
}

/// Reads a reply to its end.
async fn outcome(reply: Reply, progress: &mut (dyn FnMut(&[u8]) + Send)) -> Outcome {
    let told = |event: &Event| {
        if let Event::Progress(notification) = event {
            progress(notification);
        }
    };
    reply.outcome(told).await
}

fn no_answer() -> LocalError {
    LocalError::Refused(Reject::client(
        RejectKind::MethodNotFound,
        "this was answered with something else",
        ReasonCode::BadRequest,
    ))
}
