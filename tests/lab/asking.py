"""A real server of HTTP+SSE for the lab, on the Python SDK: python asking.py PORT. Its tools add, tell of progress, elicit, and
have a client's model sample.
"""

import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("asking")


class Colour(BaseModel):
    colour: str


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
async def steps(ctx: Context) -> str:
    for step in range(1, 4):
        await ctx.report_progress(step, 3)
    return "three steps"


@server.tool()
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Which colour?", Colour)
    return f"{answer.action} {answer.data.colour if answer.action == 'accept' else ''}"


@server.tool()
async def sample(ctx: Context) -> str:
    message = SamplingMessage(role="user", content=TextContent(type="text", text="say a word"))
    answer = await ctx.session.create_message([message], max_tokens=9)
    return f"sampled {answer.content.text}"


server.run(transport="sse", port=int(sys.argv[1]))
