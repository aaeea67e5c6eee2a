"""`bench/run report`: rates, latencies and CPU, the gateway beside nginx and beside no proxy at all.

All programs are up the whole time, and all but the one that is measured are stopped (SIGSTOP). Rounds alternate in
direction, A B C C B A; the first is dropped. Every comparison is a ratio within one round, so that a slow minute of the
machine slows both sides of it; what is shown is the median of the ratios, with the least and the greatest.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import counts
import render
from kit import (
    BENCH,
    CASES,
    LOWEST,
    MOCKS,
    SERVERS,
    STATELESS,
    THREADS,
    Case,
    Failed,
    Place,
    Processes,
    Programs,
    call,
    cpus,
    descendants,
    environment,
    first_line,
    footprint,
    free_ports,
    group_niceness,
    inspect_off,
    key_of,
    listening,
    machine,
    until,
)

# What bridged calls are compared with.
UNBRIDGED = {
    "unbridged-legacy": Case("echo, 2025-11-25 client and server", "old", call("echo")),
    "unbridged-stateless": Case("echo, 2026-07-28 client and server", "new", call("echo", *STATELESS)),
}
START_TRIES = 7
MEMORY_TRIES = 3
NOISE_CONNECTIONS = 64
LARGE_BUFFERS = "proxy_buffer_size 64k; proxy_buffers 8 64k; proxy_busy_buffers_size 128k;"
DIRECT, NGINX, AGAIN, LARGE, OURS, OFF = (
    "direct",
    "nginx",
    "nginx again",
    "nginx, 64 KiB buffers",
    "portcullis",
    'portcullis, inspect = "off"',
)


@dataclass
class Peer:
    """Something that is measured: where it listens, and its process (`None`: no proxy, the mock itself)."""

    label: str
    url: str  # up to the path
    process: subprocess.Popen | None = None
    prefix: str = ""
    key: str | None = None  # `None`: the key of the case's principal
    ours: bool = False

    def signal(self, number):
        if self.process is None or self.process.poll() is not None:
            return
        for pid in [self.process.pid, *(child for child, _ in descendants(self.process.pid))]:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass


@dataclass(frozen=True)
class Run:
    """One measured run: a peer under a case."""

    label: str
    peer: Peer
    case: str


@dataclass(frozen=True)
class Series:
    """Several runs that take turns."""

    key: str
    title: str
    connections: int
    runs: tuple


class Stand:
    """Everything that is measured, up and stopped."""

    def __init__(self, place, inspected_only):
        self.place = place
        self.mocks = {}
        for name in MOCKS:
            self.mocks[name] = place.mock(name, niceness=LOWEST if name == "noise" else 0)[1]
        self.peers = []
        servers = [name for name in SERVERS if not (inspected_only and not SERVERS[name].inspect)]
        self.gateway = place.gateway(servers, mocks=self.mocks)
        self.ours = self.add(Peer(OURS, self.gateway.url.removesuffix("/mcp"), self.gateway.process, ours=True))
        logged = place.gateway(["m10"], mocks=self.mocks, access=True)
        label = "portcullis, access line"
        self.logged = self.add(Peer(label, logged.url.removesuffix("/mcp"), logged.process, ours=True))
        self.direct = Peer(DIRECT, self.mocks["any"], key="")
        self.nginx = self.large = None
        if shutil.which("nginx"):
            self.nginx = self.add(self.start_nginx(NGINX, ""))
            self.large = self.add(self.start_nginx(LARGE, LARGE_BUFFERS))
        self.others = [self.add(peer) for peer in self.start_others()]

    def add(self, peer):
        self.peers.append(peer)
        return peer

    def start_nginx(self, label, buffers):
        (port,) = free_ports(1)
        process = start_nginx(self.place, port, self.mocks, buffers)
        until(30, "nginx listens", lambda: listening(port), [process])
        return Peer(label, f"http://127.0.0.1:{port}", process, key="")

    def start_others(self):
        """The peers that the environment names; see README.md."""
        for name in os.environ.get("BENCH_PEERS", "").split():
            variable = f"BENCH_{re.sub('[^A-Z0-9]', '_', name.upper())}"
            command = os.environ.get(f"{variable}_COMMAND")
            if not command:
                raise Failed(f"BENCH_PEERS names {name}, and {variable}_COMMAND is not set")
            (port,) = free_ports(1)
            env = environment(PORT=str(port), UPSTREAM=f"{self.mocks['any']}/mcp")
            argv = [*cpus(THREADS), "sh", "-c", f"exec {command}"]
            process = self.place.start(name, argv, self.place.file(name), env=env)
            until(60, f"{name} listens", lambda port=port: listening(port), [process])
            prefix, key = os.environ.get(f"{variable}_PREFIX", ""), os.environ.get(f"{variable}_KEY", "")
            yield Peer(name, f"http://127.0.0.1:{port}", process, prefix, key)

    @contextmanager
    def awake(self, peer):
        """Lets one peer run."""
        peer.signal(signal.SIGCONT)
        try:
            yield
        finally:
            peer.signal(signal.SIGSTOP)

    @contextmanager
    def asleep(self):
        """Stops every peer; lets all run again at the end, so that they can be ended."""
        try:
            for peer in self.peers:
                peer.signal(signal.SIGSTOP)
            yield
        finally:
            for peer in self.peers:
                peer.signal(signal.SIGCONT)

    def load(self, peer, case, connections, seconds, path=None):
        """One run of `load` against one peer."""
        words = case.words(f"{case.server}__" if peer.ours else peer.prefix)
        url = peer.url + (path or ("/mcp" if peer.ours or peer in self.others else SERVERS[case.server].path))
        key = key_of(case.server) if peer.key is None else peer.key
        pids = [peer.process.pid] if peer.process else []
        how = ("--connections", connections, "--seconds", seconds)
        return self.place.load(url, key, *words, *how, pids=pids)


def start_nginx(place, port, mocks, buffers=""):
    """Starts nginx from nginx.conf in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="nginx-", dir=place.folder))
    text = (BENCH / "nginx.conf").read_text(encoding="utf-8")
    filled = {
        "PORT": port,
        "UPSTREAM": mocks["any"].removeprefix("http://"),
        "NOISE": mocks["noise"].removeprefix("http://"),
        "FOLDER": folder,
        "WORKERS": THREADS,
        "BUFFERS": buffers,
    }
    for name, value in filled.items():
        text = text.replace(f"@{name}@", str(value))
    config = folder / "nginx.conf"
    config.write_text(text, encoding="utf-8")
    return place.start("nginx", [*cpus(THREADS), "nginx", "-c", config], place.file("nginx.log"))


