"""A scripted MCP server with resources that can be watched.

Arguments: what it speaks (legacy, stateless) and how (stdio, http). Over HTTP it says its port on stdout. Its tools: `touch`
changes the resource `uri` and tells whoever has subscribed to it or to what is above it; `subs` returns the resources that
are subscribed, each as often as it is; `forget` ends all sessions; `hold` tells of progress and answers at `release`, unless
it is cancelled; `pause` closes its stream and answers to who comes back, at `release` (legacy, http); `grow` makes one tool more and says so beside its answer alone; `log` returns what became of such calls, in order. A resource named `refused` is not subscribed to.
"""

import json
import queue
import select
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SPEAKS, HOW = sys.argv[1], sys.argv[2]
CAN = {"tools": {}, "resources": {"subscribe": True, "listChanged": True}}
COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"} if SPEAKS == "stateless" else {}
TOOLS = ["touch", "subs", "forget", "hold", "release", "log", "grow", "pause"]
lock = threading.Lock()
log = []
held = {}  # calls of `hold` that wait: where their answer goes, `None` if they are cancelled
paused = {}  # calls of `pause` by session, until somebody comes back
streams = {}  # whose: what it is subscribed to, and where it is told
names = iter(range(1, 1 << 30))


class Stream:
    def __init__(self, tell, meta):
        self.uris, self.tell, self.meta = [], tell, meta


def below(watched, uri):
    return uri == watched or uri.startswith(watched + "/")


def note(method, params):
    return {"jsonrpc": "2.0", "method": "notifications/" + method, "params": params}


def touch(uri):
    with lock:
        for stream in streams.values():
            if any(below(watched, uri) for watched in stream.uris):
                stream.tell(note("resources/updated", {"uri": uri, **stream.meta}))


def tool(name, arguments):
    if name == "touch":
        touch(arguments["uri"])
    with lock:
        if name == "forget":
            streams.clear()
        if name == "release":
            for request, tell in held.values():
                log.append("released")
                result = {"content": [], "structuredContent": {"held": True}, **COMPLETE}
                tell({"jsonrpc": "2.0", "id": request["id"], "result": result})
            held.clear()
        subs = sorted(uri for stream in streams.values() for uri in stream.uris)
        return {"content": [], "structuredContent": {"subs": subs, "log": log}, **COMPLETE}


def hold(request, key, tell):
    with lock:
        log.append("hold")
        held[key] = (request, tell)
    token = request["params"].get("_meta", {}).get("progressToken")
    if token is not None:
        tell(note("progress", {"progressToken": token, "progress": 1}))


def cancel(key):
    with lock:
        if key in held:
            log.append("cancelled")
            held.pop(key)[1](None)


def honoured(uris):
    return [uri for uri in uris if not uri.endswith("refused")]


def open_listen(request, tell):
    """Opens a listen, acknowledged first; returns its key."""
    wanted = request["params"]["notifications"].get("resourceSubscriptions")
    meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": request["id"]}}
    stream = Stream(tell, meta)
    accepted = {"resourcesListChanged": True}
    if wanted is not None:
        stream.uris = honoured(wanted)
        accepted = {"resourceSubscriptions": stream.uris}
    with lock:
        streams[("listen", request["id"])] = stream
        tell(note("subscriptions/acknowledged", {"notifications": accepted, **meta}))
    return ("listen", request["id"])


