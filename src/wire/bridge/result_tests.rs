//! What each era's client reads of an answer.

use bytes::Bytes;

use super::{BridgeRefusal, ClientSide, lift_error, lift_result};
use crate::wire::jsonrpc::{Decoded, Limits, Message, RequestId, Response, decode};
use crate::wire::mcp::{Era, LEGACY_LATEST, STATELESS_LATEST};

const INFO: &[u8] = br#"{"name":"g"}"#;
const META: &str = r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"g"}}"#;

fn response(text: &str) -> Response {
    match decode(&Bytes::from(text.to_owned()), &Limits::UPSTREAM) {
        Ok(Decoded::One(Message::Response(response))) => *response,
        other => panic!("{other:?}"),
    }
}

fn side(era: Era, id: &RequestId) -> ClientSide<'_> {
    let version = if era == Era::Legacy { LEGACY_LATEST } else { STATELESS_LATEST };
    ClientSide { version, id, server_info: INFO, method: "tools/call" }
}

fn lift(text: &str, from: Era, to: Era) -> Result<String, BridgeRefusal> {
    let id = RequestId::from_raw(Bytes::from_static(b"\"c\"")).unwrap();
    lift_result(&response(text), from, &side(to, &id)).map(|pieces| String::from_utf8(pieces.concat()).unwrap())
}

/// [R86]
#[test]
fn legacy_peers_see_each_others_bytes_but_for_the_id() {
    let text = r#"{"result":{"content":[ {"type":"text","text":"\ud800"}],"n":1e400,"_meta":{"x":null}} , "id":7,"jsonrpc":"2.0"}"#;
    assert_eq!(lift(text, Era::Legacy, Era::Legacy).unwrap(), text.replace("\"id\":7", "\"id\":\"c\""));
}

