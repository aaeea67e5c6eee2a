"""What the lab's scripts share: checks that are counted, processes that are always ended, waiting for a condition.

Python's standard library only. Nothing here knows Portcullis.
"""

import asyncio
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

LAB = Path(__file__).resolve().parent
ROOT = LAB.parent.parent
PYTHON = LAB / ".venv" / "bin" / "python"
NODE_BIN = LAB / "node_modules" / ".bin"
POLL_SECS = 0.05


class Failed(Exception):
    """The script cannot go on; the text says why."""


class Checks:
    """One line per check; the exit code is decided at the end."""

    def __init__(self):
        self.passed = 0
        self.failed = 0

    def check(self, name, holds, detail=""):
        if holds:
            self.passed += 1
            print(f"ok    {name}", flush=True)
        else:
            self.failed += 1
            print(f"FAIL  {name}{': ' if detail else ''}{detail}", flush=True)
        return holds

    def equal(self, name, seen, expected):
        return self.check(name, seen == expected, f"expected {expected!r}, got {seen!r}")

    def same_list(self, name, seen, expected):
        """Equal, order included; the failure says what is missing, what is too many."""
        missing = [item for item in expected if item not in seen]
        extra = [item for item in seen if item not in expected]
        detail = f"missing {missing}, not expected {extra}" if missing or extra else f"order or repeats: {seen}"
        return self.check(name, seen == expected, detail)

    def summary(self):
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        return 1 if self.failed else 0


def until(secs, what, condition, alive=()):
    """Polls until the condition gives something true, and returns it. Fails early when a needed process has ended."""
    deadline = time.monotonic() + secs
    while True:
        value = condition()
        if value:
            return value
        for process in alive:
            if process.poll() is not None:
                raise Failed(f"{process.lab_name} ended with code {process.returncode} before {what}")
        if time.monotonic() > deadline:
            raise Failed(f"not within {secs} s: {what}")
        time.sleep(POLL_SECS)


def http(url, body=None, headers=None):
    """(status, body as bytes), or None while nobody answers. An error status is an answer."""
    request = urllib.request.Request(url, data=body, headers=headers or {})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return None


def free_ports(count):
    """Ports of 127.0.0.1 that are free, all different, and none that the system gives to a connection meanwhile."""
    sockets, below = [], ephemeral_from()
    while len(sockets) < count:
        try:
            sockets.append(socket.create_server(("127.0.0.1", random.randrange(10_000, below))))
        except OSError:
            continue  # somebody's
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def ephemeral_from():
    """The first port that the system gives to connections which ask for none."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except OSError:
        first = 0
    return first if first > 11_000 else 32_768


def listening(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class TlsFront(threading.Thread):
    """A TLS port of 127.0.0.1 that leads to a plain one, for servers that speak no TLS; it ends with this script."""

    def __init__(self, cert, key, target):
        super().__init__(daemon=True)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(cert, key)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.target = target
        self.start()

    def run(self):
        asyncio.run(self.serve())

    async def serve(self):
        server = await asyncio.start_server(self.lead, sock=self.socket, ssl=self.context)
        await server.serve_forever()

    async def lead(self, reader, writer):
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)

        async def copy(source, sink):
            try:
                while data := await source.read(1 << 16):
                    sink.write(data)
                    await sink.drain()
            except OSError:
                pass  # a peer that ends its connection ends the other's
            finally:
                sink.close()

        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))


def lab_environment(**more):
    """This process's environment with the lab's Node first in PATH."""
    path = f"{NODE_BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path, "NO_PROXY": "127.0.0.1,localhost", **more}


class Processes:
    """Children of this script. Leaving the `with` ends them and all their descendants, on a signal too."""

    STOP_SECS = 30
    GONE_SECS = 5

    def __init__(self):
        self.running = []

    def __enter__(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _frame: sys.exit(128 + number))
        return self

    def __exit__(self, *_):
        for process in list(reversed(self.running)):
            self.stop(process)

    def start(self, name, argv, log, **how):
        """Starts a process in a session of its own; what it says goes to the file `log`."""
        try:
            with open(log, "wb") as out:
                process = subprocess.Popen(
                    [str(part) for part in argv],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    **how,
                )
        except OSError as error:
            raise Failed(f"{name} does not start: {error}") from error
        process.lab_name = name
        self.running.append(process)
        return process

    def stop(self, process):
        """SIGTERM, then SIGKILL to what is left. Returns (exit code, descendants that outlived the process)."""
        family = descendants(process.pid)
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(self.STOP_SECS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        deadline = time.monotonic() + self.GONE_SECS
        while (orphans := [member for member in family if is_alive(member)]) and time.monotonic() < deadline:
            time.sleep(POLL_SECS)
        for pid, _ in orphans:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if process in self.running:  # a thread may have stopped it too
            self.running.remove(process)
        return process.returncode, [pid for pid, _ in orphans]


def process_facts(pid):
    """(state, parent, start time) from /proc, or None."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[1]), fields[19]


def descendants(root):
    """(pid, start time) of every process below `root`; empty where there is no /proc."""
    facts = {int(entry.name): process_facts(entry.name) for entry in Path("/proc").glob("[0-9]*")}
    found, ring = [], [root]
    while ring:
        ring = [pid for pid, fact in facts.items() if fact and fact[1] in ring]
        found.extend((pid, facts[pid][2]) for pid in ring)
    return found


def is_alive(member):
    pid, started = member
    fact = process_facts(pid)
    return fact is not None and fact[2] == started and fact[0] != "Z"


def mentioning(path):
    """The processes that have `path` in their arguments, environment or working folder; this one is left out."""
    found, needle = [], str(path).encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            facts = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            facts += os.fsencode(os.readlink(entry / "cwd"))
        except OSError:
            continue
        if needle in facts and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return sorted(found)


def tail(path, lines=40):
    try:
        return "\n".join(Path(path).read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
