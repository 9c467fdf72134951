"""``publish_sync(url=…)`` on every transport: what it needs stays open from one call to the next."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from kingdom.bus import Envelope, EventBus, NotSetUp, SchemaTooNew, connect, publish_sync, sync
from kingdom.bus.errors import InvalidEnvelope, TransportUnavailable
from kingdom.bus.sync import BackgroundPublisher, LoopThread
from kingdom.bus.transports.files import publisher
from kingdom.bus.transports.files.layout import check_version
from kingdom.bus.transports.files.stream import FileStream
from kingdom.bus.transports.postgresql._connections import ConnectionPool
from kingdom.bus.transports.sqlite._store import SqliteStore
from tests.chaos.grounds import restartable_server

STREAM = "orders"


def made(count: int) -> list[Envelope]:
    return [Envelope(type="Created", payload={"number": number}) for number in range(count)]


def ids(events: list[Envelope]) -> list[str]:
    return [event.event_id for event in events]


def set_up(url: str) -> str:
    async def work() -> None:
        async with connect(url) as bus:
            await bus.setup()

    asyncio.run(work())
    return url


def stored(url: str) -> list[str]:
    """What can be claimed, in the order of claims."""

    async def work() -> list[str]:
        async with connect(url) as bus:
            return [record.envelope.event_id for record in await bus.peek(STREAM, limit=1000)]

    return asyncio.run(work())


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[sync._PublisherCache]:
    """What stays open, for one test."""
    fresh = sync._PublisherCache()
    monkeypatch.setattr(sync, "_cache", fresh)
    yield fresh
    fresh.close()


@pytest.fixture
def url(bus_url: str) -> str:
    return set_up(bus_url)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was connected to, and the streams whose files were opened."""
    seen: list[str] = []

    def note(place: type[Any], name: str) -> None:
        plain = getattr(place, name)

        def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(place.__name__)
            return plain(self, *args, **kwargs)

        monkeypatch.setattr(place, name, noting)

    note(SqliteStore, "connect")
    note(ConnectionPool, "connect")
    note(FileStream, "__init__")
    return seen


def test_calls_share_what_is_open_and_are_published_in_order(url: str, opened: list[str]) -> None:
    events = made(20)
    for event in events[:10]:
        assert publish_sync(STREAM, event, url=url) == [event.event_id]
    assert publish_sync(STREAM, events[10:], url=url) == ids(events[10:])
    assert publish_sync(STREAM, events[3], url=url) == []
    (new,) = made(1)
    assert publish_sync(STREAM, events[3:5], new, url=url) == [new.event_id]
    assert 1 <= len(opened) <= 2  # a notification that was owed may take a connection of its own
    assert stored(url) == ids([*events, new])


def test_threads_that_publish_at_once_lose_nothing(url: str) -> None:
    events = made(100)
    with ThreadPoolExecutor(8) as threads:
        accepted = list(threads.map(lambda event: publish_sync(STREAM, event, url=url), [*events, *events]))
    assert Counter(event_id for answer in accepted for event_id in answer) == Counter(ids(events))
    assert sorted(stored(url)) == sorted(ids(events))


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # of newer Pythons, when there are threads
def test_a_forked_process_has_what_it_needs_of_its_own(url: str) -> None:
    before, child, after = made(3)
    publish_sync(STREAM, before, url=url)
    if (pid := os.fork()) == 0:
        code = 1
        with contextlib.suppress(BaseException):
            sync._cache.forget()  # registered for the one that this test has replaced
            publish_sync(STREAM, child, url=url)
            sync._cache.close()
            code = 0
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert publish_sync(STREAM, after, url=url) == [after.event_id]
    assert stored(url) == ids([before, child, after])


def test_it_works_where_an_event_loop_runs(url: str) -> None:
    (event,) = made(1)

    async def view() -> list[str]:
        return publish_sync(STREAM, event, url=url)

    assert asyncio.run(view()) == [event.event_id]


def test_what_is_closed_is_opened_again(url: str, kept: sync._PublisherCache, opened: list[str]) -> None:
    events = made(3)
    for event in events:
        publish_sync(STREAM, event, url=url)
        kept.close()
        kept.close()
    assert len(opened) == 3
    assert stored(url) == ids(events)


def test_one_that_made_room_for_others_still_serves_who_has_it(
    url: str, kept: sync._PublisherCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "_MAX_OPEN_STORES", 1)
    first, second = made(2)
    place = kept.find(url, 5000)
    place.publish_now(STREAM, [first])
    kept.find(url, 6000)
    assert len(kept._kept) == 1
    assert place.publish_now(STREAM, [second]) == [second.event_id]
    place.close_now()
    assert stored(url) == ids([first, second])