#[test]
fn stateless_peers_see_each_others_bytes_but_for_id_and_server_info() {
    let text = r#"{"jsonrpc":"2.0","id":7,"result":{ "resultType":"complete","content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"them"}, "v":1.10}}}"#;
    assert_eq!(
        lift(text, Era::Stateless, Era::Stateless).unwrap(),
        text.replace("\"id\":7", "\"id\":\"c\"").replace(r#"{"name":"them"}"#, r#"{"name":"g"}"#)
    );
}

/// [R28, R29, R67]
#[test]
fn a_legacy_result_becomes_complete() {
    assert_eq!(
        lift(r#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#, Era::Legacy, Era::Stateless).unwrap(),
        format!(r#"{{"jsonrpc":"2.0","id":"c","result":{{"resultType":"complete",{META},"content":[]}}}}"#)
    );
    assert_eq!(
        lift(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, Era::Legacy, Era::Stateless).unwrap(),
        format!(r#"{{"jsonrpc":"2.0","id":"c","result":{{"resultType":"complete",{META}}}}}"#)
    );
    assert_eq!(
        lift(r#"{"jsonrpc":"2.0","id":7,"result":{"_meta":{},"content":[]}}"#, Era::Legacy, Era::Stateless).unwrap(),
        format!(r#"{{"jsonrpc":"2.0","id":"c","result":{{"resultType":"complete",{META},"content":[]}}}}"#)
    );
}

/// [R87]
#[test]
fn a_stateless_result_loses_what_legacy_clients_do_not_know() {
    assert_eq!(
        lift(r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":[{"type":"text","text":"1"}],"structuredContent":{"a":1.0},"_meta":{"io.modelcontextprotocol/serverInfo":{},"x":1}}}"#, Era::Stateless, Era::Legacy).unwrap(),
        r#"{"jsonrpc":"2.0","id":"c","result":{"content":[{"type":"text","text":"1"}],"structuredContent":{"a":1.0},"_meta":{"x":1}}}"#
    );
    assert_eq!(
        lift(
            r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":[],"structuredContent":["é",1]}}"#,
            Era::Stateless,
            Era::Legacy
        )
        .unwrap(),
        r#"{"jsonrpc":"2.0","id":"c","result":{"content":[{"type":"text","text":"[\"é\",1]"}]}}"#
    );
}

/// [R76, R77, R78]
#[test]
fn a_result_that_may_be_kept_is_so_for_its_principal_alone() {
    let id = RequestId::number(1);
    let read = |text: &str, from, to| {
        let client = ClientSide { method: "resources/read", ..side(to, &id) };
        let pieces = lift_result(&response(text), from, &client).unwrap();
        String::from_utf8(pieces.concat()).unwrap()
    };
    let message = |result: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{{result}}}}}"#);
    assert_eq!(
        read(&message(r#""contents":[]"#), Era::Legacy, Era::Stateless),
        message(&format!(r#""resultType":"complete",{META},"ttlMs":0,"cacheScope":"private","contents":[]"#))
    );
    let kept = format!(r#""resultType":"complete",{META},"contents":[],"ttlMs":300,"cacheScope":"public""#);
    assert_eq!(read(&message(&kept), Era::Stateless, Era::Stateless), message(&kept.replace("public", "private")));
    let odd = kept.replace("300", "-1");
    assert_eq!(
        read(&message(&odd), Era::Stateless, Era::Stateless),
        message(&kept.replace("300", "0").replace("public", "private"))
    );
    assert_eq!(read(&message(&kept), Era::Stateless, Era::Legacy), message(r#""_meta":{},"contents":[]"#));
    let asks = format!(r#""resultType":"input_required",{META},"requestState":"s""#);
    assert_eq!(read(&message(&asks), Era::Stateless, Era::Stateless), message(&asks));
}

/// [R66, R90, R122]
#[test]
fn input_required_passes_between_stateless_peers_alone() {
    let text = r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"input_required","requestState":"s"}}"#;
    assert!(lift(text, Era::Stateless, Era::Stateless).unwrap().contains("input_required"));
    assert_eq!(lift(text, Era::Stateless, Era::Legacy), Err(BridgeRefusal::InputRequired));
    assert_eq!(lift(text, Era::Legacy, Era::Stateless), Err(BridgeRefusal::InputRequired));
    for bad in ["\"task\"", "1", "null"] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"resultType":{bad}}}}}"#);
        assert_eq!(lift(&text, Era::Stateless, Era::Stateless), Err(BridgeRefusal::UnknownResultType), "{bad}");
    }
    assert!(matches!(
        lift(r#"{"jsonrpc":"2.0","id":7,"result":[]}"#, Era::Legacy, Era::Legacy),
        Err(BridgeRefusal::Malformed(_))
    ));
}

/// [R61–R64, R127]
#[test]
fn codes_are_those_the_client_knows() {
    let id = RequestId::number(1);
    let code = |code: i64, era, lacks| {
        let text = format!(r#"{{"jsonrpc":"2.0","id":7,"error":{{"message":"m","code":{code},"data":{{"n":1e2}}}}}}"#);
        lift_error(&response(&text), &side(era, &id), lacks).map(|(code, bytes)| {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            assert!(text.contains(r#""data":{"n":1e2}"#) && text.contains(r#""message":"m""#), "{text}");
            assert!(text.contains(&format!("\"code\":{}", code.0)), "{text}");
            code.0
        })
    };
    assert_eq!(code(-32002, Era::Stateless, false), Ok(-32602));
    assert_eq!(code(-32002, Era::Legacy, false), Ok(-32002));
    assert_eq!(code(-32042, Era::Stateless, false), Err(BridgeRefusal::UrlElicitation));
    assert_eq!(code(-32042, Era::Legacy, false), Ok(-32042));
    assert_eq!(code(-32021, Era::Stateless, true), Ok(-32021));
    assert_eq!(code(-32021, Era::Stateless, false), Ok(-32603));
    assert_eq!(code(-32021, Era::Legacy, true), Ok(-32603));
    assert_eq!(code(-32077, Era::Stateless, false), Ok(-32603));
    assert_eq!(code(-32000, Era::Stateless, false), Ok(-32000));
    assert_eq!(code(42, Era::Legacy, false), Ok(42));
}

/// [FC-NAM-07]: an `outputSchema` is not ours to enforce: text alone, content that does not match, an error without any.
/// [R85]
#[test]
fn results_are_not_judged_by_a_schema() {
    for result in [
        r#"{"content":[{"type":"text","text":"only text"}]}"#,
        r#"{"content":[],"structuredContent":{"not":"what the schema says"}}"#,
        r#"{"content":[],"isError":true}"#,
    ] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#);
        assert_eq!(lift(&text, Era::Legacy, Era::Legacy).unwrap(), text.replace("\"id\":7", "\"id\":\"c\""));
        let lifted = lift(&text, Era::Legacy, Era::Stateless).unwrap();
        assert!(lifted.contains(result.strip_prefix('{').unwrap()), "{lifted}");
    }
}
