"""What goes over the wire on both sides of the gateway: recorded as it passes, and judged by the protocol's own schemas.

`Tap` leads a port to another and writes down every message of MCP over HTTP. As a program:

    .venv/bin/python wire.py tap LOG COMMAND...   does so for a child's pipes, and ends as the child ends
    .venv/bin/python wire.py judge FOLDER...      judges the logs of `Tap` and `tap` in these folders; --whole: there must be
                                                  all that the two newest revisions have

A log's name says what the gateway is there: `NAME.as-server.jsonl`, `NAME.as-client.jsonl`. `Judge` reads such logs. Every message that the gateway has sent gets exactly one verdict, by the definition that the
revision its conversation has agreed on has for it: a request and a notification by their method, a result by the method
that it answers, an error by its code. What no definition is for is wrong. `self_test` breaks messages and wants each found.
"""

import base64
import copy
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter, deque
from pathlib import Path

SCHEMAS = Path(__file__).resolve().parent.parent / "fixtures" / "schema"
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
SESSIONS, STATELESS = REVISIONS[3], REVISIONS[4]
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
# What a request is answered with.
RESULTS = {
    "completion/complete": "CompleteResult",
    "elicitation/create": "ElicitResult",
    "initialize": "InitializeResult",
    "logging/setLevel": "EmptyResult",
    "ping": "EmptyResult",
    "prompts/get": "GetPromptResult",
    "prompts/list": "ListPromptsResult",
    "resources/list": "ListResourcesResult",
    "resources/read": "ReadResourceResult",
    "resources/subscribe": "EmptyResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/unsubscribe": "EmptyResult",
    "roots/list": "ListRootsResult",
    "sampling/createMessage": "CreateMessageResult",
    "server/discover": "DiscoverResult",
    "subscriptions/listen": "SubscriptionsListenResult",
    "tools/call": "CallToolResult",
    "tools/list": "ListToolsResult",
}
ASK_BACK = ("prompts/get", "resources/read", "tools/call")
ERRORS = {
    -32020: "HeaderMismatchError",
    -32021: "MissingRequiredClientCapabilityError",
    -32022: "UnsupportedProtocolVersionError",
    -32042: "URLElicitationRequiredError",
}


# === recording ===


class Log:
    """A file of messages, one a line."""

    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8", buffering=1)
        self.lock = threading.Lock()

    def note(self, sender, text, **more):
        try:
            said = {"message": json.loads(text)}
        except ValueError:
            said = {"text": text}
        with self.lock:
            self.file.write(json.dumps({"from": sender, **more, **said}) + "\n")


def http_messages(begin):
    """Reads one direction of HTTP/1.1; is sent the bytes as they pass, and nothing at the end. `begin(start line, fields)`
    returns what takes a body's pieces, and `None` at its end."""
    data = b""
    while True:
        while b"\r\n\r\n" not in data:
            more = yield
            if not more:
                return
            data += more
        head, data = data.split(b"\r\n\r\n", 1)
        start, *fields = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, value in (field.split(":", 1) for field in fields)}
        if start.startswith("HTTP/1.1 1"):
            continue
        take = begin(start, fields)
        if "chunked" in fields.get("transfer-encoding", ""):
            size = 1
            while size:
                while b"\r\n" not in data:
                    data += yield
                line, data = data.split(b"\r\n", 1)
                size = int(line.split(b";")[0], 16)
                while len(data) < size + 2:
                    data += yield
                if size:
                    take(data[:size])
                data = data[size + 2 :]
        elif "content-length" in fields or not start.startswith("HTTP/") or " 204 " in start or " 202 " in start:
            left = int(fields.get("content-length", 0))
            while left:
                data = data or (yield)
                piece, data = data[:left], data[left:]
                take(piece)
                left -= len(piece)
        else:
            data = data or (yield)
            while data:
                take(data)
                data = yield
        take(None)


