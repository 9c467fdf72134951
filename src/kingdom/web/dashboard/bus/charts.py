"""Charts of a stream over the last half hour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from nicegui import ui

from kingdom.web.dashboard.building import labelled
from kingdom.web.views.sampling import Sample

if TYPE_CHECKING:
    from kingdom.web.dashboard.visit import Visit

_SPAN: Final = 30 * 60 * 1000  # milliseconds
_POINTS: Final = 120  # on a chart: more than anybody sees cost each open page memory


def depth_chart(visit: Visit, stream: str) -> ui.echart:
    """How much waited, was held and was dead."""
    words = visit.words
    names = [words("bus.pending"), words("bus.processing"), words("bus.dead.short")]
    return _chart(words("bus.depth", stream=stream), names, ["first", "second", "third"])


def rate_chart(visit: Visit, stream: str) -> ui.echart:
    """How much came in and was finished in a minute."""
    words = visit.words
    return _chart(words("bus.rates", stream=stream), [words("bus.arrived"), words("bus.finished")], ["first", "second"])


def show_depth(chart: ui.echart, samples: Sequence[Sample]) -> None:
    """Show these."""
    _fill(chart, samples, [lambda one: one.pending, lambda one: one.processing, lambda one: one.dead])


def show_rates(chart: ui.echart, samples: Sequence[Sample]) -> None:
    """Show these."""
    _fill(chart, samples, [lambda one: _per_minute(one.arrived, one), lambda one: _per_minute(one.finished, one)])


def thinned(samples: Sequence[Sample]) -> list[Sample]:
    """Fewer samples that tell the same: what happened is added up, the depth is that of the last of each."""
    step = -(-len(samples) // _POINTS) or 1
    groups = [samples[begin : begin + step] for begin in range(0, len(samples), step)]
    return [
        group[-1].model_copy(
            update={
                "seconds": sum(one.seconds for one in group),
                "arrived": sum(one.arrived for one in group),
                "finished": sum(one.finished for one in group),
            }
        )
        for group in groups
    ]


def _per_minute(count: int, sample: Sample) -> float:
    return round(count * 60 / sample.seconds, 1) if sample.seconds else 0.0


def _fill(chart: ui.echart, samples: Sequence[Sample], values: Sequence[Callable[[Sample], float]]) -> None:
    for series, value in zip(chart.options["series"], values, strict=True):
        series["data"] = [[int(one.at.timestamp() * 1000), value(one)] for one in samples]
    if samples:
        chart.options["xAxis"]["min"] = int(samples[-1].at.timestamp() * 1000) - _SPAN
    chart.update()


def _chart(label: str, names: Sequence[str], colours: Sequence[str]) -> ui.echart:
    """An empty chart. It is drawn as SVG, in which colours may be variables and so follow the theme."""
    muted, line = "var(--k-muted)", "var(--k-line)"
    options: dict[str, Any] = {
        "animation": False,
        "textStyle": {"fontFamily": "inherit"},
        "grid": {"left": 8, "right": 12, "top": 32, "bottom": 4, "containLabel": True},
        "legend": {
            "data": list(names),
            "left": 0,
            "top": 0,
            "icon": "roundRect",
            "itemWidth": 12,
            "itemHeight": 4,
            "textStyle": {"color": muted, "fontSize": 12},
        },
        # as text: what a stream is called must never become markup
        "tooltip": {
            "trigger": "axis",
            "renderMode": "richText",
            "backgroundColor": "var(--k-surface)",
            "borderColor": line,
            "textStyle": {"color": "var(--k-text)"},
        },
        "xAxis": {
            "type": "time",
            "axisLine": {"lineStyle": {"color": line}},
            "axisLabel": {"color": muted, "hideOverlap": True, "fontSize": 12},
            "splitLine": {"show": False},
        },
        "yAxis": {
            "type": "value",
            "minInterval": 1,
            "axisLabel": {"color": muted, "fontSize": 12},
            "splitLine": {"lineStyle": {"color": line}},
        },
        "series": [
            {
                "name": name,
                "type": "line",
                "step": "end",
                "showSymbol": False,
                "lineStyle": {"width": 2, "color": f"var(--k-chart-{colour})"},
                "itemStyle": {"color": f"var(--k-chart-{colour})"},
                "emphasis": {"disabled": True},
                "data": [],
            }
            for name, colour in zip(names, colours, strict=True)
        ],
    }
    chart = ui.echart(options, renderer="svg").classes("k-chart")
    chart.props["role"] = "img"
    return labelled(chart, label)
