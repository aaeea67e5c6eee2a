//! The hall, driven at `Handler::call`: visible ⇔ callable, and refusals that look alike.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

use super::{Auth, Gateway, GatewaySettings, PrincipalSettings};
use crate::blob::{BlobSettings, Blobs};
use crate::clock::Clock;
use crate::exchange::{
    Answer, Call, Caller as _, ClientFacts, Endpoint, Event, Exchange, Handler as _, Outcome, Owner, OwnerKey,
    ReplyBody, ServerCall, Told,
};
use crate::id::{PrincipalId, UpstreamName};
use crate::identity::{ApiKeyHash, Credential, KeyRing};
use crate::limit::LimitSettings;
use crate::policy::{CapRules, Pattern, Profile};
use crate::runtime::Tasks;
use crate::secret::Lent;
use crate::upstream::{TargetSet, fake};
use crate::wire::jsonrpc::{Decoded, Limits, Message, decode};
use crate::wire::mcp::{CallParams, Kind, LEGACY_LATEST, Method, RequestMeta, STATELESS_LATEST};

/// One principal of a case: granted servers, allow list, exclude list, `deny_all_tools`.
pub(super) type Rules = (Vec<usize>, Option<Vec<String>>, Vec<String>, bool);

/// A client of each era.
pub(super) fn clients() -> [ClientFacts; 2] {
    [LEGACY_LATEST, STATELESS_LATEST].map(|version| ClientFacts::new(version, None, Bytes::from_static(b"{}")))
}

pub(super) fn exchange(endpoint: Endpoint, client: &ClientFacts, call: Call) -> Exchange {
    Exchange {
        endpoint,
        client: client.clone(),
        owner: Owner { key: OwnerKey::Session(1), ended: None, aside: None },
        call,
    }
}

pub(super) fn tool_call(name: &str) -> Call {
    call_of(Method::ToolsCall, "name", name)
}

pub(super) fn call_of(method: Method, key: &str, name: &str) -> Call {
    let (spelled, name) = (method.spec().name, Value::from(name));
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{spelled}","params":{{"{key}":{name}}}}}"#);
    let Ok(Decoded::One(Message::Request(request))) = decode(&Bytes::from(text), &Limits::DOWNSTREAM) else { panic!() };
    let params = CallParams::read(method, request.params.as_deref().unwrap()).unwrap();
    let meta = RequestMeta::default();
    Call::ToServer(Arc::new(ServerCall { request, params, meta, param_headers: None, trace: None }))
}

pub(super) async fn outcome(gateway: &Arc<Gateway>, key: &str, exchange: Exchange) -> Outcome {
    let caller = gateway.identify(&Credential::ApiKey(Lent::new(key))).unwrap();
    match gateway.call(caller, exchange).await.into_parts() {
        (ReplyBody::Done(outcome), _) => *outcome,
        (ReplyBody::Events(_), _) => panic!("events"),
    }
}

async fn listed(gateway: &Arc<Gateway>, key: &str, endpoint: &Endpoint, client: &ClientFacts) -> Vec<String> {
    let call = Call::List { kind: Kind::Tools, cursor: None, told: Told::default() };
    match outcome(gateway, key, exchange(endpoint.clone(), client, call)).await {
        Ok(Answer::Page(page)) => serde_json::from_slice::<Vec<Value>>(&page.items)
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect(),
        other => panic!("{other:?}"),
    }
}

pub(super) fn settings(names: &[UpstreamName], rules: &[Rules]) -> GatewaySettings {
    let mut keys = KeyRing::default();
    let patterns = |texts: &[String]| texts.iter().filter_map(|text| Pattern::new(text).ok()).collect::<Vec<_>>();
    let principals = rules
        .iter()
        .enumerate()
        .map(|(index, (granted, allowed, excluded, deny_all_tools))| {
            let id = PrincipalId::new(&format!("p{index}"));
            keys.insert(ApiKeyHash::of(&format!("key{index}")), id.clone());
            let profile = Profile {
                allowed_tools: allowed.as_deref().map(patterns),
                excluded_tools: patterns(excluded),
                deny_all_tools: *deny_all_tools,
                ..Profile::default()
            };
            let granted: BTreeSet<_> = granted.iter().map(|at| names[at % names.len()].clone()).collect();
            PrincipalSettings { id, granted, profile: Some(Arc::new(profile)) }
        })
        .collect();
    GatewaySettings {
        auth: Auth::Keys,
        keys,
        limits: LimitSettings::default(),
        servers: Vec::new(),
        principals,
        name_budget: 64,
        first_list_wait: Duration::from_secs(30),
        processes_per_principal: TargetSet::PROCESSES_PER_PRINCIPAL,
        list_page_bytes: GatewaySettings::LIST_PAGE_BYTES,
        caps: CapRules::default(),
        server_blobs: BTreeMap::new(),
        blob: BlobSettings::default(),
    }
}