def all_series(stand, off_refused):
    """Every series of the report, in its order."""
    proxies = [stand.nginx] if stand.nginx else []

    def beside(case, *more):
        runs = [Run(peer.label, peer, case) for peer in (stand.direct, *proxies, stand.ours)]
        runs += [Run(peer.label, peer, case) for peer in stand.others]
        again = [Run(AGAIN, peer, case) for peer in proxies]
        return (*runs, *more, *again)

    large = [stand.large] if stand.large else []
    for case in ("echo-2025-11-25", "echo-2026-07-28"):
        for connections in (1, 16, 64):
            yield Series(f"{case}/{connections}", CASES[case].title, connections, beside(case))
    more = [Run(peer.label, peer, "big") for peer in large]
    more += [] if off_refused else [Run(OFF, stand.ours, "big-off")]
    yield Series("big/1", "1 MiB answer", 1, beside("big", *more))
    yield Series("events/1", CASES["events"].title, 1, beside("events"))
    for case in ("list-100", "list-1000"):
        # Other peers have one server, of 10 tools.
        peers = [stand.direct, *proxies, stand.ours, *large]
        yield Series(f"{case}/4", CASES[case].title, 4, tuple(Run(peer.label, peer, case) for peer in peers))
    echoes = {
        "2025-11-25 client and server": "unbridged-legacy",
        "2025-11-25 client, 2026-07-28 server": "bridged-up",
        "2026-07-28 client and server": "unbridged-stateless",
        "2026-07-28 client, 2025-11-25 server": "bridged-down",
    }
    runs = tuple(Run(label, stand.ours, case) for label, case in echoes.items())
    yield Series("bridged/16", "echo, bridged and unbridged", 16, runs)
    for connections in (1, 16):
        runs = [Run(f"{NGINX}, HTTP echo", peer, "echo-2025-11-25") for peer in proxies]
        runs += [Run(f"{OURS}, stdio echo", stand.ours, "stdio")]
        yield Series(f"stdio/{connections}", "stdio echo beside nginx's HTTP echo", connections, tuple(runs))
    runs = (Run(OURS, stand.ours, "echo-2025-11-25"), Run(stand.logged.label, stand.logged, "echo-2025-11-25"))
    yield Series("access/16", "access line off and on", 16, runs)


