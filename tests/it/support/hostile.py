"""A scripted MCP server over stdio that does harm, byte by byte.

Arguments: what it speaks (legacy, stateless), and the path of its JSON facts, read anew for each request: `calls` (steps by the
argument `how` of a call), `lists` (steps in place of a list, or null), `tools` (names). A step is a list: its name, then its values;
`hostile.rs` says what each does. What has no steps is answered as it should be. Beside the facts it
writes `.lists`, a byte for each such list, and `.told`, the answers to what it asked.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time

SPEAKS, PATH = sys.argv[1], sys.argv[2]
HEAD = '"resultType":"complete","ttlMs":0,"cacheScope":"public",' if SPEAKS == "stateless" else ""
children = []
stubborn = False
whole = threading.Lock()  # one message is written at a time


def write(data, to=1):
    view = memoryview(data)
    while view:
        view = view[os.write(to, view) :]


def answer(request_id, result):
    return f'{{"jsonrpc":"2.0","id":{request_id},"result":{{{HEAD}{result}}}}}'


def run(steps, request):
    """Does what the steps say."""
    global stubborn
    request_id = json.dumps(request["id"])
    token = json.dumps(request.get("params", {}).get("_meta", {}).get("progressToken"))
    good = answer(request_id, '"content":[{"type":"text","text":"ok"}]')

    def filled(text):
        return text.replace("@ID@", request_id).replace("@TOKEN@", token).replace("@GOOD@", good)

    for name, *values in steps:
        if name == "say":
            write(filled(values[0]).encode())
        elif name == "number":
            text, count = filled(values[0]), values[1]
            for start in range(0, count, 1000):
                write("".join(text.replace("@N@", str(at)) for at in range(start, min(start + 1000, count))).encode())
        elif name == "forever":
            data = filled(values[0]).encode()
            data *= max(1, 65536 // len(data))
            while True:
                write(data)
        elif name == "slow":
            for byte in filled(values[0]).encode():
                write(bytes([byte]))
                time.sleep(values[1] / 1000)
        elif name == "cut":
            write(f"{good}\n".encode()[: values[0]])
            os._exit(0)
        elif name == "hold":
            while True:
                signal.pause()
        elif name == "stderr":
            for _ in range(values[1]):
                write(values[0].encode(), to=2)
        elif name == "fork":
            # They hold our pipes, and have children of their own.
            script = "sleep 3600 & sleep 3600 & wait"
            children.extend(subprocess.Popen(["sh", "-c", script]) for _ in range(values[0]))
        elif name == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            stubborn = True
        else:
            raise ValueError(name)


def read_facts():
    with open(PATH, encoding="utf-8") as file:
        return json.load(file)


def watch():
    """Says that the list has changed whenever the facts say so."""
    told = read_facts()["changes"]
    while True:
        time.sleep(0.02)
        changes = read_facts()["changes"]
        if changes != told:
            told = changes
            with whole:
                write(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n')


def serve(request, line):
    facts = read_facts()
    method, request_id = request["method"], json.dumps(request["id"])
    stateless = b"io.modelcontextprotocol/protocolVersion" in line
    if stateless != (SPEAKS == "stateless"):
        write(f'{{"jsonrpc":"2.0","id":{request_id},"error":{{"code":-32601,"message":"no"}}}}\n'.encode())
    elif method == "initialize":
        facts = '"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"bad","version":"1"}'
        write(f"{answer(request_id, facts)}\n".encode())
    elif method == "server/discover":
        facts = '"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}'
        write(f"{answer(request_id, facts)}\n".encode())
    elif method == "tools/list" and facts["lists"] is not None:
        with open(PATH + ".lists", "a", encoding="utf-8") as file:
            file.write("x")
        run(facts["lists"], request)
    elif method == "tools/list":
        tools = ",".join(f'{{"name":{json.dumps(name)},"inputSchema":{{"type":"object"}}}}' for name in facts["tools"])
        write(f'{answer(request_id, f"{chr(34)}tools{chr(34)}:[{tools}]")}\n'.encode())
    elif method == "tools/call":
        how = request["params"].get("arguments", {}).get("how")
        run(facts["calls"].get(how, [["say", "@GOOD@\n"]]), request)


threading.Thread(target=watch, daemon=True).start()
for line in sys.stdin.buffer:
    request = json.loads(line)
    if "method" not in request:
        with open(PATH + ".told", "a", encoding="utf-8") as file:
            file.write(line.decode())
    elif "id" in request:
        with whole:
            serve(request, line)
while stubborn:
    time.sleep(1)
