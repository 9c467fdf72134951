"""The index of a queue: it always tells what lies in the directories, however many documents there are."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kingdom.court import document_index
from kingdom.court.bootstrap import open_services
from kingdom.court.document_index import DocumentIndex, IndexEntry
from kingdom.court.document_order import SortOrder, sort_entries
from kingdom.court.home import MARKER, Home
from kingdom.court.loop import Services
from kingdom.court.models import Task
from kingdom.court.queues import TASKS, put_documents
from kingdom.web.envelope import ApiError
from kingdom.web.views.documents import DocumentFilter, list_tasks
from tests.support.web import web_app

BEGAN = datetime(2026, 2, 7, tzinfo=UTC)
MANY = 10_000
STATUSES = ("completed", "failed", "needs_human")


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Services]:
    home = Home(tmp_path)
    home.config.mkdir()
    (tmp_path / MARKER).write_text("")
    async with open_services(home) as services:
        yield services


def document(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"task-20260207-{number:05}",
        "event_id": f"evt-github-{number}",
        "target_general": ("gen-pr", "gen-jira")[number % 2],
        "type": ("github.pr.opened", "jira.ticket.assigned")[number % 2],
        "payload": {"title": f"Change {number}", "pr_number": number + 1, "repo": "acme/shop"},
        "priority": "normal",
        "created_at": (BEGAN + timedelta(seconds=number)).isoformat(),
        "status": "pending",
        **more,
    }


def drop(folder: Path, **fields: Any) -> None:
    path = folder / f"{fields['id']}.json"
    path.write_text(json.dumps(fields))


async def listed(index: DocumentIndex) -> list[tuple[str, str]]:
    return [(entry.id, entry.fields["status"]) for entry in await index.newest()]


async def test_it_follows_what_is_published_claimed_and_settled(services: Services) -> None:
    index = DocumentIndex(services, TASKS, fresh_factor=0)
    assert await listed(index) == []
    await put_documents(services.bus, [Task.model_validate(document(number)) for number in range(3)])
    ids = [document(number)["id"] for number in range(3)]
    assert await listed(index) == [(ids[2], "pending"), (ids[1], "pending"), (ids[0], "pending")]
    held = await services.bus.claim(TASKS, worker="gen-pr", ids=ids[:2])
    assert await listed(index) == [(ids[2], "pending"), (ids[1], "in_progress"), (ids[0], "in_progress")]
    by_id = {delivery.event_id: delivery for delivery in held}
    await services.bus.settle(done=[(by_id[ids[0]], "failed")], dead=[(by_id[ids[1]], "INVALID", "no good")])
    assert await listed(index) == [(ids[2], "pending"), (ids[1], "invalid"), (ids[0], "failed")]
    page = await index.page(None, 10)
    assert ([entry.id for entry in page.items], page.total) == ([ids[2], ids[0]], 2)
    (services.home.queue / TASKS / "completed" / f"{ids[0]}.json").unlink()
    assert await listed(index) == [(ids[2], "pending"), (ids[1], "invalid")]


async def test_a_file_is_read_once_and_again_when_it_is_replaced(services: Services) -> None:
    folder = services.home.queue / TASKS / "completed"
    drop(folder, **document(1, status="completed"))
    index = DocumentIndex(services, TASKS, fresh_factor=0)
    (first,) = await index.newest()
    drop(folder, **document(2, status="completed"))
    assert await listed(index) == [(document(2)["id"], "completed"), (document(1)["id"], "completed")]
    assert (await index.get(first.id)) is first
    replacement = folder / ".tmp-new"
    replacement.write_text(json.dumps(document(1, status="failed")))
    os.replace(replacement, folder / f"{first.id}.json")
    assert await listed(index) == [(document(2)["id"], "completed"), (document(1)["id"], "failed")]


async def test_a_list_shows_what_was_written_before_it_was_asked_for_during_a_scan(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = services.home.queue / TASKS / "completed"
    index = DocumentIndex(services, TASKS, fresh_factor=1e9)
    scanned, written = threading.Event(), threading.Event()
    scan = DocumentIndex._scan_directories

    def slow_scan(self: DocumentIndex) -> bool:
        found = scan(self)
        scanned.set()
        written.wait(30)
        return found

    monkeypatch.setattr(DocumentIndex, "_scan_directories", slow_scan)
    first = asyncio.create_task(listed(index))
    await asyncio.to_thread(scanned.wait, 30)
    drop(folder, **document(1, status="completed"))
    second = asyncio.create_task(listed(index))
    await asyncio.sleep(0)  # it waits for the first now
    written.set()
    assert (await first, await second) == ([], [(document(1)["id"], "completed")])


async def test_documents_of_any_kind_do_no_harm(services: Services) -> None:
    folder = services.home.queue / TASKS / "completed"
    (folder / "task-20260207-001.json").write_text("{torn")
    (folder / "task-20260207-002.json").write_text('{"id": 7, "payload": [1], "created_at": {}, "status": ["x"]}')
    (folder / "task-20260207-003.json").write_text('{"id": "task-20260207-003", "type": "\\ud800", "number": NaN}')
    (folder / "task-20260207-004.json").write_text("[" * 100_000)
    (folder / "notes.txt").write_text("mine")
    async with web_app(services.home.root, court=False) as (context, _, client):
        assert (await list_tasks(context)).total == 4
        answer = await client.get("/api/tasks")
        assert (answer.status_code, len(answer.json()["data"]["items"])) == (200, 4)


@pytest.mark.walk
async def test_ten_thousand_tasks_are_paged_filtered_and_searched(services: Services) -> None:
    folder = services.home.queue / TASKS / "completed"
    for number in range(MANY):
        drop(folder, **document(number, status=STATUSES[number % 3]))
    async with web_app(services.home.root, court=False) as (context, _, client):
        seen: list[str] = []
        cursor = None
        while True:
            page = await list_tasks(context, None, 100, cursor)
            seen += [one.id for one in page.items]
            assert page.total == MANY
            if page.next_cursor is None:
                break
            cursor = page.next_cursor
        assert seen == [document(number)["id"] for number in reversed(range(MANY))]

        async def count(**wanted: Any) -> int:
            return (await list_tasks(context, DocumentFilter(**wanted), 1)).total

        assert await count(general="gen-pr") == MANY // 2
        assert await count(type="jira.*") == MANY // 2
        assert await count(status="failed", general="gen-jira") == sum(n % 3 == 1 and n % 2 for n in range(MANY))
        assert await count(since=BEGAN + timedelta(seconds=MANY - 10)) == 10
        assert await count(until=BEGAN + timedelta(seconds=7)) == 7
        assert await count(text="EVT-github-1234 acme/SHOP") == 1
        answer = await client.get(
            "/api/tasks", params={"q": "change 9999", "general": "gen-jira", "status": "completed"}
        )
        assert [one["subject"] for one in answer.json()["data"]["items"]] == ["acme/shop#10000"]

        # What comes while somebody pages is found on the first page, and moves nothing on the others.
        first = await list_tasks(context, None, 50)
        drop(folder, **document(MANY, status="completed"))
        second = await list_tasks(context, None, 50, first.next_cursor)
        assert [one.id for one in second.items] == [document(n)["id"] for n in range(MANY - 51, MANY - 101, -1)]


@pytest.mark.parametrize("sort", ["newest", "oldest", "status", "type", "general"])
async def test_a_list_in_any_order_has_each_task_once_on_its_pages(services: Services, sort: Any) -> None:
    folder = services.home.queue / TASKS / "completed"
    for number in range(200):
        drop(folder, **document(number, status=STATUSES[number % 3]))
    async with web_app(services.home.root, court=False) as (context, _, client):
        seen: list[Any] = []
        cursor = None
        while True:
            page = await list_tasks(context, DocumentFilter(sort=sort), 30, cursor)
            seen += page.items
            if page.next_cursor is None:
                break
            cursor = page.next_cursor
            drop(folder, **document(1000 + len(seen), status="completed"))  # what comes meanwhile moves nothing
        field = {"general": "target_general"}.get(sort, sort)
        old = [one for one in seen if int(one.id.rpartition("-")[2]) < 1000]
        values = ["" if field in ("newest", "oldest") else getattr(one, field) for one in old]
        numbers = [one.created_at for one in old]
        order = sorted(range(len(old)), key=lambda at: numbers[at], reverse=sort != "oldest")
        order.sort(key=lambda at: values[at])
        assert order == list(range(200)), "by the field, then by time"
        assert len({one.id for one in seen}) == len(seen)
        answer = await client.get("/api/tasks", params={"sort": sort, "limit": "1"})
        assert answer.json()["data"]["items"][0]["id"]
        assert (await client.get("/api/tasks", params={"sort": "colour"})).status_code == 422


async def test_a_cursor_that_is_not_ours_is_refused(services: Services) -> None:
    async with web_app(services.home.root, court=False) as (context, _, client):
        for cursor in ("WzFd", "bm9uc2Vuc2U", "IjEi", "é"):
            assert (await client.get("/api/tasks", params={"cursor": cursor})).status_code == 422
        with pytest.raises(ApiError, match="invalid cursor"):
            await list_tasks(context, None, 10, "WzFd")


async def test_where_queues_are_not_files_they_are_listed_as_well(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.config.mkdir()
    (tmp_path / MARKER).write_text(f"queue: {{transport: 'sqlite:///{tmp_path}/bus.db'}}\n")
    async with open_services(home) as services:
        await put_documents(services.bus, [Task.model_validate(document(number)) for number in range(3)])
        page = await DocumentIndex(services, TASKS).page(None, 10, text="evt-github-2")
        assert [entry.id for entry in page.items] == [document(2)["id"]]


async def test_an_order_is_made_once_and_again_after_a_change(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = services.home.queue / TASKS / "completed"
    for number in range(6):
        drop(folder, **document(number, status=STATUSES[number % 3]))
    sorted_lists = []

    def counted(entries: list[IndexEntry], order: SortOrder) -> list[IndexEntry]:
        sorted_lists.append(order)
        return sort_entries(entries, order)

    monkeypatch.setattr(document_index, "sort_entries", counted)
    index = DocumentIndex(services, TASKS, fresh_factor=0)
    for _ in range(2):
        found = await index.page(None, 10, order="general")
        assert [entry.id[-1] for entry in found.items] == ["5", "3", "1", "4", "2", "0"]
        failed = await index.page(
            [lambda entries: [one for one in entries if one.status == "failed"]], 10, None, "type"
        )
        assert [entry.id[-1] for entry in failed.items] == ["4", "1"]
    assert sorted_lists == ["general", "type"]
    drop(folder, **document(7, status="failed"))
    found = await index.page(None, 2, order="general")
    assert [entry.id[-1] for entry in found.items] == ["7", "5"]
    assert sorted_lists == ["general", "type", "general"]


class Searches:
    """Searches an index, and looks through all of its entries for comparison."""

    def __init__(self, index: DocumentIndex) -> None:
        self.index = index

    async def check(self, text: str, **more: Any) -> list[str]:
        page = await self.index.page(None, 100, text=text, **more)
        entries = sort_entries([one for one in await self.index.newest() if one.state != "invalid"], **more or NEWEST)
        expected = [one.id for one in entries if all(word in one.words for word in text.casefold().split())]
        assert ([one.id for one in page.items], page.total) == (expected, len(expected))
        return [one[-2:] for one in expected]

    async def until_indexed(self) -> None:
        assert self.index._indexing is not None
        await self.index._indexing


NEWEST: dict[str, Any] = {"order": "newest"}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have few entries treated as many."""
    monkeypatch.setattr(document_index, "_MAX_INLINE_ENTRIES", 10)


