"""Publishing to a directory: all or nothing, durable, and together where that is cheaper."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kingdom.base import syncer as syncer_module
from kingdom.base.syncer import Syncer
from kingdom.bus import Envelope, EventBus, connect
from kingdom.bus.errors import InvalidEnvelope, StorageFull, TransportUnavailable
from kingdom.bus.testing import ManualClock
from kingdom.bus.transports.files import publisher
from tests.support.queue_files import STREAM, QueueFiles, event


@pytest.fixture
def files(tmp_path: Path) -> QueueFiles:
    return QueueFiles(tmp_path / "queue")


@pytest.fixture
async def bus(files: QueueFiles) -> AsyncIterator[EventBus]:
    async with connect(files.url) as opened:
        await opened.setup()
        await opened.publish(STREAM, event("first"))
        yield opened


def batch(size: int) -> list[Envelope]:
    return [event(f"e{number:03}") for number in range(size)]


class Faulty:
    """A system call that fails when it is made for the n-th time on a path or descriptor of interest."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, when: int, code: int) -> None:
        self._real: Callable[..., Any] = getattr(os, name)
        self._left = when
        self._code = code
        monkeypatch.setattr(os, name, self)

    def __call__(self, *args: Any, **more: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            raise OSError(self._code, os.strerror(self._code))
        return self._real(*args, **more)


# The calls a batch of three makes, and one of seventy (whose contents are synced at once).
POINTS = [
    (size, name, when)
    for size, counts in {
        3: {"open": 4, "write": 4, "fsync": 4, "rename": 3, "pwrite": 1},
        70: {"open": 72, "write": 71, "fsync": 1, "rename": 70, "pwrite": 1},
    }.items()
    for name, most in counts.items()
    for when in ({1, most // 2, most} if size == 70 else range(1, most + 1))
    if when
]


@pytest.mark.parametrize(("size", "name", "when"), POINTS)
async def test_a_full_disk_leaves_no_trace_of_the_call(
    bus: EventBus, files: QueueFiles, monkeypatch: pytest.MonkeyPatch, size: int, name: str, when: int
) -> None:
    with monkeypatch.context() as patch:
        Faulty(patch, name, when, errno.ENOSPC)
        with pytest.raises(StorageFull, match="no room left"):
            await bus.publish(STREAM, batch(size))
    assert files("pending") == ["first"]
    assert (await bus.depth())[STREAM].pending == 1
    assert files.temporary() == []
    async with connect(files.url) as fresh:
        assert (await fresh.depth())[STREAM].pending == 1
        assert len(await fresh.publish(STREAM, batch(size))) == size


async def test_a_note_that_cannot_be_written_after_the_fact_changes_nothing(
    bus: EventBus, files: QueueFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        Faulty(patch, "pwrite", 2, errno.ENOSPC)
        assert len(await bus.publish(STREAM, batch(3))) == 3
    assert len(files("pending")) == 4
    async with connect(files.url) as fresh:
        assert (await fresh.depth())[STREAM].pending == 4
    assert files.temporary() == []


async def test_a_sync_of_everything_that_fails_leaves_no_trace(
    bus: EventBus, files: QueueFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncer: Syncer = bus.transport._syncer  # type: ignore[attr-defined]
    monkeypatch.setattr(syncer, "_syncfs", lambda _: -1)
    monkeypatch.setattr(syncer_module.ctypes, "get_errno", lambda: errno.EIO)
    with pytest.raises(TransportUnavailable, match="Input/output error"):
        await bus.publish(STREAM, batch(syncer_module.SYNCFS_FROM))
    assert files("pending") == ["first"]
    assert files.temporary() == []


@pytest.mark.parametrize("sync", ["files", "filesystem"])
@pytest.mark.parametrize("size", [1, 2, syncer_module.SYNCFS_FROM - 1, syncer_module.SYNCFS_FROM, 200])
async def test_batches_of_every_size_arrive_whole_and_in_order(files: QueueFiles, sync: str, size: int) -> None:
    async with connect(f"{files.url}?sync={sync}") as bus:
        await bus.setup()
        sent = batch(size)
        assert await bus.publish(STREAM, sent) == [item.event_id for item in sent]
        claimed = await bus.claim(STREAM, worker="w", limit=size)
        assert [item.envelope for item in claimed] == sent


async def test_what_is_no_json_refuses_its_own_call_only(bus: EventBus, files: QueueFiles) -> None:
    bad = event("bad", payload={"what": object()})
    results = await asyncio.gather(
        bus.publish(STREAM, event("a")),
        bus.publish(STREAM, event("b"), bad),
        bus.publish(STREAM, event("c")),
        return_exceptions=True,
    )
    assert results[0] == ["a"]
    assert isinstance(results[1], InvalidEnvelope)
    assert results[2] == ["c"]
    assert files("pending") == ["a", "c", "first"]


async def test_of_calls_written_together_only_the_one_that_does_not_fit_fails(
    bus: EventBus, files: QueueFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = syncer_module.write_all

    def picky(fd: int, data: bytes) -> None:
        if b"huge" in data:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(fd, data)

    monkeypatch.setattr(syncer_module, "write_all", picky)
    results = await asyncio.gather(
        *(bus.publish(STREAM, event(name)) for name in ("a", "b", "huge", "c")), return_exceptions=True
    )
    assert [isinstance(item, StorageFull) for item in results] == [False, False, True, False]
    assert files("pending") == ["a", "b", "c", "first"]
    assert files.temporary() == []


async def test_concurrent_calls_share_the_price_of_durability(
    bus: EventBus, files: QueueFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = publisher.sync_directory
    monkeypatch.setattr(publisher, "sync_directory", lambda path: (synced.append(path), real(path)))
    accepted = await asyncio.gather(*(bus.publish(STREAM, item) for item in batch(32)))
    assert [ids[0] for ids in accepted] == [item.event_id for item in batch(32)]
    assert len(synced) <= 3, "the first alone, the others together"
    assert len(files("pending")) == 33


async def test_many_large_calls_at_once_are_written_in_several_groups(
    bus: EventBus, files: QueueFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "_MAX_GROUP_EVENTS", 10)
    calls = [[event(f"c{call}-{number}") for number in range(6)] for call in range(5)]
    accepted = await asyncio.gather(*(bus.publish(STREAM, call) for call in calls))
    assert accepted == [[item.event_id for item in call] for call in calls]
    assert [len(line["entries"]) for line in files.ledger()[1:]] == [6, 6, 6, 6, 6]


async def test_a_caller_who_gives_up_does_not_disturb_the_others(bus: EventBus, files: QueueFiles) -> None:
    calls = [asyncio.create_task(bus.publish(STREAM, event(name))) for name in ("a", "b", "c")]
    await asyncio.sleep(0)
    calls[0].cancel()
    assert await asyncio.gather(*calls[1:]) == [["b"], ["c"]]
    with pytest.raises(asyncio.CancelledError):
        await calls[0]


async def test_closing_waits_for_what_is_being_written(files: QueueFiles) -> None:
    async with connect(files.url) as bus:
        await bus.setup()
        writing = asyncio.create_task(bus.publish(STREAM, batch(50)))
        while not files.home.exists():
            await asyncio.sleep(0)
    assert len(await writing) == 50
    assert len(files("pending")) == 50


async def test_the_same_event_from_everybody_at_once_is_one_event(bus: EventBus, files: QueueFiles) -> None:
    async with connect(files.url) as second, connect(files.url) as third:
        results = await asyncio.gather(
            *(one.publish(STREAM, batch(20)) for one in (bus, second, third) for _ in range(3))
        )
        assert sorted(event_id for ids in results for event_id in ids) == [item.event_id for item in batch(20)]
        assert (await third.depth())[STREAM].pending == 21
    assert files.temporary() == []


async def test_nothing_is_written_for_an_event_that_is_known(
    bus: EventBus, files: QueueFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = await bus.claim(STREAM, worker="w")
    await bus.publish(STREAM, event("second"))
    await bus.settle(done=held)
    before = (files.home / ".ledger").read_bytes()
    monkeypatch.setattr(Syncer, "write", lambda *_: pytest.fail("a file was written"))
    assert await bus.publish(STREAM, event("first"), event("second")) == []
    assert (files.home / ".ledger").read_bytes() == before


async def test_publish_order_holds_when_the_clock_steps_back(files: QueueFiles) -> None:
    clock = ManualClock()
    async with connect(files.url, clock=clock) as bus:
        await bus.setup()
        await bus.declare(STREAM, ordered=True)
        await bus.publish(STREAM, event("a"), event("b"))
        clock.advance(-100)
        await bus.publish(STREAM, event("c"))
        clock.advance(100)
        order = []
        while held := await bus.claim(STREAM, worker="w"):
            order += [item.event_id for item in held]
            await bus.settle(done=held)
    assert order == ["a", "b", "c"]


async def test_what_was_removed_while_it_was_being_published_is_not_accepted(
    bus: EventBus, files: QueueFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Syncer.write

    def removing(self: Syncer, folder: str, documents: list[tuple[str, bytes]]) -> None:
        real(self, folder, documents)
        os.unlink(documents[1][0])

    with monkeypatch.context() as patch:
        patch.setattr(Syncer, "write", removing)
        with pytest.raises(TransportUnavailable, match="removed while it was being published"):
            await bus.publish(STREAM, batch(3))
    assert files("pending") == ["first"]
    assert (await bus.depth())[STREAM].pending == 1
    assert await bus.publish(STREAM, batch(3)) == ["e000", "e001", "e002"]


async def test_a_claim_that_cannot_read_gives_the_events_back(
    bus: EventBus, files: QueueFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bus.publish(STREAM, batch(3))

    def failing(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("kingdom.bus.transports.files.operations.read_event", failing)
        with pytest.raises(TransportUnavailable, match="Input/output error"):
            await bus.claim(STREAM, worker="w", limit=10)
    assert files("processing") == []
    assert [item.attempt for item in await bus.claim(STREAM, worker="w", limit=10)] == [1, 1, 1, 1]
