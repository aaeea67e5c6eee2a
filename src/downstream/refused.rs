//! A refusal of a call that its client's model should read: a result that says what would help [POL-11].
//!
//! Not for: refusals that must look like an unknown name, or that no call is answered with (`respond`).

use bytes::Bytes;

use crate::wire::bridge::server_info;
use crate::wire::json;
use crate::wire::jsonrpc::{RequestId, Response};
use crate::wire::mcp::{Era, SERVER_INFO_KEY};

use super::respond::Refusal;

/// Where a result says that it is the gateway's refusal.
const REFUSAL_KEY: &str = "portcullis/refusal";

/// Spells a refusal as the result of a call.
pub(super) fn result(refusal: &Refusal, id: &RequestId, era: Era) -> Bytes {
    let text = |text: &str| String::from_utf8_lossy(&json::quoted(text)).into_owned();
    let words = text(&refusal.message);
    let (code, reason) = (refusal.reason.code().id(), refusal.reason.word());
    let after = refusal.retry_after.map(|seconds| format!(r#","retry_after":{seconds}"#)).unwrap_or_default();
    let (kind, server) = match era {
        Era::Legacy => ("", String::new()),
        Era::Stateless => (
            r#""resultType":"complete","#,
            format!(r#","{SERVER_INFO_KEY}":{}"#, String::from_utf8_lossy(&server_info())),
        ),
    };
    let result = format!(
        r#"{{{kind}"content":[{{"type":"text","text":{words}}}],"isError":true,"_meta":{{"{REFUSAL_KEY}":{{"code":"{code}","reason":"{reason}"{after}}}{server}}}}}"#
    );
    Response::with_result(id, result.as_bytes()).raw
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::{Refusal, result};
    use crate::exchange::{ReasonCode, Reject, RejectKind, Retry};
    use crate::wire::jsonrpc::RequestId;
    use crate::wire::mcp::Era;

    /// [POL-11, LIM-5]
    #[test]
    fn a_refused_call_has_a_result_that_says_what_helps() {
        let reject = Reject::client(RejectKind::Busy, "Too \"many\"", ReasonCode::RateLimited);
        let reject = Reject { retry: Retry::After(Duration::from_millis(1_001)), ..reject };
        for era in [Era::Legacy, Era::Stateless] {
            let refusal = Refusal::of_reject(reject.clone(), era);
            let mut answer: Value = serde_json::from_slice(&result(&refusal, &RequestId::number(7), era)).unwrap();
            let server =
                answer["result"]["_meta"].as_object_mut().unwrap().remove("io.modelcontextprotocol/serverInfo");
            let kind = answer["result"].as_object_mut().unwrap().remove("resultType");
            assert_eq!(server.is_some(), era == Era::Stateless);
            assert_eq!(kind, (era == Era::Stateless).then(|| json!("complete")));
            let refusal = json!({ "code": "P308", "reason": "rate_limited", "retry_after": 2 });
            assert_eq!(
                answer,
                json!({ "jsonrpc": "2.0", "id": 7, "result": {
                    "content": [{ "type": "text", "text": "Too \"many\"" }],
                    "isError": true,
                    "_meta": { "portcullis/refusal": refusal },
                } })
            );
        }
    }
}
