"""What `real-peers` checks of servers that ask: server-everything over stdio and HTTP, which lists its asking tools to clients
alone that can be asked, and a stateless server of the SDK; real clients that accept, decline and cancel, in both eras.

Not for: running alone.
"""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor

import labkit
from labkit import LAB, NODE_BIN, until

START_SECS = 60
MODES = ["legacy", "2026-07-28"]
ACTIONS = ["accept", "decline", "cancel"]
SERVERS = ["everything", "everything-http"]
URL = "https://example.com/visit"
# What server-everything says of each action.
FORM_SAYS = {"accept": "- Name: Ann", "decline": "User declined", "cancel": "User cancelled"}
URL_SAYS = {"accept": "User completed", "decline": "User declined", "cancel": "User cancelled"}
GREETS = {"accept": "Hello, Ann!", "decline": "No greeting: decline", "cancel": "No greeting: cancel"}


def text(value):
    return json.dumps(value)


def configuration(http, admin, everything, node):
    lines = ["[listen]", f'http = "127.0.0.1:{http}"', f'admin = "127.0.0.1:{admin}"', 'auth = "keys"']
    lines += ["[mcp]", "first_list_wait_secs = 30"]
    servers = {
        "everything": f"command = {text(str(NODE_BIN / 'mcp-server-everything'))}",
        "everything-http": f'url = "http://127.0.0.1:{everything}/mcp"',
        "asker": f"command = {text(str(node))}\nargs = [{text(str(LAB / 'asker.mjs'))}]",
    }
    for name, how in servers.items():
        lines += ["[[mcp.servers]]", f"name = {text(name)}", how, "required = true"]
    digest = hashlib.sha256(b"key-of-ann").hexdigest()
    lines += ["[mcp_bundles.all]", f"servers = {text(list(servers))}"]
    lines += ["[principals.ann]", 'mcp_bundles = ["all"]', f'api_keys = [{{ sha256 = "{digest}" }}]']
    return "\n".join(lines) + "\n"


def calls():
    for server in SERVERS:
        yield {"name": f"{server}__trigger-elicitation-request"}
        yield {"name": f"{server}__trigger-url-elicitation", "arguments": {"url": URL}}
        yield {"name": f"{server}__trigger-sampling-request", "arguments": {"prompt": "Capital?"}}
        yield {"name": f"{server}__get-roots-list"}
    yield {"name": "asker__greet"}


def expected(name, action):
    """What the answer to a call must hold."""
    kinds = {"elicitation-request": FORM_SAYS[action], "url-elicitation": URL_SAYS[action], "sampling-request": "Paris",
             "roots-list": "file:///lab", "greet": GREETS[action]}
    return next(words for kind, words in kinds.items() if name.endswith(kind))


def said(result):
    return "\n".join(block.get("text", "") for block in result.get("content") or [])


def judge(checks, title, report, action, kinds):
    if "failure" in report:
        checks.check(f"{title}: answers", False, report["failure"])
        return
    missing = [call["name"] for call in calls() if call["name"] not in report["tools"]]
    checks.equal(f"{title}: is shown every asking tool", missing, [])
    for result in report["results"]:
        words = expected(result["name"], action)
        checks.check(f"{title}: {result['name']} answers '{words}'", words in said(result), json.dumps(result)[:500])
    named = {one["method"]: [] for one in report["asked"]}
    for one in report["asked"]:
        named[one["method"]].append(one.get("message") or "")
    # server-everything remembers the roots of a process, which is the principal's: not every client is asked for them.
    named_kinds = sorted(kind for kind in named if kind != "roots/list")
    checks.equal(f"{title}: is asked for forms, visits and samples", named_kinds, sorted(kinds))
    for one in [*named.get("elicitation/create", []), *named.get("sampling/createMessage", [])]:
        checks.check(f"{title}: '{one[:40]}' names its server", any(f"'{name}'" in one for name in [*SERVERS, "asker"]))


def check_error_path(checks, run_client, base):
    """server-everything asks for a visit by an error, -32042: a session reads it, a stateless client is asked."""
    for server in SERVERS:
        for client in ("typescript", "python"):
            # The server remembers which URL of a process it has asked for.
            legacy, call = ({"name": f"{server}__trigger-url-elicitation",
                             "arguments": {"url": f"{URL}?{client}-{mode}", "errorPath": True}} for mode in MODES)
            title = f"questions: -32042 of {server}, {client}"
            report = run_client(client, f"{base}/mcp", "2026-07-28", [call], "key-of-ann", answer="accept")
            result = (report.get("results") or [{}])[0]
            checks.check(f"{title}, 2026-07-28: is asked and comes back", URL_SAYS["accept"] in said(result), text(report)[:600])
            report = run_client(client, f"{base}/mcp", "legacy", [legacy], "key-of-ann", answer="accept")
            result = (report.get("results") or [{}])[0]
            checks.equal(f"{title}, legacy: reads the error", result.get("error", {}).get("code"), -32042)


def check_questions(checks, processes, folder, binary, everything, run_client):
    folder = folder / "questions"
    folder.mkdir()
    http, admin = labkit.free_ports(2)
    node = NODE_BIN / "node" if (NODE_BIN / "node").exists() else "node"
    config = folder / "portcullis.toml"
    config.write_text(configuration(http, admin, everything, node), encoding="utf-8")
    gateway = processes.start("portcullis", [binary, "serve", "--config", config], folder / "portcullis.log", cwd=folder,
                              env=labkit.lab_environment(PORTCULLIS_STATE_DIR=str(folder / "state")))
    ready = lambda: (labkit.http(f"http://127.0.0.1:{admin}/readyz") or (0,))[0] == 200
    until(START_SECS, "readyz says 200", ready, alive=[gateway])
    base = f"http://127.0.0.1:{http}"
    kinds = ["elicitation/create", "sampling/createMessage"]
    count = len(list(calls()))
    jobs = [(client, mode, action) for client in ("typescript", "python") for mode in MODES for action in ACTIONS]

    def ask(job):
        client, mode, action = job
        return run_client(client, f"{base}/mcp", mode, calls(), "key-of-ann", tools=count, answer=action)

    # Stateless clients of one principal share its session, and server-everything asks for roots beside its calls: while two of
    # them call, nobody can say whose question that is, and it is refused [TRN-10]. It remembers what one alone has said.
    roots = [{"name": "everything-http__get-roots-list"}]
    for client in ("typescript", "python"):
        report = run_client(client, f"{base}/mcp", "2026-07-28", roots, "key-of-ann", answer="accept")
        answers = "\n".join(said(result) for result in report.get("results") or [])
        checks.check(f"questions: {client}, 2026-07-28, alone: is asked for roots", "file:///lab" in answers, text(report)[:600])
    # Two clients of one principal at once: each is asked what its own calls ask.
    with ThreadPoolExecutor(2) as pool:
        for job, report in zip(jobs, pool.map(ask, jobs)):
            judge(checks, f"questions: {', '.join(job)}", report, job[2], kinds)
    check_error_path(checks, run_client, base)
    processes.stop(gateway)
