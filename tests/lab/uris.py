"""Every URI that is shown can be read back: a client on the Python SDK, behind the gateway, in front of `uris.mjs`.

    python uris.py BASE MODE       prints one JSON object: what was checked, and what was wrong

Each URI of a list, a link and an embedded resource must be one that pydantic's AnyUrl takes, which the SDK judged by until its
2.x, and that it leaves as it is if it would leave the server's own. Templates are expanded by RFC 6570.
"""

import asyncio
import json
import re
import sys
from pathlib import Path
from urllib.parse import quote

from mcp import Client
from pydantic import AnyUrl, ValidationError

DEADLINE_SECS = 120
GIVEN = json.loads((Path(__file__).resolve().parent / "uris.json").read_text(encoding="utf-8"))
UNRESERVED = "-._~"


def expand(template, values):
    """RFC 6570, level 3, as far as `uris.json` goes."""

    def one(match):
        operator, names = re.fullmatch(r"([+#?]?)(.+)", match[1]).groups()
        kept = UNRESERVED + ("%!#$&'()*+,/:;=?@[]" if operator in ("+", "#") else "")
        parts = [(name, quote(values[name], safe=kept)) for name in names.split(",")]
        if operator == "?":
            return "?" + "&".join(f"{name}={value}" for name, value in parts)
        return ("#" if operator == "#" else "") + ",".join(value for _, value in parts)

    return re.sub(r"\{([^}]+)\}", one, template)


def keeps(uri):
    """Whether AnyUrl takes a text, and does not spell it otherwise."""
    try:
        return str(AnyUrl(uri)) == uri
    except ValidationError:
        return None


class Reader:
    def __init__(self, client):
        self.client, self.checked, self.wrong = client, 0, []

    async def read(self, what, shown, own):
        """`shown` is valid, and reads as the server's `own`."""
        self.checked += 1
        if keeps(shown) is None or (keeps(own) is not False and not keeps(shown)):
            self.wrong.append(f"{what}: AnyUrl refuses or changes {shown!r}, for {own!r}")
        (contents,) = (await self.client.read_resource(shown)).contents
        if contents.text != own:
            self.wrong.append(f"{what}: {shown!r} is read as {contents.text!r}, not {own!r}")
        (again,) = (await self.client.read_resource(contents.uri)).contents
        if again.text != own:
            self.wrong.append(f"{what}: {contents.uri!r}, which answers {shown!r}, is read as {again.text!r}, not {own!r}")


async def converse(base, mode):
    async with Client(f"{base}/mcp", mode=mode) as client:
        reader = Reader(client)
        listed = [resource.uri for resource in (await client.list_resources()).resources]
        if len(listed) != len(GIVEN["resources"]):
            reader.wrong.append(f"{len(listed)} resources of {len(GIVEN['resources'])}")
        for shown, own in zip(listed, GIVEN["resources"]):
            await reader.read("a list", shown, own)
        blocks = (await client.call_tool("uris__links", {})).content
        links = [block.uri if block.type == "resource_link" else block.resource.uri for block in blocks]
        for shown, own in zip(links, [own for own in GIVEN["resources"] for _ in range(2)], strict=True):
            await reader.read("a result", shown, own)
        templates = [one.uri_template for one in (await client.list_resource_templates()).resource_templates]
        own_templates = list(dict.fromkeys(template for template, _ in GIVEN["templates"]))
        shown_of = dict(zip(own_templates, templates, strict=True))
        for own, values in GIVEN["templates"]:
            await reader.read(f"the template {own!r}", expand(shown_of[own], values), expand(own, values))
        return {"checked": reader.checked, "wrong": reader.wrong}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(asyncio.wait_for(converse(*sys.argv[1:3]), DEADLINE_SECS))))