def rounds_of(stand, series, options, log):
    """Measures a series; gives each label's rounds, the first dropped. A peer that fails is left out from then on."""
    found = {run.label: [] for run in series.runs}
    cases, failed = CASES | UNBRIDGED, {}
    for number in range(options.rounds + 1):
        order = series.runs if number % 2 == 0 else tuple(reversed(series.runs))
        for run in order:
            if run.label in failed:
                continue
            with stand.awake(run.peer):
                try:
                    said = stand.load(run.peer, cases[run.case], series.connections, options.seconds)
                except Failed as failure:
                    if run.peer not in stand.others:
                        raise
                    failed[run.label] = str(failure)
                    continue
            said["cpu_us"] = 1e6 * said["cpu_seconds"] / said["calls"]
            if number > 0:
                found[run.label].append(said)
    for label, why in failed.items():
        del found[label]
        log(f"{label} is left out of {series.key}: {why}")
    log(f"{series.key}: {medians(found, 'rps')} calls/s")
    return found


def medians(found, field):
    return ", ".join(f"{label} {median(said[field] for said in rounds):,.0f}" for label, rounds in found.items())


# --- what is not a series ---


def quiet_and_noisy(stand, options, log):
    """p99 of one quiet caller: alone, and beside 64 connections of another principal that fetch 1 MiB answers.

    Each has a server of its own. The noise's load and server have the lowest priority: what is asked is whether the
    gateway is fair, not whether the machine is. Two rows show the machine's part: the quiet caller through the gateway
    beside the same noise that goes past it, and without a proxy beside the noise.
    """
    quiet = CASES["echo-2026-07-28"]
    found = {}

    def measure(label, peer, measured, *noise):
        with stand.awake(peer), noise_of(stand.place.programs, label, *noise):
            found.setdefault(label, []).append(stand.load(measured, quiet, 1, options.seconds))

    ours = (f"{stand.ours.url}/mcp", "noisy__big", key_of("noisy"))
    past = (f"{stand.mocks['noise']}/mcp", "big", "")
    for number in range(options.rounds + 1):
        plan = [
            (f"{OURS}, alone", stand.ours, stand.ours),
            (f"{OURS}, beside noise", stand.ours, stand.ours, *ours),
            (f"{OURS}, beside noise past it", stand.ours, stand.ours, *past),
            (f"{DIRECT}, beside noise through {OURS}", stand.ours, stand.direct, *ours),
        ]
        if stand.nginx:
            theirs = (f"{stand.nginx.url}/noise/mcp", "big", "")
            plan += [
                (f"{NGINX}, alone", stand.nginx, stand.nginx),
                (f"{NGINX}, beside noise", stand.nginx, stand.nginx, *theirs),
            ]
        for step in plan if number % 2 == 0 else reversed(plan):
            measure(*step)
    found = {label: got[1:] for label, got in found.items()}
    log(f"noise: p99 {medians(found, 'p99_us')} µs")
    return found


