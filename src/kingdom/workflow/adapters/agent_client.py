"""The agents of works, over the port of :mod:`kingdom.agents`: each query and each report is one run.

The tasks of a Work share a conversation: the first query starts it, and its id is stored with the Work. A run is
identified by work, task and attempt, so that it is found again after a restart and never started twice.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from kingdom.agents.errors import AgentsError
from kingdom.workflow.adapters.agent_run import AgentRun, AgentRunDeps
from kingdom.workflow.adapters.environment import WorkEnvironments
from kingdom.workflow.adapters.orders import RunLimits
from kingdom.workflow.adapters.recorder import Recorder, log, retry_while_unavailable
from kingdom.workflow.adapters.slots import AgentSlots
from kingdom.workflow.domain.statuses import QueryStatus, ReportStatus
from kingdom.workflow.store.holds import EngineReplaced

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from kingdom.agents.port import AgentEvent, Agents
    from kingdom.workflow.adapters.environment import WorkEnvironment, WorkMcpFiles
    from kingdom.workflow.adapters.orders import RunKind
    from kingdom.workflow.adapters.workspaces import RunFiles, Workspaces
    from kingdom.workflow.domain.work import Report, Task, Work
    from kingdom.workflow.ports import WorkflowStore

_MAX_CACHED_ENVIRONMENTS: Final = 256


class RunnerAgentClient:
    """See :class:`kingdom.workflow.ports.AgentClient`. One per engine; ``close`` detaches from all runs."""

    def __init__(
        self,
        store: WorkflowStore,
        agents: Agents,
        workspaces: Workspaces,
        mcp: WorkMcpFiles,
        *,
        limits: RunLimits | None = None,
        clock: Callable[[], float] = time.time,
        listener: Callable[[str, AgentEvent], None] | None = None,
        slots: AgentSlots | None = None,
        files: RunFiles | None = None,
    ) -> None:
        self._store = store
        self._files = files
        self._agents = agents
        self._mcp = mcp
        self._recorder = Recorder(store)
        self._environments = WorkEnvironments(store, workspaces)
        self._cached: dict[str, tuple[int, WorkEnvironment]] = {}  # by work id, with the attempt
        self._deps = AgentRunDeps(
            agents,
            self._recorder,
            mcp,
            self._environment_of,
            self._whole,
            limits or RunLimits(),
            clock,
            slots or AgentSlots(),
            listener,
        )
        self._runs: dict[str, tuple[AgentRun, asyncio.Task[None]]] = {}  # by key

    async def start(self, work: Work) -> None:
        """Prepare for the runs of a Work; raise ``WorkflowError`` or ``OSError`` if it cannot run here.

        ``AgentStarted`` is recorded when the first of them has started.
        """
        environment = await self._environment_of(work)
        self._mcp.check(environment.servers)

    async def send_query(self, work: Work, task: Task, text: str) -> None:
        """Send a query and return at once. A query that the agent has already is not sent again."""
        self._watch(AgentRun(self._deps, work, task, "query"), text)

    async def write_report(self, work: Work, task: Task, report: Report) -> None:
        """Start a report and return at once."""
        self._watch(AgentRun(self._deps, work, task, "report", report_id=report.id))

    async def stop(self, work_id: str, *, record: bool = True) -> None:
        """Stop every run of a Work, also those of a former engine; on return they are gone."""
        reason = "its Work was stopped"
        work = await retry_while_unavailable(lambda: self._read(work_id), f"work {work_id} cannot be read")
        for run in await self._find(work) if work is not None else ():
            await run.stop(reason)
            self._watch(run)
        mine = [(run, task) for run, task in self._runs.values() if run.work.id == work_id]
        await asyncio.gather(*(run.stop(reason) for run, _ in mine))
        await asyncio.gather(*(task for _, task in mine), return_exceptions=True)
        self._cached.pop(work_id, None)
        if work is not None and record:
            await self._recorder.stopped(work)

    async def recover(self, works: Sequence[Work]) -> None:
        """After a restart, before any other call: watch the existing runs of these works."""
        for found in await asyncio.gather(*(self._find(work) for work in works)):
            for run in found:
                self._watch(run)
        self._mcp.sweep({run.current_run for run, _ in self._runs.values()})

    async def forget(self, work_id: str) -> None:
        """Delete the files of a Work's runs; none may run any more."""
        if self._files is not None:
            await self._files.remove(work_id)

    async def works_here(self) -> set[str]:
        """Return the ids of the works that have runs on this machine."""
        found = [] if self._files is None else await self._files.list()
        return {run_id.partition(".")[0] for run_id in found}

    async def stop_others(self, work_ids: Container[str], reason: str) -> None:
        """Stop every run on this machine that is of none of these works, also those of a former engine."""
        watched = [(run, task) for run, task in self._runs.values() if run.work.id not in work_ids]
        await asyncio.gather(*(run.stop(reason) for run, _ in watched))
        for run_id in [] if self._files is None else await self._files.list():
            if run_id.partition(".")[0] in work_ids:
                continue
            try:
                found = await self._agents.adopt(run_id)
            except AgentsError as error:
                log.warning("run %s cannot be found again: %s", run_id, error)
                continue
            if found is not None:
                await found.stop(reason)

    async def close(self) -> None:
        """Detach from all runs: those with a process go on, and the next engine finds them."""
        tasks = [task for _, task in self._runs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._agents.close()

    async def _find(self, work: Work) -> list[AgentRun]:
        """Return the runs of a Work that a former engine started and whose end is not recorded."""
        found = []
        for task in work.tasks:
            kind = _open_kind(task)
            if kind is None:
                continue
            run = AgentRun(self._deps, work, task, kind, report_id=task.report_id or "")
            if run.key in self._runs or task.heard == run.key:
                continue
            try:
                found += [run] if await run.find() else []
            except AgentsError as error:
                log.warning("run %s cannot be found again: %s", run.key, error)
        return found

    def _watch(self, run: AgentRun, text: str | None = None) -> None:
        known, _ = self._runs.get(run.key, (None, None))
        if known is None:
            known = run
            task = asyncio.create_task(self._run_to_end(run), name=f"run {run.key}")
            self._runs[run.key] = run, task
        if text is not None:
            known.give(text)

    async def _run_to_end(self, run: AgentRun) -> None:
        try:
            await run.run_to_end()
        except EngineReplaced as error:  # another engine records what becomes of its Work
            log.warning("run %s is watched no longer: %s", run.key, error)
        except Exception:  # noqa: BLE001 - report every error: the Work would wait forever
            log.exception("run %s could not be watched", run.key)
            await self._recorder.broken(run.work, f"run {run.key} could not be watched: see the log")
        finally:
            self._runs.pop(run.key, None)

    async def _read(self, work_id: str) -> Work | None:
        async with self._store.transaction() as tx:
            return await tx.works.find_open(work_id)

    async def _whole(self, work: Work) -> Work:
        """Return a Work with all its tasks, as it is stored."""

        async def read() -> Work:
            async with self._store.reading() as tx:
                return await tx.works.get(work.id)

        return await retry_while_unavailable(read, f"work {work.id} cannot be read")

    async def _environment_of(self, work: Work) -> WorkEnvironment:
        """Return the environment of a Work. It is cached: it does not change while the Work runs."""
        attempt, environment = self._cached.get(work.id, (0, None))
        if environment is None or attempt != work.attempt:
            environment = await retry_while_unavailable(
                lambda: self._environments.of(work), f"the environment of work {work.id} cannot be read"
            )
            self._cached[work.id] = work.attempt, environment
            while len(self._cached) > _MAX_CACHED_ENVIRONMENTS:
                self._cached.pop(next(iter(self._cached)))
        return environment


def _open_kind(task: Task) -> RunKind | None:
    """Return what of a task the agent works on."""
    if task.query_status in (QueryStatus.SENT, QueryStatus.PROCESSING):
        return "query"
    return "report" if task.report_status is ReportStatus.GENERATING else None
