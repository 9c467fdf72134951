"""What order costs: draining an ordered stream beside a plain one, on each transport."""

from __future__ import annotations

from functools import partial

from bench import ours
from bench.context import Context
from bench.harness import Contestant, Figures, Table
from bench.transports import NAMES, Place, with_aggregates

TITLE = "ordered streams"
_AGGREGATES = 1000


def many(context: Context) -> list[Table]:
    """Events of a thousand aggregates, which take turns."""
    count = context.pick(4_000, 20_000)
    tables = []
    for scheme, name in NAMES.items():
        drain = partial(_drain_all, Place.of(context, scheme, "ordered"), count)
        outcomes = context.race(
            Contestant("plain", partial(drain, ordered=False), "Worker(batch=500)"),
            Contestant("ordered", partial(drain, ordered=True), "Worker(batch=500)"),
        )
        tables.append(Table(f"{name}: {count:,} events of {_AGGREGATES:,} aggregates", "events/s", outcomes))
    return tables


def one(context: Context) -> list[Table]:
    """All events are of one aggregate: each waits for the one before it, however many there are."""
    count, few, many = context.pick((200, 200, 2_000), (1_000, 1_000, 50_000))
    tables = []
    for scheme, name in NAMES.items():
        drain = partial(_drain_some, Place.of(context, scheme, "ordered"), count)
        outcomes = context.race(
            Contestant(f"{few:,} waiting", partial(drain, waiting=few)),
            Contestant(f"{many:,} waiting", partial(drain, waiting=many)),
        )
        tables.append(Table(f"{name}: the first {count:,} events of one aggregate", "events/s", outcomes))
    return tables


async def _drain_all(place: Place, count: int, *, ordered: bool) -> Figures:
    async with with_aggregates(place, count, _AGGREGATES, ordered=ordered) as bus:
        return await ours.work_off(bus, count, batch=500)


async def _drain_some(place: Place, count: int, *, waiting: int) -> Figures:
    async with with_aggregates(place, waiting, 1, ordered=True) as bus:
        return await ours.work_off(bus, count, leave=waiting - count)


PARTS = (many, one)
