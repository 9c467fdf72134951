"""Handle the events that a command records in a process that is not the engine.

While no engine runs, nobody else would: uses stay registered, worktrees stay, templates name what was deleted. Only the
events of what the command changed are handled. Workflows of others go on with the next engine.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from kingdom.workflow.engine import EngineAlreadyRunning, EngineLease
from kingdom.workflow.event_queues import EventQueues
from kingdom.workflow.store.transactions import STREAM

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from kingdom.bus import Envelope
    from kingdom.workflow.context import WorkflowContext

_EVENTS_PER_LOOK: Final = 200


@asynccontextmanager
async def own_events_handled(context: WorkflowContext, *, has_lease: bool = False) -> AsyncIterator[None]:
    """At the end of the block, handle the events it recorded and what follows from them, unless an engine runs.

    ``has_lease``: the caller has the :class:`EngineLease`; otherwise it is taken here.
    """
    changed: set[str] = set()

    def listen(envelopes: list[Envelope]) -> None:
        changed.update(str(envelope.aggregate_id) for envelope in envelopes)

    undo = context.store.on_publish(listen)
    try:
        yield
    finally:
        undo()
    if not changed:
        return
    if has_lease:
        await _handle_events(context, changed)
        return
    lease = EngineLease(context.store)
    try:
        await lease.take()
    except EngineAlreadyRunning:
        return
    try:
        await _handle_events(context, changed)
    finally:
        await lease.release(at_once=True)


async def _handle_events(context: WorkflowContext, aggregate_ids: Collection[str]) -> None:
    """Handle the waiting events of some aggregates. One that fails stays for the engine, with its retries."""
    queues = EventQueues(context, lambda _: None)
    if context.store.holds is not None:
        await context.store.holds.claim(aggregate_ids)
    seen: set[str] = set()  # also events of others: they are read once
    while records := await context.store.bus.peek(STREAM, limit=_EVENTS_PER_LOOK, skip=seen):
        seen.update(record.envelope.event_id for record in records)
        queues.add([record.envelope for record in records if record.envelope.aggregate_id in aggregate_ids])
        await queues.idle()
