"""Figures that are counted: instructions, syscalls and allocations per call, and memory.

A count per call is the difference of two runs of different lengths, divided by the difference of the lengths: what
start, stop and the first call cost is in both and drops out.
"""

import http.client
import json
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass, replace

from kit import CASES, READY_SECS, THREADS, Failed, descendants, footprint, key_of, memory

SESSIONS = 1000
SESSIONS_BEFORE = 100  # the first sessions also grow tables and the heap's spare room
LOADED_CONNECTIONS = 64
LOADED_CALLS = 64 * 300
COUNTED_THREADS = 1  # a scheduler's work on several threads is not the same twice


@dataclass(frozen=True)
class Counter:
    """A program that counts what another does, and how its total is read."""

    wrapper: tuple
    total: re.Pattern
    threads: int


CACHEGRIND = Counter(
    ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"),
    re.compile(r"I\s+refs:\s+([\d,]+)"),
    COUNTED_THREADS,
)
HEAP = Counter(
    ("valgrind", "--tool=memcheck", "--leak-check=no", "--undef-value-errors=no"),
    re.compile(r"total heap usage: ([\d,]+) allocs"),
    COUNTED_THREADS,
)
STRACE = Counter(
    ("strace", "-f", "-c", "-U", "name,calls"), re.compile(r"^total\s+(\d+)", re.MULTILINE), COUNTED_THREADS
)
STRACE_THREADS = replace(STRACE, threads=THREADS)


def total(place, counter, case, calls):
    """The count of a whole life of the gateway in which it serves so many calls; and the counter's own words."""
    out = place.file(counter.wrapper[0])
    traces = counter.wrapper[0] == "strace"
    to_file = ("-o", out) if traces else (f"--log-file={out}",)
    with place.gateway([case.server], (*counter.wrapper, *to_file), counter.threads) as gateway:
        gateway.run(case, "--calls", calls)
        if traces:
            end_traced(gateway.process)
        code = gateway.stop()
    words = out.read_text(encoding="utf-8", errors="replace")
    found = counter.total.search(words)
    if code or not found:
        raise Failed(f"{' '.join(counter.wrapper)} ended with {code} and counted nothing:\n{words}")
    return int(found.group(1).replace(",", "")), words


def end_traced(tracer):
    """Ends what strace started, so that strace sees it end and writes its table."""
    started = descendants(tracer.pid)
    if started:
        os.kill(started[0][0], signal.SIGTERM)
    tracer.wait(READY_SECS)


def per_call(place, counter, case):
    """The count per call, as the difference of the case's two lengths."""
    short, long = case.lengths
    few, _ = total(place, counter, case, short)
    many, words = total(place, counter, case, long)
    return (many - few) / (long - short), words


def instructions(place, name):
    return per_call(place, CACHEGRIND, CASES[name])[0]


def syscalls(place, name):
    """On one worker thread: the same every time."""
    return per_call(place, STRACE, CASES[name])[0]


def syscalls_as_it_runs(place, name):
    """On two, so with what the threads tell each other; how often they do is a matter of timing."""
    return per_call(place, STRACE_THREADS, CASES[name])[0]


def allocations(place, name):
    count = per_call(place, HEAP, CASES[name])[0]
    if count < 1:
        raise Failed("valgrind sees no allocations: the gateway does not use the system's allocator")
    return count


# --- memory: of the process as it runs, with two worker threads ---

MIB = 1 << 20


def idle_mib(place):
    """MiB once every list is read and nobody has called, with the guardian."""
    with place.gateway(["m10"]) as gateway:
        return footprint(gateway.process.pid) / MIB


def loaded_mib(place):
    """MiB after 64 connections have made 300 calls each."""
    with place.gateway(["m10"]) as gateway:
        gateway.run(CASES["echo-2025-11-25"], "--connections", LOADED_CONNECTIONS, "--calls", LOADED_CALLS)
        return footprint(gateway.process.pid) / MIB


def kib_per_session(place):
    """KiB that one more open session adds."""
    with place.gateway(["m10"]) as gateway:
        held = [hold(place, gateway, SESSIONS_BEFORE)]
        try:
            before = memory(gateway.process.pid, "Pss")
            held.append(hold(place, gateway, SESSIONS))
            return (memory(gateway.process.pid, "Pss") - before) / 1024 / SESSIONS
        finally:
            for process in held:
                process.communicate()


def hold(place, gateway, count):
    """Opens sessions that stay open until the process's input ends."""
    argv = [place.programs.load, "hold", "--url", gateway.url, "--key", key_of("m10"), "--calls", count]
    process = subprocess.Popen(
        [str(word) for word in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if process.stdout.readline().strip() != "held":
        raise Failed(f"{count} sessions cannot be opened: {process.communicate()[1]}")
    return process


def binary_mib(place):
    return place.programs.portcullis.stat().st_size / MIB


def start_ms(place):
    """Milliseconds from the gateway's start to its first right answer to a tool call; its server is up before."""
    with place.gateway(["m10"], wait=False) as gateway:
        return 1000 * (until_called(gateway.http, key_of("m10"), "m10__echo", gateway.process) - gateway.began)


def until_called(port, key, tool, process):
    """Asks once a millisecond until a stateless call is answered rightly; gives the moment."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": tool, "arguments": {"text": "started"}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    deadline = time.monotonic() + READY_SECS
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("POST", "/mcp", body, headers)
            if b'"text":"started"' in connection.getresponse().read():
                return time.monotonic()
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        if process.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"{process.lab_name} answers no call within {READY_SECS} s of its start")
        time.sleep(0.001)