/// Names that have hurt others [FC-NAM-02, FC-NAM-03].
fn hostile_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]{1,2}",
        "[a-c_]{0,6}",
        "\\PC{0,80}",
        "[a-z]{60,128}",
        Just("b__c".to_owned()),
        Just("a\"\\b".to_owned()),
        Just("x_deadbeef".to_owned()),
        Just(String::new()),
    ]
}

fn pattern() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("*".to_owned()),
        Just("one__*".to_owned()),
        Just("two__a*".to_owned()),
        Just("a_b__*".to_owned()),
        "(one|two|a_b)__[a-c]{1,2}",
        "(one|two)__[a-c]\\*",
    ]
}

fn rules() -> impl Strategy<Value = Rules> {
    (
        prop::collection::vec(0_usize..3, 0..4),
        prop::option::of(prop::collection::vec(pattern(), 0..4)),
        prop::collection::vec(pattern(), 0..3),
        prop::bool::weighted(0.05),
    )
}

/// Visible ⇔ callable [POL-12]: what a list shows is exactly what a call reaches, on each path; and what is refused never
/// reaches a server, with one answer for hidden and unknown [POL-11, FC-SEC-02].
#[test]
fn what_a_list_shows_is_exactly_what_calls_reach() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config { cases: 256, failure_persistence: None, ..Config::default() });
    let case =
        (prop::collection::vec(prop::collection::vec(hostile_name(), 0..8), 3), prop::collection::vec(rules(), 1..4));
    runner
        .run(&case, |(tools, rules)| {
            runtime.block_on(check(&tools, &rules));
            Ok(())
        })
        .unwrap();
}

