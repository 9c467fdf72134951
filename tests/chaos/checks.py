"""What must hold after each round, asked of the bus, of the handlers' effects and of the store itself."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from itertools import pairwise

from kingdom.bus import Envelope, connect
from kingdom.bus.eventbus import EventBus
from tests.chaos.grounds import Effect, Ground, count_effects
from tests.chaos.processes import Violation

_SHOWN = 5  # offenders named per complaint
_FINDS = 50  # events that are looked up at once


async def drained(ground: Ground, timeout: float) -> None:
    """Wait until nothing is pending or held; an event still held when its lease is long over ends in an error."""
    async with connect(ground.url) as bus:
        deadline = time.monotonic() + timeout
        while left := {name: depth for name, depth in (await bus.depth()).items() if depth.pending or depth.processing}:
            if time.monotonic() > deadline:
                raise Violation(f"not drained after {timeout:.0f} s, every lease long over: {left}")
            await asyncio.sleep(0.05)


async def verify(ground: Ground, promised: list[tuple[str, Envelope]]) -> int:
    """Check what was promised (events with their streams); returns how many checks were made."""
    streams: dict[str, list[Envelope]] = defaultdict(list)
    for stream, envelope in promised:
        streams[stream].append(envelope)
    ids = {envelope.event_id for _, envelope in promised}
    effects = await asyncio.to_thread(ground.effects)
    async with connect(ground.url) as bus:
        complaints = await _states(bus, ids)
        complaints += [
            f"publishing {stream} once more was accepted for {shown(accepted)}"
            for stream, items in streams.items()
            if (accepted := await bus.publish(stream, items))
        ]
        complaints += [
            f"{stream} is not empty: {depth}" for stream, depth in (await bus.depth()).items() if any(depth[:3])
        ]
        complaints += [
            f"doctor: {check.name}: {check.message}" for check in await bus.doctor() if check.level == "error"
        ]
    complaints += effect_complaints(ids, effects, exactly_once=ground.exactly_once)
    complaints += order_complaints([envelope for _, envelope in promised], effects)
    complaints += await asyncio.to_thread(ground.complaints, ids)
    if complaints:
        raise Violation("\n".join(complaints))
    return 4 * len(ids) + 3


async def _states(bus: EventBus, ids: set[str]) -> list[str]:
    wrong: dict[str, list[str]] = defaultdict(list)
    ordered = sorted(ids)
    for start in range(0, len(ordered), _FINDS):
        some = ordered[start : start + _FINDS]
        found = await asyncio.gather(*(bus.find(event_id) for event_id in some))
        for event_id, record in zip(some, found, strict=True):
            status = record.status if record else "absent"
            if status != "DONE":
                wrong[status].append(event_id)
    return [f"published, but {status} in the end: {shown(items)}" for status, items in wrong.items()]


def effect_complaints(ids: set[str], effects: list[Effect], *, exactly_once: bool) -> list[str]:
    """Effects that are missing and, behind an Inbox, effects made twice."""
    counts = count_effects(effects)
    complaints = []
    if missing := ids - counts.keys():
        complaints.append(f"no effect of {shown(missing)}")
    if exactly_once and (twice := [key for key, count in counts.items() if count > 1]):
        complaints.append(f"more than one effect behind the Inbox of {shown(twice)}")
    return complaints


def order_complaints(envelopes: list[Envelope], effects: list[Effect]) -> list[str]:
    """In ordered streams the first effects of one aggregate stand in publish order."""
    place: dict[str, int] = {}
    for number, effect in enumerate(effects):
        place.setdefault(effect.event_id, number)
    aggregates: dict[str, list[str]] = defaultdict(list)
    for item in envelopes:
        if item.aggregate_id is not None and item.event_id in place:
            aggregates[item.aggregate_id].append(item.event_id)
    complaints = []
    for aggregate, ids in aggregates.items():
        ordered = sorted(ids)
        for earlier, later in pairwise(ordered):
            if place[earlier] > place[later]:
                complaints.append(f"aggregate {aggregate}: {later} took effect before {earlier}")
    return complaints[:_SHOWN]


def shown(ids: set[str] | list[str]) -> str:
    """How many, and the first few."""
    first = ", ".join(sorted(ids)[:_SHOWN])
    return f"{len(ids)} events ({first}{', …' if len(ids) > _SHOWN else ''})"
