"""An engine that dies: the next one brings every workflow to the end it would have had."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.workflow.domain.statuses import QueryStatus, WorkflowStatus, WorkStatus
from kingdom.workflow.engine import EngineAlreadyRunning, WorkflowEngine
from kingdom.workflow.store.transactions import STREAM
from kingdom.workflow.usecases.lifecycle import cancel_workflow, pause_workflow, resume_workflow, start_workflow
from tests.support.workflow_fakes import House, Stopper, World, fast_folder, house, opened, survived
from tests.support.workflow_plans import REPORTED, created, work

PLAN = work("build", "plan", REPORTED), work("ship", "push")


async def outcome(here: House, workflow_id: str) -> dict[str, Any]:
    """Everything that must be the same, whatever happened on the way."""
    workflow, works = await here.read(workflow_id)
    async with here.parts.store.transaction() as tx:
        points = await tx.checkpoints.of_workflow(workflow_id)
        trees = await tx.work_trees.of_workflow(workflow_id)
        reports = await tx.reports.of_workflow(workflow_id)
        uses = [git.used_by for git in await tx.gits.list()]
    return {
        "workflow": workflow.status,
        "known": sorted(workflow.work_statuses.values()),
        "works": [(part.name, part.status, part.agent_status) for part in works],
        "tasks": [(task.name, task.status, task.response) for part in works for task in part.tasks],
        "checkpoints": [point.complete and point.valid for point in points],
        "trees": [tree.status for tree in trees],
        "reports": [report.status for report in reports],
        "uses": uses,
        "on disk": (len(here.world.trees), len(here.world.folders), len(here.world.reports), len(here.world.alive)),
        "waiting": (await here.parts.store.bus.depth())[STREAM],
    }


async def check_told(here: House, workflow_id: str) -> None:
    """The interface misses nothing and sees nothing twice: numbers without a gap, the chain in its order."""
    events = await here.parts.store.events(workflow_id, 0, 10_000)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    types = [event.type for event in events]
    for once in ("WorkflowCreated", "WorkflowStarted", "WorkflowCompleted"):
        assert types.count(once) == 1
    assert (types.count("WorkStarted"), types.count("CheckpointCreated"), types.count("TaskCompleted")) == (2, 2, 3)


async def first_life(path: Path, world: World, stopper: Stopper) -> str | None:
    """Start the workflow and run it, until the end or the stop."""
    workflow_id = None
    with survived():
        async with house(path, world, stopper) as here:
            workflow_id = await created(here.parts, *PLAN)
            await start_workflow(here.parts, workflow_id)
            await here.idle()
    return workflow_id


async def the_points(path: Path, **world: Any) -> list[str]:
    stopper = Stopper()
    await first_life(path, World(**world), stopper)
    return stopper.passed


async def survive(path: Path, at: int, expected: dict[str, Any], **more: Any) -> bool:
    """Run a workflow through two lives; returns whether the first really ended early."""
    world, stopper = World(**more), Stopper(at)
    workflow_id = await first_life(path, world, stopper)
    if workflow_id is None:
        return True  # it died before there was a workflow
    async with house(path, world) as here:
        workflow, _ = await here.read(workflow_id)
        if workflow.status is WorkflowStatus.CREATED:  # the start was never committed: whoever asked for it asks again
            await start_workflow(here.parts, workflow_id)
        await here.idle()
        assert await outcome(here, workflow_id) == expected, f"stopped at {at}: {stopper.passed[-1]}"
        await check_told(here, workflow_id)
    assert max(world.sent.values()) == 1  # the world keeps answers, so no query is asked twice
    return stopper.dead


async def survive_each(folder: Path, points: list[str], expected: dict[str, Any], stride: int, **more: Any) -> None:
    """Stop at one point after the other. Their number depends on which events come together: a life may have fewer."""
    died = [await survive(folder / f"{at}.db", at, expected, **more) for at in range(0, len(points), stride)]
    assert all(died[:-5])


@pytest.fixture
def folder() -> Iterator[Path]:
    with fast_folder() as made:
        yield made


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return asyncio.run(the_points(tmp_path_factory.mktemp("points") / "w.db"))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        async with house(tmp_path_factory.mktemp("expected") / "w.db") as here:
            workflow_id = await created(here.parts, *PLAN)
            await start_workflow(here.parts, workflow_id)
            await here.engine.idle()
            return await outcome(here, workflow_id)

    return asyncio.run(run())


async def test_wherever_an_engine_dies_the_next_one_comes_to_the_same_end(
    folder: Path, points: list[str], expected: dict[str, Any], stride: int
) -> None:
    assert expected["workflow"] is WorkflowStatus.COMPLETED
    assert {"begin", "commit of the store", "prepare", "start", "send", "sent", "report", "commit", "committed"} <= set(
        points
    )
    await survive_each(folder, points, expected, stride)


async def test_the_same_holds_when_answers_are_handled_as_they_come(
    folder: Path, expected: dict[str, Any], stride: int
) -> None:
    points = await the_points(folder / "points.db", beside=True)
    await survive_each(folder, points, expected, stride, beside=True)


async def test_wherever_a_second_engine_dies_while_it_recovers_the_third_one_comes_to_the_same_end(
    folder: Path, points: list[str], expected: dict[str, Any], stride: int
) -> None:
    middle = points.index("committed")
    at = 0
    while True:
        path, world = folder / f"{at}.db", World()
        workflow_id = await first_life(path, world, Stopper(middle))
        assert workflow_id is not None
        stopper = Stopper(at)
        with survived():
            async with house(path, world, stopper) as here:
                await here.engine.idle()
        async with house(path, world) as here:
            await here.engine.idle()
            assert await outcome(here, workflow_id) == expected, f"stopped at {at}: {stopper.passed[-1]}"
            await check_told(here, workflow_id)
        if not stopper.dead:
            break
        at += stride
    assert at > 10


async def test_wherever_an_engine_dies_while_it_resumes_the_workflow_goes_back_all_the_way(
    folder: Path, stride: int
) -> None:
    at = 0
    while True:
        path, world, stopper = folder / f"{at}.db", World(silences={"push"}), Stopper()
        async with house(path, world) as here:
            workflow_id = await created(here.parts, *PLAN)
            await start_workflow(here.parts, workflow_id)
            await here.engine.idle()
            await pause_workflow(here.parts, workflow_id)
        world.silences.clear()
        with survived():
            async with house(path, world, stopper) as here:
                stopper.at = len(stopper.passed) + at
                await resume_workflow(here.parts, workflow_id, discard=True)
                await here.engine.idle()
        async with house(path, world) as here:
            await here.engine.idle()
            workflow, works = await here.read(workflow_id)
            if workflow.status is WorkflowStatus.PAUSED:  # the wish was never committed
                await resume_workflow(here.parts, workflow_id, discard=True)
                await here.engine.idle()
                workflow, works = await here.read(workflow_id)
            assert workflow.status is WorkflowStatus.COMPLETED
            assert [part.attempt for part in works] == [1, 2]
            assert len(world.resets) in (1, 2)
            assert len(world.alive) == 0
            assert (await here.parts.store.bus.depth())[STREAM].pending == 0
        if not stopper.dead:
            break
        at += stride
    assert at > 10


@pytest.mark.parametrize("wish", [pause_workflow, cancel_workflow])
async def test_an_engine_that_dies_while_it_stops_a_workflow_can_be_asked_again(folder: Path, wish: Any) -> None:
    for at in range(20):
        path, world, stopper = folder / f"{at}.db", World(silences={"push"}), Stopper()
        with survived():
            async with house(path, world, stopper) as here:
                workflow_id = await created(here.parts, *PLAN)
                await start_workflow(here.parts, workflow_id)
                await here.engine.idle()
                stopper.at = len(stopper.passed) + at
                await wish(here.parts, workflow_id)
                await here.engine.idle()
        async with house(path, world) as here:
            await here.engine.idle()
            if (await here.read(workflow_id))[0].status is WorkflowStatus.RUNNING:
                await wish(here.parts, workflow_id)
                await here.engine.idle()
            workflow, works = await here.read(workflow_id)
            assert workflow.status in (WorkflowStatus.PAUSED, WorkflowStatus.CANCELLED)
            assert works[1].status in (WorkStatus.PAUSED, WorkStatus.CANCELLED)
            assert world.alive == set()
        if not stopper.dead:
            return
    raise AssertionError("it never came to its end")


async def test_a_query_whose_answer_never_came_is_sent_again_after_a_restart(folder: Path) -> None:
    world, stopper = World(silent=True), Stopper()
    with survived():
        async with house(folder / "w.db", world, stopper) as here:
            workflow_id = await created(here.parts, work("ship", "push"))
            await start_workflow(here.parts, workflow_id)
            await here.engine.idle()
            stopper.dead = True
            await here.read(workflow_id)
    world.silent = False
    async with house(folder / "w.db", world) as here:
        await here.engine.idle()
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED
    assert set(world.sent.values()) == {2}


async def test_an_engine_that_ends_properly_leaves_its_agents_to_the_next_one(folder: Path) -> None:
    world = World(silent=True)
    async with house(folder / "w.db", world) as here:
        workflow_id = await created(here.parts, work("ship", "push"))
        await start_workflow(here.parts, workflow_id)
        await here.engine.idle()
    async with house(folder / "w.db", world) as here:
        _, (ship,) = await here.read(workflow_id)
        assert ship.tasks[0].query_status is QueryStatus.SENT
        await here.agents.answer(ship, ship.tasks[0])
        await here.engine.idle()
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED


async def test_a_second_engine_on_one_store_refuses_and_says_who_has_it(folder: Path) -> None:
    async with house(folder / "w.db") as here, opened(folder / "w.db", here.world) as parts:
        with pytest.raises(EngineAlreadyRunning, match=r"an engine runs on .*w\.db already: test, for \d+ s"):
            async with WorkflowEngine(parts, owner="another"):
                pass
    async with house(folder / "w.db", here.world):
        pass  # it is free again


async def test_events_of_another_process_are_found_and_handled(folder: Path) -> None:
    world = World()
    async with house(folder / "w.db", world) as here, opened(folder / "w.db", world) as elsewhere:
        workflow_id = await created(elsewhere, *PLAN)
        done = asyncio.Event()
        here.parts.store.on_publish(
            lambda sent: done.set() if any(item.type == "WorkflowCompleted" for item in sent) else None
        )
        await start_workflow(elsewhere, workflow_id)
        await done.wait()
        await here.engine.idle()
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED


async def test_idle_sees_what_stood_behind_an_event_that_was_handled_while_it_looked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    async with (
        opened(folder / "w.db", world) as parts,
        WorkflowEngine(parts, owner="test", poll=3600) as engine,
        opened(folder / "w.db", world) as elsewhere,
    ):
        bus, queues = parts.store.bus, engine._queues
        peek = bus.peek
        async with engine._look_lock:  # nobody looks before all is in place
            workflow_id = await created(elsewhere, *PLAN)
            await start_workflow(elsewhere, workflow_id)
            await pause_workflow(elsewhere, workflow_id)
            assert (await bus.depth())[STREAM].pending > 1
            waiting = asyncio.create_task(engine.idle())
            await asyncio.sleep(0)  # it waits for its look
            give_back = await parts.locks.take(workflow_id)
            assert give_back is not None
            (head,) = await peek(STREAM)
            queues.add([head.envelope], polled=True)  # as the engine does that looked just before

            async def slow(*args: Any, **options: Any) -> Any:
                seen = await peek(*args, **options)
                if asyncio.current_task() is not waiting:
                    return seen
                monkeypatch.undo()
                give_back()
                while queues.busy:
                    await asyncio.sleep(0)
                return seen

            monkeypatch.setattr(bus, "peek", slow)
        await waiting
        assert await peek(STREAM) == []


async def test_an_engine_looks_for_events_again_after_whatever_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    async with (
        opened(folder / "w.db", world) as parts,
        WorkflowEngine(parts, owner="test", poll=0.01) as engine,
        opened(folder / "w.db", world) as elsewhere,
    ):
        bus, failed = parts.store.bus, asyncio.Event()

        async def fail(*_: Any, **__: Any) -> Any:
            failed.set()
            raise RuntimeError("of a kind that nobody thought of")

        monkeypatch.setattr(bus, "peek", fail)
        workflow_id = await created(elsewhere, *PLAN)
        await start_workflow(elsewhere, workflow_id)
        await failed.wait()
        monkeypatch.undo()
        async with asyncio.timeout(30):
            while await bus.peek(STREAM, limit=1):  # nobody asks the engine to look
                await asyncio.sleep(0.01)
        await engine.idle()
        async with parts.store.reading() as tx:
            assert (await tx.workflows.get(workflow_id)).status is WorkflowStatus.COMPLETED


async def test_a_handler_that_fails_is_tried_again_and_in_the_end_the_workflow_pauses(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(folder / "w.db") as here:
        handler = here.engine._queues._handlers["WorkStarted"]
        here.engine._queues._retry = here.engine._queues._retry.__class__(base=0.001, jitter=0, max_attempts=3)

        async def broken(step: object, news: object, made: object = None) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(handler, "handle", broken)
        workflow_id = await created(here.parts, work("ship", "push"))
        await start_workflow(here.parts, workflow_id)
        while not await here.parts.store.bus.dead(STREAM):
            await asyncio.sleep(0.01)
        workflow, _ = await here.read(workflow_id)
        (dead,) = await here.parts.store.bus.dead(STREAM)
        assert (dead.envelope.type, dead.attempts) == ("WorkStarted", 3)
        assert workflow.status is WorkflowStatus.PAUSED
        assert workflow.reason == "WorkStarted could not be handled: a bug"
        monkeypatch.undo()
        await resume_workflow(here.parts, workflow_id)  # what was dead does not hold up the rest any more
        await here.engine.idle()
        assert (await here.read(workflow_id))[0].status is WorkflowStatus.COMPLETED
