"""The feed of live events: every event gets a number, none is left out or repeated, whatever happens to the server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kingdom.court.home import Home
from kingdom.journal import Journal, rotate
from kingdom.web.live import feed as feeds
from kingdom.web.live import feeder
from kingdom.web.live import hub as hubs
from kingdom.web.live.event import FeedEvent, SourceEvent
from kingdom.web.live.feed import FeedFile, FeedUnavailable
from kingdom.web.live.feeder import WorkflowSource
from kingdom.web.live.hub import Hub, open_hub
from kingdom.web.live.subscription import SubscriptionReset, subscribe
from kingdom.web.record import STATE_FOLDER
from kingdom.workflow.context import system_clock
from kingdom.workflow.ports import WorkflowStore
from kingdom.workflow.store import open_store
from tests.support.live import PATIENCE, Ear, emit, happen


class Place:
    """A folder with a store of workflows and the journal of a court, and hubs on it."""

    def __init__(self, root: Path, store: WorkflowStore) -> None:
        self.root = root
        self.store = store
        self.home = Home(root)
        self.home.journal.parent.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(self.home.journal)
        self.services: Any = SimpleNamespace(home=self.home)

    def hub(self) -> contextlib.AbstractAsyncContextManager[Hub]:
        return open_hub(self.root, self.store, self.services)

    def kept(self) -> list[FeedEvent]:
        file = FeedFile(self.root / STATE_FOLDER / "feed.db")
        try:
            return file.after(0, 1_000_000)
        finally:
            file.close()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with open_store(f"sqlite://{tmp_path}/workflows.db", system_clock) as store:
        await store.setup()
        made = Place(tmp_path, store)
        yield made
        made.journal.close()


def tasks(frames: list[FeedEvent]) -> list[str]:
    """Which tasks the lines of the journal name."""
    return [event.data["task_id"] for event in (frame.event() for frame in frames) if event.source == "journal"]


async def test_everything_that_happens_is_told_with_a_number_that_counts_by_one(place: Place) -> None:
    async with place.hub() as hub:
        ear = Ear(hub)
        await happen(place.store, "wf-a", 2)
        await ear.until(2)
        emit(place.journal, 1)
        heard = await ear.until(3)
        assert [event.sequence for event in heard] == [1, 2, 3]
        assert [(event.workflow_id, event.workflow_sequence) for event in heard] == [
            ("wf-a", 1),
            ("wf-a", 2),
            (None, None),
        ]
        assert (heard[2].source, heard[2].type, heard[2].actor) == ("journal", "task.started", "gen-test")
        assert heard[0].data == {"workId": "work-1", "taskId": "task-0"}


async def test_numbers_go_on_after_a_restart_with_what_happened_meanwhile(place: Place) -> None:
    async with place.hub() as hub:
        ear = Ear(hub)
        await happen(place.store, "wf-a", 3)
        emit(place.journal, 1)
        await ear.until(4)
    await happen(place.store, "wf-a", 2)
    emit(place.journal, 2)
    async with place.hub() as hub:
        ear = Ear(hub)
        await happen(place.store, "wf-b")
        heard = await ear.until(4)
    assert [event.sequence for event in heard] == [5, 6, 7, 8]
    kept = place.kept()
    assert [frame.sequence for frame in kept] == list(range(1, 9))
    assert [frame.workflow_sequence for frame in kept if frame.workflow_id == "wf-a"] == [1, 2, 3, 4, 5]
    assert tasks(kept) == ["task-1", "task-2"]


async def test_after_a_restart_the_newest_events_are_in_memory_for_those_who_come_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "_MAX_RECENT_EVENTS", 5)
    async with place.hub() as hub:
        await happen(place.store, "wf-a", 8)
        await Ear(hub).until(8)
    async with place.hub() as hub:
        recent = hub.recent(3, 100)
        assert recent is not None
        assert [frame.sequence for frame in recent] == [4, 5, 6, 7, 8]
        assert hub.recent(2, 100) is None
        assert hub.recent(9, 100) is None


async def test_the_first_start_does_not_begin_with_the_past(place: Place) -> None:
    await happen(place.store, "wf-a", 20)
    for number in range(20):
        emit(place.journal, number)
    async with place.hub() as hub:
        assert hub.head == 0
        ear = Ear(hub)
        await happen(place.store, "wf-a")
        emit(place.journal, 20)
        heard = await ear.until(2)
    assert {event.workflow_sequence for event in heard} == {None, 21}
    assert tasks(place.kept()) == ["task-20"]


async def test_what_is_told_is_on_disk(place: Place) -> None:
    async with place.hub() as hub:
        behind: list[int] = []
        hub.listen(lambda events: behind.append(events[-1].sequence - len(place.kept())))
        ear = Ear(hub)
        for number in range(5):
            emit(place.journal, number)
            await ear.until(number + 1)
    assert all(count <= 0 for count in behind)


async def test_a_listener_that_fails_keeps_nobody_else_from_hearing(place: Place, caplog: Any) -> None:
    def broken(_: object) -> None:
        raise ValueError("a page is gone")

    async with place.hub() as hub:
        hub.listen(broken)
        ear = Ear(hub)
        await happen(place.store, "wf-a")
        await ear.until(1)
    assert "a live event listener failed" in caplog.text


async def test_a_second_server_tells_the_same_and_takes_over_when_the_first_ends(place: Place) -> None:
    async with contextlib.AsyncExitStack() as second:
        async with place.hub() as first:
            ear_of_first = Ear(first)
            hub = await second.enter_async_context(place.hub())
            assert not hub.feed.is_writer
            ear = Ear(hub)
            await happen(place.store, "wf-a", 3)
            emit(place.journal, 1)
            assert await ear.until(4) == await ear_of_first.until(4)
        emit(place.journal, 2)
        await happen(place.store, "wf-a", 2)
        heard = await ear.until(7)
        assert hub.feed.is_writer
    assert [event.sequence for event in heard] == list(range(1, 8))
    assert tasks(place.kept()) == ["task-1", "task-2"]


async def test_the_journal_may_be_rotated_while_it_is_read(place: Place) -> None:
    tomorrow = itertools.count(datetime.now(UTC).toordinal() + 1)
    async with place.hub() as hub:
        ear = Ear(hub)
        for number in range(30):
            emit(place.journal, number)
            if number % 7 == 6:
                now = datetime.fromordinal(next(tomorrow)).replace(tzinfo=UTC)
                assert rotate(place.home.journal, now) is not None
            if number == 15:
                await ear.until(8)
        await ear.until(30)
    emit(place.journal, 30)
    assert rotate(place.home.journal, datetime.fromordinal(next(tomorrow)).replace(tzinfo=UTC)) is not None
    emit(place.journal, 31)
    async with place.hub() as hub:
        await Ear(hub).until(2)
    assert tasks(place.kept()) == [f"task-{number}" for number in range(32)]


async def test_a_disk_that_was_full_for_a_while_costs_and_repeats_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeder, "_RETRY_SECONDS", 0.01)
    real, failures = FeedFile.append, itertools.count()

    def full(self: FeedFile, happened: Any, places: Any) -> Any:
        found = list(happened)
        turn = next(failures) if found else 0
        if turn % 3 == 1:
            raise sqlite3.OperationalError("database or disk is full")
        frames = real(self, found, places)
        if turn % 3 == 2:
            raise sqlite3.OperationalError("the answer to the commit was lost")
        return frames

    monkeypatch.setattr(FeedFile, "append", full)
    async with place.hub() as hub:
        ear = Ear(hub)
        for number in range(12):
            emit(place.journal, number)
            await happen(place.store, "wf-a")
            await ear.until(2 * number + 2)
    assert [event.sequence for event in ear.heard] == list(range(1, 25))
    assert tasks(place.kept()) == [f"task-{number}" for number in range(12)]
    assert [frame.workflow_sequence for frame in place.kept() if frame.workflow_id] == list(range(1, 13))


async def test_a_feed_that_cannot_be_read_is_set_aside_and_old_clients_are_told(place: Place) -> None:
    async with place.hub() as hub:
        await happen(place.store, "wf-a", 3)
        await Ear(hub).until(3)
    path = place.root / STATE_FOLDER / "feed.db"
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    path.write_bytes(b"this was a database" * 500)
    async with place.hub() as hub:
        assert hub.head > 3
        assert [found.name.startswith("feed.db.damaged-") for found in path.parent.glob("feed.db.d*")] == [True]
        _, reset = await subscribe(hub, None, 3, (), lambda: None)
        assert reset == SubscriptionReset(hub.feed.oldest, hub.head)


async def test_whoever_had_everything_is_told_when_the_journal_lost_what_was_being_read(place: Place) -> None:
    async with place.hub() as hub:
        emit(place.journal, 1)
        await Ear(hub).until(1)
    place.journal.close()
    place.home.journal.unlink()
    emit(place.journal, 2)
    async with place.hub() as hub:
        subscription, reset = await subscribe(hub, None, 1, (), lambda: None)
        assert reset is not None
        ear = Ear(hub)
        emit(place.journal, 3)
        (event,) = await ear.until(1)
        assert event.sequence == reset.number + 1
        items = await subscription.take()
        assert isinstance(items, list)
        assert [item.number for item in items] == [event.sequence]


async def test_another_store_under_the_same_name_begins_the_feed_anew(place: Place, tmp_path: Path) -> None:
    async with place.hub() as hub:
        await happen(place.store, "wf-a", 5)
        await Ear(hub).until(5)
    async with place.store.session() as session:  # type: ignore[attr-defined]
        await session.fetch("DELETE FROM wf_event")
    async with place.hub() as hub:
        _, reset = await subscribe(hub, None, 5, (), lambda: None)
        assert reset is not None


def lines(count: int) -> list[SourceEvent]:
    return [SourceEvent("journal", "task.started", "2026-02-07T10:00:00Z", {"n": number}) for number in range(count)]


def test_only_the_newest_events_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "_PRUNE_EVERY_EVENTS", 10)
    file = FeedFile(tmp_path / "feed.db", kept_events=50)
    for _ in range(30):
        file.append(lines(7), {})
    oldest, last = file.bounds()
    kept = file.after(0, 1000)
    file.close()
    assert last == 210
    assert [frame.sequence for frame in kept] == list(range(oldest, 211))
    assert 50 <= len(kept) <= 50 + 10 + 7


def test_events_are_not_kept_for_longer_than_their_time_and_numbers_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "_PRUNE_EVERY_EVENTS", 1)
    now = [1000.0]
    file = FeedFile(tmp_path / "feed.db", clock=lambda: now[0], kept_seconds=60.0)
    file.append(lines(5), {"journal": "here"})
    now[0] += 61
    file.append(lines(1), {})
    assert file.bounds() == (6, 6)
    assert file.place("journal") == "here"
    file.close()


def test_a_long_past_is_removed_bit_by_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "_PRUNE_MAX_ROWS", 10)
    file = FeedFile(tmp_path / "feed.db", kept_events=5)
    file.append(lines(40), {})
    seen = []
    for _ in range(5):
        file.append(lines(1), {})
        seen.append(file.bounds()[0])
    file.close()
    assert seen[0] < seen[-1]
    assert max(later - earlier for earlier, later in itertools.pairwise([1, *seen])) <= 20


def test_the_feed_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    file = FeedFile(tmp_path / "state/feed.db")
    file.append(lines(1), {})
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "state").iterdir()}
    file.close()
    assert modes == {0o600}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"a": float("nan")}, '"data":{"a":null}'),
        ({"a": "\ud800"}, '"data":{"a":"\\ud800"}'),
        ({"a": "왕국"}, '"data":{"a":"왕국"}'),
        ({"a": "x" * 300_000}, '"data":{},"truncated":true'),
    ],
)
def test_whatever_stands_in_a_log_becomes_json_that_browsers_read(
    tmp_path: Path, data: dict[str, Any], told: str
) -> None:
    file = FeedFile(tmp_path / "feed.db")
    file.append([SourceEvent("journal", "odd", "2026-02-07T10:00:00Z", data)], {})
    (frame,) = file.after(0, 1)
    file.close()
    assert frame.message.encode().decode().endswith(told + "}}")


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 100])
async def test_the_last_number_of_a_workflow_is_found_by_looking(place: Place, count: int) -> None:
    await happen(place.store, "wf-other", 3)
    if count:
        await happen(place.store, "wf-a", count)
    assert await place.store.last_event_number("wf-a") == count
    assert await place.store.last_event_number(None) == count + 3


async def test_a_folder_that_cannot_be_written_is_told_with_its_name(place: Place) -> None:
    (place.root / "state").write_text("in the way")
    with pytest.raises(FeedUnavailable, match=r"cannot open the live feed at .*feed\.db"):
        async with place.hub():
            pass


async def test_a_journal_that_is_not_there_yet_is_waited_for(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(feeder, "_RETRY_SECONDS", 0.01)
    place.home.journal.parent.rmdir()
    async with place.hub() as hub:
        ear = Ear(hub)
        assert "the live feed has stopped" in caplog.text
        place.home.journal.parent.mkdir()
        async with asyncio.timeout(PATIENCE):
            while not ear.heard:
                emit(place.journal, 1)
                await asyncio.sleep(0.05)


@pytest.mark.postgres
async def test_workflows_on_postgresql_are_told_as_well_whoever_wrote_them(postgres_url: str, tmp_path: Path) -> None:
    async with open_store(postgres_url, system_clock) as store, open_store(postgres_url, system_clock) as other:
        await store.setup()
        async with open_hub(tmp_path, store, None) as hub:
            ear = Ear(hub)
            await happen(store, "wf-a", 2)
            await happen(other, "wf-a", 3)
            heard = await ear.until(5)
    assert [(event.sequence, event.workflow_sequence) for event in heard] == [(n, n) for n in range(1, 6)]


def test_the_password_of_a_store_is_not_kept(tmp_path: Path) -> None:
    store: Any = SimpleNamespace(bus=SimpleNamespace(url="postgresql://me:secret@localhost/db"))
    assert "secret" not in WorkflowSource(store).name