async fn check(tools: &[Vec<String>], rules: &[Rules]) {
    let names: Vec<UpstreamName> = ["one", "two", "a.b"].iter().map(|name| UpstreamName::new(name).unwrap()).collect();
    let servers: Vec<_> = names
        .iter()
        .zip(tools)
        .map(|(name, tools)| {
            let tools = tools.iter().map(|tool| format!(r#"{{"name":{}}}"#, Value::from(tool.as_str()))).collect();
            (name.clone(), tools)
        })
        .collect();
    let tasks = Tasks::new();
    let (targets, calls) = fake::targets(&servers, &tasks);
    let gateway = Gateway::new(
        settings(&names, rules),
        targets,
        Blobs::new(None, None, &Clock::manual()),
        &tasks,
        Clock::manual(),
    )
    .unwrap();
    let mut candidates: BTreeSet<String> = BTreeSet::from(["never_was".to_owned(), "one__never_was".to_owned()]);
    for (name, tools) in names.iter().zip(tools) {
        for tool in tools {
            candidates.insert(tool.clone());
            candidates.insert(tool.to_uppercase());
            candidates.insert(crate::catalog::shown_name(name, tool, 64));
            candidates.insert(crate::catalog::full_name(name, tool));
        }
    }
    let mut endpoints = vec![Endpoint::All];
    endpoints.extend(names.iter().map(|name| Endpoint::Server(name.clone())));
    for (index, _) in rules.iter().enumerate() {
        let key = format!("key{index}");
        for endpoint in &endpoints {
            let caller = gateway.identify(&Credential::ApiKey(Lent::new(&key))).unwrap();
            if !caller.serves(endpoint) {
                continue;
            }
            for client in &clients() {
                let listed = listed(&gateway, &key, endpoint, client).await;
                for name in &candidates {
                    calls.lock().unwrap().clear();
                    let answer = outcome(&gateway, &key, exchange(endpoint.clone(), client, tool_call(name))).await;
                    let reached = calls.lock().unwrap().clone();
                    if listed.contains(name) {
                        assert!(matches!(answer, Ok(Answer::Upstream { .. })), "{name}: {answer:?}");
                        assert_eq!(reached.len(), 1, "{name}");
                    } else {
                        let refusal = answer.unwrap_err();
                        assert_eq!(
                            (refusal.kind, &*refusal.public),
                            (crate::exchange::RejectKind::Unknown, "Unknown tool")
                        );
                        assert!(reached.is_empty(), "{name} reached {reached:?}");
                    }
                }
            }
        }
    }
    tasks.cancel();
    tasks.wait().await;
}

/// [AUT-1]: what is not a known key is refused, and an unknown principal sees nothing.
#[tokio::test]
async fn credentials_fail_closed() {
    let tasks = Tasks::new();
    let name = UpstreamName::new("one").unwrap();
    let (targets, _) = fake::targets(&[(name.clone(), vec![r#"{"name":"t"}"#.to_owned()])], &tasks);
    let mut settings = settings(&[name], &[(vec![0], None, Vec::new(), false)]);
    settings.auth = Auth::Keys;
    let gateway = Gateway::new(
        settings.clone(),
        Arc::clone(&targets),
        Blobs::new(None, None, &Clock::manual()),
        &tasks,
        Clock::manual(),
    )
    .unwrap();
    for credential in [Credential::None, Credential::Malformed, Credential::ApiKey(Lent::new("key1"))] {
        assert!(gateway.identify(&credential).is_err(), "{credential:?}");
    }
    settings.auth = Auth::None;
    let open =
        Gateway::new(settings, targets, Blobs::new(None, None, &Clock::manual()), &tasks, Clock::manual()).unwrap();
    let local = open.identify(&Credential::None).unwrap();
    assert_eq!(local.principal().as_str(), "local");
    assert!(!local.serves(&Endpoint::Server(UpstreamName::new("one").unwrap())));
}

/// [LIM-4, FC-IDS-06]: a call that is not answered in time is cancelled at its server; progress extends its time up to the
/// maximum [R65, R110].
#[tokio::test(start_paused = true)]
async fn a_call_has_an_end() {
    let tasks = Tasks::new();
    let name = UpstreamName::new("one").unwrap();
    let tools = ["hang", "hang_progress"].map(|tool| format!(r#"{{"name":"{tool}"}}"#)).to_vec();
    let (targets, calls) = fake::targets(&[(name.clone(), tools)], &tasks);
    let settings = settings(&[name], &[(vec![0], None, Vec::new(), false)]);
    let gateway =
        Gateway::new(settings, targets, Blobs::new(None, None, &Clock::manual()), &tasks, Clock::manual()).unwrap();
    let [client, _] = clients();
    let cancelled = || calls.lock().unwrap().drain(..).filter(|(what, _)| what == "cancelled").count();
    let refusal =
        outcome(&gateway, "key0", exchange(Endpoint::All, &client, tool_call("one__hang"))).await.unwrap_err();
    assert_eq!(refusal.kind, crate::exchange::RejectKind::UpstreamTimeout);
    assert!(refusal.public.contains("'one'") && refusal.public.contains("tool_timeout_secs"), "{}", refusal.public);
    assert_eq!(cancelled(), 1);
    let caller = gateway.identify(&Credential::ApiKey(Lent::new("key0"))).unwrap();
    let reply = gateway.call(caller, exchange(Endpoint::All, &client, tool_call("one__hang_progress"))).await;
    let (ReplyBody::Events(mut events), _guards) = reply.into_parts() else { panic!("no events") };
    let mut progress = 0;
    while let Some(Event::Progress(_)) = events.next().await {
        progress += 1;
    }
    assert!((598..=600).contains(&progress), "{progress} seconds of progress");
    assert!(events.next().await.is_none());
    drop(events);
    assert_eq!(cancelled(), 1);
}

/// [CFG-2]: a pattern that matches no known tool is named.
#[tokio::test]
async fn patterns_without_effect_are_named() {
    let tasks = Tasks::new();
    let name = UpstreamName::new("one").unwrap();
    let (targets, _) = fake::targets(&[(name.clone(), vec![r#"{"name":"a"}"#.to_owned()])], &tasks);
    let excluded = vec!["one__a".to_owned(), "one__b*".to_owned()];
    let mut settings = settings(&[name], &[(vec![0], Some(vec!["one__c".to_owned()]), excluded, false)]);
    let other = PrincipalSettings { id: PrincipalId::new("other"), ..settings.principals[0].clone() };
    settings.principals.push(other);
    let gateway =
        Gateway::new(settings, Arc::clone(&targets), Blobs::new(None, None, &Clock::manual()), &tasks, Clock::manual())
            .unwrap();
    targets.news().wait_for(|_| targets.iter().all(|server| server.status().lists.is_some())).await.unwrap();
    gateway.caught_up(*targets.news().borrow()).await;
    let said = gateway.snapshot().unmatched().join("; ");
    assert!(said.contains("'one__b*'") && said.contains("'one__c'") && !said.contains("'one__a'"), "{said}");
    // Once for each policy, however many principals have it.
    assert_eq!(
        (said.matches("'one__c'").count(), said.contains(" and 1 more of the same policy")),
        (1, true),
        "{said}"
    );
}

/// [CFG-4, POL-12]: after a reload a call under way is judged anew. It goes on where it may, and ends with the refusal of a
/// new call where it may not, also if its server says nothing.
#[tokio::test(start_paused = true)]
async fn a_call_under_way_is_judged_by_each_reload() {
    let tasks = Tasks::new();
    let name = UpstreamName::new("one").unwrap();
    let tools = ["hang", "hang_progress"].map(|tool| format!(r#"{{"name":"{tool}"}}"#)).to_vec();
    let (targets, calls) = fake::targets(&[(name.clone(), tools)], &tasks);
    let rules = |excluded: &[&str]| (vec![0], None, excluded.iter().map(|text| (*text).to_owned()).collect(), false);
    let before = settings(std::slice::from_ref(&name), &[rules(&[])]);
    let hidden = settings(std::slice::from_ref(&name), &[rules(&["one__hang*"])]);
    let mut keyless = before.clone();
    keyless.keys = KeyRing::default();
    let kinds = [crate::exchange::RejectKind::Unknown, crate::exchange::RejectKind::Unauthenticated];
    for (after, kind) in [hidden, keyless].into_iter().zip(kinds) {
        let gateway = Gateway::new(
            before.clone(),
            Arc::clone(&targets),
            Blobs::new(None, None, &Clock::manual()),
            &tasks,
            Clock::manual(),
        )
        .unwrap();
        let [client, _] = clients();
        let begin = |tool: &'static str| {
            let caller = gateway.identify(&Credential::ApiKey(Lent::new("key0"))).unwrap();
            gateway.call(caller, exchange(Endpoint::All, &client, tool_call(tool)))
        };
        let mut silent = std::pin::pin!(begin("one__hang"));
        let (ReplyBody::Events(mut events), _guards) = begin("one__hang_progress").await.into_parts() else {
            panic!("no events")
        };
        assert!(futures_util::poll!(silent.as_mut()).is_pending());
        gateway.replace(Arc::new(before.clone()), Arc::clone(&targets));
        for _ in 0..3 {
            assert!(matches!(events.next().await, Some(Event::Progress(_))), "a reload that takes nothing away");
        }
        gateway.replace(Arc::new(after), Arc::clone(&targets));
        let Some(Event::Done(Err(refusal))) = events.next().await else { panic!("it goes on") };
        assert_eq!(refusal.kind, kind);
        assert!(events.next().await.is_none());
        let (ReplyBody::Done(outcome), _) = silent.await.into_parts() else { panic!("events") };
        assert_eq!(outcome.unwrap_err().kind, kind);
        let cancelled = calls.lock().unwrap().drain(..).filter(|(what, _)| what == "cancelled").count();
        assert_eq!(cancelled, 2, "both are cancelled at the server");
    }
    tasks.cancel();
    tasks.wait().await;
}
