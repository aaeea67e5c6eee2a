"""What `gate` and `report` share: the programs, the gateway's configuration, and one call or load through it.

Python's standard library only; processes are started and ended by tests/lab/labkit.py.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
sys.path.insert(0, str(ROOT / "tests" / "lab"))

from labkit import Failed, Processes, descendants, free_ports, http, listening, tail, until  # noqa: E402, F401

LACKING = 69  # tests/run reads this exit code as "this machine lacks something"
READY_SECS = 120  # under valgrind, on a busy machine
LOAD_SECS = 300
LOWEST = 39  # added to any priority; the kernel stops at 19
EXTRA_PRINCIPALS = 12
THREADS = 2


class Lacking(Exception):
    """This machine lacks a tool; the text names it and says what is not done."""


@dataclass(frozen=True)
class Server:
    """An upstream of the gateway: which mock, which list, and how the gateway treats it."""

    mock: str = "any"
    path: str = "/mcp"
    inspect: bool = True


# One principal per server (its name is the server's), so that a list holds one server's tools.
SERVERS = {
    "m10": Server(),
    "m100": Server(path="/mcp100"),
    "m1000": Server(path="/mcp1000"),
    "raw": Server(inspect=False),
    "old": Server("legacy"),
    "new": Server("stateless"),
    "std": Server("stdio"),
    "noisy": Server("noise"),
}

# The eras that each mock speaks. Each is a process of its own; "stdio" is a child of the gateway.
MOCKS = {"any": "any", "legacy": "legacy", "stateless": "stateless", "noise": "any"}


@dataclass(frozen=True)
class Case:
    """What one call is: its server, what `load` is told, and the two lengths whose difference is counted."""

    title: str
    server: str
    args: tuple
    lengths: tuple = (300, 3300)

    def words(self, prefix=""):
        """What `load` is told where tools are shown with a prefix."""
        words = list(self.args)
        if "--tool" in words:
            at = words.index("--tool") + 1
            words[at] = f"{prefix}{words[at]}"
        return words


def call(tool, *more):
    return ("call", "--tool", tool, *more)


STATELESS = ("--era", "stateless")
BIG = ("--bytes-min", str(1 << 20))
CASES = {
    "echo-2025-11-25": Case("echo, 2025-11-25", "m10", call("echo")),
    "echo-2026-07-28": Case("echo, 2026-07-28", "m10", call("echo", *STATELESS)),
    "big": Case("1 MiB answer, inspected", "m10", call("big", *BIG), (30, 180)),
    "big-off": Case('1 MiB answer, inspect = "off"', "raw", call("big", *BIG), (30, 180)),
    "list-100": Case("tools/list of 100", "m100", ("list", "--bytes-min", "30000")),
    "list-1000": Case("tools/list of 1,000", "m1000", ("list", "--bytes-min", "300000")),
    "events": Case("SSE answer of 6 events", "m10", call("events", "--events", "6")),
    "stdio": Case("stdio echo", "std", call("echo")),
    "bridged-up": Case("echo, 2025-11-25 client, 2026-07-28 server", "new", call("echo")),
    "bridged-down": Case("echo, 2026-07-28 client, 2025-11-25 server", "old", call("echo", *STATELESS)),
}


# --- programs ---


def cargo(*words):
    """Runs cargo and gives the executables it made, by target name."""
    if not shutil.which("cargo"):
        raise Lacking("cargo is not installed; the benchmark programs cannot be built")
    argv = ["cargo", *words, "--locked", "--message-format=json"]
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(argv)} failed")
    found = {}
    for line in done.stdout.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("executable"):
            found[message["target"]["name"]] = Path(message["executable"])
    return found


@dataclass(frozen=True)
class Programs:
    portcullis: Path
    mock: Path
    load: Path

    @classmethod
    def build(cls, portcullis=None):
        """Builds what is needed; `portcullis` names a binary that is measured as it is."""
        # In a folder of their own: their profile builds the gateway too, and would put it in place of the measured one.
        folder = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "measuring"
        made = cargo("bench", "--no-run", "--bench", "mock", "--bench", "load", "--target-dir", str(folder))
        if portcullis is None:
            portcullis = cargo("build", "--release", "--bin", "portcullis")["portcullis"]
        portcullis = Path(portcullis).resolve()
        if not os.access(portcullis, os.X_OK):
            raise Failed(f"{portcullis} is not a program")
        return cls(portcullis, made["mock"], made["load"])


def environment(**more):
    """The environment of what is measured: nothing in it changes how much a program does."""
    kept = {name: value for name, value in os.environ.items() if name not in ("RUST_BACKTRACE", "RUST_LOG")}
    return {**kept, **more}


def cpus(count):
    """`taskset` with the first `count` processors this process may use: worker threads are as many everywhere."""
    chosen = sorted(os.sched_getaffinity(0))[:count]
    return ["taskset", "-c", ",".join(map(str, chosen))]


def group_niceness(pid, niceness=0):
    """Makes a session so much nicer than this process. Where the kernel weighs whole sessions, `nice` does nothing."""
    try:
        Path(f"/proc/{pid}/autogroup").write_text(str(min(os.nice(0) + niceness, 19)), encoding="ascii")
    except OSError:
        pass


# --- the gateway and its peers ---


def key_of(principal):
    return f"bench-key-of-{principal}"


def configuration(servers, mocks, mock_program, http_port, admin_port, access=False):
    """portcullis.toml: API keys, allow and exclude lists, several principals, names rewritten, every cap on."""
    lines = [
        "[listen]",
        f'http = "127.0.0.1:{http_port}"',
        f'admin = "127.0.0.1:{admin_port}"',
        'auth = "keys"',
        "",
        "[limits]",
        "sessions_per_principal = 5000",
        "",
        "[log]",
        'level = "info"',
        f"access = {'true' if access else 'false'}",
        "",
    ]
    for name in servers:
        server = SERVERS[name]
        lines += ["[[mcp.servers]]", f'name = "{name}"', "required = true"]
        if server.mock == "stdio":
            lines += [f'command = "{mock_program}"', 'args = ["stdio"]']
        else:
            lines += [f'url = "{mocks[server.mock]}{server.path}"']
        if not server.inspect:
            lines += ['inspect = "off"']
        lines += ["", f"[mcp_bundles.{name}]", f'servers = ["{name}"]', ""]
    holders = [(name, name) for name in servers]
    holders += [(f"extra{number:02}", servers[0]) for number in range(EXTRA_PRINCIPALS)]
    for who, bundle in holders:
        digest = hashlib.sha256(key_of(who).encode()).hexdigest()
        lines += [
            f"[principals.{who}]",
            f'mcp_bundles = ["{bundle}"]',
            'policy = "bench"',
            f'api_keys = [{{ sha256 = "{digest}" }}]',
            "",
        ]
    allowed = ", ".join(f'"{name}__*"' for name in servers)
    excluded = ", ".join(f'"{name}__tool_000{digit}"' for name in servers for digit in (5, 6))
    lines += ["[policies.bench]", f"allowed_tools = [{allowed}]", f"excluded_tools = [{excluded}]", ""]
    return "\n".join(lines)


class Place:
    """A folder for configuration and logs, and every process that runs in it."""

    def __init__(self, programs, processes, folder):
        self.programs = programs
        self.processes = processes
        self.folder = Path(folder)

    def start(self, name, argv, log, niceness=0, **how):
        """Starts a process, so much nicer than this one."""
        process = self.processes.start(name, ["nice", "-n", niceness, *argv], log, **how)
        group_niceness(process.pid, niceness)
        return process

    def file(self, name):
        """A new path in the folder. Threads share a place, so each file has a name of its own."""
        handle, path = tempfile.mkstemp(prefix=f"{name}-", dir=self.folder)
        os.close(handle)
        return Path(path)

    def mock(self, name="any", niceness=0):
        """Starts a mock over HTTP; gives its process and address."""
        log = self.file(f"mock-{name}")
        argv = [self.programs.mock, "http", "--era", MOCKS[name]]
        process = self.start(f"the mock '{name}'", argv, log, niceness, env=environment())
        address = until(READY_SECS, "the mock's address", lambda: re.search(r"http://\S+", tail(log)), [process])
        return process, address.group()

    def gateway(self, servers, wrapper=(), threads=THREADS, mocks=None, access=False, wait=True):
        """Starts a gateway, and the mocks it needs where none are given."""
        return Gateway(self, servers, wrapper, threads, mocks, access, wait)

    def load(self, url, key, *args, pids=()):
        """Runs `load` to its end; gives what it says. A wrong answer is a failure: a proxy that drops calls is fast."""
        argv = [self.programs.load, *args, "--url", url, "--key", key]
        for pid in pids:
            argv += ["--pid", pid]
        try:
            done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, timeout=LOAD_SECS)
        except subprocess.TimeoutExpired as late:
            raise Failed(f"load {' '.join(map(str, args))} at {url} does not end within {LOAD_SECS} s") from late
        said = json.loads(done.stdout) if done.returncode == 0 else None
        if said is None or said["errors"]:
            raise Failed(f"load {' '.join(map(str, args))} at {url}: {done.stdout}{done.stderr}".strip())
        return said


class Gateway:
    """A running gateway with the mocks it started; leaving the `with` ends them."""

    def __init__(self, place, servers, wrapper, threads, mocks, access, wait):
        self.place = place
        self.servers = list(servers)
        self.mocks = []
        if mocks is None:
            mocks = {}
            for name in sorted({SERVERS[name].mock for name in servers} - {"stdio"}):
                process, mocks[name] = place.mock(name)
                self.mocks.append(process)
        self.http, self.admin = free_ports(2)
        self.url = f"http://127.0.0.1:{self.http}/mcp"
        self.config = place.file("portcullis.toml")
        self.log = place.file("portcullis.log")
        text = configuration(self.servers, mocks, place.programs.mock, self.http, self.admin, access)
        self.config.write_text(text, encoding="utf-8")
        argv = [*cpus(threads), *wrapper, place.programs.portcullis, "serve", "--config", self.config]
        env = environment(TOKIO_WORKER_THREADS=str(threads))
        self.began = time.monotonic()
        self.process = place.start("portcullis", argv, self.log, env=env)
        if wait:
            self.until_ready()

    def until_ready(self):
        ready = f"http://127.0.0.1:{self.admin}/readyz"
        try:
            until(READY_SECS, "portcullis is ready", lambda: (http(ready) or [0])[0] == 200, [self.process])
        except Failed as failure:
            raise Failed(f"{failure}\n{tail(self.log)}") from failure

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Ends the gateway in order, then its mocks; gives the gateway's exit code."""
        code = self.process.returncode
        if self.process in self.place.processes.running:
            code, _ = self.place.processes.stop(self.process)
        for mock in self.mocks:
            if mock in self.place.processes.running:
                self.place.processes.stop(mock)
        return code

    def run(self, case, *more, pids=()):
        """Loads the gateway with a case; gives what `load` says."""
        try:
            args = case.words(f"{case.server}__")
            return self.place.load(self.url, key_of(case.server), *args, *more, pids=pids)
        except Failed as failure:
            raise Failed(f"{failure}\n{tail(self.log, 10)}") from failure


