"""Workflows of ours, with agents that answer at once: what remains is what the engine costs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Container, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from uuid import uuid4

from bench import ours, pg
from bench.harness import Figures
from kingdom.gitops.runner import GitResult, GitRunner
from kingdom.workflow.adapters.git_service import GitopsService
from kingdom.workflow.adapters.queries import QueryTemplates
from kingdom.workflow.adapters.recorder import Recorder, RunEnd
from kingdom.workflow.adapters.workspaces import Workspaces
from kingdom.workflow.context import ExternalServices, open_context
from kingdom.workflow.domain.events import QueryResponded
from kingdom.workflow.domain.resources import Git, GitRef
from kingdom.workflow.domain.statuses import AgentStatus
from kingdom.workflow.domain.workflow import TaskDefinition, WorkDefinition, WorkflowTemplate
from kingdom.workflow.engine import WorkflowEngine
from kingdom.workflow.usecases.lifecycle import start_workflow
from kingdom.workflow.usecases.workflows import create_workflow

if TYPE_CHECKING:
    from kingdom.bus import Envelope
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.domain.resources import WorkTree
    from kingdom.workflow.domain.work import Report, Task, Work
    from kingdom.workflow.ports import Clock, GitService, WorkflowStore

_REPOSITORY = "git-bench"
_WARMING = 20  # tasks before anything is measured


class Sent(NamedTuple):
    """A query that an agent got."""

    at: float
    work_id: str
    git: float  # seconds that git took until then


class TimedGit(GitRunner):
    """Counts the time of its calls, from the start of a process to its end."""

    seconds = 0.0

    async def _run(self, *arguments: Any) -> GitResult:
        started = perf_counter()
        try:
            return await super()._run(*arguments)
        finally:
            self.seconds += perf_counter() - started


class InstantAgents:
    """Agents that answer at once, in a task of their own as real ones do; their news go the way of real ones."""

    def __init__(self, store: WorkflowStore, git: TimedGit | None = None) -> None:
        self._store = store
        self._git = git
        self._recorder = Recorder(store)
        self._answering: set[asyncio.Task[None]] = set()
        self._trees: dict[str, Path] = {}  # by workflow
        self.sent: list[Sent] = []

    async def start(self, work: Work) -> None:
        """Nothing runs before the first query."""

    async def send_query(self, work: Work, task: Task, text: str) -> None:
        self.sent.append(Sent(perf_counter(), work.id, self._git.seconds if self._git is not None else 0.0))
        if self._git is not None:
            await self._change_files(work, task)
        self._answering.add(answer := asyncio.create_task(self._answer(work, task)))
        answer.add_done_callback(self._answering.discard)

    async def _change_files(self, work: Work, task: Task) -> None:
        if work.workflow_id not in self._trees:
            async with self._store.reading() as tx:
                (tree,) = await tx.work_trees.of_workflow(work.workflow_id)
            self._trees[work.workflow_id] = Path(str(tree.path))
        (self._trees[work.workflow_id] / f"{task.id}.txt").write_text("It is done.\n")

    async def _answer(self, work: Work, task: Task) -> None:
        if work.agent_status is AgentStatus.STARTING:
            await self._recorder.started(work, task)
        run = f"{task.id}.{task.attempt}"
        event = QueryResponded(work.id, task.id, "It is done.")
        await self._recorder.ended(RunEnd(work.id, task.id, task.attempt, run, event, "session-1"))

    async def write_report(self, work: Work, task: Task, report: Report) -> None:
        raise NotImplementedError("no plan of the benchmark has reports")

    async def stop(self, work_id: str, *, record: bool = True) -> None:
        if not record:
            return
        async with self._store.transaction() as tx:
            work = await tx.works.find_at_work(work_id)
        assert work is not None
        await self._recorder.stopped(work)

    async def recover(self, works: Sequence[Work]) -> None:
        """Nobody is left of a former engine."""

    async def works_here(self) -> set[str]:
        return set()

    async def stop_others(self, work_ids: Container[str], reason: str) -> None: ...

    async def forget(self, work_id: str) -> None:
        """They leave nothing."""


class _NoRepositories:
    """Git for workflows without repositories."""

    async def prune(self, trees: Sequence[WorkTree]) -> None: ...


class Shop:
    """An engine at work, and how to have workflows done by it."""

    def __init__(self, parts: WorkflowContext, agents: InstantAgents, repository: Path | None) -> None:
        self.parts = parts
        self.agents = agents
        self.repository = repository
        self._ends: dict[str, asyncio.Event] = {}
        parts.store.on_publish(self._published)

    def _published(self, envelopes: list[Envelope]) -> None:
        for envelope in envelopes:
            if envelope.type == "WorkflowCompleted":
                self._ends.setdefault(str(envelope.aggregate_id), asyncio.Event()).set()
            assert envelope.type not in ("WorkflowFailed", "WorkflowPaused"), f"{envelope.type}: it should complete"

    async def plan(self, works: int, tasks: int) -> str:
        """A template of so many Works of so many tasks."""
        plan = tuple(
            WorkDefinition(f"work {number}", tuple(TaskDefinition(f"task {n}", "Do it.") for n in range(tasks)))
            for number in range(works)
        )
        refs = (GitRef(_REPOSITORY),) if self.repository is not None else ()
        template = WorkflowTemplate(f"tpl-{uuid4()}", "bench", plan, git_refs=refs)
        async with self.parts.store.transaction() as tx:
            await tx.templates.save(template)
            if self.repository is not None and await tx.gits.find(_REPOSITORY) is None:
                await tx.gits.save(Git(_REPOSITORY, "bench", url=str(self.repository)))
        return template.id

    async def create(self, template_id: str) -> str:
        """A workflow that is not started."""
        workflow_id = await create_workflow(self.parts, template_id)
        self._ends[workflow_id] = asyncio.Event()
        return workflow_id

    async def complete(self, workflow_id: str) -> None:
        """Start a workflow and wait for its end."""
        await start_workflow(self.parts, workflow_id)
        await self._ends[workflow_id].wait()
        del self._ends[workflow_id]


@contextlib.asynccontextmanager
async def shop(url: str, folder: Path, repository: Path | None = None) -> AsyncIterator[Shop]:
    """An engine on an empty store, warmed up; with ``repository``, all its workflows work on that."""
    made: list[InstantAgents] = []

    def outside(store: WorkflowStore, clock: Clock) -> ExternalServices:
        git = cast("GitService", _NoRepositories())
        timed = None if repository is None else TimedGit()
        if timed is not None:
            git = GitopsService(timed, folder, clock=clock)
        made.append(InstantAgents(store, timed))
        return ExternalServices(made[0], git, Workspaces(folder / "workspaces"), QueryTemplates(store))

    async with open_context(url, outside) as parts, WorkflowEngine(parts):
        opened = Shop(parts, made[0], repository)
        await opened.complete(await opened.create(await opened.plan(2, _WARMING // 2)))
        opened.agents.sent.clear()
        yield opened


@contextlib.asynccontextmanager
async def shop_on(place: Path | str, repository: Path | None = None) -> AsyncIterator[Shop]:
    """An engine on a new SQLite file in a folder, or in a new schema of a PostgreSQL server."""
    if isinstance(place, Path):
        folder = place / uuid4().hex
        folder.mkdir(parents=True)
        async with shop(f"sqlite://{folder}/workflows.db", folder, repository) as opened:
            yield opened
    else:
        with TemporaryDirectory() as temporary:
            async with (
                pg.fresh_schema(place) as schema,
                shop(ours.postgres_url(place, schema), Path(temporary), repository) as made,
            ):
                yield made


async def steps(place: Path | str, works: int, tasks: int, *, runs: int = 1, repository: Path | None = None) -> Figures:
    """Workflows, one after the other: milliseconds from a query to the next, over all of it, within Works, and from
    Work to Work; ``beside`` is that without the time of the git calls.
    """
    inside, between, git = 0.0, 0.0, 0.0
    async with shop_on(place, repository) as opened:
        template_id, sent = await opened.plan(works, tasks), opened.agents.sent
        for _ in range(runs):
            sent.clear()
            await opened.complete(await opened.create(template_id))
            assert len(sent) == works * tasks, f"{len(sent)} queries of {works * tasks}"
            for before, after in pairwise(sent):
                if before.work_id == after.work_id:
                    inside += after.at - before.at
                else:
                    between += after.at - before.at
                    git += after.git - before.git
    figures = {"step": 1e3 * (inside + between) / (runs * (works * tasks - 1))}
    if tasks > 1:
        figures["within"] = 1e3 * inside / (runs * works * (tasks - 1))
    if works > 1:
        figures["between"] = 1e3 * between / (runs * (works - 1))
        figures["git"] = 1e3 * git / (runs * (works - 1))
        figures["beside"] = figures["between"] - figures["git"]
    return figures


async def many(place: Path | str, workflows: int, tasks: int, *, at_once: int) -> Figures:
    """Workflows of one Work, some at a time: milliseconds for each task, from the first start to the last end."""
    async with shop_on(place) as opened:
        template_id = await opened.plan(1, tasks)
        created = [await opened.create(template_id) for _ in range(workflows)]
        waiting = iter(created)

        async def work_off() -> None:
            for workflow_id in waiting:
                await opened.complete(workflow_id)

        started = perf_counter()
        await asyncio.gather(*(work_off() for _ in range(at_once)))
        seconds = perf_counter() - started
        assert len(opened.agents.sent) == workflows * tasks
    return {"step": 1e3 * seconds / (workflows * tasks)}
