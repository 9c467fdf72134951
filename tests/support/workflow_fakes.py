"""Agents, git and files for workflows, all in memory: a world that outlives the engines that are killed in it."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kingdom.gitops import GitError
from kingdom.workflow.context import ExternalServices, WorkflowContext, open_context
from kingdom.workflow.domain.events import (
    AgentError,
    AgentStarted,
    DomainEvent,
    QueryFailed,
    QueryResponded,
    QuestionAsked,
    ReportFailed,
    ReportGenerated,
    WorkStatusChanged,
)
from kingdom.workflow.domain.resources import Checkpoint, Committed, Git, WorkSpace, WorkTree
from kingdom.workflow.domain.statuses import AgentStatus
from kingdom.workflow.domain.work import Report, Task, Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.engine import WorkflowEngine
from kingdom.workflow.ports import Clock, PreparedTree, RecordedEvent, WorkflowStore
from kingdom.workflow.store.transactions import WorkflowTransaction

START = datetime(2026, 2, 7, 10, 0, 0, tzinfo=UTC)
Run = tuple[str, str, int]  # what is run: work, task or report, attempt


class Stopped(BaseException):
    """The process was killed here."""


class Stopper:
    """Kills the process at the n-th point it comes by; a dead process comes by nowhere any more."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.passed: list[str] = []
        self.dead = False

    def point(self, name: str) -> None:
        if self.dead:
            raise Stopped(name)
        self.passed.append(name)
        if len(self.passed) - 1 == self.at:
            self.dead = True
            raise Stopped(name)


