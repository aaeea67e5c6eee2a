//! What a call names: an entry of the caller's view that is visible now. Unknown and hidden look alike [POL-11].

use std::borrow::Cow;
use std::sync::Arc;

use crate::catalog::{Entry, URI_BYTES_MAX, own_uri};
use crate::exchange::{Call, ClientFacts, Endpoint, Exchange, Owner, ReasonCode, Reject, RejectKind, ServerCall};
use crate::policy::{Action, Decision};
use crate::upstream::Server;
use crate::wire::mcp::{CallParams, Kind, Method, ParamValue, decode_value};

use super::Gateway;
use super::identify::{Identified, scope};
use super::list::{check_offered, not_offered, wait_for_first_lists};

/// A call whose target is known.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) caller: Identified,
    pub(super) entry: Arc<Entry>,
    pub(super) call: Arc<ServerCall>,
    pub(super) client: ClientFacts,
    pub(super) owner: Owner,
    /// Names and URIs are the server's own on this path.
    pub(super) own_names: bool,
}

/// Finds what is named. What is not known yet waits for granted servers that have never listed [TRN-8].
pub(super) async fn resolve(gateway: &Gateway, caller: Identified, exchange: Exchange) -> Result<Resolved, Reject> {
    if let Some(entry) = at_once(&caller, &exchange) {
        return resolved(caller, exchange, entry);
    }
    let Call::ToServer(call) = &exchange.call else { return Err(not_for_a_server()) };
    let (endpoint, params) = (&exchange.endpoint, &call.params);
    let caller = Box::pin(wait_for_first_lists(gateway, caller, endpoint)).await;
    check_offered(&caller, endpoint, params.kind, exchange.client.version.into())?;
    let why = || {
        let reason = caller.why_hidden(endpoint, params.kind, &params.name);
        Reject::unknown(params.kind, reason).about(&params.name)
    };
    let entry = target(&caller, endpoint, params).ok_or_else(why)?;
    resolved(caller, exchange, entry)
}

/// Finds what is named if it is known, which it nearly always is.
pub(super) fn at_once(caller: &Identified, exchange: &Exchange) -> Option<Arc<Entry>> {
    let Call::ToServer(call) = &exchange.call else { return None };
    target(caller, &exchange.endpoint, &call.params)
}

/// Makes a call of `entry`, if its arguments and headers agree with it.
pub(super) fn resolved(caller: Identified, exchange: Exchange, entry: Arc<Entry>) -> Result<Resolved, Reject> {
    let Exchange { endpoint, client, owner, call } = exchange;
    let Call::ToServer(call) = call else { return Err(not_for_a_server()) };
    check_completes(&caller, call.params.method, &entry)?;
    check_header_params(&call, &entry)?;
    let own_names = endpoint != Endpoint::All;
    Ok(Resolved { caller, entry, call, client, owner, own_names })
}

fn not_for_a_server() -> Reject {
    Reject::client(RejectKind::InvalidParams, "not for a server", ReasonCode::BadRequest)
}

/// Looks a name up as a call does.
pub(super) fn find(caller: &Identified, endpoint: &Endpoint, kind: Kind, name: &str) -> Option<Arc<Entry>> {
    let (index, entry) = caller.view().resolve(scope(endpoint), kind, name)?;
    caller.mask().contains(index).then(|| Arc::clone(entry))
}

/// Finds what a request names: what is listed, or a resource that is not, for a server may have more than it lists.
fn target(caller: &Identified, endpoint: &Endpoint, params: &CallParams) -> Option<Arc<Entry>> {
    let listed = |kind| find(caller, endpoint, kind, &params.name);
    match params.kind {
        Kind::Tools | Kind::Prompts => listed(params.kind),
        Kind::Resources => resource(caller, endpoint, &params.name),
        Kind::Templates => listed(Kind::Templates)
            .or_else(|| listed(Kind::Resources))
            .or_else(|| unlisted(caller, endpoint, &params.name).filter(|entry| !is_template(&entry.original))),
    }
}

/// Says whether a URI may be taken for a template: one that is not listed is nobody's, whatever it could become.
fn is_template(uri: &str) -> bool {
    let bytes = uri.as_bytes();
    bytes.contains(&b'{') || bytes.windows(3).any(|three| three.eq_ignore_ascii_case(b"%7b"))
}

