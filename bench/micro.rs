//! The pieces of a call alone: bytes in, bytes out, nothing but the crate's public interface.
//!
//! `micro` prints nanoseconds per run of every piece, the least and the median of 15 batches. `micro CASE` measures one;
//! `micro --once CASE` runs one a fixed number of times and says how often, for callgrind.
#![expect(clippy::print_stdout, reason = "a program's own output")]
#![expect(clippy::disallowed_methods, reason = "a program of its own, without the gateway's clock")]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use portcullis::catalog::{Catalog, HeaderRule, Lists, Scope, ServerLists, Shape, View};
use portcullis::id::UpstreamName;
use portcullis::policy::{Action, Pattern, Profile, Subject};
use portcullis::wire::bridge::{ClientSide, Hop, lift_result, lower_call, server_info};
use portcullis::wire::jsonrpc::{Decoded, Limits, Message, Request, RequestId, Response, decode};
use portcullis::wire::mcp::{CallParams, Definition, Era, Kind, LEGACY_LATEST, Method, RequestMeta, STATELESS_LATEST};

type Failure = Box<dyn std::error::Error>;

const BATCHES: usize = 15;
const BATCH_NANOS: u128 = 20_000_000;
/// What `--once` runs: so often, or so many bytes in sum where a piece is large.
const ONCE_RUNS: usize = 10_000;
const ONCE_BYTES: usize = 1 << 28;
const NAME_BUDGET: usize = 64;
const SERVER: &str = "docs";

const LEGACY_CALL: &str = r#"{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"docs__search","arguments":{"text":"where the bodies go","limit":10}}}"#;
const STATELESS_CALL: &str = r#"{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"docs__search","arguments":{"text":"where the bodies go","limit":10},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"micro","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#;

/// A piece of a call.
struct Piece {
    name: &'static str,
    /// Bytes that go in.
    bytes: usize,
    /// Runs it once; says how many bytes came out.
    run: Box<dyn Fn() -> Result<usize, Failure>>,
}

impl Piece {
    fn new(name: &'static str, bytes: usize, run: impl Fn() -> Result<usize, Failure> + 'static) -> Self {
        Self { name, bytes, run: Box::new(run) }
    }
}

fn request(raw: &Bytes) -> Result<Request, Failure> {
    match decode(raw, &Limits::DOWNSTREAM).map_err(|err| err.kind)? {
        Decoded::One(Message::Request(request)) => Ok(request),
        Decoded::One(Message::Notification(_) | Message::Response(_)) | Decoded::Batch(_) => Err("no request".into()),
    }
}

fn response(raw: &Bytes) -> Result<Response, Failure> {
    match decode(raw, &Limits::UPSTREAM).map_err(|err| err.kind)? {
        Decoded::One(Message::Response(response)) => Ok(*response),
        Decoded::One(Message::Notification(_) | Message::Request(_)) | Decoded::Batch(_) => Err("no response".into()),
    }
}

/// A call as the front door reads it.
fn read_piece(name: &'static str, call: &'static str) -> Piece {
    let raw = Bytes::from_static(call.as_bytes());
    Piece::new(name, raw.len(), move || {
        let request = request(black_box(&raw))?;
        let params = CallParams::read(Method::ToolsCall, request.params.as_deref().ok_or("no params")?)?;
        let meta = RequestMeta::read(request.params.as_deref())?;
        Ok(params.name.len() + usize::from(meta.is_stateless()))
    })
}

/// A call that was read, as the back door spells it for a server of an era.
fn lower_piece(name: &'static str, call: &'static str, era: Era) -> Result<Piece, Failure> {
    let request = request(&Bytes::from_static(call.as_bytes()))?;
    let params = CallParams::read(Method::ToolsCall, request.params.as_deref().ok_or("no params")?)?;
    let meta = RequestMeta::read(request.params.as_deref())?;
    let hop = Hop {
        era,
        id: 4711,
        name: b"\"search\"",
        capabilities: Bytes::from_static(b"{}"),
        client_info: Bytes::from_static(br#"{"name":"micro","version":"1"}"#),
        request_state: None,
        log: None,
        trace: None,
    };
    Ok(Piece::new(name, call.len(), move || Ok(lower_call(black_box(&request), &params, &meta, &hop).len())))
}

/// A server's answer, read and given the client's id.
fn answer_piece(name: &'static str, text_bytes: usize, from: Era, to: Era) -> Option<Piece> {
    let text = "x".repeat(text_bytes);
    let complete = if from == Era::Stateless { r#""resultType":"complete","# } else { "" };
    let raw = Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":4711,"result":{{{complete}"content":[{{"type":"text","text":"{text}"}}],"isError":false}}}}"#
    ));
    let id = RequestId::from_raw(Bytes::from_static(b"17"))?;
    let info = server_info();
    Some(Piece::new(name, raw.len(), move || {
        let response = response(black_box(&raw))?;
        let version = if to == Era::Stateless { STATELESS_LATEST } else { LEGACY_LATEST };
        let client = ClientSide { version, id: &id, server_info: &info, method: "tools/call" };
        Ok(lift_result(&response, from, &client)?.len())
    }))
}

