"""The client that the suite starts for its client scenarios: a gateway whose one server is the suite, and the Python SDK
in front of it, so that what the suite sees is the gateway's own side towards servers.

    .venv/bin/python client.py BINARY FOLDER HTTP ADMIN URL

HTTP and ADMIN are the gateway's ports, URL is the suite's server; MCP_CONFORMANCE_SCENARIO says what to do. Logs go into
FOLDER, and whatever keeps the scenario from its end is a line in FOLDER/wrong. What the suite thinks of an answer is its
own affair: an error answer to a call is none of ours.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lab"))

import labkit  # noqa: E402
import wire  # noqa: E402
import mcp_types as types  # noqa: E402
from mcp import Client  # noqa: E402
from mcp.shared.exceptions import MCPError  # noqa: E402

READY_SECS = 30
TOOL_SECS = 10  # a question that the gateway does not hear ends with its call
CALLS_SECS = 60
# Scenario → calls; the others are given by the suite, or made from the list.
CALLS = {
    "tools_call": [("add_numbers", {"a": 5, "b": 3})],
    "elicitation-sep1034-client-defaults": [("test_client_elicitation_defaults", {})],
    "sse-retry": [("test_reconnection", {})],
    "sep-2322-client-request-state": [
        (f"test_mrtr_{name}", {}) for name in ("echo_state", "no_state", "unrelated", "no_result_type")
    ],
}


def configuration(url, http, admin):
    return f"""[listen]
http = "127.0.0.1:{http}"
admin = "127.0.0.1:{admin}"
[[mcp.servers]]
name = "suite"
url = {json.dumps(url)}
required = true
tool_timeout_secs = {TOOL_SECS}
[mcp_bundles.all]
servers = ["suite"]
[principals]
local = {{ mcp_bundles = ["all"] }}
"""


async def answer(_context, params):
    """Accepts a form with its defaults, and says yes where there are none."""
    properties = params.requested_schema.get("properties", {})
    return types.ElicitResult(action="accept", content={name: of.get("default", True) for name, of in properties.items()})


def calls_of(scenario, context, tools):
    """(name, arguments) of each call that the scenario wants, in order."""
    names = [tool.name for tool in tools]
    if scenario == "http-custom-headers":
        return [(call["name"], call["arguments"]) for call in context["toolCalls"]]
    if scenario == "http-standard-headers":
        return [(names[0], {})]
    if scenario == "http-invalid-tool-headers":
        return [(name, {"region": "us-west1"}) for name in names]
    if scenario == "json-schema-2020-12-preservation":
        schema = next(tool.input_schema for tool in tools if tool.name == "json_schema_2020_12_tool")
        return [("json_schema_echo", {"schema": schema})]
    return CALLS.get(scenario, [])


async def drive(base, scenario, context, mode):
    info = types.Implementation(name="conformance-client", version="1.0.0")
    async with Client(f"{base}/mcp/suite", mode=mode, elicitation_callback=answer, client_info=info) as client:
        tools = (await client.list_tools()).tools
        for name, arguments in calls_of(scenario, context, tools):
            try:
                await client.call_tool(name, arguments)
            except MCPError as error:
                print(f"{name}: {error}", file=sys.stderr)


def main():
    binary, folder, http, admin, url = sys.argv[1:]
    folder = Path(folder)
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    place = urlsplit(url)
    tap = wire.Tap(place.port, folder / f"{folder.name}-{scenario}.as-client.jsonl")
    url = place._replace(netloc=f"127.0.0.1:{tap.port}").geturl()
    stateless = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION") == "2026-07-28"
    config = folder / f"{scenario}.toml"
    config.write_text(configuration(url, http, admin), encoding="utf-8")
    wrong = []
    with labkit.Processes() as processes:
        gateway = processes.start("portcullis", [binary, "serve", "--config", config], folder / f"{scenario}.log",
                                  cwd=folder, env=labkit.lab_environment(PORTCULLIS_STATE_DIR=str(folder / "state")))
        ready = lambda: (labkit.http(f"http://127.0.0.1:{admin}/readyz") or (0,))[0] == 200
        try:
            labkit.until(READY_SECS, "readyz says 200", ready, alive=[gateway])
            driven = drive(f"http://127.0.0.1:{http}", scenario, context, "2026-07-28" if stateless else "legacy")
            asyncio.run(asyncio.wait_for(driven, CALLS_SECS))
        except (Exception, BaseExceptionGroup) as error:  # all of it is told, whatever it is
            wrong.append(f"{scenario}: {error!r}")
        code, orphans = processes.stop(gateway)
        if (code, orphans) != (0, []):
            wrong.append(f"{scenario}: the gateway ends with code {code} and leaves {len(orphans)} processes")
    with open(folder / "wrong", "a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
