"""``publish_sync(url=…)`` on SQLite: in the caller's thread, over a connection that stays open.

What holds on every transport is in ``test_publish_sync.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from kingdom.bus import BusError, Envelope, NotSetUp, connect, publish_sync, sync
from kingdom.bus.errors import InvalidEnvelope, TransportUnavailable, UnknownTransport
from kingdom.bus.transport import TransportOptions
from kingdom.bus.transports.sqlite import SqliteTransport

STREAM = "orders"


def url_of(folder: Path) -> str:
    return f"sqlite://{folder}/bus.db"


def prepared(folder: Path) -> str:
    """The URL of a bus that is set up."""

    async def set_up() -> None:
        async with connect(url_of(folder)) as bus:
            await bus.setup()

    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(set_up())
    return url_of(folder)


def stored(folder: Path) -> list[str]:
    """The ids in publish order."""
    with contextlib.closing(sqlite3.connect(folder / "bus.db")) as connection:
        return [row[0] for row in connection.execute("SELECT event_id FROM outbox_event ORDER BY id")]


def made(count: int) -> list[Envelope]:
    return [Envelope(type="Created", payload={"number": number}) for number in range(count)]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return prepared(tmp_path)


def test_a_file_that_is_gone_or_another_one_is_noticed(url: str, tmp_path: Path) -> None:
    publish_sync(STREAM, made(1), url=url)
    for path in tmp_path.glob("bus.db*"):
        path.rename(path.with_name(path.name.replace("bus", "old")))
    with pytest.raises(NotSetUp, match="does not exist yet"):
        publish_sync(STREAM, made(1), url=url)
    assert not (tmp_path / "bus.db").exists()
    prepared(tmp_path)
    (event,) = made(1)
    assert publish_sync(STREAM, event, url=url) == [event.event_id]
    assert stored(tmp_path) == [event.event_id]


@pytest.mark.parametrize("relative", ["sqlite:bus.db", "sqlite://./bus.db"])
def test_a_relative_path_is_of_the_working_directory(
    relative: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        prepared(tmp_path / name)
        monkeypatch.chdir(tmp_path / name)
        (event,) = made(1)
        publish_sync(STREAM, event, url=relative)
        assert stored(tmp_path / name) == [event.event_id]


def test_more_stores_than_are_kept_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "_cache", sync._PublisherCache())
    monkeypatch.setattr(sync, "_MAX_OPEN_STORES", 2)
    folders = [tmp_path / name for name in "abc"]
    urls = [prepared(folder) for folder in folders]
    for _ in range(2):
        for url in urls:
            publish_sync(STREAM, made(1), url=url)
            assert len(sync._cache._kept) <= 2
    assert [len(stored(folder)) for folder in folders] == [2, 2, 2]
    sync._cache.close()
    assert not list(tmp_path.rglob("*-wal"))  # SQLite removes its log when the last connection is closed


def test_a_lock_is_waited_for_and_in_the_end_told(url: str, tmp_path: Path) -> None:
    transport = SqliteTransport(url, TransportOptions(connect_timeout=0.05))
    with contextlib.closing(
        sqlite3.connect(tmp_path / "bus.db", isolation_level=None, check_same_thread=False)
    ) as held:
        held.execute("BEGIN IMMEDIATE")
        for events in (made(1), made(2)):
            with pytest.raises(TransportUnavailable, match="holds the write lock"):
                transport.publish_now(STREAM, events)
        waiting = threading.Timer(0.02, lambda: held.execute("ROLLBACK"))
        waiting.start()
        patient = SqliteTransport(url, TransportOptions(connect_timeout=60))
        events = made(3)
        assert patient.publish_now(STREAM, events[:1]) == [events[0].event_id]
        waiting.join()
    assert transport.publish_now(STREAM, events[1:]) == [event.event_id for event in events[1:]]
    assert stored(tmp_path) == [event.event_id for event in events]
    patient.close_now()
    transport.close_now()
    transport.close_now()


def test_what_fails_leaves_nothing_and_the_next_call_works(url: str, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "bus.db")) as connection:
        connection.execute(
            "CREATE TRIGGER refuse AFTER INSERT ON outbox_event WHEN NEW.event_type = 'Refused' "
            "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        )
    refused = Envelope(type="Refused")
    for events in ([refused], [*made(100), refused]):
        with pytest.raises(BusError, match="not this one"):
            publish_sync(STREAM, events, url=url)
    with pytest.raises(InvalidEnvelope):
        publish_sync(STREAM, Envelope(type="Large", payload={"text": "x" * 3000}), url=url, max_bytes=2000)
    assert stored(tmp_path) == []
    (event,) = made(1)
    assert publish_sync(STREAM, event, url=url) == [event.event_id]
    assert stored(tmp_path) == [event.event_id]


@pytest.mark.parametrize("url", [["sqlite:///x"], "bus.db", "nosuch:///x"])
def test_what_is_no_url_of_a_bus_is_told(url: Any) -> None:
    with pytest.raises(UnknownTransport):
        publish_sync(STREAM, made(1), url=url)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_whatever_interrupts_it_the_file_is_not_left_locked(
    error: type[BaseException], url: str, tmp_path: Path
) -> None:
    times = iter([error])

    def clock() -> float:
        for raised in times:
            raise raised
        return 1.0

    transport = SqliteTransport(url, TransportOptions(clock=clock))
    events = made(3)
    with pytest.raises(error):
        transport.publish_now(STREAM, events)
    with contextlib.closing(sqlite3.connect(tmp_path / "bus.db", timeout=0, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    assert transport.publish_now(STREAM, events) == [event.event_id for event in events]
    assert stored(tmp_path) == [event.event_id for event in events]
    transport.close_now()


def test_a_store_that_is_not_set_up_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotSetUp, match="does not exist yet"):
        publish_sync(STREAM, made(1), url=url_of(tmp_path))
    (tmp_path / "bus.db").touch()
    with pytest.raises(NotSetUp, match="has no tables"):
        publish_sync(STREAM, made(1), url=url_of(tmp_path))