@contextmanager
def noise_of(programs, label, url=None, tool=None, key=None):
    """Makes noise while something else is measured; none without an address."""
    if url is None:
        yield
        return
    how = ["--url", url, "--tool", tool, "--key", key, "--connections", NOISE_CONNECTIONS, "--bytes-min", 1 << 20]
    argv = [str(word) for word in ["nice", "-n", LOWEST, programs.load, "noise", *how]]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(argv, start_new_session=True, **pipes)
    group_niceness(process.pid, LOWEST)
    running = process.stdout.readline()
    try:
        yield
    finally:
        heard = process.communicate()[0]
    if running.strip() != "running" or '"errors":0' not in heard:
        raise Failed(f"the noise beside {label} failed: {running}{heard}")


def starts(place, stand):
    """Milliseconds to the first answered call."""
    found = {OURS: [counts.start_ms(place) for _ in range(START_TRIES)]}
    if stand.nginx:
        found[NGINX] = []
        for _ in range(START_TRIES):
            (port,) = free_ports(1)
            began = time.monotonic()
            process = start_nginx(place, port, stand.mocks)
            found[NGINX].append(1000 * (counts.until_called(port, "", "echo", process) - began))
            place.processes.stop(process)
    return found


def memories(place, stand):
    """MiB idle and loaded, and KiB per session."""
    found = {
        "idle": [counts.idle_mib(place) for _ in range(MEMORY_TRIES)],
        "loaded": [counts.loaded_mib(place) for _ in range(MEMORY_TRIES)],
        "session": [counts.kib_per_session(place) for _ in range(MEMORY_TRIES)],
    }
    if stand.nginx:
        found["nginx"] = [footprint(stand.nginx.process.pid) / counts.MIB]
    return found


def raise_priority():
    try:
        os.nice(-5)
    except OSError:
        return "ordinary priority"
    group_niceness(os.getpid())
    return "raised priority (nice -5)"


def run(options):
    """Measures everything and writes the report; gives the exit code."""

    def log(line):
        print(f"  {line}", flush=True)

    programs = Programs.build(options.portcullis)
    off_refused = inspect_off(programs)
    notes = [f"All of it ran at {raise_priority()}."]
    if off_refused:
        notes.append(f'`inspect = "off"` is not measured: this version refuses the key ({off_refused}).')
    if not shutil.which("nginx"):
        notes.append("nginx is not installed: there is no yardstick, only what is measured directly.")
    began = time.monotonic()
    with Processes() as processes, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        place = Place(programs, processes, folder)
        stand = Stand(place, inspected_only=bool(off_refused))
        measured = {}
        with stand.asleep():
            memory_figures, start_figures = memories(place, stand), starts(place, stand)
            log(f"start: {median(start_figures[OURS]):.1f} ms")
            series = [one for one in all_series(stand, off_refused) if wanted(one.key, options)]
            for one in series:
                measured[one.key] = (one, rounds_of(stand, one, options, log))
            noise = quiet_and_noisy(stand, options, log) if wanted("noise", options) else {}
    report = render.Report(
        measured, noise, start_figures, memory_figures, notes, machine() | {"nginx": nginx_version()}, options
    )
    written = render.write(report, Path(options.out), into_readme=options.out == str(BENCH / "baseline"))
    print(f"measured in {time.monotonic() - began:.0f} s; written: {', '.join(map(str, written))}")
    return 0


def wanted(key, options):
    return not options.only or re.search(options.only, key)


def nginx_version():
    return first_line("nginx", "-v").removeprefix("nginx version: ") if shutil.which("nginx") else "not installed"
