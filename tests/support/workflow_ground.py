"""Where the agents of works are tested: a store, runs of scripted agents and real programs, and a Work to be done."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kingdom.agents.port import Text, Timers
from kingdom.workflow.adapters.agent_client import RunnerAgentClient
from kingdom.workflow.adapters.environment import WorkMcpFiles
from kingdom.workflow.adapters.orders import RunLimits
from kingdom.workflow.adapters.workspaces import Workspaces
from kingdom.workflow.domain.events import AgentStarted, DomainEvent, QueryResponded, WorkStatusChanged
from kingdom.workflow.domain.statuses import ReportStatus, WorkStatus
from kingdom.workflow.domain.work import Report, Task, Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.ports import StoredEvent
from kingdom.workflow.store import open_store
from kingdom.workflow.store.database import DatabaseStore
from tests.support.agents import Barracks

DONE = [{"say": "It is done."}]  # a script
NOW = datetime(2026, 2, 7, 10, tzinfo=UTC)
WORK = f"work-{os.getpid()}"  # runs are told apart on the whole machine by their ids, which begin with it
LIMITS = RunLimits(timers=Timers(first_output=30, silence=30, total=60, after_result=0.2, stop=0.3))


@asynccontextmanager
async def open_office(folder: Path, url: str | None = None) -> AsyncIterator[Office]:
    """An office with an empty store; in the end everything is stopped, and nothing may be alive."""
    async with open_store(url or f"sqlite://{folder}/workflows.db", lambda: NOW) as store:
        await store.setup()
        office = Office(folder, store, {"TOKEN": "t0ken"})
        yield office
        await office.client.stop(WORK)
        await office.client.close()
        assert office.alive() == set()


class Office:
    """An engine's agents, and what it has on disk. ``restart`` is a new engine after the old one was killed."""

    def __init__(self, folder: Path, store: DatabaseStore, environ: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.store = store
        self.barracks = Barracks(folder / "agents")
        self.workspaces = Workspaces(folder / "workspaces")
        self.mcp_folder = folder / "mcp"
        self._environ = dict(environ or {})
        self.heard: list[tuple[str, Any]] = []
        self.restart()

    def restart(self) -> None:
        """A new engine; the old one's watching is over, as if it had been killed."""
        self.runner = self.barracks.runner()
        self.client = RunnerAgentClient(
            self.store,
            self.runner,
            self.workspaces,
            WorkMcpFiles(self.mcp_folder, self._environ),
            limits=LIMITS,
            listener=lambda run, event: self.heard.append((run, event)),
        )

    async def hire(
        self, engine: str, options: Mapping[str, Any], *tasks: Task, starting: bool = False, **more: Any
    ) -> Work:
        """A workflow with one Work that runs, its first task sent. ``starting``: nothing of its agent has run yet."""
        work = Work(WORK, "wf-1", 0, "plan", list(tasks), engine, engine_options=options, **more)
        work.start()
        if not starting:
            work.agent_started()
        work.tasks[0].send()
        async with self.store.transaction() as tx:
            await tx.workflows.save(Workflow("wf-1", "repair", NOW))
            await tx.works.save(work)
        return work

    async def ask(self, work: Work, number: int = 1) -> None:
        """Put the query of a task."""
        await self.client.send_query(work, work.task(f"task-{number}"), "Do it.")

    async def work(self) -> Work:
        async with self.store.transaction() as tx:
            return await tx.works.get(WORK)

    async def save(self, work: Work) -> None:
        async with self.store.transaction() as tx:
            await tx.works.save(work)

    async def respond(self, task_id: str, response: str = "done") -> Work:
        """What the handler of an answer does to the Work."""
        work = await self.work()
        task = work.task(task_id)
        task.respond(response)
        task.complete()
        if (following := work.current_task) is not None:
            following.send()
        await self.save(work)
        return work

    async def begin_report(self, task_id: str) -> tuple[Work, Report]:
        """What the handler of an answer does to a Work whose task wants a report."""
        work = await self.work()
        task = work.task(task_id)
        task.respond("done")
        report = Report("report-1", "wf-1", work.id, task.id, task.outline, ReportStatus.GENERATING)
        task.start_report(report.id)
        async with self.store.transaction() as tx:
            await tx.works.save(work)
            await tx.reports.save(report)
        return work, report

    async def told(self) -> list[StoredEvent]:
        return await self.store.events("wf-1", 0, 1000)

    async def hear(self, count: int = 1) -> list[tuple[str, Mapping[str, object]]]:
        """The first ``count`` events of the workflow: type and payload. Waits for them."""
        heard = asyncio.Event()
        undo = self.store.on_publish(lambda _: heard.set())
        try:
            async with asyncio.timeout(30):
                while len(seen := await self.told()) < count:
                    await heard.wait()
                    heard.clear()
        finally:
            undo()
        return [(event.type, event.payload) for event in seen]

    async def heard_text(self, text: str = "I am here") -> None:
        """Until an agent has said this."""
        async with asyncio.timeout(30):
            while not any(event == Text(text) for _, event in self.heard):
                await asyncio.sleep(0.01)

    async def left(self, name: str, run: str = f"{WORK}.task-1.1") -> None:
        """Until a run has left a file in its folder."""
        path = self.barracks.folder(run) / name
        async with asyncio.timeout(30):
            while not path.exists():
                await asyncio.sleep(0.01)

    async def quiet(self) -> None:
        """Until no run is watched any more."""
        tasks = [task for _, task in self.client._runs.values()]
        await asyncio.gather(*tasks)

    def telling(self, source: str) -> dict[str, str]:
        """Options for the engine ``telling``: a Python program that says what its lines mean."""
        return {"program": str(self.barracks.program(source))}

    def runs(self) -> list[str]:
        """The ids of all runs there ever were."""
        folder = self.barracks.soldiers
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def alive(self) -> set[int]:
        runs = self.runs()
        return self.barracks.alive(*runs) if runs else set()


def task(number: int = 1, *, outline: Sequence[str] = (), retries: int = 1) -> Task:
    return Task(f"task-{number}", number - 1, f"step {number}", "Do it.", tuple(outline), retries)


def of(*events: DomainEvent) -> list[tuple[str, Mapping[str, object]]]:
    """Events as :meth:`Office.hear` gives them."""
    return [(type(event).__name__, event.payload()) for event in events]


def answered(text: str = "It is done.", number: int = 1) -> list[tuple[str, Mapping[str, object]]]:
    """The event of an answer."""
    return of(QueryResponded(WORK, f"task-{number}", text))


STARTED = of(AgentStarted(WORK), WorkStatusChanged(WORK, "wf-1", WorkStatus.RUNNING))
"""The events of an agent that has started."""