@pytest.mark.usefixtures("few")
async def test_a_search_of_very_many_documents_finds_the_same_with_an_index_of_their_texts(services: Services) -> None:
    folder = services.home.queue / TASKS / "completed"
    for number in range(40):
        drop(folder, **document(number, status=STATUSES[number % 3]))
    searches = Searches(DocumentIndex(services, TASKS, fresh_factor=0))
    assert await searches.check("change github-12") == ["12"], "looks through all of them"
    drop(folder, **document(91, status="completed"))  # comes while the texts are indexed
    await searches.index.newest()
    await searches.until_indexed()
    assert await searches.check("Change GitHub-12") == ["12"]
    assert await searches.check("change github-91") == ["91"]
    assert await searches.check("GITHUB.pr evt-github-3") == ["38", "36", "34", "32", "30"]
    assert await searches.check("github.pr evt-github-3", order="oldest") == ["30", "32", "34", "36", "38"]
    assert await searches.check("failed evt-github-3", order="general") == ["37", "31", "34"]
    assert await searches.check("nowhere") == []
    assert len(await searches.check("change")) == 41, "more than are worth an index"
    failed = await searches.index.page(
        [lambda entries: [one for one in entries if one.status == "failed"]], 2, None, "oldest", "evt-github-2"
    )
    assert ([one.id[-2:] for one in failed.items], failed.total, failed.more) == (["22", "25"], 3, True)


