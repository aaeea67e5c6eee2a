"""What was measured, as Markdown and as a chart; and the part of README.md that quotes it.

Pure: figures in, text out; `write` alone touches files.
"""

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import median

import gate
from kit import BENCH, CASES, ROOT

NGINX, AGAIN, DIRECT, OURS = "nginx", "nginx again", "direct", "portcullis"
OFF = 'portcullis, inspect = "off"'
QUIET_LIMITS = (0.93, 1.07)  # an A/A ratio outside of them: the machine was not quiet
README = ROOT / "README.md"
MARKS = ("<!-- bench-report -->", "<!-- /bench-report -->")
ECHO_RATIOS = ((1, 0.93), (16, 0.9), (64, 0.85))


@dataclass
class Report:
    """All that `bench/run report` found."""

    series: dict  # key → (Series, {label: [what load says, per round]})
    noise: dict  # label → rounds
    start: dict  # label → ms
    memory: dict  # idle, loaded, session, nginx → values
    notes: list
    machine: dict
    options: object

    def rounds(self, key, label):
        return self.series.get(key, (None, {}))[1].get(label, [])

    def ratios(self, key, above, below, field="rps"):
        """Per round: one label's figure over another's."""
        pairs = zip(self.rounds(key, above), self.rounds(key, below))
        return [a[field] / b[field] for a, b in pairs if b[field]]

    def differences(self, key, above, below, field):
        return [a[field] - b[field] for a, b in zip(self.rounds(key, above), self.rounds(key, below))]


@dataclass(frozen=True)
class Row:
    """One line of the comparison with the targets."""

    title: str
    values: list
    target: float
    at_least: bool
    unit: str = ""
    beside: str = ""  # nginx's own figure
    in_readme: bool = False

    def met(self):
        middle = median(self.values)
        return middle >= self.target if self.at_least else middle <= self.target


