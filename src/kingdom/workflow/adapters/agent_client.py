"""The agents of works, over the port of :mod:`kingdom.agents`: each query and each report is one run.

The tasks of a Work share a conversation: the first query begins it, its id is kept with the Work, the later ones go on
with it. A run is known by work, task and attempt, so that it is found again after a restart and never begun twice.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from kingdom.agents.errors import AgentsError
from kingdom.workflow.adapters.agent_run import AgentRun, AgentRunDeps
from kingdom.workflow.adapters.environment import WorkEnvironments
from kingdom.workflow.adapters.orders import AgentSlots, RunLimits
from kingdom.workflow.adapters.recorder import Recorder, log, retry_while_unavailable
from kingdom.workflow.domain.statuses import QueryStatus, ReportStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kingdom.agents.port import AgentEvent, Agents
    from kingdom.workflow.adapters.environment import WorkEnvironment, WorkMcpFiles
    from kingdom.workflow.adapters.orders import RunKind
    from kingdom.workflow.adapters.workspaces import RunFiles, Workspaces
    from kingdom.workflow.domain.work import Report, Task, Work
    from kingdom.workflow.ports import WorkflowStore

_MAX_CACHED_ENVIRONMENTS: Final = 256  # places of works


class RunnerAgentClient:
    """See :class:`kingdom.workflow.ports.AgentClient`. One for each engine; ``close`` lets go of all runs."""

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
        room: AgentSlots | None = None,
        files: RunFiles | None = None,
    ) -> None:
        self._store = store
        self._files = files
        self._agents = agents
        self._mcp = mcp
        self._recorder = Recorder(store)
        self._places = WorkEnvironments(store, workspaces)
        self._known_places: dict[
            str, tuple[int, WorkEnvironment]
        ] = {}  # by work id, with the attempt they were looked up in
        self._means = AgentRunDeps(
            agents, self._recorder, mcp, self._place_of, limits or RunLimits(), clock, room or AgentSlots(), listener
        )
        self._asked: dict[str, tuple[AgentRun, asyncio.Task[None]]] = {}  # by the key of each

    async def start(self, work: Work) -> None:
        """Tell ``AgentStarted``. Raises when the Work cannot be done here: ``WorkflowError``, ``OSError``."""
        place = await self._place_of(work)
        self._mcp.check(place.servers)
        await self._recorder.started(work)

    async def send_query(self, work: Work, task: Task, text: str) -> None:
        """Put a query to the agent; returns at once. One that is with the agent already is not put again."""
        self._ask(AgentRun(self._means, work, task, "query"), text)

    async def write_report(self, work: Work, task: Task, report: Report) -> None:
        """Have a report written; returns at once."""
        self._ask(AgentRun(self._means, work, task, "report", report_id=report.id))

    async def stop(self, work_id: str) -> None:
        """End every run of a Work, also those of a former engine; on return nothing of it is alive."""
        reason = "its Work was stopped"
        work = await retry_while_unavailable(lambda: self._read(work_id), f"work {work_id} cannot be looked up")
        for asking in await self._find(work) if work is not None else ():
            await asking.stop(reason)
            self._ask(asking)
        mine = [(asking, task) for asking, task in self._asked.values() if asking.work.id == work_id]
        await asyncio.gather(*(asking.stop(reason) for asking, _ in mine))
        await asyncio.gather(*(task for _, task in mine), return_exceptions=True)
        self._known_places.pop(work_id, None)
        if work is not None:
            await self._recorder.stopped(work)

    async def recover(self, works: Sequence[Work]) -> None:
        """After a restart, before anything else: watch the runs of these works that there are."""
        for found in await asyncio.gather(*(self._find(work) for work in works)):
            for asking in found:
                self._ask(asking)
        self._mcp.sweep({asking.run for asking, _ in self._asked.values()})

    async def forget(self, work_id: str) -> None:
        """Remove what the runs of a Work left; nothing of it may run any more."""
        if self._files is not None:
            await self._files.remove(work_id)

    async def close(self) -> None:
        """Let go of all runs: those with a process go on, and are found again by the next engine."""
        tasks = [task for _, task in self._asked.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._agents.close()

    async def _find(self, work: Work) -> list[AgentRun]:
        """The runs of a Work that a former engine began, and whose end was not told yet."""
        found = []
        for task in work.tasks:
            kind = _open_kind(task)
            if kind is None:
                continue
            asking = AgentRun(self._means, work, task, kind, report_id=task.report_id or "")
            if asking.key in self._asked or task.heard == asking.key:
                continue
            try:
                found += [asking] if await asking.find() else []
            except AgentsError as error:
                log.warning("run %s cannot be found again: %s", asking.key, error)
        return found

    def _ask(self, asking: AgentRun, text: str | None = None) -> None:
        known, _ = self._asked.get(asking.key, (None, None))
        if known is None:
            known = asking
            task = asyncio.create_task(self._see_through(asking), name=f"ask {asking.key}")
            self._asked[asking.key] = asking, task
        if text is not None:
            known.give(text)

    async def _see_through(self, asking: AgentRun) -> None:
        try:
            await asking.run_to_end()
        except Exception:  # noqa: BLE001  whatever it is must not be silent: the Work would wait for ever
            log.exception("run %s could not be seen to its end", asking.key)
            await self._recorder.broken(asking.work, f"run {asking.key} could not be watched: see the log")
        finally:
            self._asked.pop(asking.key, None)

    async def _read(self, work_id: str) -> Work | None:
        async with self._store.transaction() as tx:
            return await tx.works.find(work_id)

    async def _place_of(self, work: Work) -> WorkEnvironment:
        """Where a Work is done. It stays the same while the Work runs."""
        attempt, place = self._known_places.get(work.id, (0, None))
        if place is None or attempt != work.attempt:
            place = await retry_while_unavailable(
                lambda: self._places.of(work), f"the place of work {work.id} cannot be looked up"
            )
            self._known_places[work.id] = work.attempt, place
            while len(self._known_places) > _MAX_CACHED_ENVIRONMENTS:
                self._known_places.pop(next(iter(self._known_places)))
        return place


def _open_kind(task: Task) -> RunKind | None:
    """What of a task is with the agent."""
    if task.query_status in (QueryStatus.SENT, QueryStatus.PROCESSING):
        return "query"
    return "report" if task.report_status is ReportStatus.GENERATING else None
