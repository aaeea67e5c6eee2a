"""A real client for the lab that reads what is linked: calls one tool, then reads every link of the gateway's own.

    python reader.py URL MODE KEY CALL LENGTH

MODE: legacy | auto | 2026-07-28. CALL: {"name", "arguments"}. LENGTH: how much one read asks for, characters of a text or
bytes of anything else. One JSON object out: the result as it came, except that a text over 1,000 characters is its first
1,000; and for each link its URI, what the parts joined have (`total`, `sha256`; of a cut text the shown part comes
first), the parts' number, and for what is no text the hash of one read of the whole (`whole`).
"""

import asyncio
import base64
import hashlib
import json
import re
import sys

from mcp import Client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

DEADLINE_SECS = 120
CUT = "\n[cut by the gateway: "
OWN = re.compile(r"^portcullis\+(blob|overflow):///")


async def read(client, uri):
    (part,) = (await client.read_resource(uri)).contents
    blob = getattr(part, "blob", None)
    return part.text if blob is None else base64.b64decode(blob)


async def read_all(client, link, shown, step):
    base, _, query = link["uri"].partition("?")
    asked = dict(pair.split("=") for pair in query.split("&") if pair)
    offset, left = int(asked.get("offset", 0)), int(asked.get("length", link.get("size") or 0))
    parts = []
    while left > 0:
        part = await read(client, f"{base}?offset={offset}&length={min(step, left)}")
        if not part:
            raise RuntimeError(f"nothing at {offset} of {link['uri']}")
        parts.append(part)
        offset, left = offset + len(part), left - len(part)
    text = bool(parts) and isinstance(parts[0], str)
    joined = (shown if link.get("mimeType") == "text/plain" else "") + "".join(parts) if text else b"".join(parts)
    hashed = lambda data: hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()
    report = {"uri": link["uri"], "total": len(joined), "parts": len(parts), "sha256": hashed(joined)}
    return report if text else {**report, "whole": hashed(await read(client, base))}


def short(result):
    for block in result.get("content") or []:
        if len(block.get("text") or "") > 1000:
            block["text"] = block["text"][:1000]
    return result


async def main(url, mode, key, call, step):
    call = json.loads(call)
    async with create_mcp_http_client(headers={"Authorization": f"Bearer {key}"}) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            result = await client.call_tool(call["name"], call.get("arguments", {}))
            result = result.model_dump(mode="json", by_alias=True, exclude_none=True)
            blocks = result.get("content") or []
            shown = next((block["text"].split(CUT)[0] for block in blocks if CUT in block.get("text", "")), "")
            links = [block for block in blocks if block["type"] == "resource_link" and OWN.match(block["uri"])]
            return {"links": [await read_all(client, link, shown, int(step)) for link in links], "result": short(result)}


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(2)
    print(json.dumps(asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), DEADLINE_SECS))))
