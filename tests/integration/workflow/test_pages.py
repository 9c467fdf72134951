"""Pages of workflows, by state and by words, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from kingdom.web.envelope import cursor_of
from kingdom.web.views.workflow_order import ColumnOrder, ProgressCache, sorted_page
from kingdom.web.views.workflow_state import SummaryCache
from kingdom.workflow.agent_records import WorkflowCost
from kingdom.workflow.context import TimeOrderedIds, id_at
from kingdom.workflow.domain.events import CheckpointCreated, WorkCompleted
from kingdom.workflow.domain.resources import Checkpoint, Git, McpServer
from kingdom.workflow.domain.statuses import WorkflowStatus, WorkStatus
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import Workflow
from kingdom.workflow.errors import NameTaken
from kingdom.workflow.ports import RecordedEvent
from kingdom.workflow.store import open_store
from kingdom.workflow.store.database import DatabaseStore
from kingdom.workflow.usecases.resources import checkpoint_counter
from tests.support.workflow_stores import go_back_to_version

NOW = datetime(2026, 2, 7, 10, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite://{tmp_path}/workflows.db"


@pytest.fixture
async def store(url: str) -> AsyncIterator[DatabaseStore]:
    async with open_store(url, lambda: NOW) as opened:
        await opened.setup()
        async with opened.transaction() as tx:
            for number in range(1, 7):
                made = Workflow(f"wf-{number}", f"Fix {number}%", NOW, issue_key=f"WEB-{number}")
                made.status = WorkflowStatus.PAUSED if number % 2 else WorkflowStatus.CREATED
                await tx.workflows.save(made)
            await tx.workflows.save(Workflow("wf-7", "한국어 Übersetzung_x", NOW))
        yield opened


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, "7654321"),
        ({"limit": 2}, "76"),
        ({"after": "wf-3"}, "21"),
        ({"statuses": ["PAUSED"]}, "531"),
        ({"statuses": ["PAUSED", "CREATED"], "after": "wf-6", "limit": 3}, "543"),
        ({"search": "fix"}, "654321"),
        ({"search": "wEb-2"}, "2"),
        ({"search": "3%"}, "3"),
        ({"search": "%3"}, ""),
        ({"search": "_"}, "7"),
        ({"search": "한국"}, "7"),
        ({"search": "fix", "statuses": ["CREATED"], "after": "wf-6", "limit": 1}, "4"),
        ({"oldest_first": True, "limit": 3}, "123"),
        ({"oldest_first": True, "after": "wf-3", "statuses": ["PAUSED"]}, "5"),
        ({"first": "wf-3", "end": "wf-6"}, "543"),
        ({"first": "wf-3", "end": "wf-6", "after": "wf-5"}, "43"),
        ({"first": "wf-3", "oldest_first": True, "after": "wf-5"}, "67"),
    ],
)
async def test_a_page_has_what_was_asked_for_in_the_order_of_creation(
    store: DatabaseStore, asked: dict[str, object], found: str
) -> None:
    async with store.reading() as tx:
        page = await tx.workflows.versions(**asked)  # type: ignore[arg-type]
    assert "".join(item_id[-1] for item_id, _ in page) == found


@pytest.mark.parametrize(
    ("order", "found"),
    [("name", "1234567"), ("issue", "1234567"), ("status", "7642531"), ("cost", "2537641"), ("progress", "4376521")],
)
async def test_workflows_are_sorted_by_a_column_and_then_the_newest_first(
    store: DatabaseStore, order: ColumnOrder, found: str
) -> None:
    async with store.transaction() as tx:
        for number, done in ((3, 1), (4, 2)):
            for place in range(2):
                work = Work(f"work-{number}-{place}", f"wf-{number}", place, f"w{place}", [])
                work.status = WorkStatus.COMPLETED if place < done else WorkStatus.PENDING
                await tx.works.save(work)
    spent = {"wf-2": WorkflowCost(cost_usd=3.0), "wf-5": WorkflowCost(cost_usd=2.0), "wf-3": WorkflowCost(cost_usd=2.0)}
    async with store.reading() as tx:
        read = partial(sorted_page, tx, order, spent, ProgressCache())
        entries = await read()
        paused = await read(statuses=["PAUSED"], search="fix")
        versions = await tx.workflows.versions_of([item_id for _, item_id in entries])
        for start in range(len(entries)):  # each entry as the last of a page
            assert await read(cursor=cursor_of(entries[start]), limit=2) == entries[start + 1 : start + 3]
    assert "".join(item_id[-1] for _, item_id in entries) == found
    assert [item_id for item_id, _ in versions] == [item_id for _, item_id in entries]
    assert {item_id for _, item_id in paused} == {"wf-1", "wf-3", "wf-5"}
    async with store.transaction() as tx:
        await tx.workflows.delete("wf-3")
    async with store.reading() as tx:
        read = partial(sorted_page, tx, order, spent, ProgressCache())
        gone = next(one for one in entries if one[1] == "wf-3")
        rest = await read(cursor=cursor_of(gone))
    assert "".join(item_id[-1] for _, item_id in rest) == found[found.index("3") + 1 :]


async def test_progress_is_read_again_for_workflows_with_new_events(store: DatabaseStore) -> None:
    cache = ProgressCache()
    async with store.transaction() as tx:
        for number in (1, 2):
            await tx.works.save(Work(f"work-{number}", f"wf-{number}", 0, "w", []))
    async with store.reading() as tx:
        assert await cache.read(tx) == {"wf-1": 0.0, "wf-2": 0.0}
    async with store.transaction() as tx:
        work = await tx.works.get("work-2")
        work.status = WorkStatus.COMPLETED
        await tx.works.save(work)
        tx.record(RecordedEvent(WorkCompleted("work-2", "wf-2"), "Workflow", "wf-2"))
    async with store.reading() as tx:
        assert await cache.read(tx) == {"wf-1": 0.0, "wf-2": 1.0}


async def test_names_of_a_version_without_an_index_become_unique(store: DatabaseStore) -> None:
    async with store.transaction() as tx:
        for number, name in enumerate(("app", "lib"), 1):
            await tx.gits.save(Git(f"git-{number}", name, url=f"https://example.org/{name}.git"))
        await tx.mcp_servers.save(McpServer("mcp-1", "app", url="https://example.org/mcp"))
    await go_back_to_version(store, 3)
    async with store.session() as session:  # two that were registered in the same moment
        copied = "INSERT INTO wf_git (id, rank, version, body) SELECT 'git-9', rank, version, body FROM wf_git"
        await session.fetch(f"{copied} WHERE id = 'git-1'")
    assert (await store.setup())[0] == "004_names"
    async with store.reading() as tx:
        assert await tx.gits.ids_by_name() == {"app": "git-1", "lib": "git-2"}
        assert await tx.mcp_servers.ids_by_name() == {"app": "mcp-1"}
    with pytest.raises(NameTaken):
        async with store.transaction() as tx:
            await tx.gits.save(Git("git-10", "lib", url="https://example.org/another.git"))


async def test_checkpoints_of_a_version_without_numbers_are_counted_as_they_were_made(store: DatabaseStore) -> None:
    made = ["cp-9", "cp-5", "cp-7"]  # the clock was set back in between
    async with store.transaction() as tx:
        for number, point_id in enumerate(["cp-1", *made]):
            point = Checkpoint(point_id, "wf-1", f"work-{number}", number, 1, NOW)
            point.finish({}, 0)
            await tx.checkpoints.save(point)
        await tx.checkpoints.save(Checkpoint("cp-8", "wf-1", "work-9", 9, 1, NOW))
        for point_id in made:  # cp-1 came with a fork, and nothing was told of it
            tx.record(RecordedEvent(CheckpointCreated(point_id, "wf-1", "work-1"), "Workflow", "wf-1"))
    await go_back_to_version(store, 4)
    assert (await store.setup())[0] == "005_checkpoint_numbers"
    async with store.transaction() as tx:
        points = await tx.checkpoints.of_workflow("wf-1")
        assert {point.id: point.number for point in points} == {"cp-1": 1, "cp-9": 2, "cp-5": 3, "cp-7": 4, "cp-8": 0}
        assert await tx.count(checkpoint_counter("wf-1")) == 5
        assert await tx.count(checkpoint_counter("wf-2")) == 1


async def test_of_two_that_take_a_name_at_once_one_is_refused(store: DatabaseStore) -> None:
    async def register(number: int) -> None:
        async with store.transaction() as tx:
            await tx.gits.save(Git(f"git-{number}", "app", url=f"https://example.org/{number}.git"))

    outcomes = await asyncio.gather(*map(register, range(5)), return_exceptions=True)
    assert [outcome for outcome in outcomes if outcome is None] == [None]
    assert all(outcome is None or isinstance(outcome, NameTaken) for outcome in outcomes)


async def test_rows_of_a_version_that_had_no_labels_are_found_too(store: DatabaseStore) -> None:
    await go_back_to_version(store, 2)
    assert (await store.setup())[0] == "003_labels"
    async with store.reading() as tx:
        assert [item_id for item_id, _ in await tx.workflows.versions(search="web-4")] == ["wf-4"]


async def test_what_a_list_tells_follows_every_change_and_reads_only_what_changed(store: DatabaseStore) -> None:
    summaries, read = SummaryCache(), []

    async def listed() -> list[tuple[str, str]]:
        async with store.reading() as tx:
            versions = await tx.workflows.versions(limit=3)
            before = await summaries.of(tx, versions)
            read.append(len(tx.workflows._loaded))  # type: ignore[attr-defined]
            return [(told.facts["id"], told.facts["status"]) for told in before]

    assert await listed() == [("wf-7", "CREATED"), ("wf-6", "CREATED"), ("wf-5", "PAUSED")]
    async with store.transaction() as tx:
        changed = await tx.workflows.get("wf-6")
        changed.status = WorkflowStatus.FAILED
        await tx.workflows.save(changed)
        await tx.workflows.delete("wf-7")
    assert await listed() == [("wf-6", "FAILED"), ("wf-5", "PAUSED"), ("wf-4", "CREATED")]
    assert await listed() == [("wf-6", "FAILED"), ("wf-5", "PAUSED"), ("wf-4", "CREATED")]
    assert read == [3, 2, 0]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_search_looks_through_an_index_only(store: DatabaseStore) -> None:
    statement = "SELECT id FROM wf_workflow WHERE label LIKE ? ESCAPE '!' AND id < ? ORDER BY id DESC LIMIT 5"
    async with store.session(readonly=True) as session:
        plan = json.dumps([list(row) for row in await session.fetch(f"EXPLAIN QUERY PLAN {statement}", "%x%", "wf")])
    assert "USING COVERING INDEX wf_workflow_by_label" in plan
    assert "TEMP B-TREE" not in plan


def test_ids_are_found_by_the_time_at_which_they_were_made() -> None:
    before = time.time()
    made = TimeOrderedIds().new("wf")
    assert id_at("wf", before - 1) < made < id_at("wf", time.time() + 1)
    assert id_at("wf", -5) == "wf-00000000-0000"
