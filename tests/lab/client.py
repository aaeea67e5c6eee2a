"""A real client for the lab: the Python SDK. Lists tools, makes the given calls, prints one JSON object.

    python client.py TARGET MODE [--header 'Name: value']... [--tools N] [--answer ACTION] [CALLS]

TARGET: a URL, where a path below /sse is spoken to over HTTP+SSE, or a JSON array ["command", "argument", ...] that is
started and spoken to over stdio. MODE: legacy | auto | 2026-07-28. --tools: list again until there are N, for a while; a
server may add some after its start. CALLS: a JSON array of {"name", "arguments"}, given as text, as a file, or "-" for
stdin; with "progress": true its result has what was told of it, {"progress": [numbers]}. --answer: declares elicitation,
sampling and roots, and answers: elicitations by ACTION (accept | decline | cancel), the others always; what was asked is
printed too, as "asked". Printed:
{"client", "era", "version", "tools": [names], "results": [one per call]}. A call that the server answers
with a JSON-RPC error is a result, {"name", "error": {"code", "message"}}. Exit 1: no connection, no list, or a call
without an answer. Exit 2: wrong use.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.shared.exceptions import MCPError

DEADLINE_SECS = 60
SETTLE_SECS = 20
PAUSE_SECS = 0.1


def header(text):
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise argparse.ArgumentTypeError(f"wants 'Name: value', got {text!r}")
    return name.strip(), value.strip()


def calls(text):
    if not text.lstrip().startswith("["):
        text = sys.stdin.read() if text == "-" else Path(text).read_text(encoding="utf-8")
    given = json.loads(text)
    if not all(isinstance(call, dict) and isinstance(call.get("name"), str) for call in given):
        raise argparse.ArgumentTypeError('must be a JSON array of {"name", "arguments"}')
    return given


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target")
    parser.add_argument("mode", choices=["legacy", "auto", "2026-07-28"])
    parser.add_argument("--header", type=header, action="append", default=[])
    parser.add_argument("--tools", type=int, default=0)
    parser.add_argument("--answer", choices=["accept", "decline", "cancel"])
    parser.add_argument("calls", nargs="?", type=calls, default=[])
    return parser.parse_intermixed_args()


async def list_all(client):
    names, cursor = [], None
    while True:
        page = await client.list_tools(cursor=cursor)
        names.extend(tool.name for tool in page.tools)
        cursor = page.next_cursor
        if cursor is None:
            return names


async def list_settled(client, count):
    deadline = time.monotonic() + SETTLE_SECS
    while True:
        names = await list_all(client)
        if len(names) >= count or time.monotonic() > deadline:
            return names
        await asyncio.sleep(PAUSE_SECS)


async def call_one(client, call):
    name, told = call["name"], []

    async def tell(progress, total, message):
        told.append(progress)

    more = {"progress_callback": tell} if call.get("progress") else {}
    try:
        result = await client.call_tool(name, call.get("arguments", {}), **more)
    except MCPError as error:
        return {"name": name, "error": {"code": error.code, "message": error.message}}
    dumped = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {
        **({"progress": told} if more else {}),
        "name": name,
        "isError": dumped.get("isError", False),
        "content": dumped.get("content"),
        "structuredContent": dumped.get("structuredContent"),
    }


def answering(action, asked):
    """The callbacks of a client that can be asked; what it is asked is noted."""

    async def elicit(_context, params):
        asked.append({"method": "elicitation/create", "mode": params.mode or "form", "message": params.message})
        content = {"name": "Ann"} if action == "accept" and params.mode != "url" else None
        return types.ElicitResult(action=action, content=content)

    async def sample(_context, params):
        asked.append({"method": "sampling/createMessage", "message": params.system_prompt})
        return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text="Paris"), model="lab")

    async def roots(_context):
        asked.append({"method": "roots/list"})
        return types.ListRootsResult(roots=[types.Root(uri="file:///lab", name="lab")])

    return {"elicitation_callback": elicit, "sampling_callback": sample, "list_roots_callback": roots}


async def converse(target, args):
    asked = []
    callbacks = answering(args.answer, asked) if args.answer else {}
    async with Client(target, mode=args.mode, **callbacks) as client:
        return {
            **({"asked": asked} if args.answer else {}),
            "client": "python",
            "era": "legacy" if client.protocol_version < "2026" else "modern",
            "version": client.protocol_version,
            "tools": await list_settled(client, args.tools),
            "results": [await call_one(client, call) for call in args.calls],
        }


async def main(args):
    if args.target.startswith("["):
        command, *arguments = json.loads(args.target)
        return await converse(StdioServerParameters(command=command, args=arguments, env=dict(os.environ)), args)
    if f"{urlsplit(args.target).path}/".startswith("/sse/"):
        return await converse(sse_client(args.target, headers=dict(args.header)), args)
    async with create_mcp_http_client(headers=dict(args.header)) as http:
        return await converse(streamable_http_client(args.target, http_client=http), args)


def causes(error):
    """The messages of an exception group's leaves, or of one exception."""
    if isinstance(error, BaseExceptionGroup):
        return [text for inner in error.exceptions for text in causes(inner)]
    return [f"{type(error).__name__}: {error}"]


if __name__ == "__main__":
    arguments = parse_arguments()
    try:
        report = asyncio.run(asyncio.wait_for(main(arguments), DEADLINE_SECS))
    except Exception as error:  # every failure ends in one line, not a trace
        print(f"client.py: {'; '.join(causes(error))}", file=sys.stderr)
        sys.exit(1)
    print(json.dumps(report))
