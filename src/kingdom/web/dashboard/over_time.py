"""The page "Over time": success, tasks, durations, cost and queues, for an hour to 90 days."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Final

from nicegui import ui

from kingdom.web.dashboard.charts import TIME_SCALE, Chart, ChartSeries, draw
from kingdom.web.dashboard.components import (
    DataTable,
    RowList,
    TableColumn,
    card,
    cell,
    empty,
    figure,
    list_row,
    row,
    tab,
    tag,
    text,
)
from kingdom.web.dashboard.document_list import TIME_RANGES, filter_select
from kingdom.web.dashboard.formats import court_timezone, format_count, format_usd, page_url
from kingdom.web.dashboard.refresh import PageRefresher
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.views.court import stats_history
from kingdom.web.views.generals import list_generals

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.court.rollups.queries import HistoryPoint, ModelSpending, StatsHistory, TaskFigures
    from kingdom.web.dashboard.words import Translations

_DEFAULT_RANGE: Final = "24h"
_REFRESH_SECONDS: Final = 15.0  # the chamberlain records every 30 seconds
_SHARED_SECONDS: Final = 10.0
_COLOURS: Final = ("first", "second", "fourth", "fifth", "third", "sixth")
_DAY_SECONDS: Final = 86400
_OUTCOMES: Final = (("completed", "ok"), ("failed", "bad"), ("needs_human", "warn"), ("cancelled", "idle"))
_OUTCOME_WORDS: Final = {"needs_human": "asked"}


@page("/over-time", title="nav.overTime", nav="overTime", court=True)
async def over_time_page(visit: Visit, within: str = _DEFAULT_RANGE, general: str = "") -> None:
    """The page over time."""
    words, zone = visit.words, await court_timezone(visit)
    chosen = within if within in TIME_RANGES else _DEFAULT_RANGE
    page_head(words("nav.overTime"))
    names = [one.name for one in await list_generals(visit.context)]
    with row("k-wrapping k-filters"):
        with tag("nav", "k-tabs", aria_label=words("range.label")):
            for name in TIME_RANGES:
                shown = words(f"overTime.short.{name}")
                tab(shown, page_url("over-time", within=name, general=general), chosen=name == chosen)
        options = {"": words("overTime.all"), **{name: name for name in names}}
        filter_select(
            words("overTime.general"),
            options,
            general,
            lambda value: ui.navigate.to(page_url("over-time", within=chosen, general=value)),
        )
    panels = _OverTime(visit, zone, chosen)
    with tag("div") as below:
        panels.build()

    async def load() -> StatsHistory:
        now = visit.context.clock()

        async def read() -> StatsHistory:
            return await stats_history(visit.context, now - TIME_RANGES[chosen], general=general or None)

        found = await visit.shared.read(("over-time", chosen, general), read, _SHARED_SECONDS)
        return replace(found, until=found.points[-1].start)  # so that nothing is drawn while nothing changes

    refresher = PageRefresher(visit, lambda event: False, every=_REFRESH_SECONDS)
    await refresher.panel(below, load, panels.show, keep=True)


class _OverTime:
    """Everything below the filters, updated in place."""

    def __init__(self, visit: Visit, zone: tzinfo, within: str) -> None:
        self._words = visit.words
        self._zone = zone
        self._range = visit.words(f"range.{within}")
        self._figures: dict[str, ui.label] = {}
        self._cards: dict[str, ChartCard] = {}

    def build(self) -> None:
        words = self._words
        with tag("div", "k-card k-over-time-figures"), tag("div", "k-card-body k-figures"):
            for name in ("ended", "rate", "p50", "p95", "spent", "waited"):
                self._figures[name] = figure("–", words(f"overTime.{name}"))
        self._nothing = tag("div")
        with tag("div", "k-grid k-below"):
            for name in ("tasks", "success", "durations", "queues", "costByGeneral", "costByModel"):
                with card(words(f"overTime.{name}"), "k-col-6") as (body, side):
                    self._cards[name] = ChartCard(words, body, side)
            with card(words("overTime.byGeneral"), "k-col-8", flush=True), tag("div", "k-scroll"):
                self._generals: DataTable[tuple[str, TaskFigures]] = self._general_table()
            with card(words("overTime.byModel"), "k-col-4", flush=True), tag("div", "k-scroll"):
                self._models: DataTable[tuple[str, ModelSpending]] = self._model_table()

    def show(self, history: StatsHistory) -> None:
        self._show_figures(history)
        for name, chart in self._charts(history).items():
            step = self._words(f"overTime.step.{history.step_seconds}")
            note = f"{step}, {self._words('overTime.error')}" if name == "durations" else step
            self._cards[name].show(chart, note)
        rows = list(history.generals.items())
        self._generals.show([*rows, ("", history.total)] if len(rows) > 1 else rows)
        self._models.show(history.models.items())

    def _show_figures(self, history: StatsHistory) -> None:
        total, words = history.total, self._words
        ages = [age for point in history.points for age in point.queue_age_seconds.values()]
        shown = {
            "ended": f"{total.ended:,}",
            "rate": _percent(total.success_rate),
            "p50": _seconds(total.p50_seconds, words),
            "p95": _seconds(total.p95_seconds, words),
            "spent": format_usd(total.cost_usd),
            "waited": _seconds(max(ages, default=None), words),
        }
        for name, value in shown.items():
            self._figures[name].set_text(value)
        self._nothing.clear()
        if not (total.created or total.ended or total.runs or any(ages)):
            with self._nothing:
                empty(words("overTime.none"), words("overTime.none.hint"))

    def _charts(self, history: StatsHistory) -> dict[str, Chart]:
        words, points, total = self._words, history.points, history.total

        def chart(name: str, summary: str, series: Sequence[ChartSeries], show: Callable[[float], str]) -> Chart:
            label = words("overTime.label", title=words(f"overTime.{name}"), range=self._range, summary=summary)
            full, short = ("%Y-%m-%d", "%m-%d") if history.step_seconds == _DAY_SECONDS else ("%Y-%m-%d %H:%M", "%H:%M")
            if history.step_seconds == 3600:
                short = "%m-%d %Hh" if words.locale == "en" else "%m-%d %H시"
            times = [datetime.fromisoformat(point.start).astimezone(self._zone) for point in points]
            return Chart(
                label,
                tuple(series),
                tuple(at.strftime(full) for at in times),
                tuple(at.strftime(short) for at in times),
                show,
            )

        def line(name: str, colour: str, value: Callable[[HistoryPoint], float | None]) -> ChartSeries:
            return ChartSeries(name, colour, tuple(value(point) for point in points))

        def outcome(name: str) -> Callable[[HistoryPoint], float | None]:
            return lambda point: float(getattr(point.tasks, name))

        def span(seconds: float) -> str:
            return _seconds(seconds, words)

        rate, p50, p95 = (
            _percent(total.success_rate),
            _seconds(total.p50_seconds, words),
            _seconds(total.p95_seconds, words),
        )
        tasks = [
            line(words(f"overTime.{_OUTCOME_WORDS.get(name, name)}"), colour, outcome(name))
            for name, colour in _OUTCOMES
        ]
        streams = sorted({stream for point in points for stream in point.queue_age_seconds})
        ages = [
            line(words.of("nav", stream), f"chart-{colour}", lambda point, of=stream: point.queue_age_seconds.get(of))  # type: ignore[misc]
            for stream, colour in zip(streams, _COLOURS, strict=False)
        ]
        oldest = max((value or 0.0 for one in ages for value in one.values), default=0.0)
        spent = format_usd(total.cost_usd)
        return {
            "tasks": replace(chart("tasks", f"{total.ended:,}", tasks, format_count), bars=True),
            "success": replace(
                chart(
                    "success",
                    rate,
                    [line(words("overTime.success"), "ok", lambda point: point.tasks.success_rate)],
                    _percent,
                ),
                top=1.0,
                along_zero=True,
            ),
            "durations": replace(
                chart(
                    "durations",
                    f"p50 {p50}, p95 {p95}",
                    [
                        line("p50", "chart-first", lambda point: point.tasks.p50_seconds),
                        line("p95", "chart-second", lambda point: point.tasks.p95_seconds),
                    ],
                    span,
                ),
                scale=TIME_SCALE,
            ),
            "queues": replace(chart("queues", span(oldest), ages, span), scale=TIME_SCALE),
            "costByGeneral": replace(
                chart("costByGeneral", spent, self._costs([point.cost_by_general for point in points]), format_usd),
                bars=True,
            ),
            "costByModel": replace(
                chart("costByModel", spent, self._costs([point.cost_by_model for point in points]), format_usd),
                bars=True,
            ),
        }

    def _costs(self, costs: Sequence[dict[str, float]]) -> list[ChartSeries]:
        """Return the most expensive names, and the others together."""
        sums: dict[str, float] = {}
        for point in costs:
            for name, cost in point.items():
                sums[name] = sums.get(name, 0.0) + cost
        ranked = sorted(sums, key=lambda name: (-sums[name], name))
        own = ranked if len(ranked) <= len(_COLOURS) else ranked[: len(_COLOURS) - 1]
        series = [
            ChartSeries(name or self._words("overTime.nobody"), "", tuple(point.get(name, 0.0) for point in costs))
            for name in own
        ]
        if rest := ranked[len(own) :]:
            values = tuple(sum(point.get(name, 0.0) for name in rest) for point in costs)
            series.append(ChartSeries(self._words("overTime.others"), "", values))
        return [replace(one, colour=f"chart-{colour}") for one, colour in zip(series, _COLOURS, strict=False)]

    def _general_table(self) -> DataTable[tuple[str, TaskFigures]]:
        words = self._words

        def number(
            title: str, value: Callable[[TaskFigures], str], classes: str = ""
        ) -> TableColumn[tuple[str, TaskFigures]]:
            return TableColumn(words(f"overTime.{title}"), lambda one: value(one[1]), classes=f"k-num {classes}")

        columns: list[TableColumn[tuple[str, TaskFigures]]] = [
            TableColumn(words("overTime.general"), lambda one: one[0] or words("overTime.total")),
            number("completed", lambda one: f"{one.completed:,}"),
            number("failed", lambda one: f"{one.failed:,}"),
            number("asked", lambda one: f"{one.needs_human:,}", "k-hide-narrow"),
            number("success", lambda one: _percent(one.success_rate)),
            TableColumn("p50", lambda one: _seconds(one[1].p50_seconds, words), classes="k-num k-hide-narrow"),
            TableColumn("p95", lambda one: _seconds(one[1].p95_seconds, words), classes="k-num k-hide-narrow"),
            number("cost", lambda one: format_usd(one.cost_usd)),
        ]
        label = words("overTime.byGeneral")
        return DataTable(label, lambda one: one[0], columns, lambda: empty(words("overTime.none")))

    def _model_table(self) -> DataTable[tuple[str, ModelSpending]]:
        words = self._words
        columns: list[TableColumn[tuple[str, ModelSpending]]] = [
            TableColumn(words("overTime.model"), lambda one: one[0] or "–", classes="k-wrap"),
            TableColumn(words("overTime.runs"), lambda one: f"{one[1].runs:,}", classes="k-num"),
            TableColumn(words("overTime.tokens"), lambda one: format_count(one[1].tokens), classes="k-num"),
            TableColumn(words("overTime.cost"), lambda one: format_usd(one[1].cost_usd), classes="k-num"),
        ]
        label = words("overTime.byModel")
        return DataTable(label, lambda one: one[0], columns, lambda: empty(words("overTime.none")))


class ChartCard:
    """A chart with its legend, and the same figures as a table."""

    def __init__(self, words: Translations, body: Element, side: Element) -> None:
        self._words = words
        with side:
            self._note = text("")
        with body:
            self._drawn = ui.html("", sanitize=False).classes("k-plot-box")  # every text in it is escaped
            self._legend = tag("div", "k-row k-wrapping k-legend")
            with tag("details", "k-details"):
                text(words("overTime.table"), "k-small k-muted", name="summary")
                with tag("div", "k-scroll k-plot-table", tabindex="0"):
                    self._table = RowList("table", "", "k-table")

    def show(self, chart: Chart, note: str) -> None:
        """Show this."""
        self._note.set_text(note)
        self._drawn.set_content(draw(chart))
        self._legend.clear()
        with self._legend:
            for one in chart.series:
                with tag("span", "k-legend-item"):
                    tag("span", "k-legend-mark").style(f"background: var(--k-{one.colour})")
                    text(one.name, "k-clip")
        titles = [(self._words("overTime.time"), "", ""), *((one.name, "k-num", "") for one in chart.series)]
        self._table.props["label"] = chart.label
        self._table.props["columns"] = tuple(titles)
        rows = []
        for step, time in enumerate(chart.times):
            values = [one.values[step] for one in chart.series]
            if any(value is not None for value in values) and (any(values) or chart.along_zero):
                cells = [cell("–" if value is None else chart.show(value), "k-num") for value in values]
                rows.append(list_row(time, [cell(time), *cells]))
        self._table.show(rows)


def _percent(part: float | None) -> str:
    return "–" if part is None else f"{part:.0%}"


def _seconds(seconds: float | None, words: Translations) -> str:
    """Format a duration in one or two units: seconds below two minutes."""
    if seconds is None:
        return "–"
    if seconds < 10 and seconds % 1:
        return words("time.seconds", n=f"{seconds:.1f}")
    whole = round(seconds)
    if whole < 60:
        return words("time.seconds", n=whole)
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return words("time.exactly", n=minutes, s=rest) if rest else words("time.minutes", n=minutes)
    if whole < _DAY_SECONDS:
        return words("time.hours", n=whole // 3600, m=whole % 3600 // 60)
    return words("time.days", n=whole // _DAY_SECONDS, h=whole % _DAY_SECONDS // 3600)
