"""Move a stream from one bus to another.

An event is finished at the source after it is durable at the target. What a kill repeats has the same id, and the
target leaves it out. The source's own rules decide the order: of an ordered stream only the first event of each
aggregate can be claimed, so its events arrive in order.

An event that was moved away is DONE with the error code ``MOVED``. If it comes back while its bus still has it, it is
not new there, and is requeued instead; an event that was handled there is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from kingdom.bus.delivery import Delivery
from kingdom.bus.envelope import Envelope, check_stream, new_event_id
from kingdom.bus.errors import InvalidOption
from kingdom.bus.eventbus import EventBus
from kingdom.bus.options import check_count

MOVED: Final = "MOVED"  # the error code of events that were moved away
_LEASE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.5  # between looks at events that are delayed, or that a worker holds
_UNLIMITED: Final = 2**31 - 1  # attempts: what a worker died of is moved too


class Moved(NamedTuple):
    """What was moved, and what is left at the source."""

    events: int
    waiting: int
    dead: int


async def move(
    source: EventBus,
    target: EventBus,
    stream: str,
    *,
    batch: int = 500,
    wait: bool = True,
    dead: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Moved:
    """Move the unfinished events of a stream.

    Events keep id, content, aggregate and priority; attempts are counted from 0. With ``wait``, go on until nothing
    unfinished is left: events that are delayed, wait for their retry or are held by a worker are moved when they can be
    claimed. ``dead``: requeue dead letters first, so that they are moved too; otherwise they stay, and so does what is
    parked behind them. ``progress`` is called after each batch with the number of events so far.

    Before you call it, stop the workers of the source, publish to the target, and declare the stream's options there.
    """
    check_stream(stream)
    check_count("move", "batch", batch)
    if source.url == target.url:
        raise InvalidOption("a stream is moved from one bus to another: both URLs are the same")
    worker = f"move-{new_event_id()}"
    if dead:
        await source.requeue(stream, everything=True)
    moved = 0
    while True:
        held = await source.claim(stream, worker=worker, limit=batch, lease=_LEASE_SECONDS, max_attempts=_UNLIMITED)
        if held:
            await _take_in(target, stream, [delivery.envelope for delivery in held])
            moved += await _finish(source, stream, worker, held)
            if progress is not None:
                progress(moved)
            continue
        depth = (await source.depth())[stream]
        waiting = depth.pending + depth.processing
        if not wait or not waiting:
            return Moved(moved, waiting, depth.dead)
        await asyncio.sleep(_POLL_SECONDS)


async def _take_in(target: EventBus, stream: str, envelopes: list[Envelope]) -> None:
    accepted = set(await target.publish(stream, envelopes))
    known = [envelope.event_id for envelope in envelopes if envelope.event_id not in accepted]
    if known:
        await target.requeue(stream, known, error_code=MOVED)


async def _finish(source: EventBus, stream: str, worker: str, held: list[Delivery]) -> int:
    """Finish events under the code that says why; return how many."""
    lost = await source.settle(retry=[(delivery, 0, MOVED, "moved to another bus") for delivery in held])
    kept = [delivery.event_id for delivery in held if delivery not in lost]
    again = await source.claim(stream, worker=worker, ids=kept, lease=_LEASE_SECONDS, max_attempts=_UNLIMITED)
    return len(again) - len(await source.settle(done=again))
