"""A scripted MCP server for tests: stdio, or HTTP with --http; eras by --era legacy|stateless.

Tools are the names in the file $TOOLS (one a line; read again for each list), or all of TOOLS below. What a tool does:
echo: answers with the request as received, and a result full of spellings that must survive
mark: waits a random moment, sends progress if asked to, answers with its argument `mark`
ask: asks for input once (stateless)
wait: creates the file `started`, and answers when the file `go` is there
die: exits with status 3
flood: sends a response that never ends
"""
import json, os, random, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOOLS = ["echo", "mark", "ask", "die", "flood", "wait"]
SPELLED = r'"n":12345678901234567890123,"d":1.10,"e":1e400,"z":-0.0,"s":"\ud800","null":null,"x-unknown":{ "b" :1, "a":2 }'
STATELESS = "io.modelcontextprotocol/protocolVersion"
era = sys.argv[sys.argv.index("--era") + 1] if "--era" in sys.argv else "legacy"
sessions = {}
lock = threading.Lock()


def names():
    path = os.environ.get("TOOLS")
    return open(path).read().split() if path else TOOLS


def result_of(message, raw, emit):
    """Returns the raw result text, or a dict for an error; `emit` sends a notification first."""
    method, params = message["method"], message.get("params") or {}
    modern = STATELESS in params.get("_meta", {})
    if era == "legacy" and (modern or method == "server/discover"):
        return {"code": -32601, "message": "Method not found"}
    if era == "stateless" and not modern:
        return {"code": -32601, "message": "Method not found"}
    tail = ',"resultType":"complete"' if modern else ""
    if method == "initialize":
        return '{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"s","version":"1"}}'
    if method == "server/discover":
        return '{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"%s}' % tail
    if method == "ping":
        return "{}"
    if method == "tools/list":
        listed = ",".join('{"name":%s,"inputSchema":{"type":"object","x":1.10}}' % json.dumps(n) for n in names())
        return '{"tools":[%s]%s}' % (listed, ',"ttlMs":0,"cacheScope":"private"' + tail if modern else "")
    if method != "tools/call":
        return {"code": -32601, "message": "Method not found"}
    name, arguments = params["name"], params.get("arguments") or {}
    if name == "echo":
        return '{"content":[{"type":"text","text":%s}],%s%s}' % (json.dumps(raw), SPELLED, tail)
    if name == "mark":
        token = params.get("_meta", {}).get("progressToken")
        if token is not None:
            emit({"jsonrpc": "2.0", "method": "notifications/progress",
                  "params": {"progressToken": token, "progress": 1, "message": arguments["mark"]}})
        time.sleep(random.random() / 50)
        return '{"content":[{"type":"text","text":%s}]%s}' % (json.dumps(arguments["mark"]), tail)
    if name == "ask":
        if "requestState" not in params:
            ask = '{"method":"elicitation/create","params":{"mode":"form","message":"?","requestedSchema":{}}}'
            return '{"resultType":"input_required","inputRequests":{"k":%s},"requestState":"state-of-the-server"}' % ask
        got = json.dumps([params["requestState"], params.get("inputResponses")])
        return '{"content":[{"type":"text","text":%s}]%s}' % (json.dumps(got), tail)
    if name == "wait":
        open(arguments["started"], "w").close()
        while not os.path.exists(arguments["go"]):
            time.sleep(0.01)
        return '{"content":[{"type":"text","text":"waited"}]%s}' % tail
    if name == "die":
        os._exit(3)
    if name == "flood":
        return None
    return {"code": -32602, "message": "Unknown tool"}


def answer(message, result):
    head = '{"jsonrpc":"2.0","id":%s,' % json.dumps(message["id"])
    if isinstance(result, dict):
        return head + '"error":%s}' % json.dumps(result)
    return head + '"result":%s}' % result


def stdio():
    def write(text):
        with lock:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    def serve(message, raw):
        result = result_of(message, raw, lambda note: write(json.dumps(note)))
        if result is None:
            with lock:
                sys.stdout.write('{"jsonrpc":"2.0","id":%s,"result":{"content":"' % json.dumps(message["id"]))
                while True:
                    sys.stdout.write("x" * 65536)
        write(answer(message, result))

    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            threading.Thread(target=serve, args=(message, line.rstrip("\n")), daemon=True).start()


class Http(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def plain(self, status, body=b"", kind="application/json", extra=()):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in extra:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.plain(405)

    def do_DELETE(self):
        sessions.pop(self.headers.get("Mcp-Session-Id"), None)
        self.plain(200)

    def do_POST(self):
        raw = self.rfile.read(int(self.headers["Content-Length"])).decode()
        message = json.loads(raw)
        extra = []
        if message.get("method") == "initialize" and era == "legacy":
            session = "session-%d" % len(sessions)
            sessions[session] = True
            extra.append(("Mcp-Session-Id", session))
        elif era == "legacy" and self.headers.get("Mcp-Session-Id") not in sessions:
            return self.plain(400 if "Mcp-Session-Id" not in self.headers else 404)
        if "id" not in message:
            return self.plain(202)
        notes = []
        result = result_of(message, raw, notes.append)
        if result is None:
            return self.flood(message)
        text = answer(message, result)
        if not notes:
            return self.plain(200, text.encode(), extra=extra)
        events = "".join("data: %s\n\n" % part for part in [json.dumps(note) for note in notes] + [text])
        self.plain(200, events.encode(), "text/event-stream")

    def flood(self, message):
        sse = (message["params"].get("arguments") or {}).get("sse")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if sse else "application/json")
        self.send_header("Connection", "close")
        self.close_connection = True
        self.end_headers()
        self.wfile.write((b"data: " if sse else b"") + b'{"jsonrpc":"2.0","id":1,"result":{"content":"')
        try:
            while True:
                self.wfile.write(b"x" * 65536)
        except OSError:
            pass


if "--http" in sys.argv:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Http)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    server.serve_forever()
else:
    stdio()