@dataclass
class World:
    """What is outside: it stays as it is when an engine dies."""

    now: datetime = START
    ids: Counter[str] = field(default_factory=Counter)
    sent: Counter[Run] = field(default_factory=Counter)  # how often each query and report really went to an agent
    answers: dict[Run, DomainEvent] = field(default_factory=dict)  # what runs that ended had to say
    alive: set[str] = field(default_factory=set)  # works with an agent
    stops: list[str] = field(default_factory=list)
    trees: dict[str, str] = field(default_factory=dict)  # worktree id: the commit it stands at
    bases: dict[str, str | None] = field(default_factory=dict)  # worktree id: where it began
    commits: dict[str, dict[str, str]] = field(default_factory=dict)  # checkpoint id: hash per git id
    resets: list[dict[str, str]] = field(default_factory=list)
    merges: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    merged: dict[str, set[str]] = field(default_factory=dict)  # worktree id: the commits its branch has besides its own
    places: dict[str, tuple[str, str | None]] = field(default_factory=dict)  # worktree id: of which workflow and Work
    open_work: set[str] = field(default_factory=set)  # worktrees with changes that are in no commit
    discarded: list[str] = field(default_factory=list)  # names of repositories whose clone was to go
    folders: set[str] = field(default_factory=set)
    reports: set[str] = field(default_factory=set)  # files
    # what goes wrong, by the name of the Work or Task; each is used up once
    beside: bool = False  # answers come while nobody waits for them, as those of real agents do
    silent: bool = False  # agents take queries, and say nothing until `answer` is called
    silences: set[str] = field(default_factory=set)  # the same, for tasks of these names
    fails: Counter[str] = field(default_factory=Counter)  # queries
    asks: Counter[str] = field(default_factory=Counter)  # queries that are met with a question
    default: dict[str, Any] = field(default_factory=dict)  # its choices and default
    deadline: str | None = None  # of a question
    report_fails: Counter[str] = field(default_factory=Counter)
    breaks: Counter[str] = field(default_factory=Counter)  # agents, at a query
    refuses: Counter[str] = field(default_factory=Counter)  # "start" | "send" | "prepare" | "commit" | "merge" | …

    @property
    def trouble(self) -> int:
        """How much is still to go wrong."""
        return sum(sum(counts.values()) for counts in (self.fails, self.report_fails, self.breaks, self.refuses))

    def clock(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    def new(self, kind: str) -> str:
        self.ids[""] += 1
        return f"{kind}-{self.ids['']:06}"

    def use_up(self, kind: str, name: str) -> bool:
        counts: Counter[str] = getattr(self, kind)
        if counts[name] <= 0:
            return False
        counts[name] -= 1
        return True

    def work_in(self, work: Work) -> None:
        """An agent changes files where its Work is done."""
        place = work.workflow_id, work.id if work.apart else None
        self.open_work |= {tree_id for tree_id, found in self.places.items() if found == place}

    def refuse(self, name: str) -> None:
        if self.use_up("refuses", name):
            raise GitError(f"{name} does not work today")


class FakeAgents:
    """Agents that answer at once, unless the world is silent."""

    def __init__(self, world: World, store: WorkflowStore, stopper: Stopper) -> None:
        self._world, self._store, self._stopper = world, store, stopper
        self._tasks: set[asyncio.Task[None]] = set()

    async def settled(self) -> None:
        """Wait until every answer that came is recorded."""
        while self._tasks:
            done, _ = await asyncio.wait(self._tasks)
            for task in done:
                task.result()

    async def start(self, work: Work) -> None:
        self._stopper.point("start")
        self._world.refuse("start")
        self._world.alive.add(work.id)

    async def send_query(self, work: Work, task: Task, text: str) -> None:
        self._stopper.point("send")
        self._world.refuse("send")
        run = (work.id, task.id, task.attempt)
        if work.agent_status is AgentStatus.STARTING:
            await self._tell_started(work)
        if run not in self._world.answers:
            self._world.sent[run] += 1
            self._world.work_in(work)
            if self._world.silent or task.name in self._world.silences:
                return
            self._world.answers[run] = self._outcome(work, task, text)
        self._stopper.point("sent")
        if self._world.beside:
            self._tasks.add(told := asyncio.get_running_loop().create_task(self._deliver(work, task)))
            told.add_done_callback(self._tasks.discard)
        else:
            await self._deliver(work, task)

    async def answer(self, work: Work, task: Task) -> None:
        """The answer to a query that was met with silence."""
        self._world.answers[work.id, task.id, task.attempt] = self._outcome(work, task, task.query)
        await self._deliver(work, task)

    def _outcome(self, work: Work, task: Task, text: str) -> DomainEvent:
        if self._world.use_up("breaks", work.name):
            return AgentError(work.id, "it broke")
        if self._world.use_up("asks", task.name):
            return QuestionAsked(work.id, task.id, "Red or blue?", deadline=self._world.deadline, **self._world.default)
        if self._world.use_up("fails", task.name):
            return QueryFailed(work.id, task.id, "it said no")
        return QueryResponded(work.id, task.id, f"answer to {text}")

    async def _deliver(self, work: Work, task: Task) -> None:
        event = self._world.answers[work.id, task.id, task.attempt]
        await self._tell(work, event, work.attempt if isinstance(event, AgentError) else task.attempt)

    async def write_report(self, work: Work, task: Task, report: Report) -> None:
        self._stopper.point("report")
        run = (work.id, report.id, task.attempt)
        if run not in self._world.answers:
            self._world.sent[run] += 1
            if self._world.silent:
                return
            self._write(work, task, report.id)
        self._stopper.point("reported")
        await self._tell(work, self._world.answers[run], task.attempt)

    async def report(self, work: Work, task: Task) -> None:
        """The report that was met with silence."""
        assert task.report_id is not None
        self._write(work, task, task.report_id)
        await self._tell(work, self._world.answers[work.id, task.report_id, task.attempt], task.attempt)

    def _write(self, work: Work, task: Task, report_id: str) -> None:
        path = f"/spaces/{work.id}/reports/{task.order}-{task.name}.md"
        event: DomainEvent = ReportGenerated(report_id, task.id, path)
        if self._world.use_up("report_fails", task.name):
            event = ReportFailed(report_id, task.id, "a section is missing")
        else:
            self._world.reports.add(path)
        self._world.answers[work.id, report_id, task.attempt] = event

    async def stop(self, work_id: str, *, record: bool = True) -> None:
        self._stopper.point("stop")
        self._world.refuse("stop")
        self._world.alive.discard(work_id)
        self._world.stops.append(work_id)

    async def recover(self, works: Sequence[Work]) -> None:
        self._stopper.point("recover")

    async def forget(self, work_id: str) -> None:
        self._stopper.point("forget")

    async def _tell_started(self, begun: Work) -> None:
        async with self._store.transaction() as tx:
            work = await tx.works.get(begun.id)
            if work.attempt == begun.attempt and work.agent_status is AgentStatus.STARTING:
                work.agent_started()
                await tx.works.save(work)
                for event in (AgentStarted(work.id), WorkStatusChanged(work.id, work.workflow_id, work.status)):
                    tx.record(RecordedEvent(event, "Workflow", work.workflow_id, work.attempt))

    async def _tell(self, work: Work, event: DomainEvent, attempt: int) -> None:
        async with self._store.transaction() as tx:
            tx.record(RecordedEvent(event, "Workflow", work.workflow_id, attempt))


class FakeGit:
    """Worktrees and commits as words."""

    def __init__(self, world: World, stopper: Stopper) -> None:
        self._world, self._stopper = world, stopper

    async def check(self, url: str) -> None:
        self._world.refuse("check")

    async def prepare(self, git: Git, tree: WorkTree) -> PreparedTree:
        self._stopper.point("prepare")
        self._world.refuse("prepare")
        self._world.trees.setdefault(tree.id, tree.base or "main")
        self._world.bases.setdefault(tree.id, tree.base)
        self._world.places[tree.id] = tree.workflow_id, tree.work_id
        self._stopper.point("prepared")
        return PreparedTree(f"/trees/{tree.id}", f"kingdom/{tree.id}")

    async def commit_all(self, checkpoint: Checkpoint, trees: Sequence[WorkTree], message: str) -> dict[str, Committed]:
        self._stopper.point("commit")
        self._world.refuse("commit")
        made = {tree.git_id: f"commit-{checkpoint.id}" for tree in trees}
        for tree in trees:
            assert tree.id in self._world.trees, "a commit in a worktree that is not there"
            self._world.trees[tree.id] = made[tree.git_id]
            self._world.open_work.discard(tree.id)
        self._world.commits[checkpoint.id] = made
        self._stopper.point("committed")
        return {git_id: Committed(commit, f"tree-{checkpoint.id}") for git_id, commit in made.items()}

    async def undo(self, checkpoint: Checkpoint, trees: Sequence[WorkTree]) -> None:
        self._stopper.point("undo")
        self._world.commits.pop(checkpoint.id, None)
        self._world.open_work |= {tree.id for tree in trees}

    async def reset(self, trees: Sequence[WorkTree], hashes: Mapping[str, str]) -> dict[str, str]:
        self._stopper.point("reset")
        self._world.refuse("reset")
        assert not self._world.alive.intersection(tree.work_id for tree in trees), "reset under a living agent"
        for tree in trees:
            self._world.trees[tree.id] = hashes.get(tree.git_id) or tree.base or "main"
            self._world.open_work.discard(tree.id)
            self._world.merged.pop(tree.id, None)
        self._world.resets.append(dict(hashes))
        self._stopper.point("reset done")
        return {}

    async def forget(self, git: Git, workflow_id: str) -> None:
        self._stopper.point("forget refs")

    async def release(self, tree: WorkTree) -> None:
        self._stopper.point("release")
        self._world.trees.pop(tree.id, None)
        self._world.open_work.discard(tree.id)

    async def merge(self, tree: WorkTree, sources: Sequence[WorkTree], message: str) -> None:
        self._stopper.point("merge")
        self._world.refuse("merge")
        merged = tree.id, tuple(self._world.trees[source.id] for source in sources)
        there = self._world.merged.setdefault(tree.id, set())
        if tree.id in self._world.open_work and not there.issuperset(merged[1]):
            raise GitError(f"{tree.id} has changes that are not committed")
        there.update(merged[1])
        if merged not in self._world.merges:
            self._world.merges.append(merged)

    async def keep(self, git: Git, checkpoint: Checkpoint) -> None:
        assert git.id in checkpoint.hashes

    async def discard(self, git: Git) -> None:
        self._stopper.point("discard")
        self._world.discarded.append(git.name)

    async def prune(self, trees: Sequence[WorkTree]) -> None:
        self._stopper.point("prune")
        known = {tree.id for tree in trees}
        for left in set(self._world.trees) - known:
            del self._world.trees[left]


class FakeFiles:
    """Folders and files as names."""

    def __init__(self, world: World, stopper: Stopper) -> None:
        self._world, self._stopper = world, stopper

    def path(self, work: Work) -> str:
        return f"/spaces/{work.id}"

    async def make(self, space: WorkSpace) -> None:
        self._stopper.point("folder")
        self._world.folders.add(space.path)

    async def remove(self, space: WorkSpace) -> None:
        self._stopper.point("remove folder")
        self._world.folders.discard(space.path)
        self._world.reports = {path for path in self._world.reports if not path.startswith(f"{space.path}/")}

    async def copy(self, source: WorkSpace, target: WorkSpace) -> None:
        self._stopper.point("copy folder")
        self._world.folders.add(target.path)
        mine = [path for path in self._world.reports if path.startswith(f"{source.path}/")]
        self._world.reports.update(path.replace(source.path, target.path, 1) for path in mine)


class PlainTexts:
    """Queries as they are written."""

    async def text(self, workflow: Workflow, work: Work, task: Task) -> str:
        return task.query

    def check(self, workflow: Workflow, works: Sequence[Work], changed: Sequence[Work]) -> None:
        """Any query will do."""


@dataclass
class House:
    """An engine with everything it needs, in a world."""

    parts: WorkflowContext
    engine: WorkflowEngine
    world: World
    agents: FakeAgents

    async def idle(self) -> None:
        """Wait until nothing goes on, here and with the agents."""
        await self.engine.idle()
        while self.agents._tasks:
            await self.agents.settled()
            await self.engine.idle()

    async def read(self, workflow_id: str) -> tuple[Workflow, list[Work]]:
        async with self.parts.store.transaction() as tx:
            return await tx.workflows.get(workflow_id), await tx.works.of_workflow(workflow_id)

    async def told(self, workflow_id: str, after: int = 0) -> list[str]:
        """The types of what the interface was told, in order."""
        return [event.type for event in await self.parts.store.events(workflow_id, after, 10_000)]


def outside_of(world: World, stopper: Stopper) -> Callable[[WorkflowStore, Clock], ExternalServices]:
    def make(store: WorkflowStore, clock: Clock) -> ExternalServices:
        return ExternalServices(
            FakeAgents(world, store, stopper), FakeGit(world, stopper), FakeFiles(world, stopper), PlainTexts()
        )

    return make


@asynccontextmanager
async def opened(place: Path | str, world: World, stopper: Stopper | None = None) -> AsyncIterator[WorkflowContext]:
    """The parts of a house without an engine, in a file or at a URL."""
    stopper = stopper or Stopper()
    url = place if isinstance(place, str) else f"sqlite://{place}"
    async with open_context(url, outside_of(world, stopper), clock=world.clock, ids=world) as parts:
        _stop_at_transactions(parts.store, stopper)
        yield parts


def _stop_at_transactions(store: WorkflowStore, stopper: Stopper) -> None:
    plain = store.transaction

    @asynccontextmanager
    async def transaction() -> AsyncIterator[WorkflowTransaction]:
        stopper.point("begin")
        async with plain() as tx:
            yield tx
        stopper.point("commit of the store")

    store.transaction = transaction  # type: ignore[method-assign]


@asynccontextmanager
async def house(place: Path | str, world: World | None = None, stopper: Stopper | None = None) -> AsyncIterator[House]:
    """A house with a running engine. When it is stopped, everything in it is dropped as if killed."""
    world = world or World()
    async with opened(place, world, stopper) as parts:
        engine = WorkflowEngine(parts, owner="test", poll=0.05, grace=5)
        try:
            async with engine:
                yield House(parts, engine, world, parts.agents)  # type: ignore[arg-type]
        except Stopped:
            engine.abandon()
            await asyncio.sleep(0)
            raise


@contextlib.contextmanager
def fast_folder() -> Iterator[Path]:
    """A folder in memory, for tests of the order of things, which the disk has nothing to do with."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@contextlib.contextmanager
def survived() -> Iterator[None]:
    """Where a killed process is expected."""
    with contextlib.suppress(Stopped):
        yield
