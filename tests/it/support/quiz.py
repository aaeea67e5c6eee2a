"""A scripted MCP server over stdio that asks: the tool `quiz` runs the script in its arguments.

Arguments: what it speaks (legacy, stateless), and the path of its log, to which every line that it reads is written; with
`early` it asks two questions as soon as it is told that it is initialized, and for roots again when they have changed; the
result of `plain` then says in `roots` what it knows of them.
`quiz` takes `rounds`, a list of lists of questions ({"method", "params"}). A legacy server sends each round's questions and
waits for all answers; a stateless one ends the call with `input_required`. The result's `answers` holds, round by round, what
was answered. A question with `withdraw` is cancelled by the server as soon as it is sent; the visit of one with `over`
is said to be over once it is answered. `plain` asks nothing, `hold` never
answers. `asking` is `quiz` for clients that declared elicitation; no others are shown it, or may call it.
"""

import json
import sys

SPEAKS, PATH, EARLY = sys.argv[1], sys.argv[2], "early" in sys.argv[3:]
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
log = open(PATH, "a", encoding="utf-8", buffering=1)
calls, questions, last = {}, {}, [100]
declared = {}
roots, asked_roots = [], 1


def send(message):
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    sys.stdout.buffer.flush()


def ask(call):
    """The next round of a legacy call, or its result."""
    while len(call["answers"]) < len(call["rounds"]):
        asked = call["rounds"][len(call["answers"])]
        call["now"], call["left"] = [None] * len(asked), len(asked)
        for at, question in enumerate(asked):
            last[0] += 1
            questions[last[0]] = (call, at)
            send({"id": last[0], "method": question["method"], "params": question["params"]})
            if question.get("withdraw"):
                send({"method": "notifications/cancelled", "params": {"requestId": last[0]}})
                answered(last[0], "withdrawn", go_on=False)
        if call["left"]:
            return
        call["answers"].append(call["now"])
    calls.pop(call["key"], None)
    send({"id": call["id"], "result": {"content": [], "answers": call["answers"]}})


def answered(id, answer, go_on=True):
    if id not in questions:
        return
    call, at = questions.pop(id)
    question = call["rounds"][len(call["answers"])][at]
    if question.get("over"):
        over = {"elicitationId": question["params"]["elicitationId"]}
        send({"method": "notifications/elicitation/complete", "params": over})
    call["now"][at] = answer
    call["left"] -= 1
    if not call["left"] and go_on and call["key"] in calls:
        call["answers"].append(call["now"])
        ask(call)


def stateless(request):
    params = request["params"]
    rounds = params["arguments"]["rounds"]
    answers = json.loads(params.get("requestState", "[]"))
    if "requestState" in params:
        asked = rounds[len(answers)]
        given = params.get("inputResponses", {})
        answers.append([given.get(f"k{at}") for at in range(len(asked))])
    if len(answers) < len(rounds):
        asked = {f"k{at}": {"method": one["method"], "params": one["params"]} for at, one in enumerate(rounds[len(answers)])}
        result = {"resultType": "input_required", "requestState": json.dumps(answers)}
        result.update({"inputRequests": asked} if asked else {})
    else:
        result = {"resultType": "complete", "content": [], "answers": answers}
    send({"id": request["id"], "result": result})


def may(tool, message):
    able = "elicitation" in message["params"].get("_meta", {}).get(CAPABILITIES, declared)
    return tool != "asking" or able


for line in sys.stdin.buffer:
    log.write(line.decode())
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method is None:
        if str(id).startswith("roots-") and "result" in message:
            roots = message["result"]["roots"]
        answered(id, message.get("result", message.get("error")))
    elif method == "notifications/cancelled":
        calls.pop(json.dumps(message["params"]["requestId"]), None)
    elif id is None:
        if method == "notifications/initialized" and EARLY:
            send({"id": "roots-1", "method": "roots/list"})
            send({"id": "early-2", "method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}})
        if method == "notifications/roots/list_changed" and EARLY:
            asked_roots += 1
            send({"id": f"roots-{asked_roots}", "method": "roots/list"})
    elif ("io.modelcontextprotocol/protocolVersion" in json.dumps(message)) != (SPEAKS == "stateless"):
        send({"id": id, "error": {"code": -32601, "message": "no"}})
    elif method == "initialize":
        declared = message["params"]["capabilities"]
        send({"id": id, "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "quiz", "version": "1"}}})
    elif method == "server/discover":
        send({"id": id, "result": {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "public"}})
    elif method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("quiz", "plain", "hold", "asking")
                 if may(name, message)]
        more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"} if SPEAKS == "stateless" else {}
        send({"id": id, "result": {**more, "tools": tools}})
    elif method == "tools/call" and not may(message["params"]["name"], message):
        send({"id": id, "error": {"code": -32602, "message": "no such tool for you"}})
    elif method == "tools/call" and message["params"]["name"] == "plain":
        more = {"resultType": "complete"} if SPEAKS == "stateless" else {}
        more.update({"roots": roots} if EARLY else {})
        send({"id": id, "result": {**more, "content": []}})
    elif method == "tools/call" and message["params"]["name"] in ("quiz", "asking"):
        if SPEAKS == "stateless":
            stateless(message)
        else:
            call = {"key": json.dumps(id), "id": id, "rounds": message["params"]["arguments"]["rounds"], "answers": []}
            calls[call["key"]] = call
            ask(call)
