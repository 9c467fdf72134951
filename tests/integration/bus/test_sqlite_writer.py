"""The writer: concurrent operations share commits, fail alone, and fail together when the commit does."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.bus import BusError, Envelope, EventBus, StorageFull, TransportUnavailable, connect
from kingdom.bus.transport import TransportOptions
from kingdom.bus.transports.sqlite._store import SqliteStore
from kingdom.bus.transports.sqlite._writer import SqliteWriter
from tests.support.full_disk import no_file_grows_beyond

STREAM = "orders"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.db"


@pytest.fixture
async def bus(path: Path) -> AsyncIterator[EventBus]:
    async with connect(f"sqlite://{path}") as bus:
        await bus.setup()
        yield bus


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the write lock, as another process would."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def commits(path: Path) -> int:
    """How many transactions the write-ahead log holds: frames that end one carry the size of the database."""
    log = Path(f"{path}-wal").read_bytes()
    page = struct.unpack_from(">I", log, 8)[0]
    salt = log[16:24]
    frames = (log[at : at + 24] for at in range(32, len(log), 24 + page))
    return sum(frame[8:16] == salt and frame[4:8] != b"\0\0\0\0" for frame in frames)


def event(**given: Any) -> Envelope:
    return Envelope(type="Created", **given)


async def test_concurrent_publishers_share_a_commit(bus: EventBus, path: Path) -> None:
    await bus.publish(STREAM, event())
    before = commits(path)
    with locked(path):
        publishing = [asyncio.create_task(bus.publish(STREAM, event())) for _ in range(32)]
        await asyncio.sleep(0)  # all are queued now, and wait for the lock
    accepted = await asyncio.gather(*publishing)
    assert sum(map(len, accepted)) == 32
    # The first may have been taken by itself before the others came.
    assert commits(path) - before <= 2


async def test_of_concurrent_publishers_of_one_event_the_first_is_told(bus: EventBus, path: Path) -> None:
    once, old = event(), event()
    await bus.publish(STREAM, old)
    with locked(path):
        publishing = [
            asyncio.create_task(bus.publish(stream, envelopes))
            for stream, envelopes in (
                (STREAM, [once]),
                (STREAM, [event(event_id="own"), once, old]),
                ("another", [once]),
                (STREAM, [old]),
            )
        ]
        await asyncio.sleep(0)
    assert [await task for task in publishing] == [[once.event_id], ["own"], [once.event_id], []]


async def test_one_publisher_commits_each_event_by_itself(bus: EventBus, path: Path) -> None:
    await bus.publish(STREAM, event())
    before = commits(path)
    for _ in range(5):
        await bus.publish(STREAM, event())
    assert commits(path) - before == 5


async def test_different_operations_share_a_commit(bus: EventBus, path: Path) -> None:
    await bus.publish(STREAM, [event() for _ in range(3)])
    done, retried, extended = await bus.claim(STREAM, worker="w", limit=3)
    before = commits(path)
    with locked(path):
        tasks = [
            asyncio.create_task(operation)
            for operation in (
                bus.settle(done=[done]),
                bus.settle(retry=[(retried, 60)]),
                bus.extend([extended], 60),
                bus.publish(STREAM, event()),
            )
        ]
        await asyncio.sleep(0)
    assert [await task for task in tasks[:3]] == [[], [], []]
    await tasks[3]
    assert commits(path) - before <= 2
    assert (await bus.depth())[STREAM][:3] == (2, 1, 0)


async def test_verdicts_of_which_some_come_too_late_are_written_for_the_others(bus: EventBus, path: Path) -> None:
    await bus.publish(STREAM, [event() for _ in range(6)])
    first = await bus.claim(STREAM, worker="w", limit=3)
    second = await bus.claim(STREAM, worker="w", limit=3)
    await bus.release([first[1]])
    (again,) = await bus.claim(STREAM, worker="w", limit=1)
    assert again.handle == first[1].handle  # the same event, held by a claim that these verdicts are not of
    with locked(path):
        late = asyncio.create_task(bus.settle(done=[*first, *second, second[0]]))
        publishing = asyncio.create_task(bus.publish(STREAM, event()))
        await asyncio.sleep(0)
    assert await late == [first[1]]
    assert len(await publishing) == 1
    assert (await bus.depth())[STREAM][:3] == (1, 1, 0)
    assert await bus.settle(done=[again]) == []


async def test_several_calls_in_one_transaction_may_all_come_too_late(bus: EventBus, path: Path) -> None:
    await bus.publish(STREAM, [event() for _ in range(9)])
    claims = [await bus.claim(STREAM, worker="w", limit=3) for _ in range(3)]
    late = [claim[1] for claim in claims]
    await bus.release(late)
    with locked(path):
        settling = [asyncio.create_task(bus.settle(done=claim)) for claim in claims]
        await asyncio.sleep(0)
    assert [await task for task in settling] == [[delivery] for delivery in late]
    assert (await bus.depth())[STREAM][:3] == (3, 0, 0)
    again = await bus.claim(STREAM, worker="w", limit=9)
    assert {delivery.handle for delivery in again} == {delivery.handle for delivery in late}


async def test_a_claim_and_verdicts_of_the_last_one_are_three_statements_and_a_transaction(bus: EventBus) -> None:
    await bus.publish(STREAM, [event() for _ in range(20)])
    held = await bus.claim(STREAM, worker="w", limit=10, types=["Created"])
    writing = bus.transport._writer._connection  # type: ignore[attr-defined]
    writing._connection = counting = Counting(writing._connection)
    claiming = bus.claim(STREAM, worker="w", limit=10, types=["Created"])
    claimed, lost = await asyncio.gather(claiming, bus.settle(done=held))
    assert (len(claimed), lost) == (10, [])
    assert counting.statements == ["BEGIN", "SELECT", "UPDATE", "UPDATE", "COMMIT"]


class Counting:
    """A connection that notes what is run on it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.statements: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
        self.statements.append(re.sub(r"(?m)^--.*\n", "", sql).split()[0])
        return self._connection.execute(sql, *given)


