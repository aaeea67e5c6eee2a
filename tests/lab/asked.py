"""A real client that is asked, for the lab, on the Python SDK: python asked.py URL MODE SERVER. It calls the tools of
`asking.py` behind a gateway and prints one JSON object: what they said, what it was asked, and the progress it was told.
"""

import asyncio
import json
import sys

from mcp import Client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.types import CreateMessageResult, ElicitResult, TextContent

DEADLINE_SECS = 60
asked = []
told = []


async def elicited(_context, params):
    asked.append(params.message)
    return ElicitResult(action="accept", content={"colour": "green"})


async def sampled(_context, params):
    asked.append(params.messages[0].content.text)
    return CreateMessageResult(role="assistant", content=TextContent(type="text", text="word"), model="lab")


async def progressed(progress, _total, _message):
    told.append(progress)


async def main(url, mode, server):
    async with create_mcp_http_client(headers={"Authorization": "Bearer lab-key"}) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode=mode, elicitation_callback=elicited, sampling_callback=sampled) as client:
            said = {}
            for tool, arguments in {"add": {"a": 2, "b": 3}, "steps": {}, "ask": {}, "sample": {}}.items():
                progress = {"progress_callback": progressed} if tool == "steps" else {}
                result = await client.call_tool(f"{server}__{tool}", arguments, **progress)
                said[tool] = result.content[0].text
            return {"version": client.protocol_version, "said": said, "asked": asked, "told": told}


print(json.dumps(asyncio.run(asyncio.wait_for(main(*sys.argv[1:4]), DEADLINE_SECS))))
