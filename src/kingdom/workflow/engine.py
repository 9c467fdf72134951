"""The engine: runs the handlers from the bus while it holds the store's engine lock.

:func:`run_engine` also carries out commands of other processes (:mod:`kingdom.workflow.commands`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
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
from kingdom.workflow.usecases.lifecycle import (
    CannotResume,
    answer_workflow,
    cancel_workflow,
    delete_workflow,
    finish_resume,
    pause_workflow,
    prepare_workflow,
    resume_workflow,
    start_workflow,
)
from kingdom.workflow.usecases.resources import trees_of
from kingdom.workflow.usecases.steps import begin_work, deliver_query, may_be_alive, stop_agent, write_report

_EVENTS_PER_LOOK: Final = 200
_MIN_LOOK_SECONDS: Final = 0.02  # between two looks at the store for events of other processes
_LOCK_RETRY_SECONDS: Final = 0.1
_HANDLED_KEPT_SECONDS: Final = 7 * 86400.0  # for handled events on the bus; `wf_event` keeps them longer
_KNOWN_TREE_STATUSES: Final = (
    WorkTreeStatus.CREATING,
    WorkTreeStatus.READY,
    WorkTreeStatus.FAILED,
    WorkTreeStatus.PENDING_RELEASE,
)


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
                "There is one for each store; stop that one first, or give this one another store"
            )
        self.epoch = await self._store.record_engine(self.owner, time.time())

    async def release(self) -> None:
        """Release the lease. May be repeated."""
        lock, self._lock = self._lock, None
        if lock is not None:
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
        await Recovery(self.context).run(self.idle)
        self._queues.handles_inline = True
        self._undo.append(store.bus.subscribe(STREAM, self._wake.set))
        self._looking = asyncio.create_task(self._look_for_ever(), name="workflow-engine-look")

    async def __aexit__(self, *_: object) -> None:
        self._undo_all()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
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

    def abandon(self) -> None:
        """Stop at once, as if killed: nothing is finished or recorded. For tests."""
        self._undo_all()
        if self._looking is not None:
            self._looking.cancel()
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
            except BusError as error:
                log.warning("the engine cannot look for events: %s", error)
                found = 0
            await asyncio.sleep(_MIN_LOOK_SECONDS)  # our own writes wake us, too
            if not found:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll):
                        await self._wake.wait()

    async def _look(self) -> int:
        """Queue events that are in the store and not in memory; return how many."""
        async with self._look_lock:
            records = await self.context.store.bus.peek(STREAM, limit=_EVENTS_PER_LOOK, skip=self._queues.known)
            fresh = [record.envelope for record in records if record.envelope.event_id not in self._queues.known]
            self._queues.add(fresh, polled=True)
            return len(fresh)


# ── recovery ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Recovery:
    """Brings every workflow that a former engine left to where it can go on. Runs once, when an engine starts.

    Every step may be cut off by a crash and repeated.
    """

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    async def run(self, drain: Callable[[], Awaitable[None]]) -> None:
        """Recover; ``drain`` handles everything that waits on the bus."""
        context = self._context
        context.delivered = set()
        try:
            await self._release_events()
            trees, running, left = await self._find_left()
            await context.git.prune(trees)
            await context.agents.recover(running)
            for work in left:
                await stop_agent(context, work)
            await self._undo_checkpoints()
            await self._finish_transitions()
            for work in running:
                if work.agent_status is AgentStatus.STARTING:
                    await begin_work(context, work)
            await drain()
            await self._resend()
        finally:
            context.delivered = None

    async def _release_events(self) -> None:
        bus = self._context.store.bus
        await bus.release(await bus.recall(STREAM, worker=ENGINE_WORKER))
        await bus.purge(_HANDLED_KEPT_SECONDS, stream=STREAM)

    async def _find_left(self) -> tuple[list[WorkTree], list[Work], list[Work]]:
        """Return the known worktrees, the running works, and the other works whose agent may still run."""
        async with self._context.store.transaction() as tx:
            trees = await tx.work_trees.with_status(*_KNOWN_TREE_STATUSES)
            works = await tx.works.with_status(
                WorkStatus.RUNNING, WorkStatus.PAUSED, WorkStatus.WAITING, WorkStatus.FAILED
            )
        running = [work for work in works if work.status is WorkStatus.RUNNING]
        left = [
            work
            for work in works
            if work.status is not WorkStatus.RUNNING and (may_be_alive(work) or work.agent_status is AgentStatus.ERROR)
        ]
        return trees, running, left

    async def _undo_checkpoints(self) -> None:
        """Undo unfinished checkpoints of attempts that are over: nobody will finish them."""
        orphans: list[tuple[Checkpoint, list[WorkTree]]] = []
        async with self._context.store.transaction() as tx:
            for point in await tx.checkpoints.with_status("OPEN"):
                workflow = await tx.workflows.get(point.workflow_id)
                work = await tx.works.find(point.work_id)
                if work is None or work.attempt != point.work_attempt or workflow.is_over:
                    trees = await tx.work_trees.of_workflow(workflow.id)
                    orphans.append((point, [] if work is None else trees_of(work, trees)))
        for point, trees in orphans:
            await self._context.git.undo(point, trees)
            async with self._context.store.transaction() as tx:
                await tx.checkpoints.delete(point.id)

    async def _finish_transitions(self) -> None:
        """Finish workflows that are PREPARING or RESUMING."""
        async with self._context.store.transaction() as tx:
            between = await tx.workflows.with_status(WorkflowStatus.PREPARING, WorkflowStatus.RESUMING)
        for workflow in between:
            async with self._context.locks.of(workflow.id):
                if workflow.status is WorkflowStatus.PREPARING:
                    await prepare_workflow(self._context, workflow.id)
                else:
                    with contextlib.suppress(CannotResume):  # it is paused then, with the reason
                        await finish_resume(self._context, workflow.id)

    async def _resend(self) -> None:
        """Send queries and reports that are recorded as sent but that this engine gave to no agent."""
        async with self._context.store.transaction() as tx:
            works = await tx.works.with_status(WorkStatus.RUNNING)
        for work in works:
            async with self._context.locks.of(work.workflow_id):
                await self._resend_work(work.id)

    async def _resend_work(self, work_id: str) -> None:
        async with self._context.store.transaction() as tx:
            work = await tx.works.find(work_id)
            if work is None or work.status is not WorkStatus.RUNNING:
                return
            workflow = await tx.workflows.get(work.workflow_id)
            task = work.current_task
            report = await tx.reports.find(task.report_id) if task is not None and task.report_id else None
        delivered = self._context.delivered or set()
        if task is None or task.status is not TaskStatus.RUNNING or (task.id, task.attempt) in delivered:
            return
        if task.query_status in (QueryStatus.SENT, QueryStatus.PROCESSING):
            await deliver_query(self._context, workflow, work, task)
        elif report is not None and task.report_status is ReportStatus.GENERATING:
            await write_report(self._context, work, task, report)


# ── commands of other processes ───────────────────────────────────────────────────────────────────────────────────


def command_handlers(context: WorkflowContext) -> dict[str, CommandHandler]:
    """Return the use case of each command type."""
    return {
        "StartWorkflow": partial(start_workflow, context),
        "PauseWorkflow": partial(pause_workflow, context),
        "ResumeWorkflow": partial(resume_workflow, context),
        "AnswerWorkflow": partial(answer_workflow, context),
        "CancelWorkflow": partial(cancel_workflow, context),
        "DeleteWorkflow": partial(delete_workflow, context),
    }


@asynccontextmanager
async def run_engine(context: WorkflowContext, *, patience: float = 1.0) -> AsyncIterator[WorkflowEngine]:
    """Run an engine on the store that also carries out the commands of other processes.

    Raises :class:`EngineAlreadyRunning` if another engine runs. It is retried for ``patience`` seconds: a process that
    only checks for an engine holds the lock for a moment.
    """
    async with AsyncExitStack() as stack:
        engine = await _start_engine(stack, context, patience)
        await prepare_commands(context.store.bus)
        worker = command_worker(context.store.bus, command_handlers(context))
        working = asyncio.create_task(worker.run(), name="workflow-engine-commands")
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