def answer(request, session):
    """The result of a request that is answered at once, or an error."""
    method, params = request["method"], request.get("params", {})
    if ("io.modelcontextprotocol/protocolVersion" in params.get("_meta", {})) != (SPEAKS == "stateless"):
        return {"error": {"code": -32601, "message": "no"}}
    if method == "initialize":
        info = {"name": "up", "version": "1"}
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": CAN, "serverInfo": info}}
    if method == "server/discover":
        return {"result": {"supportedVersions": ["2026-07-28"], "capabilities": CAN, **COMPLETE}}
    if method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
        return {"result": {"tools": tools, **COMPLETE}}
    if method == "resources/list":
        return {"result": {"resources": [{"uri": "file:///a", "name": "a"}], **COMPLETE}}
    if method == "resources/templates/list":
        return {"result": {"resourceTemplates": [], **COMPLETE}}
    if method == "tools/call":
        return {"result": tool(params["name"], params.get("arguments", {}))}
    if method in ("resources/subscribe", "resources/unsubscribe") and SPEAKS == "legacy":
        if not honoured([params["uri"]]):
            return {"error": {"code": -32602, "message": "no"}}
        with lock:
            uris = streams[session].uris
            uris.append(params["uri"]) if method.endswith("/subscribe") else uris.remove(params["uri"])
        return {"result": {}}
    return {"error": {"code": -32601, "message": "no"}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_DELETE(self):
        with lock:
            streams.pop(self.headers.get("Mcp-Session-Id"), None)
        self.reply(200, b"")

    def do_GET(self):
        with lock:
            stream = streams.get(self.headers.get("Mcp-Session-Id"))
        if stream is None:
            return self.reply(404, b"")
        if self.headers.get("Last-Event-ID"):
            return self.come_back(self.headers["Mcp-Session-Id"])
        self.stream(lambda tell: setattr(stream, "tell", tell), self.headers["Mcp-Session-Id"])

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session = self.headers.get("Mcp-Session-Id")
        if session is not None and session not in streams:
            return self.reply(404, b"")
        if request["method"] == "notifications/cancelled":
            cancel((session, request["params"]["requestId"]))
        if "id" not in request:
            return self.reply(202, b"")
        if request["method"] == "tools/call" and request["params"]["name"] == "grow":
            return self.grow(request)
        if request["method"] == "tools/call" and request["params"]["name"] == "hold":
            return self.hold(request, (session, request["id"]))
        if request["method"] == "tools/call" and request["params"]["name"] == "pause":
            return self.pause(request, session)
        if request["method"] == "subscriptions/listen" and SPEAKS == "stateless":
            return self.stream(lambda tell: open_listen(request, tell))
        said = answer(request, session)
        more = {}
        if request["method"] == "initialize" and "result" in said:
            more["Mcp-Session-Id"] = f"s-{next(names)}"
            with lock:
                streams[more["Mcp-Session-Id"]] = Stream(lambda _: None, {})
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}).encode()
        status = 400 if said.get("error", {}).get("code") == -32601 else 200
        self.reply(status, body, more)

    def grow(self, request):
        TOOLS.append("grown")
        said = [note("tools/list_changed", {}), {"jsonrpc": "2.0", "id": request["id"], **answer(request, None)}]
        body = "".join(f"data: {json.dumps(message)}\n\n" for message in said).encode()
        self.reply(200, body, {}, "text/event-stream")

    def hold(self, request, key):
        self.stream(lambda tell: hold(request, key, tell), key, held)
        # Until 2025-11-25 a lost connection says nothing.
        if SPEAKS == "stateless":
            cancel(key)

    def pause(self, request, session):
        with lock:
            log.append("hold")
            paused[session] = request
        self.reply(200, b"id: e-1\nretry: 10\ndata:\n\n", {}, "text/event-stream")

    def come_back(self, session):
        request = paused.pop(session)

        def again(tell):
            with lock:
                log.append("back")
                held[session, request["id"]] = (request, tell)

        self.stream(again, (session, request["id"]), held)

    def reply(self, status, body, more=None, media="application/json"):
        self.send_response(status)
        for name, value in (more or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, begin, key=None, alive=streams):
        told = queue.Queue()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        key = begin(told.put) or key
        try:
            while (key in alive or not told.empty()) and not self.gone():
                try:
                    message = told.get(timeout=0.02)
                except queue.Empty:
                    continue
                if message is None:
                    break
                self.wfile.write(f"data: {json.dumps(message)}\n\n".encode())
                self.wfile.flush()
        except OSError:
            pass
        if alive is streams and key[0] == "listen":
            with lock:
                streams.pop(key, None)
        self.close_connection = True

    def gone(self):
        readable = select.select([self.connection], [], [], 0)[0]
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)


def stdio():
    def tell(message):
        if message is not None:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    streams["pipe"] = Stream(tell, {})
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("method") == "notifications/cancelled":
            with lock:
                streams.pop(("listen", request["params"]["requestId"]), None)
            cancel(("pipe", request["params"]["requestId"]))
        if "id" not in request:
            continue
        if request["method"] == "subscriptions/listen" and SPEAKS == "stateless":
            open_listen(request, tell)
        elif request["method"] == "tools/call" and request["params"]["name"] == "hold":
            hold(request, ("pipe", request["id"]), tell)
        else:
            tell({"jsonrpc": "2.0", "id": request["id"], **answer(request, "pipe")})


if HOW == "stdio":
    stdio()
else:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # a client that has gone
    print(server.server_port, flush=True)
    server.serve_forever()
