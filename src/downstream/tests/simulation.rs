//! A simulation of bridge, parked calls and sessions: clients of both eras before servers of both, all at random, under
//! virtual time, many seeds a run. Invariants: exactly one final answer per request, no answer to a stranger, everything
//! taken is given back, nothing is parked after its deadline [R92, R96, R97, TRN-10].

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::downstream::accept::Take;
use crate::downstream::headers::Headers;
use crate::downstream::legacy::Form;
use crate::downstream::post::Visit;
use crate::downstream::running::Running;
use crate::downstream::server::Door;
use crate::downstream::stateless::call_params;
use crate::downstream::{Downstream, DownstreamSettings};
use crate::exchange::{
    Answer, Call, Caller, ClientFacts, Endpoint, Event, Exchange, Handler, Handling, InputRequired, Outcome, Owner,
    Question, ReasonCode, Reject, RejectKind, Reply, Responder, Seen, ServerCall, Settled, Told,
};
use crate::id::PrincipalId;
use crate::identity::Credential;
use crate::limit::Permit;
use crate::runtime::{Drain, Tasks};
use crate::session::{NewSession, Session};
use crate::wire::bridge::{InputRequest, Wanted};
use crate::wire::jsonrpc::{Decoded, Limits, Message, RequestId, Response, decode};
use crate::wire::mcp::{Capabilities, Era, InputKind, Kind, Method, ProtocolVersion, RequestMeta};

const SEEDS: u64 = 256;
const CLIENTS: u64 = 6;
const CALLS: u64 = 3;
/// How long a client may take, in virtual time.
const QUESTION: Duration = Duration::from_secs(60);
const ABLE: &[u8] = br#"{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}"#;

/// Numbers that look random, the same for the same seed.
#[derive(Clone, Debug)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }

    /// One time in `of`.
    fn once_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    async fn pause(&mut self, most_ms: u64) {
        tokio::time::sleep(Duration::from_millis(self.below(most_ms))).await;
    }
}

/// All servers, and what went wrong.
#[derive(Debug, Default)]
struct World {
    /// Guards and live calls that are out.
    out: AtomicUsize,
    dice: Mutex<Option<Dice>>,
    faults: Mutex<Vec<String>>,
    /// How often each question was settled.
    settled: Mutex<HashMap<String, u32>>,
    /// How many were answered as they should be, so that the run is known to have tried something.
    answered: AtomicUsize,
}

#[derive(Clone)]
struct Guest(PrincipalId);

/// Something that is taken, and must be given back.
struct Taken(Arc<World>);

/// A call at a server of sessions.
struct Script {
    world: Arc<World>,
    label: String,
    by: String,
    rounds: u64,
    width: u64,
    at: u64,
    waiting: Vec<(String, oneshot::Receiver<Settled>)>,
    queue: VecDeque<Event>,
    over: bool,
    dice: Dice,
    _taken: Taken,
}

impl Taken {
    fn new(world: &Arc<World>) -> Self {
        world.out.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(world))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.out.fetch_sub(1, Ordering::SeqCst);
    }
}

impl World {
    fn fault(&self, words: String) {
        self.faults.lock().unwrap().push(words);
    }

    fn dice(&self) -> Dice {
        let mut dice = self.dice.lock().unwrap();
        Dice(dice.as_mut().unwrap().roll())
    }

    /// Checks that an answer is the one to this question, by the one who was asked.
    fn check_answer(&self, question: &str, by: &str, answer: &Value) {
        if answer["content"]["to"] != *question || answer["content"]["by"] != *by {
            self.fault(format!("{question} of {by} was answered with {answer}"));
        }
        self.answered.fetch_add(1, Ordering::SeqCst);
    }
}

impl Caller for Guest {
    fn principal(&self) -> &PrincipalId {
        &self.0
    }

    fn is_one_of_many(&self) -> bool {
        true
    }

    fn serves(&self, _: &Endpoint) -> bool {
        true
    }

    fn capabilities(&self, _: &Endpoint) -> Capabilities {
        Capabilities::ASSUMED
    }

    fn may_call(&self, _: &Endpoint, _: Kind, _: &str) -> bool {
        true
    }

    fn seen(&self, _: &Endpoint) -> Seen {
        Seen([1; 4])
    }
}

impl Handler for World {
    type Caller = Guest;

