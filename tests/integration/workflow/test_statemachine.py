"""Whatever is done to workflows, in whatever order, with crashes in between: no illegal state, and nothing leaks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kingdom.workflow.domain.plan import AddTask, AddWork, Change, RemoveWork, SetGitRefs, UpdateTask
from kingdom.workflow.domain.resources import GitRef, WorkTree
from kingdom.workflow.domain.statuses import (
    AgentStatus,
    QueryStatus,
    TaskStatus,
    WorkflowStatus,
    WorkStatus,
    WorkTreeStatus,
)
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import TaskDefinition, Workflow
from kingdom.workflow.errors import WorkflowError
from kingdom.workflow.store.transactions import STREAM
from kingdom.workflow.usecases.lifecycle import (
    cancel_workflow,
    delete_workflow,
    pause_workflow,
    resume_workflow,
    start_workflow,
)
from kingdom.workflow.usecases.workflows import modify_workflow
from tests.support.searching import examples
from tests.support.workflow_fakes import House, Stopped, Stopper, World, fast_folder, house
from tests.support.workflow_plans import REPORTED, created, work

LINE: Final = (work("a", "a1", REPORTED), work("b", "b1", "b2", pause_after=True), work("c", "c1"))
FAN: Final = (
    work("a", "a1"),
    work("b", "b1", after=("a",)),
    work("c", REPORTED, after=("a",)),
    work("d", "d1", after=("b", "c"), merge=True),
)
USING: Final = frozenset({"PREPARING", "READY", "RUNNING", "PAUSED", "RESUMING"})
TASKS: Final = ("a1", "b1", "b2", "c1", "check", "d1")


class Workflows(RuleBasedStateMachine):
    """A few workflows in one world, and engines that come and go."""

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.ends = contextlib.ExitStack()
        self.folder = self.ends.enter_context(fast_folder())
        self.world = World(silent=True)
        self.workflows: list[str] = []
        self.states: dict[str, str] = {}
        self.run(self.open)

    def run(self, action: Callable[[], Awaitable[Any]]) -> Any:
        async def whole() -> Any:
            return await action()

        return self.runner.run(whole())

    async def open(self, stopper: Stopper | None = None) -> None:
        self.stopper = stopper or Stopper()
        self.house = contextlib.AsyncExitStack()
        path = self.folder / "w.db"
        self.here: House = await self.house.enter_async_context(house(path, self.world, self.stopper))
        await self.here.engine.idle()

    async def attempt(self, action: Callable[[], Awaitable[Any]]) -> None:
        """Do something people may ask for: it works, is refused with a named error, or the engine dies."""
        try:
            with contextlib.suppress(WorkflowError):
                await action()
            await self.here.engine.idle()
        except Stopped:
            await self.reopen()

    async def reopen(self) -> None:
        """The engine is dead: another one comes."""
        self.stopper.dead = True
        with contextlib.suppress(Stopped):
            await self.house.__aexit__(Stopped, Stopped(), None)
        await self.open()

    def teardown(self) -> None:
        if hasattr(self, "house"):
            self.run(self.house.aclose)
            self.runner.close()
            self.ends.close()

    def chosen(self, data: st.DataObject, *statuses: str) -> str:
        """One of the workflows, mostly one for which what is wanted makes sense."""
        fitting = [item for item in self.workflows if self.states.get(item) in statuses]
        return str(data.draw(st.sampled_from(fitting * 5 + self.workflows)))

    # ── what people do ────────────────────────────────────────────────────────────────────────────────────────

    @precondition(lambda self: len(self.workflows) < 3)
    @rule(plan=st.sampled_from([LINE, FAN]), on_failure=st.sampled_from(["pause", "fail"]), only=st.booleans())
    def start(self, plan: Any, on_failure: str, only: bool) -> None:
        async def action() -> None:
            workflow_id = await created(self.here.parts, *plan, gits=2, on_failure=on_failure)
            self.workflows.append(workflow_id)
            await start_workflow(self.here.parts, workflow_id, prepare_only=only)

        self.run(lambda: self.attempt(action))

    @precondition(lambda self: self.workflows)
    @rule(data=st.data())
    def start_again(self, data: st.DataObject) -> None:
        chosen = self.chosen(data, "READY")
        self.run(lambda: self.attempt(lambda: start_workflow(self.here.parts, chosen)))

    @precondition(lambda self: self.workflows)
    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        chosen = self.chosen(data, "RUNNING")
        self.run(lambda: self.attempt(lambda: pause_workflow(self.here.parts, chosen)))

    @precondition(lambda self: not {"PAUSED", "FAILED"}.isdisjoint(self.states.values()))
    @rule(data=st.data(), retry=st.booleans(), back=st.integers(0, 3))
    def resume(self, data: st.DataObject, retry: bool, back: int) -> None:
        chosen = self.chosen(data, "PAUSED", "FAILED")

        async def action() -> None:
            async with self.here.parts.store.transaction() as tx:
                points = [item.id for item in await tx.checkpoints.of_workflow(chosen) if item.complete and item.valid]
            point = sorted(points)[back] if back < len(points) else None
            await resume_workflow(self.here.parts, chosen, checkpoint_id=point, retry=retry)

        self.run(lambda: self.attempt(action))

    @precondition(lambda self: self.workflows)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        chosen = self.chosen(data, "CANCELLED")
        self.run(lambda: self.attempt(lambda: cancel_workflow(self.here.parts, chosen)))

    @precondition(lambda self: not {"COMPLETED", "CANCELLED", "PAUSED"}.isdisjoint(self.states.values()))
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        chosen = self.chosen(data, "CANCELLED", "COMPLETED")

        async def action() -> None:
            await delete_workflow(self.here.parts, chosen)
            self.workflows.remove(chosen)

        self.run(lambda: self.attempt(action))
        self.run(self.forget_deleted)

    @precondition(lambda self: self.workflows)
    @rule(data=st.data(), what=st.sampled_from(["task", "work", "less", "query", "gits"]), number=st.integers(0, 2))
    def modify(self, data: st.DataObject, what: str, number: int) -> None:
        chosen = self.chosen(data, "PAUSED", "FAILED", "READY")

        async def action() -> None:
            _, works = await self.here.read(chosen)
            part = works[min(number + 1, len(works) - 1)]
            changes: dict[str, Change] = {
                "task": AddTask(part.id, TaskDefinition("a1", "more", ("X",) if number else ())),
                "work": AddWork(work(f"w{self.world.ids['']}", "c1")),
                "less": RemoveWork(part.id),
                "query": UpdateTask(part.tasks[-1].id, {"query": "other", "outline": ["Y"] if number else []}),
                "gits": SetGitRefs(tuple(GitRef(f"git-{index}", "main") for index in range(number))),
            }
            await modify_workflow(self.here.parts, chosen, [changes[what]])

        self.run(lambda: self.attempt(action))

    # ── what agents do ────────────────────────────────────────────────────────────────────────────────────────

    @precondition(lambda self: "RUNNING" in self.states.values())
    @rule(data=st.data(), answers=st.integers(1, 8))
    def much_is_answered(self, data: st.DataObject, answers: int) -> None:
        self.answer(data, answers)

    @precondition(lambda self: "RUNNING" in self.states.values())
    @rule(data=st.data(), answers=st.integers(1, 3))
    def answer(self, data: st.DataObject, answers: int) -> None:
        """Agents say what they have to say, one after the other."""
        chosen = self.chosen(data, "RUNNING")

        async def action() -> None:
            for _ in range(answers):
                _, works = await self.here.read(chosen)
                for part in works:
                    task = part.current_task
                    if part.status is not WorkStatus.RUNNING or task is None:
                        continue
                    if task.query_status is QueryStatus.SENT:
                        await self.here.agents.answer(part, task)
                    elif task.status is TaskStatus.RUNNING:
                        await self.here.agents.report(part, task)
                await self.here.engine.idle()

        self.run(lambda: self.attempt(action))

    @precondition(lambda self: self.world.trouble < 2)
    @rule(task=st.sampled_from(TASKS), kind=st.sampled_from(["fails", "report_fails"]), times=st.integers(1, 2))
    def a_task_will_fail(self, task: str, kind: str, times: int) -> None:
        getattr(self.world, kind)[task] += times

    @precondition(lambda self: self.world.trouble < 2)
    @rule(name=st.sampled_from(["a", "b", "c", "d"]))
    def an_agent_will_break(self, name: str) -> None:
        self.world.breaks[name] += 1

    @precondition(lambda self: self.world.trouble < 2)
    @rule(what=st.sampled_from(["start", "send", "prepare", "commit", "reset", "merge"]))
    def something_outside_will_not_work(self, what: str) -> None:
        self.world.refuses[what] += 1

    # ── crashes ───────────────────────────────────────────────────────────────────────────────────────────────

    @rule()
    def crash(self) -> None:
        self.run(self.reopen)

    @rule(points=st.integers(0, 40))
    def crash_soon(self, points: int) -> None:
        self.stopper.at = len(self.stopper.passed) + points

    async def forget_deleted(self) -> None:
        async def look() -> None:
            async with self.here.parts.store.transaction() as tx:
                self.workflows = [item for item in self.workflows if await tx.workflows.find(item)]

        await self.attempt(look)

    # ── what must hold ────────────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def everything_is_in_order(self) -> None:
        if hasattr(self, "here"):
            at, self.stopper.at = self.stopper.at, None  # looking is no work: nobody dies of it
            self.run(self.check)
            self.stopper.at = at

    async def check(self) -> None:
        await self.here.engine.idle()
        async with self.here.parts.store.transaction() as tx:
            workflows = [await tx.workflows.find(item) for item in self.workflows]
            works = {item.id: await tx.works.of_workflow(item.id) for item in workflows if item}
            trees = [tree for item in workflows if item for tree in await tx.work_trees.of_workflow(item.id)]
            gits = await tx.gits.list()
        there = [item for item in workflows if item is not None]
        self.states = {item.id: item.status for item in there}
        for workflow in there:
            check_workflow(workflow, works[workflow.id], self.world)
        using = {item.id for item in there if item.status in USING}
        for git in gits:
            assert git.used_by <= using, "a use that nobody has"
        for workflow in there:
            if workflow.status in USING:
                assert all(
                    workflow.id in git.used_by for git in gits if git.id in {r.git_id for r in workflow.git_refs}
                )
        check_trees(trees, self.world)
        depth = (await self.here.parts.store.bus.depth())[STREAM]
        assert (depth.pending, depth.processing, depth.dead) == (0, 0, 0)
        for workflow_id in self.workflows:
            events = await self.here.parts.store.events(workflow_id, 0, 100_000)
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))


def check_workflow(workflow: Workflow, works: list[Work], world: World) -> None:
    running = [part for part in works if part.status is WorkStatus.RUNNING]
    assert workflow.status not in (WorkflowStatus.PREPARING, WorkflowStatus.RESUMING), "left between two states"
    assert bool(running) == (workflow.status is WorkflowStatus.RUNNING), f"{workflow.status} with {running}"
    assert workflow.work_statuses == {part.id: part.status for part in works}
    for part in works:
        if part.status is not WorkStatus.RUNNING:
            assert part.agent_status not in (AgentStatus.STARTING, AgentStatus.RUNNING)
            assert part.id not in world.alive, "an agent nobody waits for"
        if part.status is WorkStatus.COMPLETED:
            assert all(task.status is TaskStatus.COMPLETED for task in part.tasks)
    if workflow.status is WorkflowStatus.COMPLETED:
        assert all(part.status is WorkStatus.COMPLETED for part in works)


def check_trees(trees: list[WorkTree], world: World) -> None:
    must = {tree.id for tree in trees if tree.status is WorkTreeStatus.READY}
    may = {tree.id for tree in trees if tree.status is not WorkTreeStatus.RELEASED}
    assert must <= world.trees.keys() <= may


Workflows.TestCase.settings = settings(
    max_examples=examples(6), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestWorkflows = pytest.mark.search(Workflows.TestCase)
