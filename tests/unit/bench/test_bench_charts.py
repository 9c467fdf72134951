"""The charts of the docs are drawn from the JSON of a run, and from nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench.charts import CHARTS, FOLDER, RESULTS, BarChart, ChartError, LineChart, Results, main
from bench.harness import Outcome, Table
from bench.report import CaseResult, write_json

_SVG = "{http://www.w3.org/2000/svg}"
_BARS = BarChart("drain", "Drain", "Events <a second> & more")
_LINES = LineChart("growth", {"many things": "things"}, "As it grows")


def results(tmp_path: Path, *cases: CaseResult) -> Results:
    path = tmp_path / "bench.json"
    write_json(path, {"cores": 2, "repetitions": 3}, cases)
    return Results(json.loads(path.read_text()))


def drained(*rows: Outcome, higher: bool = True) -> CaseResult:
    return CaseResult("drain", "t", tables=[Table("Drain of 10", "events/s", list(rows), higher_is_better=higher)])


def grown(name: str, *rates: float) -> Table:
    rows = [Outcome(f"{10**power} things", "", [{"rate": rate}], x=10**power) for power, rate in enumerate(rates)]
    return Table(f"{name}: many things", "events/s", rows, x="number of things")


def test_a_bar_is_as_long_as_the_median(tmp_path: Path) -> None:
    ours = Outcome("kingdom", "", [{"rate": 300.0}, {"rate": 400.0}, {"rate": 200.0}])
    theirs = Outcome("peer", "", [{"rate": 100.0}])
    chart = ET.fromstring(_BARS.draw(results(tmp_path, drained(ours, theirs))))
    widths = {rect.get("class"): float(rect.get("width", "0")) for rect in chart.iter(f"{_SVG}rect")}
    assert widths["ours"] == pytest.approx(3 * widths["peer"], abs=0.3)
    texts = [text.text for text in chart.iter(f"{_SVG}text")]
    assert texts[:2] == ["Events <a second> & more", "events/s, more is better; 2 cores, median of 3 runs"]
    assert texts[2:] == ["kingdom", "300", "peer", "100"]


def test_there_is_room_for_the_longest_name(tmp_path: Path) -> None:
    rows = [Outcome(name, "", [{"rate": 1.0}]) for name in ("bare", "a peer with a name that is as long as this")]
    chart = ET.fromstring(_BARS.draw(results(tmp_path, drained(*rows))))
    ends = {text.text: float(text.get("x", "0")) for text in chart.iter(f"{_SVG}text") if text.get("class") == "end"}
    assert all(end - 8 * len(name) >= 0 for name, end in ends.items() if name)
    (first, second) = (float(rect.get("x", "0")) for rect in chart.iter(f"{_SVG}rect") if rect.get("class") != "page")
    assert first == second == ends["bare"] + 8


def test_what_was_not_measured_has_no_bar(tmp_path: Path) -> None:
    ours, theirs = Outcome("kingdom", "", [{"rate": 3.0}]), Outcome("peer", "", [None], "it is not installed")
    drawn = _BARS.draw(results(tmp_path, drained(ours, theirs, higher=False)))
    assert "peer</text>" not in drawn
    assert "less is better" in drawn


def test_a_line_goes_through_what_was_measured(tmp_path: Path) -> None:
    case = CaseResult("growth", "t", tables=[grown("files", 1000, 100, 10), grown("SQLite", 1000, 1000, 1000)])
    chart = ET.fromstring(_LINES.draw(results(tmp_path, case)))
    dots = [(float(dot.get("cx", "0")), float(dot.get("cy", "0"))) for dot in chart.iter(f"{_SVG}circle")]
    falling, level = dots[:3], dots[3:6]
    assert [x for x, _ in falling] == [x for x, _ in level]
    assert falling[1][1] - falling[0][1] == pytest.approx(falling[2][1] - falling[1][1])  # a tenth each time
    assert len({y for _, y in level}) == 1
    assert [text.text for text in chart.iter(f"{_SVG}text")][-2:] == ["files", "SQLite"]


def test_a_chart_whose_case_was_not_run_says_so(tmp_path: Path) -> None:
    empty = results(tmp_path)
    with pytest.raises(ChartError, match="no case drain: run it with --only drain"):
        _BARS.draw(empty)
    with pytest.raises(ChartError, match="no case growth: run it with --only growth"):
        _LINES.draw(empty)


def test_charts_are_drawn_for_the_cases_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("Publish in batches of 1,000", "events/s", [Outcome("kingdom", "", [{"rate": 3.0}])])
    results(tmp_path, CaseResult("postgres-publish", "t", tables=[table]))
    assert main([str(tmp_path / "bench.json"), str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.glob("*.svg")] == ["bench-publish.svg"]
    assert main([str(tmp_path / "missing.json")]) == 1
    assert "make bench" in capsys.readouterr().err


def test_the_charts_of_the_docs_are_those_of_the_published_results(tmp_path: Path) -> None:
    assert main([str(RESULTS), str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.glob("*.svg")} == set(CHARTS)
    for name in CHARTS:
        assert (FOLDER / name).read_text() == (tmp_path / name).read_text(), f"{name}: run python -m bench.charts"
