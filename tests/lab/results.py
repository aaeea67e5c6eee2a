"""What `real-peers` checks of attachments and long results: real servers, a principal for each mode, real clients that read
what is linked.

Not for: running alone. server-everything's image, resource and long-running tools in each mode of `blobs`;
server-filesystem reading a file of 30 MB, with `max_response_bytes` at 64 MiB, under each mode of `overflow`.
"""

import base64
import hashlib
import json
import os
import subprocess

import labkit
from labkit import LAB, NODE_BIN, PYTHON, until

READERS = {"python": [PYTHON, LAB / "reader.py"], "typescript": [NODE_BIN / "node", LAB / "reader.mjs"]}
if not (NODE_BIN / "node").exists():
    READERS["typescript"][0] = "node"
MODES = ["legacy", "2026-07-28"]
READER_SECS = 150
START_SECS = 60
LARGE_BYTES = 30_000_000
RESPONSE_BYTES = 64 << 20
# A part of what was cut is as large as the cap: a small one would be thousands of reads. The Python client takes no event
# over 1 MiB.
CAPS = {"cut-drop": 8000, "cut-link": 400_000}
LINE = "thirty megabytes of text, with é and 😀 in it\n"
PNG = b"\x89PNG\r\n\x1a\n"
POLICIES = {
    "pass": 'blobs = "pass"',
    "file": 'blobs = "file"\nblob_paths = true',
    "link": 'blobs = "link"',
    "cut-link": f'max_result_chars = {CAPS["cut-link"]}\noverflow = "link"',
    "cut-drop": f'max_result_chars = {CAPS["cut-drop"]}\noverflow = "drop"',
}


def text(value):
    return json.dumps(value)


def configuration(folder, http, admin, disk):
    files = text(str(folder / "files"))
    lines = ["[listen]", f'http = "127.0.0.1:{http}"', f'admin = "127.0.0.1:{admin}"', 'auth = "keys"', "[limits]"]
    # The whole answer is in memory once, or its texts are in files.
    lines += [f"overflow_disk = {'true' if disk else 'false'}", "overflow_bytes = 134217728", "[mcp]", "first_list_wait_secs = 30"]
    for name, argv in {"everything": ["mcp-server-everything"], "filesystem": ["mcp-server-filesystem"]}.items():
        lines += ["[[mcp.servers]]", f"name = {text(name)}", f"command = {text(str(NODE_BIN / argv[0]))}", "required = true"]
        lines += [f"args = [{files}]", f"max_response_bytes = {RESPONSE_BYTES}"] if name == "filesystem" else []
    lines += ["[mcp_bundles.all]", 'servers = ["everything", "filesystem"]']
    for name, policy in POLICIES.items():
        digest = hashlib.sha256(f"key-{name}".encode()).hexdigest()
        lines += [f"[principals.{name}]", 'mcp_bundles = ["all"]', f"policy = {text(name)}"]
        lines += [f'api_keys = [{{ sha256 = "{digest}" }}]', f"[policies.{name}]", policy]
    return "\n".join(lines) + "\n"


def read(reader, base, mode, who, call, step):
    """The report of a reader, or {"failure": text}."""
    argv = [str(part) for part in [*READERS[reader], f"{base}/mcp", mode, f"key-{who}", json.dumps(call), step]]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=READER_SECS,
                              env=labkit.lab_environment())
    except subprocess.TimeoutExpired:
        return {"failure": f"no end after {READER_SECS} s"}
    if done.returncode:
        return {"failure": done.stderr.strip()[-800:] or f"exit code {done.returncode}"}
    return json.loads(done.stdout)


def blocks(report):
    return report.get("result", {}).get("content") or []


def kinds(report):
    return [block["type"] for block in blocks(report)]


def digest(data):
    return hashlib.sha256(data).hexdigest()


def check_image(checks, base, reader, mode):
    call = {"name": "everything__get-tiny-image"}
    title = f"{reader}, {mode}: the tiny image"
    passed = read(reader, base, mode, "pass", call, 1000)
    images = [block for block in blocks(passed) if block["type"] == "image"]
    if not checks.check(f"{title} passes", len(images) == 1, json.dumps(passed)[:500]):
        return
    image = base64.b64decode(images[0]["data"])
    checks.check(f"{title} is a PNG", image.startswith(PNG))
    filed = read(reader, base, mode, "file", call, 1000)
    paths = [block["text"] for block in blocks(filed) if block.get("text", "").endswith(".png")]
    if checks.check(f"{title} goes to a file", len(paths) == 1 and "image" not in kinds(filed), json.dumps(filed)[:500]):
        with open(paths[0], "rb") as file:
            checks.equal(f"{title} is in the file, for its owner alone", (digest(file.read()), os.stat(paths[0]).st_mode & 0o777),
                         (digest(image), 0o600))
        checks.equal(f"{title}: the file has its hash for a name", os.path.basename(paths[0]), f"{digest(image)}.png")
    linked = read(reader, base, mode, "link", call, 1000)
    links = linked.get("links", [])
    if checks.check(f"{title} becomes a link", len(links) == 1 and "image" not in kinds(linked), json.dumps(linked)[:500]):
        checks.equal(f"{title} is read through its link, by parts and whole",
                     (links[0]["sha256"], links[0]["whole"], links[0]["total"]), (digest(image), digest(image), len(image)))


