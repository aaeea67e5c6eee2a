"""A scripted MCP server that does everything that servers do, in either era, over any transport.

Arguments: what it speaks (legacy, stateless), how (stdio, http, sse), the path of its log, and, if it is not the newest of its era,
the revision. To its log it writes each message that it reads and each that it sends, as {"from": "gateway" or "server",
"message"}, with the headers over HTTP, and over HTTP+SSE the session. Over HTTP it says its port on stdout. Its tools: `echo` returns what it was called with; `count` reports progress; `logs` logs at two levels; `hold`
never answers; `quiz` asks `rounds` of questions and returns the `answers`; `touch` tells of an update of `uri`; `grow` adds one
entry to each list and tells of it.
"""

import json
import os
import queue
import select
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SPEAKS, HOW, PATH = sys.argv[1:4]
SESSIONS = sys.argv[4] if len(sys.argv) > 4 else "2025-11-25"
STATELESS = SPEAKS == "stateless"
META = "io.modelcontextprotocol/"
COMPLETE = {"resultType": "complete"} if STATELESS else {}
CACHED = {**COMPLETE, "ttlMs": 0, "cacheScope": "public"} if STATELESS else {}
CAN = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
INFO = {"name": "whole", "version": "1"}
TOOLS = ["echo", "count", "logs", "hold", "quiz", "touch", "grow"]

lock = threading.Lock()
log = open(PATH, "a", encoding="utf-8", buffering=1)
grown = []
answers = {}  # our questions: where their answers go
held = {}  # calls that hang, by id
sessions = {}  # the older era: what each session watches, and what it is told of no call
listens = {}  # what is told of no call, in the newer era: filter and stream by id
numbers = iter(range(1000, 1 << 30))


def note_down(who, message, **more):
    with lock:
        log.write(json.dumps({"from": who, "message": message, **more}) + "\n")


def note(method, params):
    return {"jsonrpc": "2.0", "method": "notifications/" + method, "params": params}


def spread(wanted, method, params):
    """Tells of something that belongs to no call: `wanted` says of a listen's filter, or of what a session watches, whether it
    is told."""
    if not STATELESS:
        for watched, beside in list(sessions.values()):
            if wanted is None or wanted(watched):
                beside.put(note(method, params))
        return
    with lock:
        streams = [(id, tell) for id, (filter, tell) in listens.items() if wanted(filter)]
    for id, tell in streams:
        tell(note(method, {**params, "_meta": {META + "subscriptionId": id}}))


def grow():
    grown.append(len(grown))
    for kind in ("tools", "prompts", "resources"):
        spread((lambda filter, kind=kind: filter.get(kind + "ListChanged")) if STATELESS else None, kind + "/list_changed", {})


def touch(uri):
    if STATELESS:
        spread(lambda filter: uri in filter.get("resourceSubscriptions", []), "resources/updated", {"uri": uri})
    else:
        spread(lambda watched: uri in watched, "resources/updated", {"uri": uri})


def quiz(params, tell):
    rounds, given = params["arguments"]["rounds"], []
    if STATELESS:
        given = json.loads(params.get("requestState", "[]"))
        if "requestState" in params:
            got = params.get("inputResponses", {})
            given.append([got.get(f"k{at}") for at in range(len(rounds[len(given)]))])
        if len(given) < len(rounds):
            asked = {f"k{at}": question for at, question in enumerate(rounds[len(given)])}
            return {"resultType": "input_required", "inputRequests": asked, "requestState": json.dumps(given)}
        return {"content": [], "answers": given, **COMPLETE}
    for asked in rounds:
        waiting = []
        for question in asked:
            id, box = next(numbers), queue.Queue()
            answers[id] = box
            waiting.append(box)
            tell({"jsonrpc": "2.0", "id": id, **question})
        given.append([box.get(timeout=60) for box in waiting])
    return {"content": [], "answers": given}


