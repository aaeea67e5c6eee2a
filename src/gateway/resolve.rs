//! What a call names: an entry of the caller's view that is visible now. Unknown and hidden look alike [POL-11].

use std::sync::Arc;

use crate::catalog::Entry;
use crate::exchange::{Call, ClientFacts, Endpoint, Exchange, Owner, ReasonCode, Reject, RejectKind, ToolCall};
use crate::wire::mcp::{ParamValue, decode_value};

use super::Gateway;
use super::identify::{Identified, scope};
use super::list::wait_for_first_lists;

/// A call whose tool is known.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) caller: Identified,
    pub(super) entry: Arc<Entry>,
    pub(super) call: Arc<ToolCall>,
    pub(super) client: ClientFacts,
    pub(super) owner: Owner,
}

/// Finds the tool. A name that is not known yet waits for granted servers that have never listed [TRN-8].
pub(super) async fn resolve(gateway: &Gateway, caller: Identified, exchange: Exchange) -> Result<Resolved, Reject> {
    let Exchange { endpoint, client, owner, call } = exchange;
    let Call::CallTool(call) = call else {
        return Err(Reject::client(RejectKind::InvalidParams, "not a tool call", ReasonCode::BadRequest));
    };
    let (caller, entry) = match find(&caller, &endpoint, &call.params.name) {
        Some(entry) => (caller, entry),
        None => {
            let caller = Box::pin(wait_for_first_lists(gateway, caller, &endpoint)).await;
            let entry = find(&caller, &endpoint, &call.params.name)
                .ok_or_else(|| Reject::unknown_tool(caller.why_hidden(&endpoint, &call.params.name)))?;
            (caller, entry)
        }
    };
    check_header_params(&call, &entry)?;
    Ok(Resolved { caller, entry, call, client, owner })
}

/// Looks a name up as a call does.
pub(super) fn find(caller: &Identified, endpoint: &Endpoint, name: &str) -> Option<Arc<Entry>> {
    let (index, entry) = caller.view().resolve(scope(endpoint), name)?;
    caller.mask().contains(index).then(|| Arc::clone(entry))
}

/// Annotated arguments and their `Mcp-Param-*` headers must agree [R53]; legacy clients are exempt.
fn check_header_params(call: &ToolCall, entry: &Entry) -> Result<(), Reject> {
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
