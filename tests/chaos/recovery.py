"""What a fresh process finds after a life was cut short, and whether it can finish what was begun."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

from kingdom.bus import connect
from tests.chaos.life import STREAM, make_event

_LATER = 3600.0  # seconds the clock is put forward where the store has none: every lease is over
_PATIENCE = 30.0  # seconds to wait for leases where the store has a clock of its own


@dataclass
class Found:
    """The state of the store before and after everything left in it was handled."""

    before: dict[str, str] = field(default_factory=dict)  # event id → status, of those there
    after: dict[str, str] = field(default_factory=dict)
    handled: dict[str, int] = field(default_factory=dict)  # how often recovery was given each event
    accepted_again: list[str] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)  # pending, processing, dead
    errors: list[str] = field(default_factory=list)  # of doctor


def recover(url: str, ids: list[str]) -> dict[str, Any]:
    """Open the bus, look, drain it, and look again."""
    return asdict(asyncio.run(_recover(url, ids)))


async def _recover(url: str, ids: list[str]) -> Found:
    own_clock = urlsplit(url).scheme == "postgresql"
    clock = None if own_clock else lambda: time.time() + _LATER
    found, handled = Found(), Counter[str]()
    async with connect(url, clock=clock) as bus:

        async def statuses() -> dict[str, str]:
            records = {event_id: await bus.find(event_id) for event_id in ids}
            return {event_id: record.status for event_id, record in records.items() if record}

        found.before = await statuses()
        deadline = time.monotonic() + _PATIENCE
        while True:
            held = await bus.claim(STREAM, worker="recovery", limit=100, lease=30)
            handled.update(item.event_id for item in held)
            await bus.settle(done=held)
            if not held:
                depth = (await bus.depth()).get(STREAM)
                if depth is None or not any(depth[:2]) or time.monotonic() > deadline:
                    break
                await asyncio.sleep(0.02)  # until the lease of the dead ends, by the server's clock
        found.after, found.handled = await statuses(), dict(handled)
        found.accepted_again = await bus.publish(STREAM, [make_event(event_id) for event_id in found.after])
        found.depth = list(depth[:3]) if depth else [0, 0, 0]
        found.errors = [f"{item.name}: {item.message}" for item in await bus.doctor() if item.level == "error"]
    return found
