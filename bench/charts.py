"""``python -m bench.charts [RESULTS] [FOLDER]``: the charts of README and docs, drawn from the JSON of a run.

Bars for contestants, lines for what grows. The same JSON makes the same bytes. Colours follow the reader's setting.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from bench.bars import amount

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "bench" / "results.json"
FOLDER: Final = ROOT / "docs" / "images"

_WIDTH: Final = 760
_MARGIN: Final = 24
_CHARACTER: Final = 8  # the width of one, at most on average; fonts differ
_STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #1b222b }
.title { font-size: 16px; font-weight: 600 } .note { font-size: 12px; fill: #56616e } .end { text-anchor: end }
.middle { text-anchor: middle } .page { fill: #ffffff } .grid { stroke: #dde1e7 } .peer { fill: #9aa7b5 }
.ours { fill: #4a3fb5 } .bare { fill: #cfd6de } .range { stroke: #56616e }
.line { fill: none; stroke-width: 2 } .l0 { stroke: #4a3fb5 } .l1 { stroke: #14693f } .l2 { stroke: #a35c00 }
.d0 { fill: #4a3fb5 } .d1 { fill: #14693f } .d2 { fill: #a35c00 }
@media (prefers-color-scheme: dark) {
text { fill: #e3e8ee } .note { fill: #9ba8b6 } .page { fill: #161b21 } .grid { stroke: #28313b } .peer { fill: #5f6e7e }
.ours { fill: #b3b0ff } .bare { fill: #3c4856 } .range { stroke: #9ba8b6 }
.l0 { stroke: #b3b0ff } .l1 { stroke: #6bd39c } .l2 { stroke: #ecbb5b }
.d0 { fill: #b3b0ff } .d1 { fill: #6bd39c } .d2 { fill: #ecbb5b } }
"""


class ChartError(Exception):
    """The results have not what a chart shows."""


@dataclass(frozen=True)
class BarChart:
    """The rows of one table, as bars."""

    case: str
    table: str  # how its title begins
    title: str

    def draw(self, results: Results) -> str:
        table = results.table(self.case, self.table)
        rows = [row for row in table["rows"] if "median" in row]
        better = "more is better" if table["higherIsBetter"] else "less is better"
        return _page(
            self.title, f"{table['unit']}, {better}; {results.about}", _bars(rows, table["unit"]), 30 * len(rows)
        )


@dataclass(frozen=True)
class LineChart:
    """What grows: a panel for each thing, a line for each transport, both axes logarithmic."""

    case: str
    panels: Mapping[str, str]  # the end of the titles of the tables → the title of the panel
    title: str

    def draw(self, results: Results) -> str:
        rows = math.ceil(len(self.panels) / 2)
        parts: list[str] = []
        for number, (ending, title) in enumerate(self.panels.items()):
            tables = results.tables_ending(self.case, ending)
            parts += _panel(tables, title, _MARGIN + 370 * (number % 2), 230 * (number // 2))
        names = [name for name, _ in results.tables_ending(self.case, next(iter(self.panels)))]
        return _page(
            self.title,
            f"events/s, more is better; {results.about}",
            [*parts, *_legend(names, 230 * rows)],
            230 * rows + 30,
        )


CHARTS: Final[dict[str, BarChart | LineChart]] = {
    "bench-drain.svg": BarChart(
        "postgres-drain", "Drain, 300-byte payloads", "Events handled in a second, PostgreSQL, one process"
    ),
    "bench-publish.svg": BarChart(
        "postgres-publish", "Publish in batches", "Events published in a second, PostgreSQL, in batches of 1,000"
    ),
    "bench-latency.svg": BarChart(
        "latency", "Publish → handler start, p50", "From publishing an event to the start of its handler, median"
    ),
    "bench-steps.svg": BarChart(
        "workflow", "One step of a workflow on PostgreSQL", "One step of a workflow, PostgreSQL"
    ),
    "bench-growth.svg": LineChart(
        "growth",
        {
            "drain of many streams": "streams",
            "drain by many processes": "processes",
            "drain of an ordered stream": "aggregates of an ordered stream",
            "drain, by size of the payload": "bytes of payload",
        },
        "Events handled in a second, as the work grows",
    ),
}


class Results:
    """The JSON of a run."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._cases = {case["name"]: case for case in document["cases"]}
        machine = document["machine"]
        times = "once" if machine["repetitions"] == 1 else f"median of {machine['repetitions']} runs"
        self.about = f"{machine['cores']} cores, {times}"

    @property
    def cases(self) -> set[str]:
        """The names of the cases that were run."""
        return set(self._cases)

    def table(self, case: str, beginning: str) -> dict[str, Any]:
        """The table whose title begins so."""
        for table in self._tables(case):
            if table["title"].startswith(beginning):
                return table
        raise ChartError(f"{case} has no table {beginning!r}…: run it with --only {case}")

    def tables_ending(self, case: str, ending: str) -> list[tuple[str, dict[str, Any]]]:
        """The tables of all transports whose titles end so, with the transport's name."""
        found = [
            (table["title"].removesuffix(f": {ending}"), table)
            for table in self._tables(case)
            if table["title"].endswith(f": {ending}")
        ]
        if not found:
            raise ChartError(f"{case} has no tables …{ending!r}: run it with --only {case}")
        return found

    def _tables(self, case: str) -> list[dict[str, Any]]:
        if case not in self._cases:
            raise ChartError(f"the results have no case {case}: run it with --only {case}")
        return list(self._cases[case]["tables"])


def _page(title: str, note: str, parts: Iterable[str], height: int) -> str:
    total = height + 84
    size = f'viewBox="0 0 {_WIDTH} {total}" width="{_WIDTH}" height="{total}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">',
            f"<style>{_STYLE}</style>",
            f'<rect class="page" width="{_WIDTH}" height="{total}" rx="8"/>',
            f'<text class="title" x="{_MARGIN}" y="34">{escape(title)}</text>',
            f'<text class="note" x="{_MARGIN}" y="54">{escape(note)}</text>',
            '<g transform="translate(0 72)">',
            *parts,
            "</g>",
            "</svg>\n",
        ]
    )


