"""The engine: runs the handlers from the bus while it holds the store's engine lock."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, Self

from kingdom.bus.errors import BusError
from kingdom.bus.eventbus import redact_url
from kingdom.workflow.commands import CommandHandler, command_worker, prepare_commands
from kingdom.workflow.context import WorkflowContext, log
from kingdom.workflow.domain.resources import Checkpoint, WorkTree
from kingdom.workflow.domain.statuses import (
    AgentStatus,
    QueryStatus,
    ReportStatus,
    TaskStatus,
    WorkflowStatus,
    WorkStatus,
    WorkTreeStatus,
)
from kingdom.workflow.domain.work import Work
from kingdom.workflow.errors import WorkflowError
from kingdom.workflow.event_queues import ENGINE_WORKER, EventQueues
from kingdom.workflow.ports import EngineLock, WorkflowStore
from kingdom.workflow.store.transactions import STREAM
from kingdom.workflow.task_handlers import QueryRespondedHandler
from kingdom.workflow.usecases.lifecycle import (
    CancelWorkflow,
    CannotResume,
    DeleteWorkflow,
    PauseWorkflow,
    ResumeWorkflow,
    StartWorkflow,
)
from kingdom.workflow.usecases.resources import trees_of
from kingdom.workflow.usecases.steps import SendQuery, StartNextWork, StopService, may_be_alive

# One engine per store: a second one refuses, and says who has it.


class EngineAlreadyRunning(WorkflowError):
    """Another engine runs on this store."""

    code = "SYS_ENGINE_RUNNING"


class EngineLease:
    """The right to run the workflows of a store. Ends with the process, however it ends."""

    def __init__(self, store: WorkflowStore, owner: str | None = None) -> None:
        self._store = store
        self.owner = owner or f"{socket.gethostname()}:{os.getpid()}"
        self.epoch = 0
        self._lock: EngineLock | None = None

    async def take(self) -> None:
        """Take it; raises :class:`StoreTaken`."""
        self._lock = await self._store.lock_engine()
        if self._lock is None:
            owner, since = await self._store.engine_owner()
            seconds = max(0, int(time.time() - since))
            raise EngineAlreadyRunning(
                f"an engine runs on {redact_url(self._store.bus.url)} already: {owner}, for {seconds} s. "
                "There is one for each store; stop that one first, or give this one another store"
            )
        self.epoch = await self._store.record_engine(self.owner, time.time())

    async def release(self) -> None:
        """Give it back; may be repeated."""
        lock, self._lock = self._lock, None
        if lock is not None:
            await lock.release()

    def drop(self) -> None:
        """Lose it at once, as a killed process does."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.drop()


# What a former engine left: every workflow is brought to where it can go on.


_HANDLED_KEPT_SECONDS = (
    7 * 86400.0
)  # seconds for which handled events stay on the bus; what the interface shows stays longer
_KNOWN_TREE_STATUSES = (
    WorkTreeStatus.CREATING,
    WorkTreeStatus.READY,
    WorkTreeStatus.FAILED,
    WorkTreeStatus.PENDING_RELEASE,
)


