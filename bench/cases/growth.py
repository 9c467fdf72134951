"""What grows with the work: streams, processes, payloads and aggregates, on each transport.

What grows with the history is the case ``history``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from bench import ours, together
from bench.context import Context
from bench.harness import Contestant, Figures, Table
from bench.payload import STREAM, TYPE, chunks, payload, payloads
from bench.transports import NAMES, Place, with_aggregates
from kingdom.bus import Envelope, EventBus, Worker, connect

TITLE = "as the work grows"
_SIZES = {100: "100 B", 1_000: "1 kB", 10_000: "10 kB", 100_000: "100 kB", 1_000_000: "1 MB"}
_CALL_BYTES = 4_000_000  # of payloads in one call of publish, at most


def streams(context: Context) -> list[Table]:
    """The same number of events in more and more streams."""
    numbers = context.pick((1, 10, 100), (1, 10, 100, 1_000))
    remark = "{events:,} events in all; one Worker for each stream, all in one process"
    return _growing(context, "drain of many streams", "stream", numbers, _drain_streams, remark)


def processes(context: Context) -> list[Table]:
    """More and more processes on one stream."""
    numbers = context.pick((1, 2, 4), (1, 2, 4, 8))
    remark = "{events:,} events, no-op handlers; from the common start to the end of the last process"
    return _growing(context, "drain by many processes", "process", numbers, together.drain, remark)


def aggregates(context: Context) -> list[Table]:
    """An ordered stream with more and more aggregates, whose events take turns."""
    numbers = context.pick((1, 10, 100, 1_000), (1, 10, 100, 1_000, 10_000))
    remark = "{events:,} events, of one aggregate a tenth; Worker(batch=500)"
    return _growing(context, "drain of an ordered stream", "aggregate", numbers, _drain_ordered, remark)


def _growing(
    context: Context,
    title: str,
    thing: str,
    numbers: Sequence[int],
    drain: Callable[[Place, int, int], Coroutine[Any, Any, Figures]],
    remark: str,
) -> list[Table]:
    """A table for each transport, with a row for each number of things."""
    tables = []
    for scheme, name in NAMES.items():
        place = Place.of(context, scheme, "growth")
        events = context.pick(2_000, 10_000) if scheme == "files" else context.pick(4_000, 20_000)
        outcomes = context.race(
            *(Contestant(_count(number, thing), partial(drain, place, events, number), x=number) for number in numbers)
        )
        remarks = (remark.format(events=events),)
        tables.append(Table(f"{name}: {title}", "events/s", outcomes, remarks=remarks, x=f"number of {_plural(thing)}"))
    return tables


def sizes(context: Context) -> list[Table]:
    """Payloads of 100 bytes to 1 MB: publishing, and draining."""
    total, most = context.pick((10_000_000, 1_000), (40_000_000, 5_000))
    tables = []
    for scheme, name in NAMES.items():
        place = Place.of(context, scheme, "growth")
        outcomes = context.race(
            *(
                Contestant(words, partial(_publish_and_drain, place, events, size), f"{events:,} events", x=size)
                for size, words in _SIZES.items()
                if (events := min(most, total // size))
            )
        )
        tables += [
            Table(
                f"{name}: {metric}, by size of the payload", "events/s", outcomes, metric=metric, x="bytes of payload"
            )
            for metric in ("publish", "drain")
        ]
    return tables


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing if number == 1 else _plural(thing)}"


def _plural(thing: str) -> str:
    return f"{thing}{'es' if thing.endswith('s') else 's'}"


async def _drain_streams(place: Place, events: int, number: int) -> Figures:
    names = [f"{STREAM}.{index}" for index in range(number)]
    each = events // number
    async with place.fresh() as fresh, connect(fresh.url) as bus:
        await bus.setup()
        for name in names:
            for some in chunks(payloads(each), 1000):
                await bus.publish(name, [ours.event(document) for document in some])
        await fresh.filled()
        started = perf_counter()
        await asyncio.gather(*(_drain_stream(bus, name, each) for name in names))
        return {"rate": each * number / (perf_counter() - started)}


async def _drain_stream(bus: EventBus, name: str, count: int) -> None:
    worker = Worker(bus, name, signals=False)
    handled = 0

    @worker.on(TYPE)
    async def handle(_: Envelope) -> None:
        nonlocal handled
        handled += 1
        if handled == count:
            worker.stop()

    await worker.run()
    assert handled == count, f"handled {handled} of {count}"


async def _publish_and_drain(place: Place, events: int, size: int) -> Figures:
    documents = [payload(number, size) for number in range(events)]
    async with place.fresh() as fresh, connect(fresh.url) as bus:
        await bus.setup()
        await bus.declare(STREAM)
        started = perf_counter()
        await ours.fill(bus, documents, max(1, min(1000, _CALL_BYTES // size)))
        seconds = perf_counter() - started
        await fresh.filled()
        drained = await ours.work_off(bus, events)
    return {"publish": events / seconds, "drain": drained["rate"]}


async def _drain_ordered(place: Place, events: int, number: int) -> Figures:
    count = events if number > 1 else events // 10  # one after the other: a tenth tells as much
    async with with_aggregates(place, count, number, ordered=True) as bus:
        return await ours.work_off(bus, count, batch=500)


PARTS = (streams, processes, aggregates, sizes)