def call(request, tell):
    """The result of a call; `None` if it never has one."""
    params = request["params"]
    name, meta = params["name"], params.get("_meta", {})
    if name == "count" and "progressToken" in meta:
        for at in range(1, 4):
            tell(note("progress", {"progressToken": meta["progressToken"], "progress": at, "total": 3}))
    if name == "logs":
        for level in ("debug", "error"):
            tell(note("message", {"level": level, "data": {"at": level}}))
    if name == "touch":
        touch(params["arguments"]["uri"])
    if name == "grow":
        grow()
    if name == "quiz":
        return quiz(params, tell)
    if name == "hold":
        held[json.dumps(request["id"])] = threading.Event()
        return None
    return {"content": [{"type": "text", "text": name}], "structuredContent": params.get("arguments", {}), **COMPLETE}


def listed(method):
    more = [f"grown-{at}" for at in grown]
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS + more], **CACHED}
    if method == "prompts/list":
        return {"prompts": [{"name": name, "arguments": [{"name": "who"}]} for name in ["greet"] + more], **CACHED}
    if method == "resources/list":
        return {"resources": [{"uri": f"test://{name}", "name": name} for name in ["a"] + more], **CACHED}
    return {"resourceTemplates": [{"uriTemplate": "test://t/{id}", "name": "t"}], **CACHED}


def answer(request, tell, session="pipe"):
    """The result or error of a request; `None` if it never has one."""
    method, params = request["method"], request.get("params", {})
    if (META + "protocolVersion" in params.get("_meta", {})) != STATELESS:
        return {"error": {"code": -32601, "message": "no"}}
    if method == "initialize":
        return {"result": {"protocolVersion": SESSIONS, "capabilities": CAN, "serverInfo": INFO}}
    if method == "server/discover":
        return {"result": {"supportedVersions": ["2026-07-28"], "capabilities": CAN, **CACHED}}
    if method.endswith("/list"):
        return {"result": listed(method)}
    if method == "tools/call":
        result = call(request, tell)
        return None if result is None else {"result": result}
    if method == "prompts/get":
        text = params["name"] + " " + params.get("arguments", {}).get("who", "")
        return {"result": {"messages": [{"role": "user", "content": {"type": "text", "text": text}}], **COMPLETE}}
    if method == "resources/read":
        if "missing" in params["uri"]:
            code = -32602 if STATELESS else -32002
            return {"error": {"code": code, "message": "Resource not found", "data": {"uri": params["uri"]}}}
        return {"result": {"contents": [{"uri": params["uri"], "text": params["uri"]}], **CACHED}}
    if method == "completion/complete":
        named = params["ref"].get("name", params["ref"].get("uri"))
        return {"result": {"completion": {"values": [named, params["argument"]["value"]]}, **COMPLETE}}
    if method == "logging/setLevel" and not STATELESS:
        return {"result": {}}
    if method in ("resources/subscribe", "resources/unsubscribe") and not STATELESS:
        watched = sessions[session][0]
        (watched.add if method.endswith("/subscribe") else watched.discard)(params["uri"])
        return {"result": {}}
    return {"error": {"code": -32601, "message": "no"}}


def heard(message):
    """What is no request: an answer to a question, or a notification."""
    if message.get("method") == "notifications/cancelled":
        id = message["params"]["requestId"]
        listens.pop(id, None)
        hanging = held.pop(json.dumps(id), None)
        if hanging is not None:
            hanging.set()
    elif "method" not in message and message.get("id") in answers:
        answers.pop(message["id"]).put(message.get("result", message.get("error")))


