"""The engine: runs the handlers from the bus while it holds the store's engine lock.

:func:`run_engine` also carries out commands of other processes (:mod:`kingdom.workflow.commands`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from kingdom.bus.urls import redact_url
from kingdom.workflow.commands import LAND_AGAIN, CommandHandler, command_worker, prepare_commands
from kingdom.workflow.context import WorkflowContext, log
from kingdom.workflow.errors import WorkflowError
from kingdom.workflow.event_queues import EventQueues
from kingdom.workflow.lease_keeper import HeldCommands, LeaseKeeper
from kingdom.workflow.ports import EngineLock, WorkflowStore
from kingdom.workflow.recovery import Recovery
from kingdom.workflow.store.transactions import STREAM
from kingdom.workflow.usecases.follow_up import follow_up_workflow
from kingdom.workflow.usecases.landing import land_workflow_again
from kingdom.workflow.usecases.lifecycle import (
    answer_workflow,
    cancel_workflow,
    delete_workflow,
    pause_workflow,
    resume_workflow,
    start_workflow,
)
from kingdom.workflow.usecases.takeover import admit_command, hold_own

if TYPE_CHECKING:
    from kingdom.workflow.store.holds import EngineHolds

_EVENTS_PER_LOOK: Final = 200
_MIN_LOOK_SECONDS: Final = 0.02  # between two looks at the store for events of other processes
_LOCK_RETRY_SECONDS: Final = 0.1


# ── one engine per store ──────────────────────────────────────────────────────────────────────────────────────────


class EngineAlreadyRunning(WorkflowError):
    """Another engine runs on this store."""

    code = "SYS_ENGINE_RUNNING"


class EngineLease:
    """The right to run the workflows of a store. It ends with the process, however that ends."""

    def __init__(self, store: WorkflowStore, owner: str | None = None) -> None:
        self._store = store
        self.owner = owner or f"{socket.gethostname()}:{os.getpid()}"
        self.epoch = 0
        self._lock: EngineLock | None = None

    async def take(self) -> None:
        """Take the lease; raise :class:`EngineAlreadyRunning` with the owner's name if another engine has it."""
        self._lock = await self._store.lock_engine()
        if self._lock is None:
            owner, since = await self._store.engine_owner()
            seconds = max(0, int(time.time() - since))
            raise EngineAlreadyRunning(
                f"an engine runs on {redact_url(self._store.bus.url)} already: {owner}, for {seconds} s. "
                "There is one for each store; stop that one first, give this one another store, or let engines of "
                "several machines share a PostgreSQL store (git.checkpoint_remote)"
            )
        self.epoch = await self._store.record_engine(self.owner, time.time())

    async def release(self, *, at_once: bool = False) -> None:
        """Release the lease. May be repeated.

        If engines share the store, others wait until its time is over, in which this home may go on with its agents;
        not if it is released ``at_once``.
        """
        lock, self._lock = self._lock, None
        if lock is None:
            return
        if at_once and self._store.holds is not None:
            await self._store.holds.end()
        await lock.release()

    def drop(self) -> None:
        """Lose the lease at once, as a killed process does."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.drop()


class WorkflowEngine:
    """Recovers what a former engine left, then handles events until it is closed.

    Use it as ``async with WorkflowEngine(context) as engine``. Events that this process records are handed over at
    commit. Events of other processes are looked for when the bus notifies us, and every ``poll`` seconds.
    """

    def __init__(
        self, context: WorkflowContext, *, owner: str | None = None, poll: float = 1.0, grace: float = 30.0
    ) -> None:
        self.context = context
        self._lease = EngineLease(context.store, owner)
        self._poll = poll
        self._grace = grace
        self._wake = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._undo: list[Callable[[], None]] = []
        self._look_lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._lease.take()
        try:
            await self._start()
        except BaseException:
            self.abandon()
            await self._lease.release()
            raise
        return self

    async def _start(self) -> None:
        store = self.context.store
        self._queues = EventQueues(self.context, self._look_later)
        self._undo.append(store.on_publish(self._queues.add))
        store.inline = self._queues.inline
        self._undo.append(self._stop_inline)
        keeper = None if store.holds is None else LeaseKeeper(self.context, store.holds, self._queues.fail)
        if keeper is not None:
            keeper.note()
            await keeper.adopt()
            self._keeping = asyncio.create_task(keeper.run(), name="workflow-engine-lease")
        await Recovery(self.context).run(self.idle)
        if keeper is not None:
            keeper.take_over_others()
        self._queues.handles_inline = True
        self._undo.append(store.bus.subscribe(STREAM, self._wake.set))
        self._looking = asyncio.create_task(self._look_for_ever(), name="workflow-engine-look")

    async def __aexit__(self, *_: object) -> None:
        self._undo_all()
        for task in filter(None, (self._looking, self._keeping)):
            task.cancel()
            await asyncio.wait([task])
        await self._queues.close(self._grace)
        await self._lease.release()

    async def idle(self) -> None:
        """Wait until no event is left to handle; raise what broke the engine. Agents may still be working."""
        while True:
            await self._queues.idle()
            before = self._queues.opened
            # Events behind one that is being handled are invisible: a look counts only if nothing else ran meanwhile.
            if not self._queues.busy and not await self._look() and self._queues.opened == before:
                return

    async def wait(self) -> None:
        """Wait until the engine breaks, and raise the error."""
        await self._queues.broken

    def commands_ended(self, working: asyncio.Task[None]) -> None:
        """Break the engine when the worker that carries out its commands has failed: nobody would do so any more."""
        if not working.cancelled() and (error := working.exception()) is not None:
            self._queues.fail(error)

    def abandon(self) -> None:
        """Stop at once, as if killed: nothing is finished or recorded. For tests."""
        self._undo_all()
        for task in filter(None, (self._looking, self._keeping)):
            task.cancel()
        if hasattr(self, "_queues"):
            self._queues.abandon()
        self._lease.drop()

    def _undo_all(self) -> None:
        for undo in self._undo:
            undo()
        self._undo.clear()

    def _stop_inline(self) -> None:
        self.context.store.inline = None

    # ── looking for events of other processes ─────────────────────────────────────────────────────────────────

    def _look_later(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds + 0.002, self._wake.set)

    async def _look_for_ever(self) -> None:
        while True:
            self._wake.clear()
            try:
                found = await self._look()
            except Exception as error:  # noqa: BLE001 - an outage, of whatever kind: the next look may succeed
                log.warning("the engine cannot look for events: %s", error)
                found = 0
            await asyncio.sleep(_MIN_LOOK_SECONDS)  # our own writes wake us, too
            if not found:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll):
                        await self._wake.wait()

    async def _look(self) -> int:
        """Queue events that are in the store and not in memory; return how many."""
        store, known = self.context.store, self._queues.known
        async with self._look_lock:
            if store.holds is not None:
                return await self._look_for_own(store.holds)
            records = await store.bus.peek(STREAM, limit=_EVENTS_PER_LOOK, skip=known)
            fresh = [record.envelope for record in records if record.envelope.event_id not in known]
            self._queues.add(fresh, polled=True)
            return len(fresh)

    async def _look_for_own(self, holds: EngineHolds) -> int:
        """Queue events of workflows that this engine holds, or that nobody holds and whose files are here."""
        queues, seen, found = self._queues, set(self._queues.known), 0
        while records := await self.context.store.bus.peek(STREAM, limit=_EVENTS_PER_LOOK, skip=seen):
            fresh = [record.envelope for record in records if record.envelope.event_id not in queues.known]
            strange = {
                str(one.aggregate_id) for one in fresh if not queues.is_mine(one.aggregate_type, one.aggregate_id)
            }
            if strange:
                await hold_own(self.context, strange - (await holds.others(strange)).keys())
            mine = [one for one in fresh if queues.is_mine(one.aggregate_type, one.aggregate_id)]
            queues.add(mine, polled=True)
            found += len(mine)
            seen.update(record.envelope.event_id for record in records)
            if len(records) < _EVENTS_PER_LOOK:
                break
        return found


# ── commands of other processes ───────────────────────────────────────────────────────────────────────────────────


def command_handlers(context: WorkflowContext) -> dict[str, CommandHandler]:
    """Return the use case of each command type."""
    return {kind: partial(_carry_out, context, kind) for kind in _USE_CASES}


_USE_CASES: Final[dict[str, CommandHandler]] = {
    "StartWorkflow": start_workflow,
    "PauseWorkflow": pause_workflow,
    "ResumeWorkflow": resume_workflow,
    "AnswerWorkflow": answer_workflow,
    "FollowUpWorkflow": follow_up_workflow,
    "CancelWorkflow": cancel_workflow,
    "DeleteWorkflow": delete_workflow,
    LAND_AGAIN: land_workflow_again,
}


async def _carry_out(context: WorkflowContext, kind: str, workflow_id: str, **arguments: Any) -> None:
    await admit_command(context, kind, workflow_id, arguments)
    await _USE_CASES[kind](context, workflow_id, **arguments)
    if kind == "DeleteWorkflow" and context.store.holds is not None:
        await context.store.holds.forget(workflow_id)


@asynccontextmanager
async def run_engine(context: WorkflowContext, *, patience: float = 1.0) -> AsyncIterator[WorkflowEngine]:
    """Run an engine on the store that also carries out the commands of other processes.

    Raises :class:`EngineAlreadyRunning` if another engine runs. It is retried for ``patience`` seconds: a process that
    only checks for an engine holds the lock for a moment.
    """
    async with AsyncExitStack() as stack:
        engine = await _start_engine(stack, context, patience)
        bus, holds = context.store.bus, context.store.holds
        await prepare_commands(bus)
        worker = command_worker(bus if holds is None else HeldCommands(bus, holds), command_handlers(context))
        working = asyncio.create_task(worker.run(), name="workflow-engine-commands")
        working.add_done_callback(engine.commands_ended)
        try:
            yield engine
        finally:
            worker.stop()
            await working


async def _start_engine(stack: AsyncExitStack, context: WorkflowContext, patience: float) -> WorkflowEngine:
    deadline = asyncio.get_running_loop().time() + patience
    while True:
        try:
            return await stack.enter_async_context(WorkflowEngine(context))
        except EngineAlreadyRunning:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(_LOCK_RETRY_SECONDS)