def check_resource(checks, base, reader, mode):
    call = {"name": "everything__get-resource-reference", "arguments": {"resourceType": "Blob", "resourceId": 2}}
    title = f"{reader}, {mode}: an embedded blob"
    passed = read(reader, base, mode, "pass", call, 7)
    blobs = [block["resource"]["blob"] for block in blocks(passed) if "blob" in block.get("resource", {})]
    if not checks.check(f"{title} passes", len(blobs) == 1, json.dumps(passed)[:500]):
        return
    # It tells the time, so that each call has another.
    begin = base64.b64decode(blobs[0])[:11]
    checks.equal(f"{title} is what the server says", begin, b"Resource 2:")
    filed = read(reader, base, mode, "file", call, 7)
    words = [block["resource"]["text"] for block in blocks(filed) if "text" in block.get("resource", {})]
    named = len(words) == 1 and words[0].startswith("[Document: ") and words[0].endswith("]")
    if checks.check(f"{title} goes to a file", named, json.dumps(filed)[:500]):
        with open(words[0].removeprefix("[Document: ").removesuffix("]"), "rb") as file:
            checks.equal(f"{title} is in the file", file.read()[:11], begin)
    links = read(reader, base, mode, "link", call, 7).get("links", [])
    if checks.check(f"{title} becomes a link", len(links) == 1, json.dumps(links)[:500]):
        checks.check(f"{title} is read through its link, by parts and whole",
                     links[0]["sha256"] == links[0]["whole"] and links[0]["parts"] > 1, json.dumps(links)[:500])
    call = {"name": "everything__trigger-long-running-operation", "arguments": {"duration": 1, "steps": 2}}
    for who in ("pass", "file", "link"):
        answer = read(reader, base, mode, who, call, 7)
        words = " ".join(block.get("text", "") for block in blocks(answer))
        checks.check(f"{reader}, {mode}: a long-running tool answers, {who}", "completed" in words, json.dumps(answer)[:500])


def check_large(checks, base, reader, mode, path, whole):
    call = {"name": "filesystem__read_text_file", "arguments": {"path": str(path)}}
    title = f"{reader}, {mode}: a file of 30 MB"
    dropped = read(reader, base, mode, "cut-drop", call, 1 << 20)
    shown = next((block["text"] for block in blocks(dropped) if block["type"] == "text"), "")
    # The server promises a schema, so that less than all is an error.
    checks.check(f"{title}, drop: is cut", dropped.get("result", {}).get("isError") is True and whole.startswith(shown[:900]),
                 json.dumps(dropped)[:500])
    checks.equal(f"{title}, drop: nothing is linked", (kinds(dropped).count("resource_link"), "structuredContent" in dropped.get("result", {})), (0, False))
    linked = read(reader, base, mode, "cut-link", call, CAPS["cut-link"])
    small = {link["uri"].split("?")[0]: link for link in linked.get("links", [])}
    checks.check(f"{title}, link: has the rest of the text, and the structured content",
                 len(small) == 2 and linked["result"].get("isError") is True, json.dumps(linked)[:800])
    digests = {link["sha256"] for link in small.values()}
    checks.check(f"{title}, link: what was shown and the rest, joined, are the file", digest(whole.encode()) in digests,
                 json.dumps(list(small.values()))[:500])


def check_results(checks, processes, folder, binary):
    folder = folder / "results"
    (folder / "files").mkdir(parents=True)
    whole = LINE * (LARGE_BYTES // len(LINE.encode()))
    (folder / "files" / "large.txt").write_text(whole, encoding="utf-8")
    for disk in (False, True):
        http, admin = labkit.free_ports(2)
        place = folder / ("disk" if disk else "memory")
        place.mkdir()
        (place / "portcullis.toml").write_text(configuration(folder, http, admin, disk), encoding="utf-8")
        gateway = processes.start("portcullis", [binary, "serve", "--config", place / "portcullis.toml"], place / "portcullis.log",
                                  cwd=place, env=labkit.lab_environment(PORTCULLIS_STATE_DIR=str(place / "state")))
        ready = lambda: (labkit.http(f"http://127.0.0.1:{admin}/readyz") or (0,))[0] == 200
        until(START_SECS, "readyz says 200", ready, alive=[gateway])
        base = f"http://127.0.0.1:{http}"
        for reader in READERS:
            for mode in MODES if not disk else MODES[:1]:
                check_image(checks, base, reader, mode)
                check_resource(checks, base, reader, mode)
                check_large(checks, base, reader, mode, folder / "files" / "large.txt", whole)
        checks.equal(f"results, {place.name}: SIGTERM ends the gateway with 0, nothing is left", processes.stop(gateway), (0, []))
