"""The buses: their streams, how full they were lately, and what failed for good."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from kingdom.web.dashboard.building import Column, Table, card, tab, tag, text
from kingdom.web.dashboard.building.formats import lasting
from kingdom.web.dashboard.bus.charts import depth_chart, rate_chart, show_depth, show_rates, thinned
from kingdom.web.dashboard.bus.letters import LetterList
from kingdom.web.dashboard.refreshing import Pulse
from kingdom.web.dashboard.registry import page
from kingdom.web.dashboard.shell import head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.zone import zone_of
from kingdom.web.views.bus import bus_of, list_streams, throughput

if TYPE_CHECKING:
    from kingdom.web.views.bus import StreamState
    from kingdom.web.views.sampling import Sample

_EVERY: Final = 5.0


@page("/bus", title="nav.bus", nav="bus")
async def show(visit: Visit, bus: str | None = None, stream: str | None = None) -> None:
    """All streams of one bus, and one of them more closely: the one with dead letters, unless another is named."""
    words = visit.words
    names = list(visit.context.buses())
    chosen = bus or names[0]
    bus_of(visit.context, chosen)  # one that is not there is told of in place of the page
    with head(words("nav.bus")), tag("div", "k-tabs", role="navigation", aria_label=words("nav.bus")):
        for name in names:
            tab(words.of("bus", name), f"/bus?bus={quote(name)}", chosen=name == chosen)
    pulse = Pulse(visit, every=_EVERY)

    async def load() -> list[StreamState]:
        return await visit.shared.read(("streams", chosen), lambda: list_streams(visit.context, chosen))

    with card(words("bus.streams"), flush=True) as (body, _), tag("div", "k-scroll"):
        table: Table[StreamState] = Table(words("bus.streams"), lambda one: one.stream, _columns(visit, chosen))
    await pulse.panel(body, load, table.show, keep=True)
    streams = await load()
    looked_at = stream or _most_telling(streams)
    if looked_at is not None:
        await _closer(visit, chosen, looked_at, pulse)


async def _closer(visit: Visit, bus: str, stream: str, pulse: Pulse) -> None:
    """One stream: its charts and its dead letters."""
    words = visit.words
    with tag("div", "k-grid k-below"):
        with card(words("bus.depth", stream=stream), "k-col-6") as (body, side):
            with side:
                text(words("bus.span"))
            depth = depth_chart(visit, stream)
        load = partial(_samples, visit, bus, stream)
        await pulse.panel(body, load, partial(show_depth, depth), keep=True)
        with card(words("bus.rates", stream=stream), "k-col-6") as (body, side):
            with side:
                text(words("bus.per.minute"))
            rates = rate_chart(visit, stream)
        await pulse.panel(body, load, partial(show_rates, rates), keep=True)
        with card(words("bus.dead", stream=stream), "k-col-12", flush=True) as (body, side):
            letters = LetterList(visit, bus, stream, pulse, body, side, await zone_of(visit))
        await pulse.panel(body, letters.load, letters.show, keep=True)


async def _samples(visit: Visit, bus: str, stream: str) -> list[Sample]:
    return thinned(await throughput(visit.context, bus, stream))


def _most_telling(streams: list[StreamState]) -> str | None:
    """The stream to look at when none is named."""
    return max(streams, key=lambda one: (one.dead, one.pending + one.processing)).stream if streams else None


def _columns(visit: Visit, bus: str) -> list[Column[StreamState]]:
    words = visit.words
    return [
        Column(
            words("bus.stream"),
            lambda one: words.of("queue", one.stream),
            target=lambda one: f"/bus?bus={quote(bus)}&stream={quote(one.stream)}",
        ),
        Column(words("bus.pending"), lambda one: f"{one.pending:,}", classes="k-num"),
        Column(words("bus.processing"), lambda one: f"{one.processing:,}", classes="k-num"),
        Column(words("bus.dead.short"), lambda one: f"{one.dead:,}", classes="k-num"),
        Column(
            words("bus.oldest"),
            lambda one: lasting(one.oldest_pending_seconds, words) if one.pending else "–",
            classes="k-num k-muted k-hide-narrow",
        ),
        Column(words("bus.arrived"), lambda one: f"{one.arrived_per_minute:,.1f}", classes="k-num k-hide-narrow"),
        Column(words("bus.finished"), lambda one: f"{one.finished_per_minute:,.1f}", classes="k-num k-hide-narrow"),
    ]
