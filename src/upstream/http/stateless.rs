//! A server of the stateless era: every request stands for itself.
//!
//! Not for: finding out the era. Invariant: closing a response is the one way to cancel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{HeaderName, HeaderValue};

use crate::exchange::{Reply, UpstreamCall};
use crate::runtime::Tasks;
use crate::upstream::link::{BoxFuture, Link, LinkState, Outgoing};
use crate::wire::mcp::{Era, Kinds, Method, ParamValue, STATELESS_LATEST, Target as Mirrored, encode_value, name};

use super::call::{Call, Peer, Replied, unseen};
use super::listen;
use super::target::{Target, Verb};

/// How much room the headers have that mirror a call's body, before more is made.
const MIRRORED_BYTES: usize = 128;

/// The link to a stateless server.
#[derive(Debug)]
pub(super) struct StatelessLink {
    target: Arc<Target>,
    tasks: Tasks,
    /// The head of a call, before what mirrors its body.
    calling: Vec<u8>,
    ids: AtomicU64,
    state: LinkState,
}

// === impl StatelessLink ===

impl StatelessLink {
    pub(super) fn new(target: Arc<Target>, tasks: Tasks) -> Self {
        let calling = head(&target, "tools/call");
        Self { target, tasks, calling, ids: AtomicU64::new(1), state: LinkState::default() }
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    pub(super) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    async fn run(self: Arc<Self>, outgoing: Outgoing) -> Reply {
        let id = self.next_id();
        let body = outgoing.render(id, Era::Stateless);
        let head = match &outgoing {
            Outgoing::Call(call) => {
                let method = call.call.params.method;
                let mut head = if method == Method::ToolsCall {
                    let mut head = Vec::with_capacity(self.calling.len() + MIRRORED_BYTES);
                    head.extend_from_slice(&self.calling);
                    head
                } else {
                    head(&self.target, method.spec().name)
                };
                add_call_headers(&self.target, &mut head, call);
                head
            }
            Outgoing::Own { method, .. } => head(&self.target, method),
        };
        let unseen = unseen(&outgoing, &self.target, Era::Stateless).then_some(id);
        let call = Call::new(Peer::Stateless(Arc::clone(&self)), outgoing, id);
        match self.target.ask(&head, &body, unseen).await {
            Ok(answered) => match call.reply(answered) {
                Replied::Now(reply) => reply,
                Replied::Later(reply) => reply.await,
            },
            Err(reject) => call.refuse(reject),
        }
    }
}

/// The head of a stateless request [R47].
pub(super) fn head(target: &Target, method: &'static str) -> Vec<u8> {
    let version = HeaderValue::from_static(STATELESS_LATEST.as_str());
    let method = HeaderValue::from_static(method);
    target.head(Verb::Post, &[(name::PROTOCOL_VERSION, version), (name::METHOD, method)])
}

/// Adds what mirrors a call's body, and the client's own `Mcp-Param-*` that the gateway does not know [R50].
fn add_call_headers(target: &Target, head: &mut Vec<u8>, call: &UpstreamCall) {
    let mirrors = matches!(call.call.params.method.spec().target, Mirrored::Name | Mirrored::Uri);
    if let (true, Ok(value)) = (mirrors, HeaderValue::from_str(&encode_value(&call.original))) {
        target.add(head, &name::NAME, &value);
    }
    target.add_trace(head, call);
    let mut add = |param: &str, value: &str| {
        let param = HeaderName::try_from(format!("{}{}", name::PARAM_PREFIX, param.to_ascii_lowercase()));
        if let (Ok(param), Ok(value)) = (param, HeaderValue::from_str(value)) {
            target.add(head, &param, &value);
        }
    };
    for param in call.header_params.iter() {
        match param.value(call.call.params.arguments.as_ref()) {
            ParamValue::Text(text) => add(&param.header, &encode_value(&text)),
            ParamValue::Absent | ParamValue::NotCarried => {}
        }
    }
    for (param, value) in call.call.param_headers.iter().flatten() {
        if !call.header_params.iter().any(|known| known.header.eq_ignore_ascii_case(param)) {
            add(param, value);
        }
    }
}

impl Link for StatelessLink {
    fn era(&self) -> Era {
        Era::Stateless
    }

    fn state(&self) -> &LinkState {
        &self.state
    }

    fn request(self: Arc<Self>, outgoing: Outgoing) -> BoxFuture<Reply> {
        Box::pin(self.run(outgoing))
    }

    fn watch(self: Arc<Self>, kinds: Kinds) {
        if kinds.is_empty() {
            return;
        }
        self.tasks.clone().spawn("http subscription", listen::stateless(self, kinds));
    }
}