    fn identify(&self, _: &Credential<'_>) -> Result<Guest, Reject> {
        Err(Reject::client(RejectKind::Unauthenticated, "No", ReasonCode::Unauthenticated))
    }

    fn admit(&self, _: &Guest) -> Result<(), Reject> {
        Ok(())
    }

    fn admit_end(&self, _: &Guest) -> Result<(), Reject> {
        Ok(())
    }

    fn renewed(&self, caller: Guest) -> Guest {
        caller
    }

    fn check(
        self: &Arc<Self>,
        _: Guest,
        _: Exchange,
    ) -> impl Future<Output = Result<Option<Permit>, Reject>> + Send + 'static {
        std::future::ready(Ok(None))
    }

    fn call(self: &Arc<Self>, caller: Guest, exchange: Exchange) -> Handling {
        let world = Arc::clone(self);
        Box::pin(async move {
            let Call::ToServer(call) = exchange.call else { panic!("a call") };
            let params: Value = serde_json::from_slice(&call.request.params.as_deref().unwrap().text()).unwrap();
            let mut dice = world.dice();
            dice.pause(2_000).await;
            let guard = Taken::new(&world);
            let arguments = &params["arguments"];
            let reply = if arguments["stateless"] == true {
                Reply::once(Ok(world.stateless(&params, caller.0.as_str())))
            } else {
                let script = Script {
                    label: arguments["label"].as_str().unwrap().to_owned(),
                    by: caller.0.as_str().to_owned(),
                    rounds: arguments["rounds"].as_u64().unwrap(),
                    width: arguments["width"].as_u64().unwrap(),
                    at: 0,
                    waiting: Vec::new(),
                    queue: VecDeque::new(),
                    over: false,
                    dice,
                    _taken: Taken::new(&world),
                    world,
                };
                Reply::events(Box::pin(stream::unfold(script, Script::next)))
            };
            reply.with_guard(guard)
        })
    }
}

impl World {
    /// A server that asks by ending its calls; its state is the round.
    fn stateless(&self, params: &Value, by: &str) -> Answer {
        let arguments = &params["arguments"];
        let (label, width) = (arguments["label"].as_str().unwrap(), arguments["width"].as_u64().unwrap());
        let round: u64 = params["requestState"].as_str().map_or(0, |state| state.parse().unwrap());
        if round > 0 {
            for at in 0..width {
                let question = format!("{label}/{round}/{at}");
                let answer = &params["inputResponses"][format!("k{at}")];
                if !answer.is_null() && answer["action"] != "cancel" {
                    self.check_answer(&question, by, answer);
                }
            }
        }
        if round == arguments["rounds"].as_u64().unwrap() {
            return result(label);
        }
        let next = round + 1;
        let request = |at| InputRequest {
            key: format!("k{at}"),
            kind: InputKind::Elicitation,
            params: question_params(&format!("{label}/{next}/{at}")),
        };
        let state = Bytes::from(format!("\"{next}\""));
        let wanted = Wanted { requests: (0..width).map(request).collect(), state: Some(state) };
        Answer::InputRequired(Box::new(InputRequired { wanted, result: Bytes::new() }))
    }
}

fn question_params(label: &str) -> Bytes {
    Bytes::from(json!({ "message": label, "requestedSchema": {} }).to_string())
}

fn result(label: &str) -> Answer {
    let text = json!({ "content": [], "of": label }).to_string();
    let response = Response::with_result(&RequestId::number(1), text.as_bytes());
    Answer::Upstream { response: Box::new(response), era: Era::Legacy }
}

