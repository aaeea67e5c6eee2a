"""A scripted MCP server over stdio.

Arguments: what it speaks (legacy, stateless), and the path of its JSON facts, read anew whenever they are needed:
`tools` (names, or whole definitions) and `batch` (how many calls of `together` are answered together, in random order). Beside the facts it
writes `.pid`, its id at the end of a line, and `.log`, every line that it reads.
"""

import json
import os
import random
import signal
import sys
import time

SPEAKS, PATH = sys.argv[1], sys.argv[2]
ODDITIES = r'"big":123456789012345678901234567890,"n":1.10,"e":1E+2,"s":"\ud800 \u00e9\/","none":null,"content":[{"type":"text","text":"\udfff","y":-0.0}],"isError":false'
HEAD = r'"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"up","version":"1"},"a/b":1.0}'
STATE = r'"st\u00e9 \ud83d\ude00 \"q\" \/ 1.10"'
waiting = []
stubborn = []


def facts():
    with open(PATH, encoding="utf-8") as file:
        return json.load(file)


def send(text):
    sys.stdout.buffer.write(b'{"jsonrpc":"2.0",' + text.encode() + b"}\n")
    sys.stdout.buffer.flush()


def result(request, text):
    send(f'"id":{json.dumps(request["id"])},"result":{{{text}}}')


def raw(line, key):
    """The value of the first member of that name, as it is spelled."""
    start = line.find(f'"{key}":')
    if start < 0:
        return None
    start += len(key) + 3
    return line[start : json.JSONDecoder().raw_decode(line, start)[1]]


def progress(request, line, step):
    token = request["params"].get("_meta", {}).get("progressToken")
    if token is not None:
        message = json.dumps(raw(line, "arguments"))
        send(f'"method":"notifications/progress","params":{{"progressToken":{json.dumps(token)},"progress":{step},"message":{message}}}')


def echo(request, line, stateless):
    head = HEAD + "," if stateless else ""
    result(request, f'{head}"echo":{raw(line, "arguments") or "null"},{ODDITIES}')


def call(request, line, stateless):
    name = request["params"]["name"]
    if name == "die":
        os._exit(3)
    if name == "endless":
        while True:
            sys.stdout.buffer.write(b"x" * 65536)
    if name == "ask":
        state = raw(line, "requestState")
        if state is None:
            result(request, f'"resultType":"input_required","inputRequests":{{"q":{{"method":"elicitation/create","params":{{"mode":"form","message":"?","requestedSchema":{{"type":"object","properties":{{}}}}}}}}}},"requestState":{STATE}')
        else:
            result(request, f'"resultType":"complete","content":[],"state":{state}')
        return
    if name == "say":
        head = HEAD + "," if stateless else ""
        result(request, head + raw(line, "arguments")[1:-1])
        return
    if name == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stubborn.append(True)
    if name == "noisy":
        sys.stdout.buffer.write(b"noise\n{}\n\x00\xff\n[]\n")
        sys.stderr.write("noise\n" * 100)
        sys.stderr.flush()
    if name != "together":
        echo(request, line, stateless)
        return
    waiting.append((request, line, stateless))
    if len(waiting) < facts()["batch"]:
        return
    for step in (1, 2):
        random.shuffle(waiting)
        for one, text, _ in waiting:
            progress(one, text, step)
    random.shuffle(waiting)
    for one in waiting:
        echo(*one)
    waiting.clear()


with open(PATH + ".pid", "a", encoding="utf-8") as file:
    file.write(f"{os.getpid()}\n")
log = open(PATH + ".log", "a", encoding="utf-8", buffering=1)
for line in sys.stdin.buffer:
    line = line.decode()
    log.write(line)
    request = json.loads(line)
    if "id" not in request:
        continue
    stateless = "io.modelcontextprotocol/protocolVersion" in line
    method = request["method"]
    if stateless != (SPEAKS == "stateless"):
        send(f'"id":{json.dumps(request["id"])},"error":{{"code":-32601,"message":"no"}}')
    elif method == "initialize":
        result(request, '"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"up","version":"1"}')
    elif method == "server/discover":
        result(request, '"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"ttlMs":0,"cacheScope":"public"')
    elif method == "tools/list":
        head = '"resultType":"complete","ttlMs":0,"cacheScope":"public",' if stateless else ""
        tool = lambda name: f'{{"name":{json.dumps(name)},"inputSchema":{{"type":"object"}},"x":1.10}}'
        tools = ",".join(name if name.startswith('{"name":') else tool(name) for name in facts()["tools"])
        result(request, f'{head}"tools":[{tools}]')
    elif method == "tools/call":
        call(request, line, stateless)
while stubborn:  # by neither the end of its input nor TERM
    time.sleep(1)
