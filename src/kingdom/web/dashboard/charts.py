"""Charts as SVG, drawn on the server: bars on top of each other, and lines.

Texts are outside of the scaled part, so that all labels have one size at any width. A line is not drawn along zero: the
axis is there already, and the line would cover others. Names are escaped: they are data.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

HEIGHT: Final = 190
_TOP: Final = 10
_PLOT_HEIGHT: Final = 154
_SCALE_WIDTH: Final = 64  # of the labels beside the plot
_UNITS: Final = 1000  # of the scaled part, from zero to the top of the scale
_MAX_TIME_LABELS: Final = 5
_GAP: Final = 0.12  # beside a bar, of its step
_COUNT_SCALE: Final = tuple(
    factor * 10**power for power in range(-4, 12) for factor in (1, 2, 4, 6, 8)
)  # their halves are round, too
TIME_SCALE: Final = (
    2, 10, 20, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 4 * 3600, 8 * 3600, 12 * 3600, 86400, 2 * 86400, 4 * 86400,
    7 * 86400, 14 * 86400, 30 * 86400, 60 * 86400, 180 * 86400, 365 * 86400, 3660 * 86400,
)  # fmt: skip
"""Tops of a scale of durations, in seconds."""


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """A line, or the bars of one colour."""

    name: str
    colour: str
    """The name of a colour: ``ok``, ``bad``, ``chart-first``, …"""
    values: tuple[float | None, ...]
    """A value for each step; None: there is none."""


@dataclass(frozen=True, slots=True)
class Chart:
    """What a chart shows."""

    label: str
    """What it is about, for screen readers."""
    series: tuple[ChartSeries, ...]
    times: tuple[str, ...]
    """The name of each step."""
    time_labels: tuple[str, ...]
    """The same, short, below the axis."""
    show: Callable[[float], str]
    """Formats a value."""
    bars: bool = False
    top: float | None = None
    """The top of the scale; None: the next round number."""
    scale: tuple[float, ...] = _COUNT_SCALE
    along_zero: bool = False
    """Draw the line also along zero: there is no other that it could cover."""

    @property
    def empty(self) -> bool:
        return not any(value for one in self.series for value in one.values)


def draw(chart: Chart) -> str:
    """Return the chart as HTML: the labels of the scale, and the plot."""
    top = chart.top or _scale_top(chart)
    count = max(len(chart.times), 1)
    scale = "".join(_scale_texts(chart, top))
    body = "".join((*_scale_lines(), *_plot(chart, top, count), *_time_texts(chart, count)))
    return (
        f'<div class="k-plot" role="img" aria-label="{_escaped(chart.label)}">'
        f'<svg width="{_SCALE_WIDTH}" height="{HEIGHT}" aria-hidden="true">{scale}</svg>'
        f'<svg class="k-plot-body" width="100%" height="{HEIGHT}" aria-hidden="true">{body}</svg></div>'
    )


def _plot(chart: Chart, top: float, count: int) -> Iterator[str]:
    """Yield the part that is scaled to the width of the page: a step is 1 wide."""
    yield (
        f'<svg x="0" y="{_TOP}" width="100%" height="{_PLOT_HEIGHT}" viewBox="0 0 {count} {_UNITS}" '
        'preserveAspectRatio="none">'
    )
    if chart.bars:
        yield from _bars(chart.series, top, count)
    else:
        for series in chart.series:
            if path := "".join(_line(series.values, top, chart.along_zero)):
                yield f'<path class="k-plot-line" stroke="var(--k-{series.colour})" d="{path}"/>'
    for step, time in enumerate(chart.times):
        yield f'<rect class="k-plot-step" x="{step}" y="0" width="1" height="{_UNITS}"><title>'
        yield f"{_escaped(_step_text(chart, step, time))}</title></rect>"
    yield "</svg>"


def _bars(series: Sequence[ChartSeries], top: float, count: int) -> Iterator[str]:
    below = [0.0] * count
    for one in series:
        path = []
        for step, value in enumerate(one.values):
            if value:
                bottom, height = _y(below[step], top), _UNITS * value / top
                path.append(f"M{step + _GAP:.2f} {bottom:.1f}v{-height:.1f}h{1 - 2 * _GAP:.2f}v{height:.1f}z")
                below[step] += value
        if path:
            yield f'<path fill="var(--k-{one.colour})" d="{"".join(path)}"/>'


def _line(values: Sequence[float | None], top: float, along_zero: bool) -> Iterator[str]:
    """Yield the path of a line. It is broken where a value is missing, and along zero."""
    drawn = False  # whether the line has come to the current step
    for step, (value, following) in enumerate(pairwise((*values, None))):
        x = step + 0.5
        if value is None or following is None:
            if value is not None and (value or along_zero) and not drawn:  # a value between two that are missing
                yield f"M{x - 0.3:.2f} {_y(value, top):.1f}h0.6"
            drawn = False
        elif value or following or along_zero:
            yield ("" if drawn else f"M{x:.2f} {_y(value, top):.1f}") + f"L{x + 1:.2f} {_y(following, top):.1f}"
            drawn = True
        else:
            drawn = False


def _y(value: float, top: float) -> float:
    return _UNITS * (1 - min(value / top, 1.0))


def _scale_top(chart: Chart) -> float:
    if chart.bars:
        highest = max((sum(value or 0 for value in step) for step in zip(*_values(chart), strict=True)), default=0)
    else:
        highest = max((value or 0 for values in _values(chart) for value in values), default=0)
    return next((top for top in chart.scale if top >= highest > 0), max(highest, 1) if highest else chart.scale[0])


def _values(chart: Chart) -> list[tuple[float | None, ...]]:
    return [one.values for one in chart.series]


def _scale_lines() -> Iterator[str]:
    for part in (0.0, 0.5, 1.0):
        y = _TOP + _PLOT_HEIGHT * (1 - part)
        name = "k-plot-axis" if part == 0 else "k-plot-grid"
        yield f'<line class="{name}" x1="0" x2="100%" y1="{y:g}" y2="{y:g}"/>'


def _scale_texts(chart: Chart, top: float) -> Iterator[str]:
    if chart.empty and chart.top is None:
        return
    for part in (0.5, 1.0):
        y = _TOP + _PLOT_HEIGHT * (1 - part) + 4
        yield f'<text x="{_SCALE_WIDTH - 8}" y="{y:g}" text-anchor="end">{_escaped(chart.show(top * part))}</text>'


def _time_texts(chart: Chart, count: int) -> Iterator[str]:
    labels = chart.time_labels
    every = max(-(-(count - 1) // (_MAX_TIME_LABELS - 1)), 1)
    for step in range(0, count if labels else 0, every):
        place = 100 * (step + 0.5) / count
        anchor = "start" if place < 5 else "end" if place > 95 else "middle"
        x = 0 if anchor == "start" else 100 if anchor == "end" else place
        yield f'<text x="{x:g}%" y="{HEIGHT - 6}" text-anchor="{anchor}">{_escaped(labels[step])}</text>'


def _step_text(chart: Chart, step: int, time: str) -> str:
    found = [(one.name, one.values[step]) for one in chart.series]
    return "\n".join((time, *(f"{name}: {chart.show(value)}" for name, value in found if value is not None)))


def _escaped(text: str) -> str:
    return html.escape(text, quote=True)
