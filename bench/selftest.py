"""The harness's own arithmetic: the comparison that the gate rests on is known to fail."""

import json
import tempfile
import unittest
from pathlib import Path

import gate

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
            self.assertTrue(0 < entry["value"] and 0 < entry["tolerance"] <= 0.2, key)

    def test_figures_are_read_by_people(self):
        shown = [gate.shown(value) for value in (131036.4, 6.004, 9, None)]
        self.assertEqual(shown, ["131,036", "6", "9", "–"])


def run():
    """Runs the tests; gives the exit code."""
    suite = unittest.TestSuite()
    for case in (Comparison, Counting, Baseline):
        suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(case))
    return 0 if unittest.TextTestRunner(buffer=True).run(suite).wasSuccessful() else 1