@pytest.mark.usefixtures("few")
async def test_the_index_of_texts_follows_what_comes_changes_and_goes(services: Services) -> None:
    folder = services.home.queue / TASKS / "completed"
    for number in range(20):
        drop(folder, **document(number, status="completed"))
    searches = Searches(DocumentIndex(services, TASKS, fresh_factor=0))
    await searches.check("first")
    await searches.until_indexed()
    await put_documents(services.bus, [Task.model_validate(document(50))])
    assert await searches.check("pending 50") == ["50"]
    held = await services.bus.claim(TASKS, worker="gen-pr")
    assert await searches.check("pending 50") == []
    assert await searches.check("in_progress 50") == ["50"]
    await services.bus.settle(dead=[(held[0], "INVALID", "no good")])
    assert await searches.check("github-50") == []
    (folder / f"{document(7)['id']}.json").unlink()
    assert await searches.check("github-7") == []
    for change in range(70):  # texts of the past are dropped from time to time
        (folder / ".new").write_text(json.dumps(document(3, note=f"version{change}")))
        os.replace(folder / ".new", folder / f"{document(3)['id']}.json")
        assert await searches.check(f"version{change}") == ["03"]
    await searches.until_indexed()
    assert await searches.check("github-3") == ["03"]
    assert searches.index._texts is not None
    assert searches.index._texts.texts < 70


@pytest.mark.usefixtures("few")
async def test_the_index_of_texts_outlasts_a_reload_from_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_index, "_FULL_RELOAD_SECONDS", 0.0)
    monkeypatch.setattr(document_index, "_DATABASE_FRESH_SECONDS", (0.0, 0.0))
    home = Home(tmp_path)
    home.config.mkdir()
    (tmp_path / MARKER).write_text(f"queue: {{transport: 'sqlite:///{tmp_path}/bus.db'}}\n")
    async with open_services(home) as services:
        await put_documents(services.bus, [Task.model_validate(document(number)) for number in range(30)])
        searches = Searches(DocumentIndex(services, TASKS))
        await searches.check("first")
        await searches.until_indexed()
        await put_documents(services.bus, [Task.model_validate(document(77))])
        for _ in range(3):
            assert await searches.check("evt-github-77") == ["77"]
            assert await searches.check("evt-github-17") == ["17"]
        assert searches.index._texts is not None
        assert searches.index._texts.texts == 31, "texts that did not change are not added again"