def inspect_off(programs):
    """Whether this version reads `inspect`; else what it says of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "portcullis.toml"
        text = configuration(["raw"], {"any": "http://127.0.0.1:9"}, programs.mock, 7800, 7801)
        path.write_text(text, encoding="utf-8")
        argv = [programs.portcullis, "check", "--config", path]
        done = subprocess.run(argv, capture_output=True, text=True)
    said = done.stdout + done.stderr
    if done.returncode == 0:
        return None
    refused = next((line for line in said.splitlines() if "inspect" in line), None)
    if refused is None:
        raise Failed(f"portcullis check refuses the benchmark's configuration:\n{said}")
    return refused.strip().removeprefix("error: ")


# --- memory and versions ---


def memory(pid, field):
    """Bytes of a process and its descendants in /proc/PID/smaps_rollup: `Rss` or `Pss`."""
    return sum(mapped(member, field) for member in [pid, *(child for child, _ in descendants(pid))])


def footprint(pid):
    """Bytes: the RSS of a process, and what its descendants have for themselves alone. Whatever else runs."""
    own = [mapped(child, "Private_Clean") + mapped(child, "Private_Dirty") for child, _ in descendants(pid)]
    return mapped(pid, "Rss") + sum(own)


def mapped(pid, field):
    """Bytes of one process in a field of its smaps_rollup."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    return 1024 * int(re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE).group(1))


def first_line(*argv):
    """The first line that a command prints, or a dash where there is no such command."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT)
    except OSError:
        return "–"
    return (done.stdout or done.stderr).strip().partition("\n")[0] or "–"


def machine():
    """Where the figures are from."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    model = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    return {
        "cpu": model.group(1).strip() if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "rustc": first_line("rustc", "--version"),
        "commit": first_line("git", "describe", "--always", "--dirty", "--abbrev=12"),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
