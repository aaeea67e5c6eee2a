"""`bench/run gate`: counts, compares with baseline/gate.json, fails over a tolerance.

Counts need no quiet machine. What timing can still disturb (memory, the number of wake-ups) is counted up to three
times where it is over its limit, and the least is taken, as in the baseline itself: a disturbance only ever adds.
"""

import json
import re
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Callable

import counts
from kit import BENCH, CASES, Failed, Lacking, Place, Processes, Programs, inspect_off, machine

BASELINE = BENCH / "baseline" / "gate.json"
TRIES = 3
AT_ONCE = 2
# The tolerance of what depends on timing: in how many pieces a big answer comes (each may be allocated), and how often two
# threads wake each other. One machine is steady within 3 %, the next has other pieces.
TIMED = 0.3
TOOLS = ("valgrind", "strace", "taskset")


@dataclass(frozen=True)
class Figure:
    """One number of the gate, as it stands when the baseline has none yet."""

    title: str
    unit: str
    tolerance: float  # as a share of the baseline
    count: Callable
    args: tuple = ()
    target: float | None = None
    parallel: bool = True  # may be counted beside another
    gated: bool = True


def figures():
    """Every figure by its key, in the order of the table."""
    targets = {"echo-2025-11-25": 45_000, "echo-2026-07-28": 52_000, "big": 600_000, "big-off": 100_000}
    targets |= {"list-100": 60_000, "list-1000": 100_000}
    found = {}
    for name, case in CASES.items():
        tolerance = 0.05 if name.startswith("big") or name == "list-1000" else 0.03  # read or written in many parts
        found[f"instructions/{name}"] = Figure(
            case.title, "instructions/call", tolerance, counts.instructions, (name,), targets.get(name)
        )
    for name in ("echo-2025-11-25", "echo-2026-07-28", "big", "events", "stdio"):
        # Of a big answer it is the kernel's number: in how many pieces it has the bytes ready. What they cost is held above.
        found[f"syscalls/{name}"] = Figure(
            CASES[name].title, "syscalls/call", 0.03, counts.syscalls, (name,), gated=name != "big"
        )
    for name in ("echo-2025-11-25", "echo-2026-07-28"):
        title = f"{CASES[name].title}, two threads"
        found[f"syscalls-2/{name}"] = Figure(
            title, "syscalls/call", TIMED, counts.syscalls_as_it_runs, (name,), 6.1, parallel=False
        )
    for name in ("echo-2025-11-25", "echo-2026-07-28", "big", "events", "list-100", "stdio"):
        tolerance = TIMED if name == "big" else 0.03
        found[f"allocations/{name}"] = Figure(
            CASES[name].title, "allocations/call", tolerance, counts.allocations, (name,)
        )
    alone = {"parallel": False}
    found["memory/idle"] = Figure("memory idle", "MiB", 0.1, counts.idle_mib, target=12, **alone)
    found["memory/loaded"] = Figure("memory after C=64", "MiB", 0.15, counts.loaded_mib, target=30, **alone)
    found["memory/session"] = Figure("open session, of 1,000", "KiB", 0.15, counts.kib_per_session, target=2, **alone)
    found["size/binary"] = Figure("binary", "MiB", 0.05, counts.binary_mib)
    found["start/call"] = Figure("start to first call", "ms", 0, counts.start_ms, target=20, gated=False, **alone)
    return found


# --- comparison ---

HELD, BETTER, WORSE, NEW, LOST, SHOWN, SKIPPED = "held", "better", "worse", "new", "lost", "shown", "skipped"
FAILING = (WORSE, NEW, LOST)


@dataclass(frozen=True)
class Verdict:
    key: str
    state: str
    text: str


def limit(entry):
    return entry["value"] * (1 + entry["tolerance"])


def judge(key, value, entry, skipped=None, gated=True):
    """One figure against its entry of the baseline (`None`: it has none)."""
    if value is None:
        if entry is not None and gated:
            return Verdict(key, LOST, f"has a baseline of {shown(entry['value'])} and is not counted: {skipped}")
        return Verdict(key, SKIPPED, f"not counted: {skipped}")
    if not gated:
        return Verdict(key, SHOWN, "shown, not gated")
    if entry is None:
        return Verdict(key, NEW, "has no baseline; `bench/run gate --update` writes one")
    base, tolerance = entry["value"], entry["tolerance"]
    change = f"{100 * (value / base - 1):+.1f} %" if base else f"{value:+g}"
    if value > limit(entry):
        over = f"{change} over the baseline of {shown(base)}, allowed {100 * tolerance:+.0f} %"
        return Verdict(key, WORSE, over)
    if value < base * (1 - tolerance):
        return Verdict(key, BETTER, f"{change}; better: lower the baseline")
    return Verdict(key, HELD, change)


def compare(values, entries, skipped, not_gated=()):
    """Every figure against the baseline, and what the baseline alone holds."""
    verdicts = [
        judge(key, value, entries.get(key), skipped.get(key), key not in not_gated) for key, value in values.items()
    ]
    forgotten = [key for key in entries if key not in values]
    verdicts += [Verdict(key, LOST, "is in the baseline, and the gate no longer counts it") for key in forgotten]
    return verdicts


def shown(value):
    """A figure as a person reads it."""
    if value is None:
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}".rstrip("0").rstrip(".")


def rounded(value):
    """A figure as the baseline keeps it: five digits say more than any tolerance asks."""
    value = float(f"{value:.5g}")
    return int(value) if value.is_integer() else value