class Recovery:
    """Runs once, when an engine starts. Everything it does may be cut off and done again."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts
        self._begin = StartNextWork(parts)
        self._start = StartWorkflow(parts)
        self._resume = ResumeWorkflow(parts)
        self._send_query = SendQuery(parts)
        self._halting = StopService(parts)
        self._reports = QueryRespondedHandler(parts)

    async def run(self, drain: Callable[[], Awaitable[None]]) -> None:
        """Recover; ``drain`` handles everything that waits on the bus."""
        parts = self._parts
        parts.delivered = set()
        try:
            await self._take_back_events()
            trees, running, left = await self._found()
            await parts.git.prune(trees)
            await parts.agents.recover(running)
            for work in left:
                await self._halting.stop(work)
            await self._undo_checkpoints()
            await self._finish_changes()
            for work in running:
                if work.agent_status is AgentStatus.STARTING:
                    await self._begin.begin(work)
            await drain()
            await self._send_again()
        finally:
            parts.delivered = None

    async def _take_back_events(self) -> None:
        bus = self._parts.store.bus
        await bus.release(await bus.recall(STREAM, worker=ENGINE_WORKER))
        await bus.purge(_HANDLED_KEPT_SECONDS, stream=STREAM)

    async def _found(self) -> tuple[list[WorkTree], list[Work], list[Work]]:
        """Known worktrees; works that run; works that do not, but may have an agent that does."""
        async with self._parts.store.transaction() as tx:
            trees = await tx.work_trees.with_status(*_KNOWN_TREE_STATUSES)
            works = await tx.works.with_status(WorkStatus.RUNNING, WorkStatus.PAUSED, WorkStatus.FAILED)
        running = [work for work in works if work.status is WorkStatus.RUNNING]
        left = [
            work
            for work in works
            if work.status is not WorkStatus.RUNNING and (may_be_alive(work) or work.agent_status is AgentStatus.ERROR)
        ]
        return trees, running, left

    async def _undo_checkpoints(self) -> None:
        """Checkpoints that were begun, of attempts that are over: they will not be finished."""
        orphans: list[tuple[Checkpoint, list[WorkTree]]] = []
        async with self._parts.store.transaction() as tx:
            for point in await tx.checkpoints.with_status("OPEN"):
                workflow = await tx.workflows.get(point.workflow_id)
                work = await tx.works.find(point.work_id)
                if work is None or work.attempt != point.work_attempt or workflow.is_over:
                    trees = await tx.work_trees.of_workflow(workflow.id)
                    orphans.append((point, [] if work is None else trees_of(work, trees)))
        for point, trees in orphans:
            await self._parts.git.undo(point, trees)
            async with self._parts.store.transaction() as tx:
                await tx.checkpoints.delete(point.id)

    async def _finish_changes(self) -> None:
        """Workflows that were between two states."""
        async with self._parts.store.transaction() as tx:
            between = await tx.workflows.with_status(WorkflowStatus.PREPARING, WorkflowStatus.RESUMING)
        for workflow in between:
            async with self._parts.turns.of(workflow.id):
                if workflow.status is WorkflowStatus.PREPARING:
                    await self._start.prepare(workflow.id)
                else:
                    with contextlib.suppress(CannotResume):  # it is paused then, with the reason
                        await self._resume.finish(workflow.id)

    async def _send_again(self) -> None:
        """Queries and reports that were asked for, and that nobody here gave to an agent."""
        async with self._parts.store.transaction() as tx:
            works = await tx.works.with_status(WorkStatus.RUNNING)
        for work in works:
            async with self._parts.turns.of(work.workflow_id):
                await self._send_work_again(work.id)

    async def _send_work_again(self, work_id: str) -> None:
        async with self._parts.store.transaction() as tx:
            work = await tx.works.find(work_id)
            if work is None or work.status is not WorkStatus.RUNNING:
                return
            workflow = await tx.workflows.get(work.workflow_id)
            task = work.current_task
            report = await tx.reports.find(task.report_id) if task is not None and task.report_id else None
        delivered = self._parts.delivered or set()
        if task is None or task.status is not TaskStatus.RUNNING or (task.id, task.attempt) in delivered:
            return
        if task.query_status in (QueryStatus.SENT, QueryStatus.PROCESSING):
            await self._send_query.deliver(workflow, work, task)
        elif report is not None and task.report_status is ReportStatus.GENERATING:
            await self._reports.write(work, task, report)


# The engine: runs the handlers from the bus, for as long as it has the store to itself.


_EVENTS_PER_LOOK: Final = 200
_MIN_LOOK_SECONDS: Final = (
    0.02  # seconds between two looks: what others wrote may wait so long, unless nothing happens here
)


class WorkflowEngine:
    """``async with Engine(parts) as engine``: recovers what a former one left, then works until it is left.

    Events that this process records are handed over as they are committed. Those of other processes are looked for
    when the bus wakes us, and every ``poll`` seconds.
    """

    def __init__(
        self, parts: WorkflowContext, *, owner: str | None = None, poll: float = 1.0, grace: float = 30.0
    ) -> None:
        self.parts = parts
        self._lease = EngineLease(parts.store, owner)
        self._poll = poll
        self._grace = grace
        self._wake = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
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
        self._lanes = EventQueues(self.parts, self._look_later)
        self._undo.append(self.parts.store.on_publish(self._lanes.add))
        self.parts.store.inline = self._lanes.inline
        self._undo.append(self._handle_nothing_inline)
        await Recovery(self.parts).run(self.idle)
        self._lanes.handles_inline = True
        self._undo.append(self.parts.store.bus.subscribe(STREAM, self._wake.set))
        self._looking = asyncio.create_task(self._look_for_ever(), name="workflow-engine-look")

    async def __aexit__(self, *_: object) -> None:
        await self._stop_looking()
        await self._lanes.close(self._grace)
        await self._lease.release()

    async def idle(self) -> None:
        """Wait until there is nothing left to handle; raises what broke the engine. Agents may still be at work."""
        while True:
            await self._lanes.idle()
            before = self._lanes.opened
            # What stands behind an event that is being handled is not seen: a look counts when nothing else went on.
            if not self._lanes.busy and not await self._look() and self._lanes.opened == before:
                return

    async def wait(self) -> None:
        """Wait until the engine breaks, and raise what broke it."""
        await self._lanes.broken

    def abandon(self) -> None:
        """Stop in the middle, as if killed: nothing is finished, nothing told. The lease is left to its end."""
        for undo in self._undo:
            undo()
        self._undo.clear()
        if self._looking is not None:
            self._looking.cancel()
        if hasattr(self, "_lanes"):
            self._lanes.abandon()
        self._lease.drop()

    def _handle_nothing_inline(self) -> None:
        self.parts.store.inline = None

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────

    def _look_later(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds + 0.002, self._wake.set)

    async def _look_for_ever(self) -> None:
        while True:
            self._wake.clear()
            try:
                found = await self._look()
            except BusError as error:
                log.warning("the engine cannot look for events: %s", error)
                found = 0
            await asyncio.sleep(_MIN_LOOK_SECONDS)  # what we write ourselves wakes us, too
            if not found:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll):
                        await self._wake.wait()

    async def _look(self) -> int:
        """Take up what lies in the store and was not handed over; returns how much that was."""
        async with self._look_lock:
            records = await self.parts.store.bus.peek(STREAM, limit=_EVENTS_PER_LOOK, skip=self._lanes.known)
            fresh = [record.envelope for record in records if record.envelope.event_id not in self._lanes.known]
            self._lanes.add(fresh, found=True)
            return len(fresh)

    async def _stop_looking(self) -> None:
        for undo in self._undo:
            undo()
        self._undo.clear()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])


# An engine that takes commands: what other processes ask for is carried out beside the events it handles.


_LOCK_RETRY_SECONDS: Final = 0.1  # seconds between two tries to get the store


def command_handlers(parts: WorkflowContext) -> dict[str, CommandHandler]:
    """What an engine can be asked for from outside, by the name of the use case."""
    return {
        "StartWorkflow": StartWorkflow(parts).execute,
        "PauseWorkflow": PauseWorkflow(parts).execute,
        "ResumeWorkflow": ResumeWorkflow(parts).execute,
        "CancelWorkflow": CancelWorkflow(parts).execute,
        "DeleteWorkflow": DeleteWorkflow(parts).execute,
    }


@asynccontextmanager
async def run_engine(parts: WorkflowContext, *, patience: float = 1.0) -> AsyncIterator[WorkflowEngine]:
    """An engine on the store, with the commands of other processes carried out.

    Raises :class:`kingdom.workflow.engine.EngineAlreadyRunning` when there is one already. It is tried for some seconds: whoever
    only looks whether there is an engine has the store for a moment.
    """
    async with AsyncExitStack() as stack:
        engine = await _start_engine(stack, parts, patience)
        await prepare_commands(parts.store.bus)
        worker = command_worker(parts.store.bus, command_handlers(parts))
        working = asyncio.create_task(worker.run(), name="workflow-engine-commands")
        try:
            yield engine
        finally:
            worker.stop()
            await working


async def _start_engine(stack: AsyncExitStack, parts: WorkflowContext, patience: float) -> WorkflowEngine:
    deadline = asyncio.get_running_loop().time() + patience
    while True:
        try:
            return await stack.enter_async_context(WorkflowEngine(parts))
        except EngineAlreadyRunning:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(_LOCK_RETRY_SECONDS)