def events(note):
    """Takes an event stream's pieces and hands on what each event says."""
    text = b""

    def take(piece):
        nonlocal text
        text += (piece or b"\n\n").replace(b"\r\n", b"\n")
        *blocks, text = text.split(b"\n\n")
        for block in blocks:
            lines = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
            if any(lines):
                note(b"\n".join(lines).decode("utf-8", "replace"))

    return take


def whole(note):
    """Takes a body's pieces and hands it on, if there is one."""
    pieces = []

    def take(piece):
        if piece is not None:
            pieces.append(piece)
        elif any(pieces):
            note(b"".join(pieces).decode("utf-8", "replace"))

    return take


class Tap(threading.Thread):
    """A port of 127.0.0.1 that leads to another; what passes is written down. It ends with this script."""

    def __init__(self, target, path):
        super().__init__(daemon=True)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.target, self.log, self.numbers = target, Log(path), itertools.count()
        self.start()

    def run(self):
        import asyncio  # here alone: a child's tap starts with each child

        asyncio.run(self.serve(asyncio))

    async def serve(self, asyncio):
        self.asyncio = asyncio
        server = await asyncio.start_server(self.lead, sock=self.socket)
        await server.serve_forever()

    def readers(self):
        """What reads a connection's two directions."""
        waiting = deque()

        def request(start, fields):
            # In HTTP+SSE the query says whose stream the answer comes on.
            query = start.split(" ")[1].partition("?")[2]
            facts = {"exchange": next(self.numbers), "session": fields.get("mcp-session-id") or query or None,
                     "version": fields.get("mcp-protocol-version")}
            waiting.append(facts)
            return whole(lambda text: self.log.note("client", text, **facts))

        def response(_start, fields):
            facts = waiting.popleft()
            facts = {**facts, "session": fields.get("mcp-session-id") or facts["session"]}

            def said(text):
                if text.startswith("/") and "?" in text:
                    facts["session"] = text.partition("?")[2]  # the first event of HTTP+SSE: where to post
                else:
                    self.log.note("server", text, **facts)

            return (events if fields.get("content-type", "").startswith("text/event-stream") else whole)(said)

        return http_messages(request), http_messages(response)

    async def lead(self, reader, writer):
        try:
            far_reader, far_writer = await self.asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return

        async def copy(source, sink, sender, read):
            next(read)
            try:
                while data := await source.read(1 << 16):
                    sink.write(data)
                    self.tell(read, data, sender)
                    await sink.drain()
            except OSError:
                pass  # a peer that ends its connection ends the other's
            finally:
                self.tell(read, b"", sender)
                sink.close()

        out, back = self.readers()
        await self.asyncio.gather(copy(reader, far_writer, "client", out), copy(far_reader, writer, "server", back))


    def tell(self, read, data, sender):
        try:
            read.send(data)
        except StopIteration:
            pass
        except (ValueError, IndexError) as error:  # what follows is not read: the judge has to know
            self.log.note(sender, f"no HTTP: {error!r}")


def tap_child(path, argv):
    """The program: a child whose lines are written down, in a log of its own: its number goes into the name."""
    log = Log(path.replace(".as-", f".{os.getpid()}.as-"))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the group is told; the child decides
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def copy(sender, source, sink):
        for line in source:
            log.note(sender, line.decode("utf-8", "replace"))
            try:
                sink.write(line)
                sink.flush()
            except OSError:
                break
        try:
            sink.close()
        except OSError:
            pass

    threading.Thread(target=copy, args=("client", sys.stdin.buffer, child.stdin), daemon=True).start()
    copy("server", child.stdout, sys.stdout.buffer)
    return child.wait()


# === judging ===