def table(wanted, values, entries, verdicts):
    """The lines that say how every figure stands."""
    texts = {verdict.key: f"{'FAIL ' if verdict.state in FAILING else ''}{verdict.text}" for verdict in verdicts}
    rows = [("figure", "now", "baseline", "target", "unit", "")]
    for key, figure in wanted.items():
        entry, value = entries.get(key) or {}, values.get(key)
        target = figure.target
        missed = value is not None and target is not None and value > target
        numbers = (shown(value), shown(entry.get("value")), shown(target) + (" missed" if missed else ""))
        rows.append((key, *numbers, figure.unit, texts[key]))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, [*widths, 0])).rstrip() for row in rows]


# --- counting ---


def count_all(place, wanted, keys, log):
    """Counts the figures of `keys`, those that need the machine first and alone. A failure names its figure."""

    def one(key):
        figure = wanted[key]
        began = time.monotonic()
        try:
            value = figure.count(place, *figure.args)
        except Failed as failure:
            raise Failed(f"{key}: {failure}") from failure
        log(f"{key}: {shown(value)} {figure.unit} ({time.monotonic() - began:.1f} s)")
        return key, value

    found = dict(one(key) for key in keys if not wanted[key].parallel)
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        found |= pool.map(one, [key for key in keys if wanted[key].parallel])
    finally:
        pool.shutdown(cancel_futures=True)  # after a failure or a signal, what is left is not counted
    return found


def measure(place, wanted, entries, skipped, log, every_try=False):
    """Counts everything; what is over its limit (or all of it: `every_try`) again, and the least is taken."""
    keys = [key for key in wanted if key not in skipped]
    values = count_all(place, wanted, keys, log)
    for _ in range(TRIES - 1):
        again = [key for key in keys if every_try or over(values[key], wanted[key], entries.get(key))]
        if not again:
            break
        log("counted again, the least is taken: " + ", ".join(again))
        for key, value in count_all(place, wanted, again, log).items():
            values[key] = min(values[key], value)
    return {key: values.get(key) for key in wanted}


def over(value, figure, entry):
    return figure.gated and entry is not None and value > limit(entry)


def read_baseline(path=BASELINE):
    if not path.exists():
        return {"machine": {}, "figures": {}}
    return json.loads(path.read_text(encoding="utf-8"))


def write_baseline(wanted, values, old, path=BASELINE):
    """Writes what was counted; the tolerances that the baseline states stay."""
    figures = {}
    for key, figure in wanted.items():
        if values[key] is None or not figure.gated:
            continue
        entry = old["figures"].get(key, {})
        figures[key] = {
            "value": rounded(values[key]),
            "unit": figure.unit,
            "tolerance": entry.get("tolerance", figure.tolerance),
            "target": figure.target,
        }
    path.parent.mkdir(exist_ok=True)
    text = json.dumps({"machine": machine(), "figures": figures}, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    return figures


def require_tools():
    """Without one of them there is no gate."""
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        raise Lacking(f"{', '.join(missing)} not installed; instructions, syscalls and allocations are not counted")


def run(options):
    """Runs the gate; gives the exit code."""
    require_tools()
    log = (lambda line: print(f"  {line}", flush=True)) if options.verbose else (lambda line: None)
    programs = Programs.build(options.portcullis)
    wanted, baseline, skipped = figures(), read_baseline(), {}
    if options.only and not options.update:
        wanted = {key: figure for key, figure in wanted.items() if re.search(options.only, key)}
        baseline["figures"] = {key: entry for key, entry in baseline["figures"].items() if key in wanted}
    refused = inspect_off(programs)
    if refused and "instructions/big-off" in wanted:
        skipped["instructions/big-off"] = f"this version refuses the key ({refused})"
    began = time.monotonic()
    with Processes() as processes, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        place = Place(programs, processes, folder)
        values = measure(place, wanted, baseline["figures"], skipped, log, every_try=options.update)
    not_gated = {key for key, figure in wanted.items() if not figure.gated}
    verdicts = compare(values, baseline["figures"], skipped, not_gated)
    print("\n".join(table(wanted, values, baseline["figures"], verdicts)))
    print(f"counted in {time.monotonic() - began:.0f} s")
    if options.update:
        write_baseline(wanted, values, baseline)
        name = BASELINE.relative_to(BENCH.parent)
        print(f"{name} is written; what rose in it goes into a commit of its own that names what it pays for:")
        rose = [verdict for verdict in verdicts if verdict.state == WORSE]
        print("\n".join(f"  {verdict.key}: {verdict.text}" for verdict in rose) or "  nothing rose")
        return 0
    return report(verdicts, baseline)


def report(verdicts, baseline):
    """Says which figures fail; gives the exit code."""
    failed = [verdict for verdict in verdicts if verdict.state in FAILING]
    for verdict in failed:
        print(f"FAIL {verdict.key} {verdict.text}")
    better = sum(verdict.state == BETTER for verdict in verdicts)
    print(f"{len(verdicts) - len(failed)} figures hold ({better} better: lower the baseline), {len(failed)} fail")
    if failed:
        here, there = machine(), baseline["machine"]
        for name in ("cpu", "kernel", "rustc"):
            if there.get(name) != here[name]:
                print(f"the baseline is of another {name}: {there.get(name)}, here {here[name]}")
    return 1 if failed else 0