# ── operations that fail ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def writer(path: Path, bus: EventBus) -> AsyncIterator[SqliteWriter]:
    writer = SqliteWriter(SqliteStore(f"sqlite://{path}", TransportOptions()))
    await writer.run(lambda connection: connection.execute("CREATE TABLE note (text TEXT)"))
    yield writer
    await writer.close()


def note(text: str) -> Any:
    return lambda connection: connection.execute("INSERT INTO note VALUES (?)", (text,))


def notes(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT text FROM note ORDER BY rowid")]


async def test_an_operation_that_fails_leaves_the_others_of_its_transaction_alone(
    writer: SqliteWriter, path: Path
) -> None:
    def half(connection: sqlite3.Connection) -> None:
        note("half")(connection)
        raise LookupError("half way")

    with locked(path):
        together = asyncio.gather(
            writer.run(note("before")), writer.run(half), writer.run(note("after")), return_exceptions=True
        )
        await asyncio.sleep(0)
    before, failed, after = await together
    assert isinstance(failed, LookupError)
    assert not isinstance(before, Exception)
    assert not isinstance(after, Exception)
    assert notes(path) == ["before", "after"]


async def test_an_operation_that_fails_alone_leaves_nothing(writer: SqliteWriter, path: Path) -> None:
    def half(connection: sqlite3.Connection) -> None:
        note("half")(connection)
        connection.execute("INSERT INTO nowhere VALUES (1)")

    with pytest.raises(BusError, match="no tables of the bus"):
        await writer.run(half)
    await writer.run(note("next"))
    assert notes(path) == ["next"]


async def test_results_are_told_after_the_commit_only(writer: SqliteWriter, path: Path) -> None:
    seen: list[list[str]] = []
    await writer.run(note("one"), lambda _: seen.append(notes(path)))
    assert seen == [["one"]]


class Slow:
    """An operation that waits to be let go."""

    def __init__(self) -> None:
        self.started, self.go_on = threading.Event(), threading.Event()

    def __call__(self, connection: sqlite3.Connection) -> None:
        self.started.set()
        self.go_on.wait(10)
        note("slow")(connection)


async def test_what_is_cancelled_before_its_turn_does_not_happen(writer: SqliteWriter, path: Path) -> None:
    slow = Slow()
    first = asyncio.create_task(writer.run(slow))
    await asyncio.to_thread(slow.started.wait, 10)
    second = asyncio.create_task(writer.run(note("cancelled")))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    slow.go_on.set()
    await first
    assert notes(path) == ["slow"]


async def test_what_follows_a_commit_happens_though_nobody_waits_any_more(writer: SqliteWriter, path: Path) -> None:
    slow, told = Slow(), asyncio.Event()
    waiting = asyncio.create_task(writer.run(slow, lambda _: told.set()))
    await asyncio.to_thread(slow.started.wait, 10)
    waiting.cancel()
    slow.go_on.set()
    async with asyncio.timeout(10):
        await told.wait()
    assert notes(path) == ["slow"]


async def test_closing_finishes_what_is_queued_and_refuses_the_rest(writer: SqliteWriter, path: Path) -> None:
    with locked(path):
        queued = [asyncio.create_task(writer.run(note(str(number)))) for number in range(5)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(writer.close())
        await asyncio.sleep(0)
    await asyncio.gather(*queued)
    await closing
    with pytest.raises(BusError, match="is closed"):
        await writer.run(note("late"))
    assert notes(path) == ["0", "1", "2", "3", "4"]


async def test_a_bus_can_be_opened_again_after_it_was_closed(bus: EventBus) -> None:
    await bus.publish(STREAM, event())
    await bus.close()
    with pytest.raises(BusError, match="is closed"):
        await bus.publish(STREAM, event())
    with pytest.raises(BusError, match="is closed"):
        await bus.depth()
    await bus.open()
    await bus.publish(STREAM, event())
    assert (await bus.depth())[STREAM].pending == 2


# ── stores that fail ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_full_disk_raises_and_nothing_of_the_call_is_visible(bus: EventBus, path: Path) -> None:
    small, large = event(), [event(payload={"text": "x" * 1000}) for _ in range(500)]
    await bus.publish(STREAM, small)
    await pragma(bus, f"max_page_count = {size_in_pages(path) + 20}")
    with pytest.raises(StorageFull, match=r"bus\.db: database or disk is full; nothing was written"):
        await bus.publish(STREAM, large)
    assert (await bus.depth())[STREAM].pending == 1
    # Those who need no room go on.
    [delivery] = await bus.claim(STREAM, worker="w")
    assert await bus.settle(done=[delivery]) == []
    await pragma(bus, "max_page_count = 1000000")
    assert len(await bus.publish(STREAM, large)) == 500


async def test_a_publisher_without_room_does_not_take_others_with_it(bus: EventBus, path: Path) -> None:
    await bus.publish(STREAM, event())
    await pragma(bus, f"max_page_count = {size_in_pages(path) + 20}")
    with locked(path):
        together = asyncio.gather(
            bus.publish(STREAM, event()),
            bus.publish(STREAM, [event(payload={"text": "x" * 1000}) for _ in range(500)]),
            bus.publish(STREAM, event()),
            return_exceptions=True,
        )
        await asyncio.sleep(0)
    first, full, last = await together
    assert isinstance(full, StorageFull)
    assert not isinstance(first, BaseException)
    assert not isinstance(last, BaseException)
    assert (await bus.depth())[STREAM].pending == 3


async def test_when_the_commit_fails_everybody_in_it_hears_of_it_and_nothing_is_visible(
    bus: EventBus, path: Path
) -> None:
    await bus.publish(STREAM, event())
    with contextlib.ExitStack() as broken:
        with locked(path):
            together = asyncio.gather(*(bus.publish(STREAM, event()) for _ in range(3)), return_exceptions=True)
            await asyncio.sleep(0)
            broken.enter_context(no_file_grows_beyond(Path(f"{path}-wal").stat().st_size))
        outcomes = await together
    assert [type(outcome) for outcome in outcomes] == [TransportUnavailable] * 3
    assert len({id(outcome) for outcome in outcomes}) == 3
    async with connect(f"sqlite://{path}") as other:
        assert (await other.depth())[STREAM].pending == 1
    assert await bus.publish(STREAM, event())
    assert (await bus.depth())[STREAM].pending == 2


async def test_who_cannot_get_the_write_lock_says_so_in_one_line(bus: EventBus, path: Path) -> None:
    async with connect(f"sqlite://{path}", connect_timeout=0.05) as impatient:
        with locked(path):
            with pytest.raises(TransportUnavailable, match="holds the write lock") as raised:
                await impatient.publish(STREAM, event())
            assert "\n" not in str(raised.value)
            assert await impatient.depth() == {}  # looking waits for nobody
        assert await impatient.publish(STREAM, event())


async def pragma(bus: EventBus, text: str) -> None:
    """Change a setting of the connection that writes."""
    transport: Any = bus.transport
    await transport._writer.run(lambda connection: connection.execute(f"PRAGMA {text}").fetchall())


def size_in_pages(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA page_count").fetchone()[0])
