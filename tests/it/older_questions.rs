//! Questions to clients of 2025-06-18: in words that their revision knows, or refused to the server, whose call goes on
//! (protocol §3, §5.5) [R98].

use serde_json::{Value, json};

use crate::support::quiz::{Quiz, Told, willing};
use crate::support::{Client, ERAS, Era, TestApp, within_deadline};

fn form(property: &Value, required: &Value) -> Value {
    let schema = json!({ "type": "object", "properties": { "a": property }, "required": required });
    let params = json!({ "mode": "form", "message": "?", "requestedSchema": schema });
    json!({ "method": "elicitation/create", "params": params })
}

/// [R98]
#[tokio::test(flavor = "multi_thread")]
async fn an_older_client_is_asked_in_its_own_words() {
    for server in ERAS {
        let quiz = Quiz::start(server, false).await;
        let app = TestApp::open(&[("up", quiz.lines())]).await;
        let client = Client::older("2025-06-18", app.addr, r#"{"elicitation":{},"sampling":{}}"#).await;
        let ask = async |question: Value| -> Told {
            within_deadline("the answer", client.quiz("up__quiz", json!([[question]]), willing)).await
        };

        let titled = json!({ "type": "string", "oneOf": [{ "const": "b", "title": "Bee" }] });
        let told = ask(form(&titled, &json!(["a"]))).await;
        let expected = json!({ "type": "string", "enum": ["b"], "enumNames": ["Bee"] });
        assert_eq!(told.asked[0].1["requestedSchema"]["properties"]["a"], expected, "{server:?}: {told:?}");
        assert_eq!(told.answers()[0][0]["action"], "accept", "{server:?}: {told:?}");

        let text = |text: &str| json!({ "type": "text", "text": text });
        let messages = json!([{ "role": "user", "content": [text("one"), text("two")] }]);
        let params = json!({ "messages": messages, "maxTokens": 9 });
        let told = ask(json!({ "method": "sampling/createMessage", "params": params })).await;
        let expected = json!([{ "role": "user", "content": text("one") }, { "role": "user", "content": text("two") }]);
        assert_eq!(told.asked[0].1["messages"], expected, "{server:?}: {told:?}");
        assert_eq!(told.answers()[0][0]["model"], "m", "{server:?}: {told:?}");

        let several = json!({ "type": "array", "items": { "type": "string", "enum": ["b"] } });
        let told = ask(form(&several, &json!(["a"]))).await;
        assert!(told.asked.is_empty(), "{server:?}: {told:?}");
        // The newer era knows no error there.
        let refused = if server == Era::Legacy { json!(-32602) } else { Value::Null };
        assert_eq!(told.answers()[0][0]["code"], refused, "{server:?}: {told:?}");
        if server == Era::Stateless {
            assert_eq!(told.answers()[0][0]["action"], "cancel", "{told:?}");
        }
        app.stop().await;
    }
}