def listen(request, tell):
    filter = request["params"]["notifications"]
    with lock:
        listens[request["id"]] = (filter, tell)
    meta = {META + "subscriptionId": request["id"]}
    tell(note("subscriptions/acknowledged", {"notifications": filter, "_meta": meta}))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_DELETE(self):
        self.whole(200, b"")

    def do_GET(self):
        if STATELESS:
            return self.whole(405, b"")
        self.begin()
        beside = sessions[self.headers["Mcp-Session-Id"]][1]
        while not self.gone():
            try:
                self.tell(beside.get(timeout=0.02))
            except queue.Empty:
                continue
        return None

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        note_down("gateway", message, headers=dict(self.headers))
        if "method" not in message or "id" not in message:
            heard(message)
            return self.whole(202, b"")
        if message["method"] == "subscriptions/listen" and STATELESS:
            self.begin()
            listen(message, self.tell)
            while not self.gone():
                select.select([self.connection], [], [], 0.02)
            listens.pop(message["id"], None)
            return None
        if message["method"] == "tools/call":
            self.begin()
            said = answer(message, self.tell)
            if said is None:
                hanging = held[json.dumps(message["id"])]
                while not self.gone() and not hanging.is_set():
                    select.select([self.connection], [], [], 0.02)
                return note_down("gateway", "is gone")
            return self.tell({"jsonrpc": "2.0", "id": message["id"], **said})
        said = {"jsonrpc": "2.0", "id": message["id"], **answer(message, None, self.headers.get("Mcp-Session-Id"))}
        note_down("server", said)
        session = {}
        if message["method"] == "initialize" and "result" in said:
            session = {"Mcp-Session-Id": f"s-{next(numbers)}"}
            sessions[session["Mcp-Session-Id"]] = (set(), queue.Queue())
        status = 404 if said.get("error", {}).get("code") == -32601 else 200
        return self.whole(status, json.dumps(said).encode(), session)

    def whole(self, status, body, more=None):
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def begin(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def tell(self, message):
        note_down("server", message)
        try:
            self.wfile.write(f"data: {json.dumps(message)}\n\n".encode())
            self.wfile.flush()
        except OSError:
            pass

    def gone(self):
        try:
            readable = select.select([self.connection], [], [], 0)[0]
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True


class TwoUrls(Handler):
    """HTTP+SSE of 2024-11-05: a stream for all that is said, and a second URL for what is heard."""

    def do_GET(self):
        if self.path != "/sse":
            return self.whole(404, b"")
        number, said = str(next(numbers)), queue.Queue()
        sessions[number] = (set(), said)
        note_down("gateway", "opens", session=number)
        self.begin()
        self.wfile.write(f"event: endpoint\ndata: /messages?session={number}\n\n".encode())
        self.wfile.flush()
        while not self.gone():
            try:
                self.tell(said.get(timeout=0.02))
            except queue.Empty:
                continue
        del sessions[number]
        return note_down("gateway", "closes", session=number)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        number = self.path.partition("/messages?session=")[2]
        if not number:
            return self.whole(405, b"")
        # Also where the session is over: what was posted at its end has been heard all the same.
        message = json.loads(body)
        note_down("gateway", message, headers=dict(self.headers), session=number)
        if number not in sessions:
            return self.whole(404, b"")
        self.whole(202, b"")
        if "method" not in message or "id" not in message:
            return heard(message)
        return threading.Thread(target=self.serve, args=(message, number), daemon=True).start()

    @staticmethod
    def serve(message, number):
        said = sessions[number][1]
        answered = answer(message, said.put, number)
        if answered is not None:
            said.put({"jsonrpc": "2.0", "id": message["id"], **answered})


def stdio():
    writing = threading.Lock()

    def tell(message):
        note_down("server", message)
        with writing:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    def serve(message):
        said = answer(message, tell)
        if said is not None:
            tell({"jsonrpc": "2.0", "id": message["id"], **said})

    def tell_beside():
        while True:
            tell(sessions["pipe"][1].get())

    sessions["pipe"] = (set(), queue.Queue())
    threading.Thread(target=tell_beside, daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        note_down("gateway", message)
        if "method" not in message or "id" not in message:
            heard(message)
        elif message["method"] == "subscriptions/listen" and STATELESS:
            listen(message, tell)
        else:
            threading.Thread(target=serve, args=(message,), daemon=True).start()


note_down("gateway", dict(os.environ), environment=True)
if HOW == "stdio":
    stdio()
else:
    server = ThreadingHTTPServer(("127.0.0.1", 0), TwoUrls if HOW == "sse" else Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()