impl Script {
    async fn next(mut self) -> Option<(Event, Self)> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some((event, self));
            }
            if self.over {
                return None;
            }
            for (question, answer) in std::mem::take(&mut self.waiting) {
                // It may have been taken back, refused, or answered with an error.
                if let Ok(Ok(answer)) = answer.await {
                    self.world.check_answer(&question, &self.by, &serde_json::from_slice(&answer).unwrap());
                }
            }
            self.dice.pause(3_000).await;
            if self.dice.once_in(3) {
                let progress = self.at + 1;
                let text = json!({ "method": "notifications/progress", "params": { "progressToken": 1, "progress": progress } });
                self.queue.push_back(Event::Progress(Bytes::from(text.to_string())));
            }
            if self.at == self.rounds {
                self.over = true;
                self.queue.push_back(Event::Done(Ok(result(&self.label))));
                continue;
            }
            self.at += 1;
            for at in 0..self.width {
                self.ask(format!("{}/{}/{at}", self.label, self.at));
            }
        }
    }

    fn ask(&mut self, question: String) {
        let (sender, answer) = oneshot::channel();
        let (world, label) = (Arc::clone(&self.world), question.clone());
        let responder = Responder::new(move |settled| {
            *world.settled.lock().unwrap().entry(label).or_default() += 1;
            let _heard = sender.send(settled).is_ok();
        });
        if self.dice.once_in(8) {
            responder.asked().withdraw();
        }
        let params = question_params(&question);
        self.queue.push_back(Event::Ask(Question { kind: InputKind::Elicitation, params, responder }));
        self.waiting.push((question, answer));
    }
}

/// One client, of either era.
struct Client {
    world: Arc<World>,
    door: Arc<Door<World>>,
    tasks: Tasks,
    visit: Visit<Guest>,
    facts: ClientFacts,
    dice: Dice,
    number: u64,
}

impl Client {
    fn new(world: &Arc<World>, door: &Arc<Door<World>>, tasks: &Tasks, number: u64, dice: Dice) -> Self {
        let era = if number.is_multiple_of(2) { ProtocolVersion::V2025_11_25 } else { ProtocolVersion::V2026_07_28 };
        // Two clients of each principal: its name alone says nothing of who asked.
        let principal = PrincipalId::new(&format!("p{}", number / 4));
        let visit = Visit {
            caller: Guest(principal.clone()),
            principal,
            endpoint: Endpoint::All,
            headers: Headers::default(),
            take: Take::Any,
            method: "tools/call",
        };
        let facts = ClientFacts::new(era, None, Bytes::from_static(ABLE));
        Self { world: Arc::clone(world), door: Arc::clone(door), tasks: tasks.clone(), visit, facts, dice, number }
    }

    fn call(&self, arguments: &Value, more: &Value) -> Arc<ServerCall> {
        let mut params = json!({ "name": "t", "arguments": arguments, "_meta": { "progressToken": 1 } });
        for (key, value) in more.as_object().into_iter().flatten() {
            params[key] = value.clone();
        }
        let raw =
            Bytes::from(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string());
        let Ok(Decoded::One(Message::Request(request))) = decode(&raw, &Limits::DOWNSTREAM) else {
            panic!("a request")
        };
        let params = call_params(Method::ToolsCall, &request).unwrap();
        let meta = RequestMeta::read(request.params.as_deref()).unwrap();
        Arc::new(ServerCall { request, params, meta, param_headers: None, trace: None })
    }

    fn exchange(&self, owner: Owner, call: Arc<ServerCall>) -> Exchange {
        Exchange { endpoint: Endpoint::All, client: self.facts.clone(), owner, call: Call::ToServer(call) }
    }

    async fn run(mut self) {
        for call in 0..CALLS {
            let label = format!("c{}.{call}", self.number);
            let arguments = json!({
                "label": label, "rounds": self.dice.below(4), "width": 1 + self.dice.below(3), "stateless": self.dice.once_in(2),
            });
            self.dice.pause(5_000).await;
            if self.facts.version.era() == Era::Legacy {
                self.in_session(&arguments, &label).await;
            } else {
                self.by_retries(&arguments, &label).await;
            }
        }
    }

    /// Says who answers what; `None` for one that is not answered.
    fn answer(dice: &mut Dice, question: &Value, by: &str) -> Option<Value> {
        let content = json!({ "to": question["message"], "by": by });
        (!dice.once_in(12)).then(|| json!({ "action": "accept", "content": content }))
    }

    async fn in_session(&mut self, arguments: &Value, label: &str) {
        let (principal, endpoint, told) = (self.visit.principal.clone(), Endpoint::All, Told::new(Seen([1; 4])));
        let new = NewSession { principal, endpoint, client: self.facts.clone(), told };
        let session = self.door.sessions.create(new).unwrap();
        let exchange = self.exchange(session.owner(), self.call(arguments, &Value::Null));
        let mut running = self.door.call_of_session(&self.visit, &session, exchange, Form::Alone);
        let mut outcomes = 0;
        while let Some(event) = running.next().await {
            match event {
                Event::Done(outcome) => {
                    outcomes += 1;
                    self.judge(label, outcome);
                }
                Event::Said(raw) => self.told(&session, &raw),
                Event::Ask(_) => self.world.fault(format!("{label}: a question has passed the door")),
                Event::Log(_) | Event::Paused | Event::Progress(_) | Event::Changed(_) | Event::Watch(_) => {}
            }
            if self.dice.once_in(20) {
                // The client goes away, and takes its session along.
                self.door.sessions.remove(&session);
                return;
            }
        }
        if outcomes != 1 {
            self.world.fault(format!("{label}: {outcomes} outcomes in a session"));
        }
        self.door.sessions.remove(&session);
    }

