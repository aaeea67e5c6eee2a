"""What `real-peers` checks of servers of HTTP+SSE (2024-11-05): server-everything and one on the Python SDK, each found out
behind its url and as configured, with both client SDKs; lists, calls, and questions back to the client.

Not for: running alone.
"""

import hashlib
import json
import subprocess

import labkit
from labkit import LAB, NODE_BIN, PYTHON, until

START_SECS = 60
CLIENT_SECS = 90
KEY = "lab-key"
TOOLS = ["add", "steps", "ask", "sample"]
MODES = {"legacy": "2025-11-25", "2026-07-28": "2026-07-28"}


def configuration(http, admin, urls):
    lines = ["[listen]", f'http = "127.0.0.1:{http}"', f'admin = "127.0.0.1:{admin}"', 'auth = "keys"', "[mcp]",
             "first_list_wait_secs = 30"]
    names = []
    for name, url in urls.items():
        for way, more in {"found": [], "said": ['transport = "sse"']}.items():
            names.append(f"{name}-{way}")
            lines += ["[[mcp.servers]]", f'name = "{names[-1]}"', f'url = "{url}"', "required = true", *more]
    lines += ["[mcp_bundles.all]", f"servers = {json.dumps(names)}", "[principals.ann]", 'mcp_bundles = ["all"]',
              f'api_keys = [{{ sha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}" }}]']
    return "\n".join(lines) + "\n"


def run(argv):
    """What a client prints, or {"failure": text}."""
    try:
        done = subprocess.run([str(part) for part in argv], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=CLIENT_SECS, env=labkit.lab_environment(), check=False)
    except subprocess.TimeoutExpired:
        return {"failure": f"no end after {CLIENT_SECS} s"}
    return json.loads(done.stdout) if done.returncode == 0 else {"failure": done.stderr[-800:]}


def check_asked(checks, base):
    for way in ("found", "said"):
        for mode, version in MODES.items():
            title = f"HTTP+SSE, {way}, a client that is asked, {mode}"
            report = run([PYTHON, LAB / "asked.py", f"{base}/mcp", mode, f"asking-{way}"])
            if not checks.check(f"{title}: ends", "failure" not in report, report.get("failure", "")):
                continue
            checks.equal(f"{title}: speaks {version}", report["version"], version)
            said = {"add": "5", "steps": "three steps", "ask": "accept green", "sample": "sampled word"}
            checks.equal(f"{title}: the tools answer", report["said"], said)
            checks.equal(f"{title}: progress comes", report["told"], [1, 2, 3])
            elicited, sampled = (report["asked"] + ["", ""])[:2]
            named = f"Server 'asking-{way}' asks: Which colour?"
            checks.equal(f"{title}: it was asked by name", (elicited, sampled), (named, "say a word"))


def check_everything(checks, base, clients, run_client):
    for client in clients:
        for mode in MODES:
            for way in ("found", "said"):
                title = f"HTTP+SSE, everything, {way}, {client}, {mode}"
                calls = [{"name": "echo", "arguments": {"message": "old"}}]
                report = run_client(client, f"{base}/mcp/everything-{way}", mode, calls, KEY)
                if checks.check(f"{title}: connects and lists", "failure" not in report, report.get("failure", "")):
                    text = (report["results"][0].get("content") or [{}])[0].get("text")
                    checks.equal(f"{title}: echo answers", text, "Echo: old")
                    checks.check(f"{title}: shows its tools", "get-sum" in report["tools"], report["tools"])


def check_two_urls(checks, processes, folder, binary, clients, run_client):
    everything, asking, http, admin = labkit.free_ports(4)
    servers = [
        processes.start("everything over HTTP+SSE", [NODE_BIN / "mcp-server-everything", "sse"],
                        folder / "everything-sse.log", env=labkit.lab_environment(PORT=str(everything))),
        processes.start("asking over HTTP+SSE", [PYTHON, LAB / "asking.py", str(asking)], folder / "asking.log",
                        env=labkit.lab_environment()),
    ]
    for port in (everything, asking):
        until(START_SECS, "it listens", lambda port=port: labkit.listening(port), alive=servers)
    urls = {"everything": f"http://127.0.0.1:{everything}/sse", "asking": f"http://127.0.0.1:{asking}/sse"}
    config = folder / "two-urls.toml"
    config.write_text(configuration(http, admin, urls), encoding="utf-8")
    env = labkit.lab_environment(PORTCULLIS_STATE_DIR=str(folder / "two-urls-state"))
    gateway = processes.start("portcullis", [binary, "serve", "--config", config], folder / "two-urls.log", cwd=folder, env=env)
    ready = lambda: (labkit.http(f"http://127.0.0.1:{admin}/readyz") or (0,))[0] == 200
    until(START_SECS, "readyz says 200", ready, alive=[gateway])
    listed = subprocess.run([binary, "ls", "servers", "--json", "--config", config], capture_output=True, text=True,
                            timeout=CLIENT_SECS, env=env, check=False)
    spoken = [row["transport"] for row in json.loads(listed.stdout or "[]")]
    checks.equal("HTTP+SSE: ls servers names the transport", spoken, ["sse"] * 4)
    check_everything(checks, f"http://127.0.0.1:{http}", clients, run_client)
    check_asked(checks, f"http://127.0.0.1:{http}")
    code, _ = processes.stop(gateway)
    checks.equal("HTTP+SSE: SIGTERM ends the gateway with code 0", code, 0)