def is_uri(text):
    return bool(re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:([A-Za-z0-9:/?#\[\]@!$&'()*+,;=._~-]|%[0-9A-Fa-f]{2})*", text))


def is_template(text):
    return is_uri(re.sub(r"\{[+#./;?&]?[A-Za-z0-9_.,*:%]+\}", "x", text))


def is_base64(text):
    try:
        return base64.b64decode(text, validate=True) is not None
    except ValueError:
        return False


def replace(schema, old, new):
    """Replaces a name of a type in a schema, wherever it stands in a list of types."""
    for key, inner in schema.items() if isinstance(schema, dict) else enumerate(schema):
        if key == "type" and isinstance(inner, list):
            schema[key] = [new if one == old else one for one in inner]
        elif isinstance(inner, (dict, list)):
            replace(inner, old, new)


class Schema:
    """The definitions of one revision."""

    def __init__(self, revision):
        import jsonschema  # of the lab; the program needs none of it

        self.revision = revision
        whole = json.loads((SCHEMAS / f"{revision}.json").read_text(encoding="utf-8"))
        self.under = "$defs" if "$defs" in whole else "definitions"
        self.definitions = whole[self.under]
        if "ElicitResult" in self.definitions:
            # The specification's `number` became `integer` here alone: a form may ask for numbers.
            replace(self.definitions["ElicitResult"], "integer", "number")
        self.kind = jsonschema.Draft202012Validator if self.under == "$defs" else jsonschema.Draft7Validator
        self.formats = jsonschema.FormatChecker(formats=())
        for name, check in (("uri", is_uri), ("uri-template", is_template), ("byte", is_base64)):
            self.formats.checks(name)(lambda value, check=check: not isinstance(value, str) or check(value))
        self.validators = {}

    def method_of(self, name):
        return self.definitions[name].get("properties", {}).get("method", {}).get("const")

    def methods(self, sender, kind):
        """The methods of all that one side may say."""
        return {self.method_of(name) for name in self.union(sender, kind)}

    def named(self, sender, kind, method):
        """The definition of what one side may say: "client", "Request", "tools/call"."""
        return next((name for name in self.union(sender, kind) if self.method_of(name) == method), None)

    def union(self, sender, kind):
        """The names of all definitions of what one side may say."""
        union = self.definitions.get(sender.capitalize() + kind, {})
        names = [one["$ref"].rsplit("/", 1)[1] for one in union.get("anyOf", [])]
        if not names and union:  # a union of one is written out
            one = union["properties"]["method"]["const"]
            names = [name for name in self.definitions if name.endswith(kind) and self.method_of(name) == one]
        return names

    def errors(self, name, value):
        """What is wrong with a value, as texts."""
        if name not in self.definitions:
            return [f"{self.revision} has no {name}"]
        if name not in self.validators:
            schema = {"$ref": f"#/{self.under}/{name}", self.under: self.definitions}
            self.validators[name] = self.kind(schema, format_checker=self.formats)
        found = self.validators[name].iter_errors(value)
        return [f"{name}: {'/'.join(str(part) for part in one.absolute_path)}: {one.message[:300]}" for one in found]

    def envelope(self, *names):
        return next(name for name in names if name in self.definitions)

    def judge(self, sender, message, method):
        """What a message is, and what is wrong with it; `method` is what an answer is to."""
        if not isinstance(message, dict):
            return "no message", [f"no message: {str(message)[:100]}"]
        if "method" in message:
            kind = "Request" if "id" in message else "Notification"
            what = f"{kind.lower()} {message['method']}"
            name = self.named(sender, kind, message["method"])
            if name is None:
                return what, [f"{self.revision} has no such {kind.lower()} of a {sender}"]
            return what, self.errors(f"JSONRPC{kind}", message) + self.errors(name, message)
        if "error" in message:
            name = self.envelope("JSONRPCErrorResponse", "JSONRPCError")
            code = message["error"].get("code") if isinstance(message["error"], dict) else None
            of_code = ERRORS.get(code)
            errors = self.errors(name, message)
            if of_code:
                errors += self.errors(of_code, message)
            return f"error {code}", errors
        if "result" not in message:
            return "no message", ["neither request nor answer"]
        what, name = f"result {method}", RESULTS.get(method)
        if name is None:
            return what, ["a result for which there is no definition"]
        result = message["result"]
        if isinstance(result, dict) and result.get("resultType") == "input_required":
            what, name = f"input for {method}", "InputRequiredResult" if method in ASK_BACK else "EmptyResult"
            if method not in ASK_BACK:
                return what, ["no request that may be answered so"]
        envelope = self.envelope("JSONRPCResultResponse", "JSONRPCResponse")
        return what, self.errors(envelope, message) + self.errors(name, result)


class Judge:
    """The verdicts on all that the gateway has said."""

    def __init__(self):
        self.schemas = {revision: Schema(revision) for revision in REVISIONS}
        self.counts = Counter()
        self.wrong = []

    def read(self, path, gateway):
        """Judges a log in which the gateway is the "client" or the "server"."""
        with open(path, encoding="utf-8") as file:
            return self.judge(path.name, map(json.loads, file), gateway)

    def judge(self, name, records, gateway):
        """Returns how many messages were judged."""
        talk, judged = Conversation(), 0
        for record in records:
            if "text" in record:
                if record["from"] == gateway:
                    judged += 1
                    self.verdict(name, gateway, STATELESS, "no message", [f"no JSON: {record['text'][:100]!r}"])
                continue
            message = record["message"]
            for one in message if isinstance(message, list) else [message]:
                revision, method = talk.hear(record, one)
                if record["from"] != gateway:
                    continue
                judged += 1
                what, errors = self.schemas[revision].judge(gateway, one, method)
                if method is None and isinstance(one, dict) and "method" not in one and one.get("id") is not None:
                    errors = [*errors, "an answer to what nobody asked"]
                self.verdict(name, gateway, revision, what, errors)
        return judged

    def verdict(self, name, gateway, revision, what, errors):
        self.counts[gateway, revision, what] += 1
        if errors:
            self.wrong.append(f"{name}: as a {gateway}, {revision}, {what}: {'; '.join(errors[:3])}")


class Conversation:
    """Which revision each message of a log is of, and what each answer is to."""

    def __init__(self):
        self.sessions = {}  # id → revision
        self.exchanges = {}  # number → revision
        self.asked = {}  # (who asked, where, id) → (method, revision)
        self.agreed = None  # on a pipe

    def places(self, record):
        """Where an answer may be looked for: in its exchange, in its session, on its pipe."""
        if "exchange" not in record:
            return ["pipe"]
        return [("exchange", record["exchange"])] + [("session", record["session"])] * bool(record["session"])

    def hear(self, record, message):
        """The revision of a message, and the method that it is an answer to."""
        if not isinstance(message, dict):
            return STATELESS, None
        if "method" in message:
            revision = self.revision(record, message)
            if "exchange" in record and record["from"] == "client":
                self.exchanges[record["exchange"]] = revision
            if "id" in message:
                for place in self.places(record):
                    self.asked[record["from"], place, json.dumps(message["id"])] = (message["method"], revision)
            return revision, None
        other = "server" if record["from"] == "client" else "client"
        keys = [(other, place, json.dumps(message.get("id"))) for place in self.places(record)]
        method, revision = next((self.asked[key] for key in keys if key in self.asked), (None, None))
        if method == "initialize" and "result" in message:
            told = message["result"].get("protocolVersion")
            revision = self.agreed = told if told in REVISIONS else revision
            if record.get("session"):
                self.sessions[record["session"]] = revision
        return revision or self.revision(record, message), method

    def revision(self, record, message):
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        told = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
        candidates = [told, params.get("protocolVersion") if message.get("method") == "initialize" else None]
        if "exchange" in record:
            candidates += [self.sessions.get(record["session"])]
            if record["from"] == "server":
                candidates += [self.exchanges.get(record["exchange"])]
            candidates += [record["version"]]
        else:
            candidates += [self.agreed]
        fallback = SESSIONS if message.get("method") == "initialize" else STATELESS
        return next((one for one in candidates if isinstance(one, str) and one in REVISIONS), fallback)


# What a whole run does not have, though the revision has it.
LACKING = {
    ("server", SESSIONS): {
        "request ping": "the gateway asks no client whether it is there",
        "notification notifications/cancelled": "no scenario ends a call while its question is out",
        "notification notifications/elicitation/complete": "no scenario has a page to visit",
    },
    ("client", SESSIONS): {
        "request ping": "the gateway asks no server whether it is there",
        "notification notifications/roots/list_changed": "the gateway declares no roots.listChanged",
        "notification notifications/progress": "the gateway tells of no progress with a question",
    },
    ("server", STATELESS): {
        "notification notifications/cancelled": "over HTTP a listen ends with its stream",
    },
}


def check_coverage(checks, judge):
    """Every request, notification and result that a revision has was judged, or there is a reason."""
    for gateway, revision in itertools.product(("server", "client"), (SESSIONS, STATELESS)):
        schema, answered = judge.schemas[revision], "Client" if gateway == "server" else "Server"
        wanted = set()
        for kind in ("Request", "Notification"):
            methods = schema.methods(gateway, kind)
            wanted |= {f"{kind.lower()} {method}" for method in methods}
        wanted |= {f"result {method}" for method in schema.methods(answered, "Request")}
        wanted = {what for what in wanted if "tasks" not in what}  # the upstream has none
        seen = {what for (side, of, what) in judge.counts if (side, of) == (gateway, revision)}
        reasons = LACKING.get((gateway, revision), {})
        checks.equal(f"wire: as a {gateway}, {revision}, nothing is missing", sorted(wanted - seen - set(reasons)), [])
        checks.equal(f"wire: as a {gateway}, {revision}, what is said to be missing is", sorted(set(reasons) & seen), [])


def judge_folders(checks, judge, folders):
    """One line for each side and revision, and one for each message that is wrong."""
    for folder in folders:
        logs = sorted([*folder.rglob("*.as-server.jsonl"), *folder.rglob("*.as-client.jsonl")])
        checks.check(f"wire: there are logs in {folder.name}", logs)
        judged = Counter()
        for log in logs:
            # A child may be ended before it is asked anything: those of one server count together.
            name = re.sub(r"\.\d+(?=\.as-)", "", log.name)
            judged[name] += judge.read(log, "server" if log.name.endswith(".as-server.jsonl") else "client")
        for name, count in judged.items():
            checks.check(f"wire: {name} has messages of the gateway", count)
    for gateway, revision in sorted({key[:2] for key in judge.counts}):
        counts = {what: count for (side, of, what), count in judge.counts.items() if (side, of) == (gateway, revision)}
        print(f"      as a {gateway}, {revision}: {sum(counts.values())} messages: "
              + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())), flush=True)
    for wrong, times in Counter(judge.wrong).items():
        checks.check(f"wire: {wrong} ({times} times)", False)
    checks.check(f"wire: all {sum(judge.counts.values())} messages of the gateway are of their revision", not judge.wrong)


# === the judge itself ===


def self_test(checks):
    """Good messages pass; each broken one is found."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}}
    meta = {VERSION_KEY: STATELESS, "io.modelcontextprotocol/clientCapabilities": {}}
    modern = {**call, "params": {"name": "t", "_meta": meta}}
    done = {"content": [{"type": "resource_link", "uri": "a:b", "name": "n"}]}

    def answer(result):
        return {"jsonrpc": "2.0", "id": 1, "result": result}

    def note(method, params):
        return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}

    def judged(sender, revision, before, message):
        judge = Judge()
        records = [{"from": "client" if sender == "server" else "server", "message": one} for one in before]
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": revision}}
        welcome = {"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": revision, "capabilities": {},
                                                          "serverInfo": {"name": "s", "version": "1"}}}
        if revision != STATELESS:
            hello["params"].update(capabilities={}, clientInfo={"name": "c", "version": "1"})
            records = [{"from": "client", "message": hello}, {"from": "server", "message": welcome}, *records]
        count = judge.judge("self-test", [*records, {"from": sender, "message": message}], sender)
        return count, judge.wrong

    good = [
        ("server", SESSIONS, [call], answer(done)),
        ("server", "2025-06-18", [call], answer(done)),
        ("server", STATELESS, [modern], answer({**done, "resultType": "complete"})),
        ("server", SESSIONS, [], note("progress", {"progressToken": 1, "progress": 1})),
        ("client", STATELESS, [], modern),
        ("client", SESSIONS, [], call),
        ("server", SESSIONS, [call], {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no"}}),
        ("client", SESSIONS, [{"jsonrpc": "2.0", "id": 1, "method": "roots/list"}], answer({"roots": []})),
    ]
    for sender, revision, before, message in good:
        count, wrong = judged(sender, revision, before, message)
        what = message.get("method", "answer")
        checks.check(f"wire: a good {what} of a {sender}, {revision}, passes", count and not wrong, "; ".join(wrong))

    def without(message, *path):
        message = copy.deepcopy(message)
        inner = message
        for part in path[:-1]:
            inner = inner[part]
        del inner[path[-1]]
        return message

    def replaced(message, value, *path):
        message = copy.deepcopy(message)
        inner = message
        for part in path[:-1]:
            inner = inner[part]
        inner[path[-1]] = value
        return message

    bad = {
        "a result without what its method promises": ("server", SESSIONS, [call], without(good[0][3], "result", "content")),
        "a URI that is none": ("server", SESSIONS, [call], replaced(good[0][3], "a b", "result", "content", 0, "uri")),
        "a stateless result without its type": ("server", STATELESS, [modern], answer(done)),
        "input wanted of a list": ("server", STATELESS, [replaced(modern, "tools/list", "method")],
                                   answer({"resultType": "input_required", "requestState": "s"})),
        "an answer to nothing": ("server", SESSIONS, [], answer(done)),
        "an answer under another id": ("server", SESSIONS, [call], replaced(good[0][3], "1", "id")),
        "a notification without a token": ("server", SESSIONS, [], note("progress", {"progress": 1})),
        "a request of a later revision": ("server", "2025-03-26", [], {"jsonrpc": "2.0", "id": 1,
                                          "method": "elicitation/create", "params": {"message": "?", "requestedSchema":
                                          {"type": "object", "properties": {}}}}),
        "a request of the other side": ("server", SESSIONS, [], call),
        "a stateless request without capabilities": ("client", STATELESS, [], without(modern, "params", "_meta",
                                                     "io.modelcontextprotocol/clientCapabilities")),
        "an error without words": ("server", SESSIONS, [call], {"jsonrpc": "2.0", "id": 1, "error": {"code": 1}}),
        "a refused version that names none": ("server", STATELESS, [modern], {"jsonrpc": "2.0", "id": 1, "error":
                                              {"code": -32022, "message": "no", "data": {}}}),
        "an answer of a client that is none": ("client", SESSIONS, [{"jsonrpc": "2.0", "id": 1, "method": "roots/list"}],
                                               answer({})),
        "what is no message": ("server", SESSIONS, [], {"jsonrpc": "2.0"}),
        "text": ("server", SESSIONS, [], "hello"),
    }
    for what, (sender, revision, before, message) in bad.items():
        count, wrong = judged(sender, revision, before, message)
        checks.check(f"wire: {what} is found", count and wrong, repr(message))


def main():
    if sys.argv[1] == "tap":
        return tap_child(sys.argv[2], sys.argv[3:])
    import labkit

    whole, folders = "--whole" in sys.argv, [Path(one) for one in sys.argv[2:] if one != "--whole"]
    checks, judge = labkit.Checks(), Judge()
    self_test(checks)
    judge_folders(checks, judge, folders)
    if whole:
        check_coverage(checks, judge)
    return checks.summary()


if __name__ == "__main__":
    sys.exit(main())
