"""The harness's own arithmetic: the comparison that the gate rests on is known to fail."""

import json
import tempfile
import types
import unittest
from pathlib import Path
from xml.etree import ElementTree

import gate
import render

ENTRY = {"value": 1000, "unit": "instructions/call", "tolerance": 0.03, "target": 900}


class Comparison(unittest.TestCase):
    def state(self, value, entry=ENTRY, **how):
        return gate.judge("a", value, entry, **how)

    def test_over_the_tolerance_fails_and_says_by_how_much(self):
        verdict = self.state(1031)
        self.assertEqual(verdict.state, gate.WORSE)
        self.assertIn(verdict.state, gate.FAILING)
        self.assertEqual(verdict.text, "+3.1 % over the baseline of 1,000, allowed +3 %")

    def test_within_the_tolerance_holds_either_way(self):
        for value in (970, 1000, 1030):
            self.assertEqual(self.state(value).state, gate.HELD, value)

    def test_clearly_less_asks_for_a_lower_baseline(self):
        verdict = self.state(969)
        self.assertEqual(verdict.state, gate.BETTER)
        self.assertNotIn(verdict.state, gate.FAILING)
        self.assertIn("lower the baseline", verdict.text)

    def test_a_figure_without_a_baseline_fails(self):
        self.assertEqual(self.state(1, None).state, gate.NEW)
        self.assertIn(gate.NEW, gate.FAILING)

    def test_what_is_not_counted_fails_once_it_has_a_baseline(self):
        self.assertEqual(self.state(None, None, skipped="refused").state, gate.SKIPPED)
        self.assertNotIn(gate.SKIPPED, gate.FAILING)
        self.assertEqual(self.state(None, skipped="refused").state, gate.LOST)
        self.assertIn(gate.LOST, gate.FAILING)

    def test_a_figure_that_only_the_baseline_knows_fails(self):
        verdicts = gate.compare({"a": 1000}, {"a": ENTRY, "b": ENTRY}, {})
        self.assertEqual([(verdict.key, verdict.state) for verdict in verdicts], [("a", gate.HELD), ("b", gate.LOST)])

    def test_what_is_only_shown_never_fails(self):
        self.assertEqual(self.state(1e9, gated=False).state, gate.SHOWN)
        self.assertNotIn(gate.SHOWN, gate.FAILING)

    def test_the_exit_code_is_that_of_the_worst(self):
        baseline = {"machine": {}, "figures": {}}
        good, bad = self.state(1000), self.state(2000)
        self.assertEqual((gate.report([good], baseline), gate.report([good, bad], baseline)), (0, 1))


class Counting(unittest.TestCase):
    """`measure` with counts that are given."""

    def measure(self, values, entry=ENTRY):
        left = iter(values)
        figure = gate.Figure("a", "instructions/call", 0.03, lambda _place: next(left))
        found = gate.measure(None, {"a": figure}, {"a": entry} if entry else {}, {}, lambda _line: None)
        return found["a"], list(left)

    def test_a_disturbed_count_is_repeated_and_the_least_is_taken(self):
        self.assertEqual(self.measure([2000, 1500, 1010]), (1010, []))

    def test_a_real_rise_is_seen_after_three_tries(self):
        value, left = self.measure([2000, 1990, 1980, 1000])
        self.assertEqual((value, left), (1980, [1000]))
        self.assertEqual(gate.judge("a", value, ENTRY).state, gate.WORSE)

    def test_a_good_count_is_not_repeated(self):
        self.assertEqual(self.measure([1000, 5]), (1000, [5]))
        self.assertEqual(self.measure([9999, 5], None), (9999, [5]))


class Baseline(unittest.TestCase):
    def test_an_update_keeps_stated_tolerances_and_leaves_out_what_was_not_counted(self):
        figure = gate.Figure("a", "instructions/call", 0.5, None, target=1)
        old = {"machine": {}, "figures": {"a": ENTRY}}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "baseline" / "gate.json"
            gate.write_baseline({"a": figure, "b": figure}, {"a": 1234.5678, "b": None}, old, path)
            written = json.loads(path.read_text(encoding="utf-8"))["figures"]
        self.assertEqual(written, {"a": {**ENTRY, "value": 1234.6, "target": 1}})

    def test_the_committed_baseline_has_every_figure_that_it_gates(self):
        figures, entries = gate.figures(), gate.read_baseline()["figures"]
        gated = {key for key, figure in figures.items() if figure.gated}
        self.assertEqual(gated - set(entries) - {"instructions/big-off"}, set())
        self.assertEqual(set(entries) - gated, set())
        for key, entry in entries.items():
            self.assertTrue(0 < entry["value"] and 0 < entry["tolerance"] <= 0.3, key)

    def test_figures_are_read_by_people(self):
        shown = [gate.shown(value) for value in (131036.4, 6.004, 9, None)]
        self.assertEqual(shown, ["131,036", "6", "9", "–"])