def number(value):
    """Three digits, or whole from a thousand on."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(values):
    """The median, and the least and the greatest."""
    if not values:
        return "–"
    return f"{number(median(values))} ({number(min(values))}–{number(max(values))})"


def target_rows(report):
    """Every target that this run measured."""
    rows = []

    def add(title, values, target, at_least=True, **more):
        if values:
            rows.append(Row(title, values, target, at_least, **more))

    for case in ("echo-2025-11-25", "echo-2026-07-28"):
        for connections, target in ECHO_RATIOS:
            title = f"calls/s against nginx, {CASES[case].title}, C={connections}"
            add(title, report.ratios(f"{case}/{connections}", OURS, NGINX), target, beside="1", in_readme=True)
    for case in ("echo-2025-11-25", "echo-2026-07-28"):
        ratios = report.ratios(f"{case}/64", OURS, NGINX, "cpu_us")
        add(f"CPU per call against nginx, {CASES[case].title}, C=64", ratios, 1.25, False, beside="1", in_readme=True)
        key = f"{case}/1"
        theirs = report.differences(key, NGINX, DIRECT, "p50_us")
        beside = f"{number(median(theirs))} µs" if theirs else ""
        added = report.differences(key, OURS, DIRECT, "p50_us")
        title = f"p50 added to a direct call, {CASES[case].title}, C=1"
        add(title, added, 50, False, unit=" µs", beside=beside, in_readme=True)
    big = "calls/s against nginx, 1 MiB answer"
    add(f"{big}, inspected", report.ratios("big/1", OURS, NGINX), 1, beside="1", in_readme=True)
    add(f'{big}, `inspect = "off"`', report.ratios("big/1", OFF, NGINX), 1.3, beside="1", in_readme=True)
    events = report.ratios("events/1", OURS, NGINX)
    add("calls/s against nginx, SSE answer of 6 events", events, 0.9, beside="1", in_readme=True)
    theirs = report.ratios("list-1000/4", NGINX, DIRECT)
    title = "tools/list of 1,000 against asking the server directly, C=4"
    beside = number(median(theirs)) if theirs else ""
    add(title, report.ratios("list-1000/4", OURS, DIRECT), 1, beside=beside, in_readme=True)
    for old, new in (("2025-11-25", "2026-07-28"), ("2026-07-28", "2025-11-25")):
        ratios = report.ratios("bridged/16", f"{old} client, {new} server", f"{old} client and server")
        add(f"bridged call against unbridged, {old} client, {new} server, C=16", ratios, 0.8)
    for connections, target in ((1, 0.75), (16, 0.6)):
        ratios = report.ratios(f"stdio/{connections}", f"{OURS}, stdio echo", f"{NGINX}, HTTP echo")
        add(f"stdio echo against nginx's HTTP echo, C={connections}", ratios, target, beside="1")
    add("start to first answered call", report.start.get(OURS), 20, False, unit=" ms", **nginx_start(report))
    theirs = report.memory.get("nginx")
    beside = f"{number(median(theirs))} MiB" if theirs else ""
    add("memory idle", report.memory.get("idle"), 12, False, unit=" MiB", beside=beside, in_readme=True)
    add("memory after C=64", report.memory.get("loaded"), 30, False, unit=" MiB", in_readme=True)
    add("open session, of 1,000", report.memory.get("session"), 2, False, unit=" KiB")
    beside = noise_ratio(report, NGINX)
    title = "p99 of a quiet caller beside a noisy one, against its p99 alone"
    shown = number(median(beside)) if beside else ""
    add(title, noise_ratio(report, OURS), 3, False, beside=shown)
    costs = report.ratios("access/16", "portcullis, access line", OURS, "cpu_us")
    add("CPU per call with the access line on against off, C=16", costs, 1.1, False)
    return rows


def nginx_start(report):
    theirs = report.start.get(NGINX)
    return {"beside": f"{number(median(theirs))} ms"} if theirs else {}


def noise_ratio(report, peer):
    alone, beside = (report.noise.get(f"{peer}, {what}", []) for what in ("alone", "beside noise"))
    return [b["p99_us"] / a["p99_us"] for a, b in zip(alone, beside)]


def same_twice(report):
    """nginx against itself: what the machine alone does to a ratio."""
    return [ratio for key in report.series for ratio in report.ratios(key, AGAIN, NGINX)]


# --- Markdown ---


def markdown(report):
    options, here = report.options, report.machine
    lines = [
        "# Report",
        "",
        "Written by `bench/run report`; what is measured, and how, is in [README.md](../README.md).",
        "",
        f"{here['cpu']}, {here['cores']} cores, Linux {here['kernel']}; {here['rustc']}; {here['nginx']};",
        f"commit {here['commit']}, {here['date']}.",
        f"{options.rounds} rounds of {options.seconds:g} s each, the median with the least and the greatest.",
        *report.notes,
    ]
    twice = same_twice(report)
    if twice:
        low, high = QUIET_LIMITS
        quiet = low <= median(twice) <= high
        word = "quiet" if quiet else "**noisy: do not quote this run**"
        lines.append(f"nginx against itself, in all rounds: {spread(twice)}; the machine was {word}.")
    lines += ["", "![Calls per second against nginx](report.svg)", "", *target_table(report), *counted_table()]
    for series, found in report.series.values():
        lines += series_table(report, series, found)
    lines += noise_table(report)
    return "\n".join(lines) + "\n"


def target_table(report):
    lines = ["## Against the targets", "", "| figure | target | Portcullis | | nginx |", "|---|--:|--:|---|--:|"]
    for row in target_rows(report):
        sign, met = ("≥" if row.at_least else "≤"), ("met" if row.met() else "**missed**")
        target = f"{sign} {row.target:g}{row.unit}"
        lines.append(f"| {row.title} | {target} | {spread(row.values)}{row.unit} | {met} | {row.beside} |")
    return lines + [""]


def counted_table():
    """The gate's figures, as they are committed."""
    figures, entries = gate.figures(), gate.read_baseline()["figures"]
    lines = ["## Counted", "", "The gate's baseline, `gate.json`.", "", "| figure | | target | |", "|---|--:|--:|---|"]
    for key, entry in entries.items():
        target, value = entry["target"], entry["value"]
        met = "" if target is None else ("met" if value <= target else "**missed**")
        limit = "" if target is None else f"≤ {gate.shown(target)}"
        title = figures[key].title if key in figures else key
        lines.append(f"| {title} | {gate.shown(value)} {entry['unit']} | {limit} | {met} |")
    return lines + [""]