    fn told(&mut self, session: &Arc<Session>, raw: &Bytes) {
        let message: Value = serde_json::from_slice(raw).unwrap();
        if message["method"] != "elicitation/create" {
            return;
        }
        let id = RequestId::number(message["id"].as_u64().unwrap());
        let Some(answer) = Self::answer(&mut self.dice, &message["params"], self.visit.principal.as_str()) else {
            return;
        };
        let response = match self.dice.below(10) {
            0 => Response::with_error(Some(&id), br#"{"code":-32603,"message":"no"}"#),
            _ => Response::with_result(&id, answer.to_string().as_bytes()),
        };
        let (session, mut dice) = (Arc::clone(session), Dice(self.dice.roll()));
        self.tasks.spawn("an answer", async move {
            dice.pause(20_000).await;
            session.answer(&response);
            // An answer that comes twice answers nothing.
            assert!(!session.answer(&response));
        });
    }

    fn ask(&self, arguments: &Value, more: &Value) -> Running {
        let owner = Owner::principal(self.visit.principal.clone());
        self.door.call_of_stateless(&self.visit, self.exchange(owner, self.call(arguments, more)))
    }

    /// Hears a call to its end.
    async fn hear(world: &World, label: &str, mut running: Running) -> Option<Outcome> {
        let mut found = None;
        while let Some(event) = running.next().await {
            match event {
                Event::Done(outcome) if found.is_none() => found = Some(outcome),
                Event::Done(_) => world.fault(format!("{label}: two outcomes")),
                Event::Ask(_) | Event::Said(_) => world.fault(format!("{label}: a question has passed the door")),
                Event::Log(_) | Event::Paused | Event::Progress(_) | Event::Changed(_) | Event::Watch(_) => {}
            }
        }
        if found.is_none() {
            world.fault(format!("{label}: no outcome"));
        }
        found
    }

    async fn by_retries(&mut self, arguments: &Value, label: &str) {
        let mut more = Value::Null;
        loop {
            let mut running = self.ask(arguments, &more);
            if self.dice.once_in(15) {
                // It goes away in the middle, and perhaps comes back.
                let patience = Duration::from_millis(self.dice.below(4_000));
                if tokio::time::timeout(patience, running.next()).await.is_err()
                    && (more.is_null() || self.dice.once_in(2))
                {
                    return;
                }
                drop(running);
                if more.is_null() {
                    return;
                }
                running = self.ask(arguments, &more);
            }
            let twin = (self.dice.once_in(4) && !more.is_null()).then(|| self.ask(arguments, &more));
            let outcome = Self::hear(&self.world, label, running).await;
            if let Some(twin) = twin {
                self.twins(label, &outcome, &Self::hear(&self.world, label, twin).await);
            }
            let Some(Ok(Answer::InputRequired(input))) = outcome else {
                if let Some(outcome) = outcome {
                    self.judge(label, outcome);
                }
                return;
            };
            let Some(retry) = self.retry_of(&input) else { return };
            if self.dice.once_in(4) {
                self.strangers(arguments, label, &retry).await;
            }
            let most = if self.dice.once_in(10) { 200_000 } else { 20_000 };
            self.dice.pause(most).await;
            more = retry;
        }
    }

    /// The members of a retry; `None` if the client does not come back.
    fn retry_of(&mut self, input: &InputRequired) -> Option<Value> {
        if self.dice.once_in(12) {
            return None;
        }
        let mut answers = serde_json::Map::new();
        for request in &input.wanted.requests {
            let params: Value = serde_json::from_slice(&request.params).unwrap();
            if let Some(answer) = Self::answer(&mut self.dice, &params, self.visit.principal.as_str()) {
                answers.insert(request.key.clone(), answer);
            }
        }
        let state: Value = serde_json::from_slice(input.wanted.state.as_deref().unwrap()).unwrap();
        Some(json!({ "inputResponses": answers, "requestState": state }))
    }

    /// Two that bring one handle hear the same.
    fn twins(&self, label: &str, one: &Option<Outcome>, two: &Option<Outcome>) {
        let text = |outcome: &Option<Outcome>| match outcome {
            Some(Ok(Answer::Upstream { response, .. })) => format!("{:?}", response.result()),
            Some(Ok(Answer::InputRequired(input))) => format!("{:?}", input.wanted),
            other => format!("{other:?}"),
        };
        if text(one) != text(two) {
            self.world.fault(format!("{label}: {} and {}", text(one), text(two)));
        }
    }

    /// Another principal, and another call, get nothing by a handle that was sealed.
    async fn strangers(&self, arguments: &Value, label: &str, retry: &Value) {
        if arguments["stateless"] == true {
            // The handle of such a server is sealed by the hall, which is not here.
            return;
        }
        let mut other = Self::new(&self.world, &self.door, &self.tasks, self.number, Dice(1));
        other.visit.principal = PrincipalId::new("stranger");
        let mut changed = arguments.clone();
        changed["label"] = json!("another");
        for (stranger, arguments) in [(&other, arguments), (self, &changed)] {
            let call = stranger.call(arguments, retry);
            let state = retry["requestState"].as_str().unwrap();
            let opened = stranger.door.parked.open(&stranger.visit.principal, state);
            let outcome = match opened {
                // The hall refuses what is no handle of ours.
                None => continue,
                Some(_) => {
                    Self::hear(
                        &self.world,
                        label,
                        stranger.door.call_of_stateless(
                            &stranger.visit,
                            stranger.exchange(Owner::principal(stranger.visit.principal.clone()), call),
                        ),
                    )
                    .await
                }
            };
            if !matches!(outcome, Some(Err(_))) {
                self.world.fault(format!("{label}: a stranger got {outcome:?}"));
            }
        }
    }

    /// An answer is the call's own, or a refusal.
    fn judge(&self, label: &str, outcome: Outcome) {
        if let Ok(Answer::Upstream { response, .. }) = outcome {
            let result: Value = serde_json::from_slice(&response.result().unwrap()).unwrap();
            if result["of"] != label {
                self.world.fault(format!("{label} got {result}"));
            }
        }
    }
}

async fn simulate(seed: u64) -> usize {
    let mut dice = Dice(seed);
    let world = Arc::new(World { dice: Mutex::new(Some(Dice(dice.roll()))), ..World::default() });
    let (tasks, drain) = (Tasks::new(), Drain::new());
    let settings = DownstreamSettings { question: QUESTION, ..DownstreamSettings::default() };
    let downstream = Downstream::new(settings, Arc::clone(&world), tasks.clone(), drain, Clock::manual());
    let door = downstream.door();
    let client = |number| Client::new(&world, door, &tasks, number, Dice(dice.roll()));
    let clients: Vec<Client> = (0..CLIENTS).map(client).collect();
    join_all(clients.into_iter().map(Client::run)).await;
    // Past every deadline.
    tokio::time::sleep(QUESTION * 60).await;
    assert_eq!(*world.faults.lock().unwrap(), Vec::<String>::new(), "seed {seed}");
    assert_eq!(world.out.load(Ordering::SeqCst), 0, "seed {seed}: something was not given back");
    assert_eq!(door.parked.len(), 0, "seed {seed}: a call is parked after its deadline");
    assert_eq!(downstream.sessions(), 0, "seed {seed}");
    let twice: Vec<String> =
        world.settled.lock().unwrap().iter().filter(|(_, times)| **times > 1).map(|(label, _)| label.clone()).collect();
    assert_eq!(twice, Vec::<String>::new(), "seed {seed}: settled twice");
    assert_eq!(tasks.panics(), 0, "seed {seed}");
    tasks.cancel();
    world.answered.load(Ordering::SeqCst)
}

#[test]
fn whatever_clients_and_servers_do_each_gets_its_own() {
    let mut answered = 0;
    for seed in 0..SEEDS {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        answered += runtime.block_on(simulate(seed));
    }
    assert!(answered > 1_000, "only {answered} questions were answered: the simulation does too little");
}
