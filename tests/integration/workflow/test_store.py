"""The store of workflows, on SQLite and on PostgreSQL: state and events in one transaction."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kingdom.workflow.domain.events import GitDeleted, WorkflowCreated, WorkflowStarted
from kingdom.workflow.domain.resources import Checkpoint, Committed, Git, GitRef, McpServer, McpServerRef, WorkTree
from kingdom.workflow.domain.statuses import TaskStatus, WorkStatus, WorkTreeStatus
from kingdom.workflow.domain.work import Task, Work
from kingdom.workflow.domain.workflow import TaskDefinition, WorkDefinition, Workflow, WorkflowTemplate
from kingdom.workflow.errors import NotFound
from kingdom.workflow.ports import RecordedEvent
from kingdom.workflow.store import ConcurrentChange, StoreError, open_store
from kingdom.workflow.store.database import DatabaseStore
from kingdom.workflow.store.transactions import STREAM, WorkflowTransaction

NOW = datetime(2026, 2, 7, 10, 0, 0, 123000, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite://{tmp_path}/home/workflows.db"


@pytest.fixture
async def store(url: str) -> AsyncIterator[DatabaseStore]:
    async with open_store(url, lambda: NOW) as opened:
        assert await opened.setup()
        yield opened


def workflow(number: int = 1) -> Workflow:
    return Workflow(
        f"wf-{number:03}", "fix it", NOW, git_refs=(GitRef("git-1", "main"),), variables={"issue": {"n": 1}}
    )


def started(workflow_id: str) -> RecordedEvent:
    return RecordedEvent(WorkflowStarted(workflow_id), "Workflow", workflow_id)


async def test_setting_up_twice_changes_nothing(store: DatabaseStore) -> None:
    assert await store.setup() == []


async def test_every_aggregate_comes_back_as_it_was(store: DatabaseStore) -> None:
    refs = (McpServerRef("mcp-1", {"TOKEN": "${TOKEN}"}),)
    definition = WorkDefinition("one", (TaskDefinition("look", "look", ("Findings",)),), mcp_server_refs=refs)
    whole = workflow()
    whole.work_changed("work-1", WorkStatus.RUNNING)
    whole.work_tree_changed("git-1", WorkTreeStatus.READY)
    part = Work("work-1", whole.id, 0, "one", [Task("task-1", 0, "look", "look", ("Findings",))], mcp_server_refs=refs)
    part.start()
    part.tasks[0].send()
    git = Git("git-1", "backend", {whole.id}, url="https://example.org/backend.git")
    point = Checkpoint("cp-1", whole.id, part.id, 0, 1, NOW)
    point.finish({"git-1": Committed("a" * 40, "b" * 40)}, 1)
    async with store.transaction() as tx:
        await tx.gits.save(git)
        await tx.mcp_servers.save(McpServer("mcp-1", "docs", command=("docs", "--stdio"), env={"A": "b"}))
        await tx.templates.save(WorkflowTemplate("tpl-1", "fix", (definition,), mcp_server_refs=refs))
        await tx.workflows.save(whole)
        await tx.works.save(part)
        await tx.checkpoints.save(point)
        await tx.work_trees.save(WorkTree("wt-1", whole.id, "git-1"))
    async with store.transaction() as tx:
        assert await tx.gits.get("git-1") == git
        assert (await tx.mcp_servers.get("mcp-1")).command == ("docs", "--stdio")
        assert (await tx.templates.get("tpl-1")).works == (definition,)
        assert await tx.workflows.get(whole.id) == whole
        assert await tx.works.of_workflow(whole.id) == [part]
        assert await tx.checkpoints.of_workflow(whole.id) == [point]
        assert (await tx.work_trees.of_workflow(whole.id))[0].status is WorkTreeStatus.CREATING
        assert await tx.works.with_status("RUNNING", "PAUSED") == [part]


async def test_a_step_reads_few_tasks_of_a_work_and_leaves_the_others_as_they_are(store: DatabaseStore) -> None:
    tasks = [Task(f"task-{number}", number, f"t{number}", "do it") for number in range(9)]
    async with store.transaction() as tx:
        await tx.works.save(Work("work-1", "wf-1", 0, "one", tasks))
    async with store.transaction() as tx:
        part = await tx.works.find_at_work("work-1", "task-7")
        assert part is not None
        assert [task.id for task in part.tasks] == ["task-0", "task-1", "task-7"]
        for number in range(6):  # one after the other, further than was read
            task = await tx.works.next_task(part)
            assert task is not None
            assert task.id == f"task-{number}"
            task.send()
            task.respond("done")
            task.complete()
        part.task("task-7").name = "changed"
        await tx.works.save(part)
        (whole,) = await tx.works.of_workflow("wf-1")
        assert whole is part, "one object within a transaction, with what it was changed to"
        assert [task.id for task in whole.tasks] == [f"task-{number}" for number in range(9)]
    async with store.reading() as tx:
        stored = await tx.works.get("work-1")
        assert [task.status for task in stored.tasks] == [TaskStatus.COMPLETED] * 6 + [TaskStatus.PENDING] * 3
        assert [task.name for task in stored.tasks] == ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "changed", "t8"]


async def test_tasks_that_are_taken_out_are_gone_and_deleting_a_work_deletes_its_tasks(store: DatabaseStore) -> None:
    async with store.transaction() as tx:
        await tx.works.save(Work("work-1", "wf-1", 0, "one", [Task(f"task-{n}", n, "t", "q") for n in range(3)]))
    async with store.transaction() as tx:
        mine = await tx.works.get("work-1")
        del mine.tasks[1]
        await tx.works.save(mine)
    async with store.transaction() as tx:
        left = await tx.works.get("work-1")
        assert [task.id for task in left.tasks] == ["task-0", "task-2"]
    left.tasks.pop()
    async with store.transaction() as tx:
        await tx.works.save(left)  # another transaction read it
        assert [task.id for task in (await tx.works.of_workflow("wf-1"))[0].tasks] == ["task-0"]
        await tx.works.delete("work-1")
    async with store.session(readonly=True) as session:
        assert not await session.fetch("SELECT 1 FROM wf_task")


async def test_what_is_not_there_is_not_found(store: DatabaseStore) -> None:
    async with store.transaction() as tx:
        assert await tx.workflows.find("wf-9") is None
        await tx.workflows.delete("wf-9")
        with pytest.raises(NotFound, match="there is no workflow wf-9"):
            await tx.workflows.get("wf-9")


async def test_a_transaction_that_raises_leaves_no_trace(store: DatabaseStore) -> None:
    async def fail() -> None:
        async with store.transaction() as tx:
            await tx.workflows.save(workflow())
            tx.record(started("wf-001"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with store.transaction() as tx:
        assert await tx.workflows.list() == []
    assert await store.events(None, 0, 10) == []
    assert (await store.bus.depth())[STREAM].pending == 0


async def test_whoever_read_before_another_wrote_cannot_write(store: DatabaseStore) -> None:
    async with store.transaction() as tx:
        await tx.workflows.save(workflow())
        with pytest.raises(ConcurrentChange, match="workflow wf-001 was changed"):
            await tx.workflows.save(workflow())
    async with store.transaction() as tx:
        mine = await tx.workflows.get("wf-001")
    async with store.transaction() as tx:
        theirs = await tx.workflows.get("wf-001")
        theirs.prepare()
        await tx.workflows.save(theirs)
    mine.cancel()
    with pytest.raises(ConcurrentChange):
        async with store.transaction() as tx:
            await tx.workflows.save(mine)
    async with store.transaction() as tx:
        assert await tx.workflows.get("wf-001") == theirs


async def test_what_is_saved_more_than_once_is_written_once_and_seen_at_once(store: DatabaseStore) -> None:
    async with store.transaction() as tx:
        await tx.workflows.save(workflow())
    async with store.transaction() as tx:
        mine = await tx.workflows.get("wf-001")
        mine.prepare()
        await tx.workflows.save(mine)
        assert await tx.workflows.with_status("PREPARING") == [mine]
        mine.ready()
        await tx.workflows.save(mine)
        mine.start()
        await tx.workflows.save(mine)
        assert mine.version == 3, "what was read in between, and the rest"
    async with store.transaction() as tx:
        assert await tx.workflows.get("wf-001") == mine
        assert await tx.workflows.with_status("PREPARING", "READY") == []


@pytest.mark.parametrize("reads", [False, True])
async def test_a_part_that_raises_is_taken_back_and_nothing_else(store: DatabaseStore, *, reads: bool) -> None:
    async with store.transaction() as tx:
        await tx.workflows.save(workflow())

    async def act(tx: WorkflowTransaction) -> None:
        found = await tx.workflows.get("wf-001")
        found.ready()
        await tx.workflows.save(found)
        tx.record(started("wf-001"))
        if reads:
            assert await tx.workflows.with_status("READY") == [found]
            await tx.workflows.save(workflow(2))
        raise ZeroDivisionError

    async with store.transaction() as tx:
        mine = await tx.workflows.get("wf-001")
        mine.prepare()
        await tx.workflows.save(mine)
        assert isinstance(await tx.run_or_undo(lambda: act(tx)), ZeroDivisionError)
        assert (await tx.workflows.get("wf-001")).status == "PREPARING"
    async with store.transaction() as tx:
        assert [(item.id, item.status, item.version) for item in await tx.workflows.list()] == [
            ("wf-001", "PREPARING", 2)
        ]
    assert await store.events(None, 0, 10) == []


async def test_pages_go_from_the_newest_to_the_oldest(store: DatabaseStore) -> None:
    async with store.transaction() as tx:
        for number in range(5):
            await tx.workflows.save(workflow(number))
        first = await tx.workflows.list(limit=2)
        rest = await tx.workflows.list(limit=9, after=first[-1].id)
    assert [item.id for item in first + rest] == ["wf-004", "wf-003", "wf-002", "wf-001", "wf-000"]


async def test_events_are_numbered_kept_and_published_with_the_commit(store: DatabaseStore) -> None:
    async with store.transaction() as tx:
        tx.record(
            RecordedEvent(GitDeleted("git-1"), "Git", "git-1"),
            RecordedEvent(WorkflowCreated("wf-001"), "Workflow", "wf-001"),
            RecordedEvent(WorkflowStarted("wf-001"), "Workflow", "wf-001", attempt=3),
        )
    seen = await store.events(None, 0, 10)
    assert [(item.position, item.workflow_id, item.sequence, item.type) for item in seen] == [
        (1, "git-1", 1, "GitDeleted"),
        (2, "wf-001", 1, "WorkflowCreated"),
        (3, "wf-001", 2, "WorkflowStarted"),
    ]
    assert seen[2].payload == {"workflowId": "wf-001"}
    assert seen[2].occurred_at == NOW
    assert [item.sequence for item in await store.events("wf-001", 1, 10)] == [2]
    held = await store.bus.claim(STREAM, worker="w", limit=10)
    assert [item.envelope.type for item in held] == ["GitDeleted", "WorkflowStarted"]  # what a handler waits for
    assert held[1].envelope.attributes == {"sequence": 2, "attempt": 3}


async def test_an_engine_in_the_same_process_is_told_what_a_commit_published(store: DatabaseStore) -> None:
    told: list[str] = []
    undo = store.on_publish(lambda envelopes: told.extend(envelope.event_id for envelope in envelopes))
    async with store.transaction() as tx:
        tx.record(RecordedEvent(WorkflowCreated("wf-001"), "Workflow", "wf-001"), started("wf-001"))
        assert told == []
    (event_id,) = told
    undo()
    async with store.transaction() as tx:
        assert await tx.consume(event_id)
        assert not await tx.consume(event_id)
        tx.record(started("wf-001"))
    assert told == [event_id]
    assert (await store.bus.depth())[STREAM].pending == 1


async def test_numbers_have_no_gap_and_no_reordering_whatever_runs_at_once(store: DatabaseStore) -> None:
    taken = workflow()
    async with store.transaction() as tx:
        await tx.workflows.save(workflow())

    async def write(number: int) -> None:
        for _ in range(5):
            with contextlib.suppress(ConcurrentChange):
                async with store.transaction() as tx:
                    tx.record(started(f"wf-{number % 3}"), started("wf-all"))
                    if number % 4 == 0:
                        await tx.workflows.save(taken)  # which somebody else has changed

    await asyncio.gather(*(write(number) for number in range(12)))
    everything = await store.events(None, 0, 1000)
    assert [item.position for item in everything] == list(range(1, 91))
    for name in ("wf-0", "wf-1", "wf-2", "wf-all"):
        numbers = [item.sequence for item in everything if item.workflow_id == name]
        assert numbers == list(range(1, len(numbers) + 1))


async def test_a_store_of_a_newer_version_is_left_alone(store: DatabaseStore) -> None:
    async with store.session() as session:
        await session.fetch("UPDATE wf_counter SET last = 99 WHERE name = 'schema'")
    with pytest.raises(StoreError, match="version 99 of its tables"):
        await store.setup()


async def test_a_url_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=re.escape("sqlite:///file.db or postgresql://…, not files:")):
        open_store(f"files://{tmp_path}", lambda: NOW)
    (tmp_path / "text.db").write_text("this is no database, only a few words that are longer than its header" * 3)
    with pytest.raises(Exception, match=r"text\.db"):
        async with open_store(f"sqlite://{tmp_path}/text.db", lambda: NOW):
            pass


async def test_who_only_looks_holds_nobody_up(store: DatabaseStore) -> None:
    async with store.transaction() as tx:
        await tx.workflows.save(workflow(1))
    async with open_store(store.url, lambda: NOW) as other:
        async with other.reading() as seen:
            assert [found.id for found in await seen.workflows.list()] == ["wf-001"]
            async with store.transaction() as tx:
                await tx.workflows.save(workflow(2))
        async with other.reading() as seen:
            assert [found.id for found in await seen.workflows.list()] == ["wf-002", "wf-001"]