def _bars(rows: Sequence[dict[str, Any]], unit: str) -> Iterator[str]:
    names = 8 + _CHARACTER * max(len(row["name"]) for row in rows)
    most = max(row["high"] for row in rows)
    scale = (_WIDTH - 2 * _MARGIN - names - 90) / most
    for number, row in enumerate(rows):
        y, left = 30 * number, _MARGIN + names
        kind = "ours" if row["name"].startswith("kingdom") else "bare" if row["name"].startswith("bare") else "peer"
        low, median, high = (left + row[key] * scale for key in ("low", "median", "high"))
        yield f'<text class="end" x="{left - 8}" y="{y + 15}">{escape(row["name"])}</text>'
        yield f'<rect class="{kind}" x="{left}" y="{y}" width="{max(1.0, median - left):.1f}" height="20" rx="3"/>'
        if high - low > 1:
            yield f'<path class="range" d="M{low:.1f} {y + 10}H{high:.1f}"/>'
        yield f'<text x="{high + 8:.1f}" y="{y + 15}">{amount(row["median"], unit)}</text>'


def _panel(tables: Sequence[tuple[str, dict[str, Any]]], title: str, left: int, top: int) -> Iterator[str]:
    plot_left, plot_top, width, height = left + 48, top + 26, 280, 160
    rows = [[row for row in table["rows"] if "median" in row] for _, table in tables]
    xs = sorted({row["x"] for some in rows for row in some})
    values = [row["median"] for some in rows for row in some]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def x_of(value: float) -> float:
        return plot_left + width * (math.log(value / xs[0]) / math.log(xs[-1] / xs[0]))

    def y_of(value: float) -> float:
        return plot_top + height * (1 - (math.log10(value) - low) / (high - low))

    yield f'<text x="{left}" y="{top + 12}">{escape(title)}</text>'
    for power in range(low, high + 1):
        y = y_of(10.0**power)
        yield f'<path class="grid" d="M{plot_left} {y:.1f}h{width}"/>'
        yield f'<text class="note end" x="{plot_left - 6}" y="{y + 4:.1f}">{_short(10**power)}</text>'
    for value in xs:
        yield f'<text class="note middle" x="{x_of(value):.1f}" y="{plot_top + height + 18}">{_short(value)}</text>'
    for number, some in enumerate(rows):
        points = [(x_of(row["x"]), y_of(row["median"])) for row in some]
        yield f'<path class="line l{number}" d="M{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'
        yield from (f'<circle class="d{number}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points)


def _legend(names: Sequence[str], top: int) -> Iterator[str]:
    for number, name in enumerate(names):
        x = _MARGIN + 130 * number
        yield f'<circle class="d{number}" cx="{x + 6}" cy="{top + 8}" r="5"/>'
        yield f'<text x="{x + 18}" y="{top + 12}">{escape(name)}</text>'


def _short(number: float) -> str:
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if number >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}"


def main(arguments: Sequence[str]) -> int:
    """Draw every chart whose case was run."""
    source, folder = (*map(Path, arguments), *(RESULTS, FOLDER)[len(arguments) :])
    try:
        results = Results(json.loads(source.read_text()))
        for name, chart in CHARTS.items():
            if chart.case in results.cases:
                (folder / name).write_text(chart.draw(results))
                print(folder / name)
    except (OSError, ValueError, KeyError, ChartError) as error:
        print(f"{source}: {error}: `make bench` writes the results to artifacts/bench.json", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
