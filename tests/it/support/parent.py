"""A client that starts the gateway, talks to it, and waits to be killed.

Arguments: `alone`, or `shared` (another process keeps its ends of the pipes open), and the gateway's command line. Says
the process ids of the gateway and of that other process, once a call is answered and another one hangs.
"""

import json
import subprocess
import sys

how, *argv = sys.argv[1:]
gateway = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
other = None
if how == "shared":
    other = subprocess.Popen(["sleep", "600"], stdin=gateway.stdout, stdout=gateway.stdin, stderr=gateway.stderr)


def send(message):
    gateway.stdin.write(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n")
    gateway.stdin.flush()


facts = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "parent", "version": "1"}}
send({"id": 1, "method": "initialize", "params": facts})
send({"method": "notifications/initialized"})
send({"id": 2, "method": "tools/call", "params": {"name": "up__echo", "arguments": {}}})
send({"id": 3, "method": "tools/call", "params": {"name": "up__together", "arguments": {}}})
for line in gateway.stdout:
    answer = json.loads(line)
    if answer.get("id") == 2:
        assert "result" in answer, answer
        break
print(gateway.pid, other.pid if other else 0, flush=True)
sys.stdin.read()