fn view(tools: usize) -> Result<View, Failure> {
    let definitions: Result<Arc<[Definition]>, _> = (0..tools)
        .map(|number| {
            Definition::read(Kind::Tools, Bytes::from(format!(
                r#"{{"name":"tool_{number:04}","description":"Does what a tool of this name would do, with the text it is given.","inputSchema":{{"type":"object","properties":{{"text":{{"type":"string","description":"What it is done with"}}}},"required":["text"]}}}}"#
            )))
        })
        .collect();
    let mut lists = Lists::default();
    lists.set(Kind::Tools, definitions?);
    let list = ServerLists { server: UpstreamName::new(SERVER)?, lists, headers: HeaderRule::Check };
    Ok(View::build(&Catalog::merge(&[list], NAME_BUDGET), |_| true))
}

/// The name a client uses, found in a view of 1,000 and decided on under a policy of 20 patterns.
fn decide_piece(name: &'static str) -> Result<Piece, Failure> {
    let patterns = |texts: Vec<String>| texts.iter().map(|text| Pattern::new(text)).collect::<Result<Vec<_>, _>>();
    let profile = Profile {
        allowed_tools: Some(patterns((0..10).map(|number| format!("docs__tool_{number}*")).collect())?),
        excluded_tools: patterns((0..10).map(|number| format!("docs__tool_000{number}")).collect())?,
        ..Profile::default()
    };
    let granted = BTreeSet::from([UpstreamName::new(SERVER)?]);
    let view = view(1000)?;
    let wanted = "docs__tool_0500";
    Ok(Piece::new(name, wanted.len(), move || {
        let (index, entry) = view.resolve(Scope::All, Kind::Tools, black_box(wanted)).ok_or("not found")?;
        let action = Action { kind: entry.kind, server: &entry.server, shown: &entry.shown, full: &entry.full };
        let subject = Subject { granted: &granted, profile: Some(&profile) };
        subject.decide(&action).permit(index).map_err(|_| "denied")?;
        Ok(entry.original.len())
    }))
}

/// A page of a whole list, with the client's id.
fn list_piece(name: &'static str, tools: usize) -> Result<Piece, Failure> {
    let view = view(tools)?;
    let id = RequestId::from_raw(Bytes::from_static(b"17")).ok_or("no id")?;
    let page =
        |view: &View| view.page((Scope::All, Kind::Tools), Shape::Handshake, &view.full_mask(), 0, usize::MAX).items;
    let bytes = page(&view).len();
    Ok(Piece::new(name, bytes, move || {
        let mut result = b"{\"tools\":".to_vec();
        result.extend_from_slice(&page(black_box(&view)));
        result.push(b'}');
        Ok(Response::with_result(&id, &result).raw.len())
    }))
}

fn pieces() -> Result<Vec<Piece>, Failure> {
    const MIB: usize = 1 << 20;
    let answers = [
        answer_piece("answer-legacy", 20, Era::Legacy, Era::Legacy),
        answer_piece("answer-stateless", 20, Era::Stateless, Era::Stateless),
        answer_piece("answer-bridged", 20, Era::Legacy, Era::Stateless),
        answer_piece("answer-1MiB", MIB, Era::Legacy, Era::Legacy),
    ];
    let mut pieces = vec![
        read_piece("read-legacy", LEGACY_CALL),
        read_piece("read-stateless", STATELESS_CALL),
        lower_piece("lower-legacy", LEGACY_CALL, Era::Legacy)?,
        lower_piece("lower-stateless", STATELESS_CALL, Era::Stateless)?,
        lower_piece("lower-bridged", LEGACY_CALL, Era::Stateless)?,
        decide_piece("decide")?,
    ];
    pieces.extend(answers.into_iter().flatten());
    pieces.extend([list_piece("list-100", 100)?, list_piece("list-1000", 1000)?]);
    Ok(pieces)
}

/// Runs a piece so often; gives nanoseconds.
fn run(piece: &Piece, times: usize) -> Result<u128, Failure> {
    let start = Instant::now();
    for _ in 0..times {
        black_box((piece.run)()?);
    }
    Ok(start.elapsed().as_nanos())
}

/// Prints the least and the median of the batches.
fn measure(piece: &Piece) -> Result<(), Failure> {
    let mut times = 1;
    while run(piece, times)? < BATCH_NANOS {
        times *= 2;
    }
    let mut batches = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        batches.push(run(piece, times)? as f64 / times as f64);
    }
    batches.sort_by(f64::total_cmp);
    let at = |index: usize| batches.get(index).copied().unwrap_or_default();
    let (least, median) = (at(0), at(BATCHES / 2));
    println!("{:18} {:>9} B {least:>12.0} ns {median:>12.0} ns {:>8.2} GB/s", piece.name, piece.bytes, {
        piece.bytes as f64 / least
    });
    Ok(())
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let pieces = pieces()?;
    let find = |name: &str| {
        let known: Vec<_> = pieces.iter().map(|piece| piece.name).collect();
        pieces.iter().find(|piece| piece.name == name).ok_or_else(|| format!("cases: {}", known.join(", ")))
    };
    match words.as_slice() {
        [] => {
            println!("{:18} {:>11} {:>15} {:>15} {:>13}", "piece", "in", "least", "median", "at the least");
            pieces.iter().try_for_each(measure)
        }
        ["--once", name] => {
            let piece = find(name)?;
            let times = ONCE_RUNS.min(ONCE_BYTES / piece.bytes.max(1)).max(1);
            run(piece, times)?;
            println!("{name}: {times} times");
            Ok(())
        }
        [name] => measure(find(name)?),
        _ => Err("usage: micro [--once] [CASE]".into()),
    }
}