def series_table(report, series, found):
    lines = [
        f"## {series.title}, C={series.connections}",
        "",
        "| | calls/s | against nginx | against direct | p50 µs | p95 µs | p99 µs | CPU µs/call |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for label, rounds in found.items():
        values = {field: [said[field] for said in rounds] for field in ("rps", "p50_us", "p95_us", "p99_us", "cpu_us")}
        cpu = number(median(values["cpu_us"])) if any(values["cpu_us"]) else ""
        ratios = [report.ratios(series.key, label, other) for other in (NGINX, DIRECT)]
        cells = [label, spread(values["rps"]), *(spread(ratio) if ratio else "" for ratio in ratios)]
        cells += [number(median(values[field])) for field in ("p50_us", "p95_us", "p99_us")]
        lines.append(f"| {' | '.join(cells)} | {cpu} |")
    return lines + [""]


def noise_table(report):
    if not report.noise:
        return []
    lines = [
        "## A quiet caller beside a noisy one",
        "",
        "One connection calls an echo (2026-07-28). The noise: 64 connections of another principal that fetch 1 MiB",
        "answers from another server, its load and server at the lowest priority. The machine's part: the quiet caller",
        "beside the same noise that asks its server itself, past the gateway; `direct`: the quiet caller does so.",
        "",
        "| | calls/s | p50 µs | p95 µs | p99 µs |",
        "|---|--:|--:|--:|--:|",
    ]
    for label, rounds in report.noise.items():
        cells = [spread([said[field] for said in rounds]) for field in ("rps", "p50_us", "p95_us", "p99_us")]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return lines + [""]


def readme_part(report):
    """The lines between the marks of README.md."""
    here = report.machine
    lines = [
        "",
        "## Performance",
        "",
        f"Measured by [bench/](bench/README.md) on {here['cpu']}, {here['cores']} cores, {here['date']}, beside",
        f"{here['nginx']} as a plain HTTP proxy; with API keys, a policy and renamed tools; medians of rounds. All of",
        "it, with spreads, targets and misses: [bench/baseline/report.md](bench/baseline/report.md).",
        "",
        "![Calls per second against nginx](bench/baseline/report.svg)",
        "",
        "| | Portcullis | nginx |",
        "|---|--:|--:|",
    ]
    for row in target_rows(report):
        if row.in_readme:
            lines.append(f"| {row.title} | {number(median(row.values))}{row.unit} | {row.beside} |")
    return lines + [""]


def between_marks(text, lines):
    """`text` with what stands between the marks replaced."""
    pattern = re.compile(f"{re.escape(MARKS[0])}.*?{re.escape(MARKS[1])}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"README.md must have one pair of marks {MARKS[0]} … {MARKS[1]}")
    return pattern.sub(lambda _: "\n".join([MARKS[0], *lines, MARKS[1]]), text)


# --- chart ---

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .small { font-size: 11px; fill: #59636e; }
  .axis { stroke: #d1d9e0; }
  .one { stroke: #59636e; stroke-dasharray: 4 3; }
  .whisker { stroke: #1f2328; }
  .bar0 { fill: #2f6fde; } .bar1 { fill: #bf6a02; } .bar2 { fill: #8250df; } .bar3 { fill: #1a7f5a; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .small { fill: #9198a1; } .axis { stroke: #3d444d; } .one { stroke: #9198a1; }
    .whisker { stroke: #e6edf3; }
    .bar0 { fill: #5b93f5; } .bar1 { fill: #e09b43; } .bar2 { fill: #b083f0; } .bar3 { fill: #4ac28f; }
  }
"""
LEFT, WIDTH, BAR, GAP, TOP = 250, 470, 13, 12, 46
COLOURS = 4
MOST = 2.0  # a bar that is longer is cut; its number says how long it is


def chart_groups(report):
    """(title, [(label, ratios to nginx)]) of every series that has nginx in it."""
    groups = []
    skipped = (NGINX, AGAIN, DIRECT)
    for series, found in report.series.values():
        bars = [(label, report.ratios(series.key, label, NGINX)) for label in found if label not in skipped]
        bars = [(label, ratios) for label, ratios in bars if ratios]
        if bars:
            groups.append((f"{series.title}, C={series.connections}", bars))
    stdio = [(key, one) for key, (one, _) in report.series.items() if key.startswith("stdio/")]
    for key, one in stdio:
        ratios = report.ratios(key, f"{OURS}, stdio echo", f"{NGINX}, HTTP echo")
        if ratios:
            groups.append((f"stdio echo, C={one.connections}", [(OURS, ratios)]))
    return groups


def chart(report):
    """Bars of calls per second against nginx, with the least and the greatest; readable on light and dark ground."""
    groups = chart_groups(report)
    labels = list(dict.fromkeys(label for _, bars in groups for label, _ in bars))
    most = min(MOST, max([1.2, *(max(ratios) for _, bars in groups for _, ratios in bars)]))
    scale = WIDTH / most
    height = TOP + sum(len(bars) * BAR + GAP for _, bars in groups) + 58
    parts, y = [], TOP
    for title, bars in groups:
        middle = y + len(bars) * BAR / 2 + 4
        parts.append(f'<text x="{LEFT - 10}" y="{middle:.1f}" text-anchor="end">{escape(title)}</text>')
        for label, ratios in bars:
            parts += bar(y, ratios, scale, labels.index(label) % COLOURS)
            y += BAR
        y += GAP
    ticks = [index / 4 for index in range(int(most * 4) + 1)]
    axis = [
        f'<line class="axis" x1="{LEFT + tick * scale:.1f}" x2="{LEFT + tick * scale:.1f}" y1="{TOP - 6}" y2="{y}"/>'
        f'<text class="small" x="{LEFT + tick * scale:.1f}" y="{y + 14}" text-anchor="middle">{tick:g}</text>'
        for tick in ticks
    ]
    one = LEFT + scale
    axis.append(f'<line class="one" x1="{one:.1f}" x2="{one:.1f}" y1="{TOP - 10}" y2="{y}"/>')
    axis.append(f'<text class="small" x="{one:.1f}" y="{TOP - 14}" text-anchor="middle">nginx = 1</text>')
    total = LEFT + WIDTH + 70
    size = f'viewBox="0 0 {total} {height}" width="{total}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    title = "<title>Calls per second against nginx in the same round</title>"
    heading = '<text x="10" y="18">Calls per second against nginx: median, least and greatest of the rounds</text>'
    body = "\n".join([head, title, f"<style>{STYLE}</style>", heading, *axis, *parts, *legend(labels, y + 40)])
    return f"{body}\n</svg>\n"


def bar(y, ratios, scale, colour):
    middle, low, high = (LEFT + min(value * scale, WIDTH) for value in (median(ratios), min(ratios), max(ratios)))
    line = y + (BAR - 2) / 2
    more = " →" if median(ratios) * scale > WIDTH else ""
    return [
        f'<rect class="bar{colour}" x="{LEFT}" y="{y}" width="{middle - LEFT:.1f}" height="{BAR - 2}"/>',
        f'<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{line}" y2="{line}"/>',
        f'<text class="small" x="{LEFT + WIDTH + 8}" y="{y + BAR - 3}">{number(median(ratios))}{more}</text>',
    ]


def legend(labels, y):
    parts, x = [], LEFT
    for index, label in enumerate(labels):
        parts.append(f'<rect class="bar{index % COLOURS}" x="{x}" y="{y - 9}" width="10" height="10"/>')
        parts.append(f'<text class="small" x="{x + 15}" y="{y}">{escape(label)}</text>')
        x += 30 + 7 * len(label)
    return parts


def write(report, folder, into_readme):
    """Writes report.md and report.svg, and README.md's part of it; gives the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "report.md", folder / "report.svg"]
    written[0].write_text(markdown(report), encoding="utf-8")
    written[1].write_text(chart(report), encoding="utf-8")
    if into_readme:
        text = README.read_text(encoding="utf-8")
        README.write_text(between_marks(text, readme_part(report)), encoding="utf-8")
        written.append(README)
    return written