def said(rps, cpu_us=10.0, p50_us=100.0, p99_us=200.0):
    """What `load` says of one round."""
    return {"rps": rps, "cpu_us": cpu_us, "p50_us": p50_us, "p95_us": 150.0, "p99_us": p99_us}


def echo_report(ours=(90, 190, 85), nginx=(100, 200, 100), again=(100, 210, 101)):
    """A report of one series and a noisy neighbour."""
    found = {
        "direct": [said(300, p50_us=60.0) for _ in ours],
        "nginx": [said(rate) for rate in nginx],
        "portcullis": [said(rate, cpu_us=13.0, p50_us=115.0) for rate in ours],
        "nginx again": [said(rate) for rate in again],
    }
    series = types.SimpleNamespace(key="echo-2025-11-25/64", title="echo <1>", connections=64)
    noise = {"portcullis, alone": [said(9)] * 3, "portcullis, beside noise": [said(8, p99_us=700.0)] * 3}
    here = dict.fromkeys(("cpu", "cores", "kernel", "rustc", "nginx", "commit", "date"), "x")
    options = types.SimpleNamespace(rounds=3, seconds=1.2)
    memory = {"idle": [7.0], "loaded": [14.0], "session": [0.7]}
    start = {"portcullis": [15.0, 16.0, 25.0]}
    return render.Report({series.key: (series, found)}, noise, start, memory, ["A note."], here, options)


class Rendering(unittest.TestCase):
    def rows(self, **how):
        return {row.title: row for row in render.target_rows(echo_report(**how))}

    def test_a_ratio_is_taken_within_each_round(self):
        row = self.rows()["calls/s against nginx, echo, 2025-11-25, C=64"]
        self.assertEqual(row.values, [0.9, 0.95, 0.85])
        self.assertEqual(render.spread(row.values), "0.90 (0.85–0.95)")

    def test_a_target_is_met_by_the_median_and_missed_by_less(self):
        title = "calls/s against nginx, echo, 2025-11-25, C=64"
        self.assertTrue(self.rows()[title].met())
        self.assertFalse(self.rows(ours=(84, 168, 99))[title].met())
        self.assertFalse(self.rows()["CPU per call against nginx, echo, 2025-11-25, C=64"].met())
        self.assertFalse(self.rows()["p99 of a quiet caller beside a noisy one, against its p99 alone"].met())
        self.assertTrue(self.rows()["start to first answered call"].met())

    def test_the_text_says_what_was_missed_and_whether_the_machine_was_quiet(self):
        text = render.markdown(echo_report())
        self.assertIn("≥ 0.85 | 0.90 (0.85–0.95) | met | 1 |", text)
        self.assertIn("≤ 1.25 | 1.30 (1.30–1.30) | **missed** | 1 |", text)
        self.assertIn("1.01 (1.00–1.05); the machine was quiet", text)
        self.assertIn("**noisy", render.markdown(echo_report(again=(80, 150, 70))))

    def test_the_chart_is_well_formed_and_has_a_bar_per_proxy(self):
        root = ElementTree.fromstring(render.chart(echo_report()))
        bars = [one.get("width") for one in root.iter() if one.get("class") == "bar0"]
        self.assertEqual(bars, [f"{0.9 * render.WIDTH / 1.2:.1f}", "10"])  # one bar, and its colour in the legend
        self.assertIn("echo <1>, C=64", [one.text for one in root.iter()])

    def test_readme_is_changed_between_its_marks_alone(self):
        before, after = "a\n\n", "\n\nb\n"
        text = render.between_marks(f"{before}{render.MARKS[0]}\nold\n{render.MARKS[1]}{after}", ["new"])
        self.assertEqual(text, f"{before}{render.MARKS[0]}\nnew\n{render.MARKS[1]}{after}")
        self.assertRaises(ValueError, render.between_marks, "no marks", [])
        render.between_marks(render.README.read_text(encoding="utf-8"), [])  # the real one has them


def run():
    """Runs the tests; gives the exit code."""
    suite = unittest.TestSuite()
    for case in (Comparison, Counting, Baseline, Rendering):
        suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(case))
    return 0 if unittest.TextTestRunner(buffer=True).run(suite).wasSuccessful() else 1