/// Says whether a caller may make a call, whatever becomes of its server at this moment. What is asked for of the gateway's
/// own is asked for again, and is not told by this: what it came from is known only where it is kept.
pub(super) fn may(caller: &Identified, endpoint: &Endpoint, kind: Kind, name: &str) -> bool {
    let listed = |kind| caller.view().resolve(scope(endpoint), kind, name).is_some();
    match kind {
        Kind::Tools | Kind::Prompts => listed(kind),
        Kind::Resources => listed(kind) || by_uri(caller, endpoint, name).is_some(),
        Kind::Templates => {
            let plain = || by_uri(caller, endpoint, name).filter(|(_, entry)| !is_template(&entry.original));
            listed(kind) || listed(Kind::Resources) || plain().is_some()
        }
    }
}

/// Finds a resource that could be read now, listed or not.
pub(super) fn resource(caller: &Identified, endpoint: &Endpoint, uri: &str) -> Option<Arc<Entry>> {
    find(caller, endpoint, Kind::Resources, uri).or_else(|| unlisted(caller, endpoint, uri))
}

fn unlisted(caller: &Identified, endpoint: &Endpoint, uri: &str) -> Option<Arc<Entry>> {
    let (server, entry) = by_uri(caller, endpoint, uri)?;
    (!server.is_hidden()).then(|| Arc::new(entry))
}

/// Finds the server that a resource's URI names, if it exists for the caller and the policy lets the resource be read.
fn by_uri<'a>(caller: &'a Identified, endpoint: &Endpoint, uri: &str) -> Option<(&'a Arc<Server>, Entry)> {
    // What is watched or kept is kept by its URI, as long as that lasts [LIM-6].
    if uri.len() > URI_BYTES_MAX {
        return None;
    }
    let (name, own) = match endpoint {
        Endpoint::All => {
            let (slug, own) = own_uri(uri)?;
            (caller.snapshot().of_slug(slug)?, own)
        }
        Endpoint::Server(name) => (name, Cow::Borrowed(uri)),
    };
    let server = caller.snapshot().targets().get(name).filter(|_| caller.subject().sees_server(name))?;
    if !server.status().can.lists.contains(Kind::Resources) {
        return None;
    }
    let entry = Entry::unlisted(name, &own);
    let action = Action { kind: entry.kind, server: name, shown: &entry.shown, full: &entry.full };
    (caller.subject().decide(&action) == Decision::Allow).then_some((server, entry))
}

/// Refuses to ask a server for completions that does not offer them.
fn check_completes(caller: &Identified, method: Method, entry: &Entry) -> Result<(), Reject> {
    let completes =
        || caller.snapshot().targets().get(&entry.server).is_some_and(|server| server.status().can.completions);
    if method != Method::CompletionComplete || completes() { Ok(()) } else { Err(not_offered()) }
}

/// Annotated arguments and their `Mcp-Param-*` headers must agree [R53]; legacy clients are exempt.
fn check_header_params(call: &ServerCall, entry: &Entry) -> Result<(), Reject> {
    let Some(headers) = &call.param_headers else { return Ok(()) };
    for param in entry.header_params.iter() {
        let mut given = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(&param.header));
        let (first, second) = (given.next(), given.next());
        let given = match first.map(|(_, value)| decode_value(value)).transpose() {
            Ok(given) if second.is_none() => given,
            Ok(_) | Err(_) => return Err(mismatch(&param.header)),
        };
        let agrees = match (param.value(call.params.arguments.as_ref()), given) {
            (ParamValue::Absent | ParamValue::NotCarried, None) => true,
            (ParamValue::Text(wanted), Some(given)) => *wanted == *given || same_integer(&wanted, &given),
            (ParamValue::Text(_), None) | (ParamValue::Absent | ParamValue::NotCarried, Some(_)) => false,
        };
        if !agrees {
            return Err(mismatch(&param.header));
        }
    }
    Ok(())
}

fn same_integer(wanted: &str, given: &str) -> bool {
    matches!((wanted.parse::<i64>(), given.parse::<f64>()), (Ok(wanted), Ok(given)) if given.fract() == 0.0 && format!("{given:.0}") == wanted.to_string())
}

fn mismatch(header: &str) -> Reject {
    let words = format!("header 'Mcp-Param-{header}' and the argument it mirrors disagree");
    Reject::client(RejectKind::HeaderMismatch, words, ReasonCode::BadRequest)
}
