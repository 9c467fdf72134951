"""People and scripts put files into the queue, move them, edit them and delete them. The directories are right."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import pytest

from kingdom.bus import Envelope, EventBus, Worker, connect
from kingdom.bus.testing import ManualClock
from tests.support.queue_files import STREAM, QueueFiles, document, event


@pytest.fixture
def files(tmp_path: Path) -> QueueFiles:
    return QueueFiles(tmp_path / "queue")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def bus(files: QueueFiles, clock: ManualClock) -> AsyncIterator[EventBus]:
    """A bus with one event, ``a``, whose stream this process knows."""
    async with connect(files.url, clock=clock) as opened:
        await opened.setup()
        await opened.publish(STREAM, event("a"))
        yield opened


async def claim_ids(bus: EventBus, limit: int = 10) -> list[str]:
    return [item.event_id for item in await bus.claim(STREAM, worker="w", limit=limit)]


def reason(files: QueueFiles, name: str) -> str:
    return (files.home / "invalid" / f"{name}.reason").read_text()


async def test_a_file_moved_into_pending_is_an_event(bus: EventBus, files: QueueFiles) -> None:
    files.drop("pending", "mine", document("mine", color="red"))
    (_, mine) = await bus.claim(STREAM, worker="w", limit=10)
    assert mine.event_id == "mine"
    assert mine.envelope.attributes == {"color": "red"}
    await bus.settle(done=[mine])
    assert files("done") == ["mine"]


async def test_a_file_that_was_there_before_the_bus_is_an_event(files: QueueFiles) -> None:
    (files.home / "pending").mkdir(parents=True)
    files.drop("pending", "early")
    async with connect(files.url) as bus:
        await bus.setup()
        assert (await bus.depth())[STREAM].pending == 1
        assert await claim_ids(bus) == ["early"]


class Sleeper:
    """A worker that polls so rarely that only a wake-up can explain what it handles."""

    def __init__(self, bus: EventBus, files: QueueFiles) -> None:
        self.worker = Worker(bus, STREAM, poll=3600, signals=False)
        self.worker.on("T")(self._handle)
        self._files = files
        self._seen: asyncio.Queue[str] = asyncio.Queue()

    async def _handle(self, envelope: Envelope) -> None:
        self._seen.put_nowait(envelope.event_id)

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self.worker.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.worker.stop()
        await self._running

    async def handles(self, event_id: str) -> None:
        """Wait until the event was handled, and the worker has nothing left to do."""
        async with asyncio.timeout(30):
            assert await self._seen.get() == event_id
            while event_id not in self._files("done"):
                await asyncio.sleep(0.01)


async def test_a_dropped_file_wakes_a_worker_that_sleeps(bus: EventBus, files: QueueFiles) -> None:
    async with Sleeper(bus, files) as sleeper:
        await sleeper.handles("a")
        files.drop("pending", "mine")
        await sleeper.handles("mine")


async def test_a_file_written_in_place_wakes_a_worker_when_it_is_whole(bus: EventBus, files: QueueFiles) -> None:
    text = document("slow")
    async with Sleeper(bus, files) as sleeper:
        await sleeper.handles("a")
        with files.path("pending", "slow").open("w") as out:
            out.write(text[:40])
            out.flush()
            assert await bus.depth() == {}
            out.write(text[40:])
        await sleeper.handles("slow")
    assert files("invalid") == []


async def test_a_file_written_in_place_is_taken_when_it_is_whole(bus: EventBus, files: QueueFiles) -> None:
    text = document("slow")
    with files.path("pending", "slow").open("w") as out, files.noticeable("pending"):
        out.write(text[:40])
        out.flush()
        assert await claim_ids(bus) == ["a"], "it is being written, and neither taken nor set aside"
        assert files("pending") == ["slow"]
        out.write(text[40:])
    (files.home / "pending" / "touch.txt").touch()  # anything that makes the bus look again
    assert await claim_ids(bus) == ["slow"]
    assert files("invalid") == []


async def test_a_file_that_stays_half_written_is_set_aside_and_blocks_nobody(bus: EventBus, files: QueueFiles) -> None:
    files.drop("pending", "half", document("half")[:40], age=10)
    files.drop("pending", "mine")
    assert await claim_ids(bus) == ["a", "mine"]
    assert files("pending") == []
    assert "not JSON" in reason(files, "half.json")
    assert (await bus.depth())[STREAM].pending == 0


async def test_a_young_broken_file_gets_its_time_and_no_more(
    bus: EventBus, files: QueueFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kingdom.bus.transports.files.directories.GROWING", 0.1)
    files.drop("pending", "half", "{")
    assert await claim_ids(bus) == ["a"]
    async with asyncio.timeout(10):
        while "half" in files("pending"):
            await claim_ids(bus)
    assert "not JSON" in reason(files, "half.json")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("other", document("not-other"), "its eventId is 'not-other'"),
        ("list", "[1]", "JSON object"),
        ("empty", "", "empty"),
        ("typeless", '{"eventId": "typeless", "occurredAt": "2026-01-01T00:00:00Z"}', "has no type"),
        ("routed", document("routed", bus="north"), "must be a JSON object"),
        ("urgent", document("urgent", bus={"priority": "urgent"}), "priority"),
        ("timeless", document("timeless", bus={"createdAt": "yesterday"}), "createdAt"),
        ("huge", document("huge", text="x" * 1_200_000), "the limit is"),
    ],
)
async def test_what_is_no_envelope_is_set_aside_with_its_reason(
    bus: EventBus, files: QueueFiles, name: str, text: str, why: str
) -> None:
    files.drop("pending", name, text, age=10)
    assert await claim_ids(bus) == ["a"]
    assert why in reason(files, f"{name}.json")
    assert (files.home / "invalid" / f"{name}.json").read_text() == text


async def test_what_is_no_file_is_set_aside(bus: EventBus, files: QueueFiles, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(document("link"))
    with files.noticeable("pending"):
        files.path("pending", "folder").mkdir()
        os.mkfifo(files.path("pending", "pipe"))
        files.path("pending", "link").symlink_to(tmp_path / "elsewhere")
        for name in ("folder", "pipe", "link"):
            os.utime(files.path("pending", name), (0, 0), follow_symlinks=False)
    assert await claim_ids(bus) == ["a"]
    assert {"folder", "pipe", "link"} <= set(files("invalid"))
    assert "regular" in reason(files, "pipe.json")


async def test_names_that_are_not_events_are_left_alone(bus: EventBus, files: QueueFiles) -> None:
    with files.noticeable("pending"):
        for name in ("notes.txt", ".half.json.swp", "x.json~", ".hidden.json"):
            (files.home / "pending" / name).write_text("?")
    assert await claim_ids(bus) == ["a"]
    assert files("pending") == [".half.json.swp", ".hidden", "notes.txt", "x.json~"]


async def test_two_broken_files_of_one_name_are_both_kept(bus: EventBus, files: QueueFiles) -> None:
    for text in ("first", "second"):
        files.drop("pending", "twice", text, age=10)
        await bus.depth()
    kept = [path.read_text() for path in (files.home / "invalid").iterdir() if path.suffix != ".reason"]
    assert sorted(kept) == ["first", "second"]


async def test_moving_a_dead_letter_to_pending_is_a_requeue(bus: EventBus, files: QueueFiles) -> None:
    await bus.settle(dead=await bus.claim(STREAM, worker="w"))
    files.move("a", "dead", "pending")
    assert (await bus.depth())[STREAM][:3] == (1, 0, 0)
    (again,) = await bus.claim(STREAM, worker="w")
    assert again.attempt == 1


async def test_moving_a_done_event_to_pending_runs_it_again(bus: EventBus, files: QueueFiles) -> None:
    await bus.settle(done=await bus.claim(STREAM, worker="w"))
    files.move("a", "done", "pending")
    assert await claim_ids(bus) == ["a"]


async def test_moving_a_held_event_to_pending_takes_it_from_its_worker(bus: EventBus, files: QueueFiles) -> None:
    held = await bus.claim(STREAM, worker="w")
    files.move("a", "processing", "pending")
    (again,) = await bus.claim(STREAM, worker="other")
    assert again.attempt == 2, "the attempt was made, whatever became of it"
    assert await bus.settle(done=held) == held
    assert await bus.settle(done=[again]) == []


async def test_moving_an_event_to_dead_buries_it(bus: EventBus, files: QueueFiles) -> None:
    files.move("a", "pending", "dead")
    (letter,) = await bus.dead(STREAM)
    assert (letter.event_id, letter.error_code) == ("a", "MOVED")
    assert await claim_ids(bus) == []


async def test_a_file_put_among_the_dead_is_a_dead_letter(bus: EventBus, files: QueueFiles) -> None:
    files.drop("dead", "mine")
    assert [letter.event_id for letter in await bus.dead(STREAM)] == ["mine"]
    assert await bus.requeue(STREAM, ["mine"]) == 1


async def test_a_file_put_among_the_held_waits_like_any_other(bus: EventBus, files: QueueFiles) -> None:
    files.drop("processing", "mine")
    files.move("a", "pending", "processing")
    assert (await bus.depth())[STREAM][:3] == (2, 0, 0)
    assert files("pending") == ["a", "mine"]
    assert await claim_ids(bus) == ["a", "mine"]


async def test_deleting_a_file_forgets_the_event(bus: EventBus, files: QueueFiles) -> None:
    await bus.publish(STREAM, event("b"))
    files.delete("pending", "a")
    assert await claim_ids(bus) == ["b"]
    assert (await bus.depth())[STREAM][:3] == (0, 1, 0)
    assert await bus.publish(STREAM, event("a")) == ["a"], "it may be published anew"


async def test_a_held_event_whose_file_is_gone_cannot_be_settled(bus: EventBus, files: QueueFiles) -> None:
    held = await bus.claim(STREAM, worker="w")
    files.delete("processing", "a")
    assert await bus.settle(done=held) == held
    assert files("done") == []


async def test_a_copy_is_set_aside_and_the_event_happens_once(bus: EventBus, files: QueueFiles) -> None:
    files.drop("dead", "a")
    assert await claim_ids(bus) == ["a"]
    assert await bus.dead(STREAM) == []
    assert "a copy" in reason(files, "a.json")


async def test_a_copy_of_a_done_event_does_not_run_again(bus: EventBus, files: QueueFiles) -> None:
    await bus.settle(done=await bus.claim(STREAM, worker="w"))
    files.drop("pending", "a", age=10)
    assert await claim_ids(bus) == []
    assert "requeue" in reason(files, "a.json")
    assert files("done") == ["a"]


async def test_an_event_spoiled_by_an_editor_is_set_aside_when_its_turn_comes(bus: EventBus, files: QueueFiles) -> None:
    await bus.publish(STREAM, event("b"))
    files.path("pending", "a").write_text('{"eventId": ')
    assert await claim_ids(bus, limit=1) == ["b"]
    assert "not JSON" in reason(files, "a.json")
    assert (await bus.depth())[STREAM][:3] == (0, 1, 0)


async def test_an_event_that_became_a_directory_blocks_nobody(bus: EventBus, files: QueueFiles) -> None:
    await bus.publish(STREAM, event("b"))
    files.path("pending", "a").unlink()
    files.path("pending", "a").mkdir()
    assert await claim_ids(bus) == ["b"]
    assert "cannot be read" in reason(files, "a.json")


async def test_a_disk_too_full_for_the_reason_does_not_keep_a_broken_file_in_the_way(
    bus: EventBus, files: QueueFiles, caplog: pytest.LogCaptureFixture
) -> None:
    (files.home / "invalid" / "half.json.reason").mkdir()  # it cannot be written
    files.drop("pending", "half", "{", age=10)
    assert await claim_ids(bus) == ["a"]
    assert (files.home / "invalid" / "half.json").exists()
    assert "not JSON" in caplog.text


async def test_a_spoiled_dead_letter_is_set_aside(bus: EventBus, files: QueueFiles) -> None:
    await bus.settle(dead=await bus.claim(STREAM, worker="w"))
    files.path("dead", "a").write_text("?")
    assert await bus.dead(STREAM) == []
    assert await bus.find("a") is None
    assert "not JSON" in reason(files, "a.json")


async def test_dropped_files_keep_the_order_of_their_times(bus: EventBus, files: QueueFiles) -> None:
    await bus.declare(STREAM, ordered=True)
    await bus.settle(done=await bus.claim(STREAM, worker="w"))
    for name, minute in (("second", "02"), ("first", "01")):
        files.drop("pending", name, document(name, bus={"createdAt": f"2026-01-01T00:{minute}:00Z"}))
    (held,) = await bus.claim(STREAM, worker="w", limit=10)
    assert held.event_id == "first"
    await bus.settle(done=[held])
    assert await claim_ids(bus) == ["second"]


async def test_what_one_process_found_all_know(bus: EventBus, files: QueueFiles, clock: ManualClock) -> None:
    async with connect(files.url, clock=clock) as other:
        await other.depth()
        files.drop("pending", "mine")
        assert await claim_ids(bus) == ["a", "mine"]
        assert (await other.depth())[STREAM][:3] == (0, 2, 0)


async def test_directories_that_were_deleted_come_back(bus: EventBus, files: QueueFiles) -> None:
    held = await bus.claim(STREAM, worker="w")
    for state in ("done", "dead", "pending", "invalid"):
        (files.home / state).rmdir()
    await bus.publish(STREAM, event("b"))
    await bus.settle(done=held)
    assert (files("done"), files("pending")) == (["a"], ["b"])
