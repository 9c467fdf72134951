"""The bus page: streams, charts, dead letters."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from nicegui import ui

from kingdom.web.dashboard.components import (
    DataTable,
    KeyedList,
    TableColumn,
    badge,
    button,
    card,
    code,
    confirm,
    empty,
    labelled,
    link,
    row,
    run_and_notify,
    tab,
    tag,
    text,
)
from kingdom.web.dashboard.formats import court_timezone, format_datetime, format_span
from kingdom.web.dashboard.refresh import PageRefresher
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.views.bus import bus_of, list_dead, list_streams, requeue_dead, throughput
from kingdom.web.views.court_state import StreamSample

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.web.views.bus import DeadLetterState, StreamInfo


# ── Charts ──


_CHART_MILLISECONDS: Final = 30 * 60 * 1000
_MAX_POINTS: Final = 120  # per chart; more are not visible and cost memory in every open page


def depth_chart(visit: Visit, stream: str) -> ui.echart:
    """Create the chart of pending, processing and dead events."""
    words = visit.words
    names = [words("bus.pending"), words("bus.processing"), words("bus.dead.short")]
    return _chart(words("bus.depth", stream=stream), names, ["first", "second", "third"])


def rate_chart(visit: Visit, stream: str) -> ui.echart:
    """Create the chart of events that arrived and finished per minute."""
    words = visit.words
    return _chart(words("bus.rates", stream=stream), [words("bus.arrived"), words("bus.finished")], ["first", "second"])


def show_depth(chart: ui.echart, samples: Sequence[StreamSample]) -> None:
    _fill(chart, samples, [lambda one: one.pending, lambda one: one.processing, lambda one: one.dead])


def show_rates(chart: ui.echart, samples: Sequence[StreamSample]) -> None:
    _fill(chart, samples, [lambda one: _per_minute(one.arrived, one), lambda one: _per_minute(one.finished, one)])


def thin_samples(samples: Sequence[StreamSample]) -> list[StreamSample]:
    """Reduce samples to at most 120: counts are summed, the depth is the last of each group."""
    step = -(-len(samples) // _MAX_POINTS) or 1
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


def _per_minute(count: int, sample: StreamSample) -> float:
    return round(count * 60 / sample.seconds, 1) if sample.seconds else 0.0


def _fill(chart: ui.echart, samples: Sequence[StreamSample], values: Sequence[Callable[[StreamSample], float]]) -> None:
    for series, value in zip(chart.options["series"], values, strict=True):
        series["data"] = [[int(one.at.timestamp() * 1000), value(one)] for one in samples]
    if samples:
        chart.options["xAxis"]["min"] = int(samples[-1].at.timestamp() * 1000) - _CHART_MILLISECONDS
    chart.update()


def _chart(label: str, names: Sequence[str], colours: Sequence[str]) -> ui.echart:
    """Create an empty chart. It is rendered as SVG so that colours can be CSS variables and follow the theme."""
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
        # rendered as text: the name of a stream must never become markup
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


# ── Dead letters ──


_LETTERS_PER_PAGE: Final = 25
_READ_BATCH: Final = 100


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """The dead letters that are shown, and whether there are more."""

    items: list[DeadLetterState]
    more: bool


class DeadLetterList:
    """The dead letters of a stream, with buttons to requeue them."""

    def __init__(
        self, visit: Visit, bus: str, stream: str, refresher: PageRefresher, body: Element, side: Element, zone: tzinfo
    ) -> None:
        self._visit = visit
        self._bus = bus
        self._stream = stream
        self._refresher = refresher
        self._zone = zone
        self._wanted = _LETTERS_PER_PAGE
        self._chosen: set[str] = set()
        words = visit.words
        with side:
            self._kind = ui.select([], on_change=lambda: self._settle()).props("outlined dense options-dense")
            labelled(self._kind.classes("k-field k-kind"), words("bus.type"))
            self._by_type = button(words("bus.requeue.type"), self._requeue_type)
            self._selected = button("", self._requeue_chosen)
        with body:
            self._list: KeyedList[DeadLetterState] = KeyedList(
                tag("ul", "k-lines"), lambda one: one.event_id, self._draw, self._nothing
            )
            with row("k-pager") as self._pager:
                button(words("list.more"), self._more)
        self._side = side

    async def load(self) -> DeadLetterPage:
        """Read as many dead letters as are shown."""
        found: list[DeadLetterState] = []
        cursor = None
        while len(found) < self._wanted:
            page, cursor = await list_dead(
                self._visit.context, self._bus, self._stream, min(self._wanted, _READ_BATCH), cursor
            )
            found += page
            if cursor is None:
                break
        return DeadLetterPage(found, cursor is not None)

    def show(self, letters: DeadLetterPage) -> None:
        self._chosen &= {one.event_id for one in letters.items}
        self._list.show(letters.items)
        self._pager.set_visibility(letters.more)
        kinds = sorted({one.type for one in letters.items if one.requeueable})
        self._side.set_visibility(bool(kinds) and self._visit.may("requeueDeadLetters"))
        value = self._kind.value if self._kind.value in kinds else (kinds[0] if kinds else None)
        if kinds != self._kind.options:
            self._kind.set_options(kinds, value=value)
        self._settle()

    def _settle(self) -> None:
        self._selected.set_text(self._visit.words("bus.requeue.chosen", n=len(self._chosen)))
        self._selected.set_enabled(bool(self._chosen))
        self._by_type.set_enabled(self._kind.value is not None)

    def _nothing(self) -> None:
        with tag("li"):
            empty(self._visit.words("bus.dead.none"), self._visit.words("bus.dead.hint"))

    def _draw(self, letter: DeadLetterState) -> None:
        words = self._visit.words
        with tag("li", "k-letter", data_letter=letter.event_id):
            may_requeue = letter.requeueable and self._visit.may("requeueDeadLetters")
            if may_requeue:
                box = ui.checkbox(on_change=lambda event: self._choose(letter.event_id, event.value)).props("dense")
                labelled(box, words("bus.choose", event=letter.event_id))
            else:
                tag("span")
            with tag("div", "k-stack k-tight"):
                with row("k-wrapping"):
                    self._name(letter)
                    badge(letter.error_code or words("bus.no.code"), "dead")
                    text(letter.type, "k-muted")
                    if letter.attempts:
                        text(words("bus.attempts", n=letter.attempts), "k-muted k-small")
                    if letter.dead_at:
                        text(format_datetime(letter.dead_at, self._zone), "k-muted k-small")
                text(letter.error_message or words("bus.no.reason"), "k-wrap k-text-bad", name="p")
                if not letter.requeueable:
                    text(words("bus.mend"), "k-muted k-small", name="p")
                _draw_payload(letter, words("bus.payload"))
            if may_requeue:
                asked = button(words("bus.requeue"), partial(self._requeue, [letter.event_id]))
                labelled(asked, words("bus.requeue.one", event=letter.event_id))

    def _name(self, letter: DeadLetterState) -> None:
        if letter.event_id.startswith("task-"):
            link(letter.event_id, f"/tasks/{letter.event_id}", "k-mono k-strong")
        else:
            text(letter.event_id, "k-mono k-strong k-wrap")

    def _choose(self, event_id: str, chosen: bool) -> None:
        (self._chosen.add if chosen else self._chosen.discard)(event_id)
        self._settle()

    def _more(self) -> None:
        self._wanted += _LETTERS_PER_PAGE
        self._refresher.wake()

    async def _requeue_chosen(self) -> None:
        await self._requeue(sorted(self._chosen))

    async def _requeue_type(self) -> None:
        """Requeue all dead letters of the selected type, on all pages."""
        kind, ids = str(self._kind.value), list[str]()
        cursor = None
        while True:
            page, cursor = await list_dead(
                self._visit.context, self._bus, self._stream, _READ_BATCH, cursor, event_type=kind
            )
            ids += [one.event_id for one in page if one.requeueable]
            if cursor is None:
                break
        await self._requeue(ids)

    async def _requeue(self, ids: list[str]) -> None:
        words = self._visit.words
        detail = "\n".join([*ids[:8], *(["…"] if len(ids) > 8 else [])])
        sure = await confirm(
            self._visit, words("bus.requeue.sure", n=len(ids)), detail=detail, yes=words("bus.requeue")
        )
        if not sure:
            return

        async def act() -> None:
            await requeue_dead(self._visit.context, self._bus, self._stream, ids)

        if await run_and_notify(
            self._visit, act, words("bus.requeued", n=len(ids)), "requeueDeadLetters", f"{self._bus}/{self._stream}"
        ):
            self._chosen -= set(ids)
            self._refresher.wake()


def _draw_payload(letter: DeadLetterState, label: str) -> None:
    if letter.payload is None:
        return
    payload = letter.payload
    shown = payload.text if payload.value is None else json.dumps(payload.value, ensure_ascii=False, indent=2)
    with tag("details", "k-details"):
        text(f"{label} · {payload.size:,}", "k-muted k-small", name="summary")
        code(f"{shown or ''}{'…' if payload.value is None else ''}")


# ── Page ──


_REFRESH_SECONDS: Final = 5.0


@page("/bus", title="nav.bus", nav="bus")
async def bus_page(visit: Visit, bus: str | None = None, stream: str | None = None) -> None:
    """Show the streams of a bus and the details of one: the named stream, or the one with most dead letters."""
    words = visit.words
    names = list(visit.context.buses())
    chosen = bus or names[0]
    bus_of(visit.context, chosen)  # an unknown bus raises here, and the error replaces the page
    with page_head(words("nav.bus")), tag("div", "k-tabs", role="navigation", aria_label=words("nav.bus")):
        for name in names:
            tab(words.of("bus", name), f"/bus?bus={quote(name)}", chosen=name == chosen)
    refresher = PageRefresher(visit, every=_REFRESH_SECONDS)

    async def load() -> list[StreamInfo]:
        return await visit.shared.read(("streams", chosen), lambda: list_streams(visit.context, chosen))

    with card(words("bus.streams"), flush=True) as (body, _), tag("div", "k-scroll"):
        table: DataTable[StreamInfo] = DataTable(words("bus.streams"), lambda one: one.stream, _columns(visit, chosen))
    await refresher.panel(body, load, table.show, keep=True)
    streams = await load()
    looked_at = stream or _default_stream(streams)
    if looked_at is not None:
        await _stream_details(visit, chosen, looked_at, refresher)


async def _stream_details(visit: Visit, bus: str, stream: str, refresher: PageRefresher) -> None:
    """Show the charts and dead letters of a stream."""
    words = visit.words
    with tag("div", "k-grid k-below"):
        with card(words("bus.depth", stream=stream), "k-col-6") as (body, side):
            with side:
                text(words("bus.span"))
            depth = depth_chart(visit, stream)
        load = partial(_samples, visit, bus, stream)
        await refresher.panel(body, load, partial(show_depth, depth), keep=True)
        with card(words("bus.rates", stream=stream), "k-col-6") as (body, side):
            with side:
                text(words("bus.per.minute"))
            rates = rate_chart(visit, stream)
        await refresher.panel(body, load, partial(show_rates, rates), keep=True)
        with card(words("bus.dead", stream=stream), "k-col-12", flush=True) as (body, side):
            letters = DeadLetterList(visit, bus, stream, refresher, body, side, await court_timezone(visit))
        await refresher.panel(body, letters.load, letters.show, keep=True)


async def _samples(visit: Visit, bus: str, stream: str) -> list[StreamSample]:
    return thin_samples(await throughput(visit.context, bus, stream))


def _default_stream(streams: list[StreamInfo]) -> str | None:
    """Return the stream with the most dead letters, then the most waiting events."""
    return max(streams, key=lambda one: (one.dead, one.pending + one.processing)).stream if streams else None


def _columns(visit: Visit, bus: str) -> list[TableColumn[StreamInfo]]:
    words = visit.words
    return [
        TableColumn(
            words("bus.stream"),
            lambda one: words.of("queue", one.stream),
            target=lambda one: f"/bus?bus={quote(bus)}&stream={quote(one.stream)}",
        ),
        TableColumn(words("bus.pending"), lambda one: f"{one.pending:,}", classes="k-num"),
        TableColumn(words("bus.processing"), lambda one: f"{one.processing:,}", classes="k-num"),
        TableColumn(words("bus.dead.short"), lambda one: f"{one.dead:,}", classes="k-num"),
        TableColumn(
            words("bus.oldest"),
            lambda one: format_span(one.oldest_pending_seconds, words) if one.pending else "–",
            classes="k-num k-muted k-hide-narrow",
        ),
        TableColumn(words("bus.arrived"), lambda one: f"{one.arrived_per_minute:,.1f}", classes="k-num k-hide-narrow"),
        TableColumn(
            words("bus.finished"), lambda one: f"{one.finished_per_minute:,.1f}", classes="k-num k-hide-narrow"
        ),
    ]