def test_what_fails_leaves_nothing_and_the_next_call_works(url: str) -> None:
    with pytest.raises(InvalidEnvelope):
        publish_sync(STREAM, *made(2), Envelope(type="Large", payload={"text": "x" * 3000}), url=url, max_bytes=2000)
    (event,) = made(1)
    assert publish_sync(STREAM, event, url=url, max_bytes=2000) == [event.event_id]
    assert stored(url) == [event.event_id]


def test_a_store_that_is_not_set_up_is_told_until_it_is(bus_url: str) -> None:
    (event,) = made(1)
    for _ in range(2):
        with pytest.raises(NotSetUp):
            publish_sync(STREAM, event, url=bus_url)
    set_up(bus_url)
    assert publish_sync(STREAM, event, url=bus_url) == [event.event_id]


SCRIPT = """
import sys
from kingdom.bus import Envelope, publish_sync
for number in range(3):
    publish_sync("orders", Envelope(type="Created", event_id=f"e{number}"), url=sys.argv[1])
"""

# Development mode also reports every step of an event loop that took 100 ms: that is the machine, not the bus.
WITHOUT_SLOW_STEPS = """
import logging
logging.getLogger("asyncio").addFilter(lambda record: not str(record.msg).startswith("Executing "))
"""


def test_a_process_ends_without_a_word(url: str) -> None:
    command = [sys.executable, "-X", "dev", "-c", WITHOUT_SLOW_STEPS + SCRIPT, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert stored(url) == ["e0", "e1", "e2"]


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_directory_that_is_gone_or_another_one_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "queue"
    url = set_up(f"files://{folder}")
    publish_sync(STREAM, made(1), url=url)
    folder.rename(tmp_path / "old")
    with pytest.raises(NotSetUp):
        publish_sync(STREAM, made(1), url=url)
    assert not folder.exists()
    set_up(url)
    (event,) = made(1)
    assert publish_sync(STREAM, event, url=url) == [event.event_id]
    assert stored(url) == [event.event_id]
    assert len(list((tmp_path / "old" / STREAM / "pending").iterdir())) == 1


def test_a_stream_that_is_removed_follow_up_ended(tmp_path: Path) -> None:
    url = set_up(f"files://{tmp_path}/queue")
    publish_sync(STREAM, made(1), url=url)
    shutil.rmtree(tmp_path / "queue" / STREAM)
    (event,) = made(1)
    assert publish_sync(STREAM, event, url=url) == [event.event_id]
    assert stored(url) == [event.event_id]


def test_a_directory_that_a_newer_version_took_over_is_left_alone(tmp_path: Path) -> None:
    url = set_up(f"files://{tmp_path}/queue")
    publish_sync(STREAM, made(1), url=url)
    marker = next((tmp_path / "queue").glob(".kingdom*"))
    marker.write_text('{"version": 99}')
    with pytest.raises(SchemaTooNew):
        publish_sync(STREAM, made(1), url=url)
    assert len(list((tmp_path / "queue" / STREAM / "pending").iterdir())) == 1


def test_what_the_disk_says_is_an_error_of_the_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = set_up(f"files://{tmp_path}/queue")

    def denied(root: str) -> None:
        raise PermissionError(13, "Permission denied", root)

    with monkeypatch.context() as patch:
        patch.setattr(publisher, "check_version", denied)
        with pytest.raises(TransportUnavailable, match="Permission denied"):
            publish_sync(STREAM, made(1), url=url)
    assert publisher.check_version is check_version
    (event,) = made(1)
    assert publish_sync(STREAM, event, url=url) == [event.event_id]


# ── PostgreSQL: in the loop of a thread ───────────────────────────────────────────────────────────────────────────────


def test_a_server_that_was_restarted_is_connected_to_again() -> None:
    first, second, third = made(3)
    with restartable_server() as server:
        url = set_up(server.url)
        publish_sync(STREAM, first, url=url)
        server.crash()
        assert publish_sync(STREAM, second, url=url) == [second.event_id]
        asyncio.run(_end_backends(url))
        assert publish_sync(STREAM, third, url=url) == [third.event_id]
        assert stored(url) == ids([first, second, third])


async def _end_backends(url: str) -> None:
    connection = await asyncpg.connect(url)
    ended = await connection.fetchval(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'kingdom'"
    )
    assert ended >= 1
    await connection.close()


def test_an_interrupt_is_not_kept_waiting_for_a_server_that_is_away() -> None:
    script = "print('here', flush=True)" + SCRIPT
    away = "postgresql://nobody@127.0.0.1:1/none"
    command = [sys.executable, "-c", script, away]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert said.splitlines()[-1] == "KeyboardInterrupt"
    assert "TransportUnavailable" not in said


class Watched:
    """A thread with a bus in it, of which is known when it opens and closes."""

    def __init__(self, url: str, idle: float, patience: float = 30) -> None:
        self.url = url
        self.patience = patience
        self.opened = self.closed = 0
        self.change = threading.Condition()
        self.thread = LoopThread()
        self.bus = BackgroundPublisher(self.thread, self.make, idle)

    def make(self) -> EventBus:
        bus = connect(self.url, connect_timeout=self.patience)
        plain_open, plain_close = bus.transport.open, bus.transport.close

        async def opening() -> None:
            await plain_open()
            self._count(opened=1)

        async def closing() -> None:
            await plain_close()
            self._count(closed=1)

        bus.transport.open = opening  # type: ignore[method-assign]
        bus.transport.close = closing  # type: ignore[method-assign]
        return bus

    def _count(self, *, opened: int = 0, closed: int = 0) -> None:
        with self.change:
            self.opened += opened
            self.closed += closed
            self.change.notify_all()

    def wait_until_closed(self, times: int) -> None:
        with self.change:
            assert self.change.wait_for(lambda: self.closed >= times, timeout=60)


def test_what_nobody_uses_is_closed_and_opened_by_the_next_call(postgres_url: str) -> None:
    watched = Watched(set_up(postgres_url), idle=0.01)
    events = made(3)
    for times, event in enumerate(events, 1):
        assert watched.bus.publish_now(STREAM, [event]) == [event.event_id]
        watched.wait_until_closed(times)
    assert (watched.opened, watched.closed) == (3, 3)
    assert stored(postgres_url) == ids(events)
    watched.thread.stop()
    watched.thread.stop()


def test_callers_share_one_opening_and_its_failure(tmp_path: Path) -> None:
    watched = Watched(f"postgresql://nobody@127.0.0.1:1/none?passfile={tmp_path}/none", idle=60, patience=0.1)
    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(watched.bus.publish_now, STREAM, made(1)) for _ in range(4)]
        for answer in answers:
            with pytest.raises(TransportUnavailable, match="did not answer"):
                answer.result(60)
    assert watched.opened == 0
    watched.bus.close_now()
    watched.thread.stop()


