"""The arithmetic and the report of the benchmark. What it measures is not tested: times prove nothing in a test."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from bench.bars import Bar, amount
from bench.harness import Contestant, Figures, Measure, NotMeasured, Outcome, Table, in_child, race
from bench.payload import SIZE, encode, payload
from bench.report import CaseResult, show, show_tally, tally, verdicts, write_json
from bench.stats import Spread, best, percentile, ratios, spread


def outcome(name: str, *values: float | None, failure: str | None = None) -> Outcome:
    return Outcome(name, "", [None if value is None else {"rate": value} for value in values], failure)


def test_the_spread_leaves_out_what_was_not_measured():
    assert spread([3.0, None, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert spread([None, None]) is None


def test_ratios_are_taken_within_a_repetition():
    # The machine was twice as fast in the second repetition: each figure doubled, the ratio did not move.
    assert ratios([10.0, 20.0, None, 5.0], [20.0, 40.0, 1.0, None]) == [0.5, 0.5, None, None]


def test_the_best_of_several_is_chosen_in_each_repetition():
    assert best([[1.0, 5.0, None], [2.0, 4.0, None]], higher=True) == [2.0, 5.0, None]
    assert best([[1.0, 5.0], [2.0, None]], higher=False) == [1.0, 5.0]


@pytest.mark.parametrize(("percent", "value"), [(50, 50.0), (99, 99.0), (100, 100.0), (1, 1.0)])
def test_percentiles_are_values_that_were_measured(percent: float, value: float):
    assert percentile([float(number) for number in range(100, 0, -1)], percent) == value


def test_a_bar_compares_the_median_ratio_not_the_ratio_of_medians():
    ours, bare = outcome("kingdom", 80, 90, 300), outcome("bare", 100, 100, 1000)
    table = Table("t", "events/s", [ours, bare], bars={"kingdom": [Bar(">=", 0.75, of="bare")]})
    ((verdict,),) = verdicts(table).values()
    assert verdict.measured == Spread(0.8, 0.3, 0.9)
    assert verdict.met is True
    assert verdict.bar == "≥ 75 % of bare"


def test_a_bar_refers_to_the_best_of_several_configurations():
    outcomes = [outcome("kingdom", 30), outcome("peer a", 10), outcome("peer b", 25)]
    table = Table("t", "events/s", outcomes, bars={"kingdom": [Bar(">=", 1.5, of=("peer a", "peer b"))]})
    ((verdict,),) = verdicts(table).values()
    assert verdict.met is False
    assert verdict.measured == Spread(1.2, 1.2, 1.2)
    assert verdict.bar == "≥ 1.5× the best of peer a, peer b"


@pytest.mark.parametrize(("rate", "met"), [(70, True), (26_000, True), (50, False)])
def test_one_of_two_bars_is_enough(rate: float, met: bool):
    reference = 100 if rate < 100 else 100_000
    bar = Bar(">=", 0.6, of="bare", otherwise=Bar(">=", 25_000))
    table = Table("t", "events/s", [outcome("kingdom", rate), outcome("bare", reference)], bars={"kingdom": [bar]})
    ((verdict,),) = verdicts(table).values()
    assert verdict.met is met


def test_what_was_not_measured_is_neither_met_nor_missed():
    outcomes = [outcome("kingdom", 10), outcome("peer", None, failure="ModuleNotFoundError: No module named 'peer'")]
    table = Table("t", "events/s", outcomes, bars={"kingdom": [Bar(">=", 2.0, of="peer"), Bar("<", 20.0)]})
    assert [verdict.met for verdict in verdicts(table)["kingdom"]] == [None, True]
    lines = tally([CaseResult("case", "Case", tables=[table])])
    assert {met: len(found) for met, found in lines.items()} == {True: 1, False: 0, None: 1}


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (18_400.4, "events/s", "18,400"),
        (1.349, "ms", "1.35"),
        (0.314, "%", "0.31 %"),
        (0.823, "ratio %", "82 %"),
        (1.894, "ratio ×", "1.89×"),
    ],
)
def test_figures_are_written_for_people(value: float, unit: str, text: str):
    assert amount(value, unit) == text


def test_contestants_take_turns_and_the_first_one_moves_on():
    ran: list[str] = []

    def run(measure: Measure, timeout: float) -> Figures:
        ran.append(measure())
        return {"rate": float(len(ran))}

    outcomes = race([Contestant(name, lambda name=name: name) for name in "abc"], 3, run)
    assert "".join(ran) == "abcbcacab"
    assert [list(item.values("rate")) for item in outcomes] == [[1.0, 6.0, 8.0], [2.0, 4.0, 9.0], [3.0, 5.0, 7.0]]


def test_whoever_fails_is_not_tried_again_and_the_reason_is_kept():
    tries: list[str] = []

    def run(measure: Measure, timeout: float) -> Figures:
        tries.append(measure())
        if tries[-1] == "peer" and tries.count("peer") == 2:
            raise NotMeasured("it fell over")
        return {"rate": 1.0}

    ours, peer = race([Contestant(name, lambda name=name: name) for name in ("ours", "peer")], 4, run)
    assert list(ours.values("rate")) == [1.0] * 4
    assert list(peer.values("rate")) == [1.0, None, None, None]
    assert peer.failure == "it fell over"
    assert tries.count("peer") == 2


def test_a_measurement_that_fails_in_its_process_says_why():
    with pytest.raises(NotMeasured, match=r"ZeroDivisionError: .*division"):
        in_child(divide_by_zero, 60)


def divide_by_zero() -> Figures:
    return {"rate": 1 / 0}


def test_everybody_carries_300_bytes():
    assert {len(encode(payload(number))) for number in (0, 9, 10, 123_456)} == {SIZE} == {300}


def test_the_report_hides_neither_failures_nor_missed_bars(tmp_path: Path):
    outcomes = [outcome("kingdom", 60, 70), outcome("bare", 100, 100), outcome("peer", None, None, failure="no wheel")]
    bars = {"kingdom": [Bar(">=", 0.75, of="bare"), Bar(">=", 2.0, of="peer")]}
    table = Table("Drain", "events/s", outcomes, bars=bars, remarks=["a remark"])
    result = CaseResult("drain", "a case", tables=[table], failures=["crowded: OSError: no space"])

    console = Console(width=160, file=io.StringIO(), record=True)
    show(console, result)
    show_tally(console, [result])
    text = console.export_text()
    for part in ("not measured: no wheel", "✗ 65 % (60 % – 70 %)", "? not measured", "crowded: OSError", "a remark"):
        assert part in text
    assert "met 0, not met 1, not measured 1" in text

    write_json(tmp_path / "new" / "bench.json", {"cores": 2}, [result])
    document = json.loads((tmp_path / "new" / "bench.json").read_text())
    (case,) = document["cases"]
    (kingdom, _, peer) = case["tables"][0]["rows"]
    assert kingdom["values"] == [60, 70]
    assert [bar["met"] for bar in kingdom["bars"]] == [False, None]
    assert peer["notMeasured"] == "no wheel"
    assert case["notMeasured"] == ["crowded: OSError: no space"]
