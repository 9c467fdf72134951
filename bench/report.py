"""The results: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from bench.bars import Verdict, amount
from bench.harness import Outcome, Table
from bench.stats import Spread, spread

_MARK = {True: "✓", False: "✗", None: "?"}
_STYLE = {True: "green", False: "red", None: "yellow"}


@dataclass
class CaseResult:
    """What one case measured, how long it took, how busy the machine was when it began, and what could not be run."""

    name: str
    title: str
    seconds: float = 0.0
    load: float = 0.0
    tables: list[Table] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def verdicts(table: Table) -> dict[str, list[Verdict]]:
    """Judge every bar of a table, by contestant."""
    values = {outcome.name: outcome.values(table.metric) for outcome in table.outcomes}
    return {
        name: [bar.judge(values[name], values, unit=table.unit, higher=table.higher_is_better) for bar in bars]
        for name, bars in table.bars.items()
    }


def tally(results: Iterable[CaseResult]) -> dict[bool | None, list[str]]:
    """Every bar, by whether it was met (None: not measured), as one line each."""
    lines: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for result in results:
        for table in result.tables:
            for name, judged in verdicts(table).items():
                for verdict in judged:
                    reached = _spread(verdict.measured, verdict.unit)
                    lines[verdict.met].append(f"{result.name}: {table.title}: {name}: {reached}, bar {verdict.bar}")
    return lines


def show(console: Console, result: CaseResult) -> None:
    """Print the tables of one case."""
    took = f"{result.seconds:.0f} s, load before {result.load:.1f}"
    console.rule(f"[bold]{result.name}[/] · {result.title} · {took}", align="left")
    for table in result.tables:
        console.print(_rich(table))
        for remark in table.remarks:
            console.print(Text(f"  {remark}", style="dim"))
        console.print()
    for failure in result.failures:
        console.print(Text(f"not measured: {failure}", style="yellow"))


def show_tally(console: Console, results: Sequence[CaseResult]) -> None:
    """Print how many bars were met, and each that was not."""
    lines = tally(results)
    console.rule("[bold]bars[/]", align="left")
    console.print(f"met {len(lines[True])}, not met {len(lines[False])}, not measured {len(lines[None])}")
    for met in (False, None):
        for line in lines[met]:
            console.print(Text(f"{_MARK[met]} {line}", style=_STYLE[met]))


def write_json(path: Path, machine: dict[str, Any], results: Sequence[CaseResult]) -> None:
    """Write everything that was measured, every repetition included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": machine, "cases": [_case(result) for result in results]}
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def _rich(table: Table) -> RichTable:
    rich = RichTable(title=f"{table.title} ({table.unit})", title_justify="left", title_style="bold")
    for heading in ("", "median", "min – max"):
        rich.add_column(heading, justify="left" if not heading else "right", no_wrap=bool(heading))
    rich.add_column("measured against the bar")
    rich.add_column(table.note_title, style="dim")
    judged = verdicts(table)
    for outcome in table.outcomes:
        rich.add_row(*_row(table, outcome, judged.get(outcome.name, [])))
    return rich


def _row(table: Table, outcome: Outcome, judged: list[Verdict]) -> tuple[str | Text, ...]:
    figures = spread(outcome.values(table.metric))
    against = Text("\n").join(_against(verdict) for verdict in judged)
    if figures is None:
        return outcome.name, Text("–"), Text("–"), against, Text(f"not measured: {outcome.failure}", style="yellow")
    note = outcome.note
    if outcome.failure:
        note = f"{note}; some repetitions not measured: {outcome.failure}".lstrip("; ")
    median, low, high = (amount(value, table.unit) for value in figures)
    return outcome.name, Text(median, style="bold"), f"{low} – {high}", against, note


def _against(verdict: Verdict) -> Text:
    reached = _spread(verdict.measured, verdict.unit)
    return Text(f"{_MARK[verdict.met]} {reached} · bar {verdict.bar}", style=_STYLE[verdict.met])


def _spread(measured: Spread | None, unit: str) -> str:
    if measured is None:
        return "not measured"
    median, low, high = (amount(value, unit) for value in measured)
    return median if low == high else f"{median} ({low} – {high})"


def _case(result: CaseResult) -> dict[str, Any]:
    return {
        "name": result.name,
        "title": result.title,
        "seconds": round(result.seconds, 1),
        "load": result.load,
        "notMeasured": result.failures,
        "tables": [_table(table) for table in result.tables],
    }


def _table(table: Table) -> dict[str, Any]:
    judged = verdicts(table)
    return {
        "title": table.title,
        "unit": table.unit,
        "metric": table.metric,
        "higherIsBetter": table.higher_is_better,
        **({"x": table.x} if table.x else {}),
        "remarks": list(table.remarks),
        "rows": [_json_row(table, outcome, judged.get(outcome.name, [])) for outcome in table.outcomes],
    }


def _json_row(table: Table, outcome: Outcome, judged: list[Verdict]) -> dict[str, Any]:
    values = outcome.values(table.metric)
    figures = spread(values)
    return {
        "name": outcome.name,
        table.note_title: outcome.note,
        **({} if outcome.x is None else {"x": outcome.x}),
        "values": list(values),
        **({} if figures is None else figures._asdict()),
        "notMeasured": outcome.failure,
        "bars": [
            {
                "bar": verdict.bar,
                "measured": None if verdict.measured is None else verdict.measured._asdict(),
                "met": verdict.met,
            }
            for verdict in judged
        ],
    }