class Slow:
    """A bus, and its own transport, that opens when it is told to."""

    def __init__(self) -> None:
        self.transport = self
        self.begun, self.go = threading.Event(), asyncio.Event()
        self.given_up = self.closed = False

    async def open(self) -> None:
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.given_up = True
            raise

    async def publish(self, stream: str, envelopes: list[Envelope], tx: None) -> list[str]:
        return ids(envelopes)

    async def close(self) -> None:
        self.closed = True


def test_an_opening_that_nobody_waits_for_any_more_is_given_up_and_disturbs_nobody() -> None:
    async def tell(bus: Slow) -> None:
        bus.go.set()

    thread, (first, second) = LoopThread(), (Slow(), Slow())
    buses: Iterator[Any] = iter([first, second])
    place = BackgroundPublisher(thread, lambda: next(buses), idle=0.0)
    with pytest.raises(TimeoutError):
        thread.run(place._publish(STREAM, made(1)), timeout=0.01)
    assert first.begun.wait(60)
    while place._opening is not None:  # until its caller is gone
        thread.run(asyncio.sleep(0))
    with ThreadPoolExecutor(1) as threads:
        events = made(1)
        answer = threads.submit(place.publish_now, STREAM, events)
        assert second.begun.wait(60)
        thread.run(tell(second))
        assert answer.result(60) == ids(events)
    place.close_now()
    assert (first.given_up, first.closed) == (True, False)
    assert (second.given_up, second.closed) == (False, True)
    thread.stop()


def test_whatever_ends_the_waiting_ends_what_was_waited_for() -> None:
    thread, begun, ended = LoopThread(), threading.Event(), threading.Event()

    async def never() -> None:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        thread.run(never(), timeout=0.01)
    thread.stop()
    assert ended.is_set() == begun.is_set()


def test_whoever_waits_when_the_process_ends_is_let_go() -> None:
    thread, begun = LoopThread(), threading.Event()

    async def never() -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(thread.run, never())
        assert begun.wait(60)
        thread.stop()
        with pytest.raises(BaseException) as raised:
            answer.result(60)
    assert type(raised.value).__name__ == "CancelledError"
