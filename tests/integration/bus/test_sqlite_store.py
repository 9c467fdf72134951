"""The file: made, migrated, refused, examined."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kingdom.bus import (
    BusError,
    Check,
    Envelope,
    Inbox,
    InvalidOption,
    NotSetUp,
    SchemaTooNew,
    TransportUnavailable,
    connect,
)
from kingdom.bus.outbox import migrations
from kingdom.bus.transports.sqlite import _doctor, _store

NEWEST = migrations("sqlite")[-1][0]
NAMES = [name for _, name, _ in migrations("sqlite")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.db"


def url(path: Path) -> str:
    return f"sqlite://{path}"


async def made(path: Path) -> None:
    async with connect(url(path)) as bus:
        await bus.setup()


def execute(path: Path, sql: str, *given: Any) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(sql, given).fetchall()


# ── setting up ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_setting_up_makes_the_file_and_its_directories(tmp_path: Path) -> None:
    path = tmp_path / "some" / "where" / "bus.db"
    async with connect(url(path)) as bus:
        assert await bus.setup() == NAMES
        assert await bus.setup() == []
    assert execute(path, "SELECT number, name FROM kingdom_migration") == list(enumerate(NAMES, 1))
    assert execute(path, "PRAGMA journal_mode") == [("wal",)]


async def test_the_tables_join_those_of_an_application(path: Path) -> None:
    execute(path, "CREATE TABLE customer (name TEXT)")
    execute(path, "PRAGMA user_version = 7")
    await made(path)
    assert execute(path, "PRAGMA user_version") == [(7,)]
    assert execute(path, "SELECT count(*) FROM customer") == [(0,)]


async def test_migrating_from_several_processes_at_once_is_safe(path: Path) -> None:
    code = f"""
import asyncio, sys
from kingdom.bus import connect
async def main():
    async with connect({url(path)!r}) as bus:
        print("ready", flush=True)
        sys.stdin.readline()
        print(await bus.setup())
asyncio.run(main())
"""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) for _ in range(4)]
    assert [process.stdout.readline() for process in processes if process.stdout] == ["ready\n"] * 4
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=60) for process in processes]
    assert [errors for _, errors in said] == [""] * 4
    assert sorted(out.strip() for out, _ in said) == sorted([str(NAMES), "[]", "[]", "[]"])
    assert execute(path, "SELECT count(*) FROM kingdom_migration") == [(len(NAMES),)]


async def test_an_older_file_is_migrated_with_what_is_in_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_store, _store):
        monkeypatch.setattr(module, "migrations", lambda _: migrations("sqlite")[:1])
    await made(path)
    monkeypatch.undo()
    execute(path, "INSERT INTO outbox_stream (stream) VALUES ('s')")
    old = "INSERT INTO outbox_event (event_id, stream, event_type, payload_json) VALUES ('a', 's', 'T', ?)"
    execute(path, old, Envelope(type="T", event_id="a", payload={"n": 1}).to_json())
    async with connect(url(path)) as bus:
        with pytest.raises(NotSetUp, match=f"at version 1 of the schema, this code needs {NEWEST}: run"):
            await bus.claim("s", worker="w")
        assert await bus.setup() == NAMES[1:]
        assert await bus.setup() == []
        [delivery] = await bus.claim("s", worker="w")
        assert delivery.envelope.payload == {"n": 1}
        assert await bus.settle(done=[delivery]) == []


async def test_a_relative_path_means_the_directory_the_bus_was_made_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bus = connect("sqlite:sub/bus.db")
    monkeypatch.chdir("/")
    async with bus:
        await bus.setup()
    assert (tmp_path / "sub" / "bus.db").exists()


async def test_a_path_may_hold_characters_that_mean_something_in_a_url(tmp_path: Path) -> None:
    path = tmp_path / "100 % sure" / "bus.db"
    await made(path)
    assert path.exists()


# ── refusing ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_using_a_store_that_is_not_there_says_what_to_do_and_makes_nothing(path: Path) -> None:
    async with connect(url(path)) as bus:
        with pytest.raises(NotSetUp, match=r"bus\.db does not exist yet: run `await bus\.setup\(\)` or `kingdom bus"):
            await bus.publish("s", Envelope(type="T"))
        with pytest.raises(NotSetUp, match="does not exist yet"):
            await bus.depth()
    assert list(path.parent.iterdir()) == []


async def test_using_a_database_without_our_tables_says_what_to_do(path: Path) -> None:
    execute(path, "CREATE TABLE customer (name TEXT)")
    async with connect(url(path)) as bus:
        with pytest.raises(NotSetUp, match="has no tables of the bus yet: run"):
            await bus.claim("s", worker="w")
        await bus.setup()
        assert await bus.claim("s", worker="w") == []


async def test_a_store_of_an_older_version_says_what_to_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await made(path)
    newer = (*migrations("sqlite"), (NEWEST + 1, "next", ""))
    monkeypatch.setattr(_store, "migrations", lambda dialect: newer)
    async with connect(url(path)) as bus:
        with pytest.raises(NotSetUp, match=f"at version {NEWEST} of the schema, this code needs {NEWEST + 1}: run"):
            await bus.depth()


async def test_a_schema_newer_than_the_code_is_refused_and_not_touched(path: Path) -> None:
    await made(path)
    execute(path, "INSERT INTO kingdom_migration VALUES (?, 'from_the_future', 0)", NEWEST + 1)
    before = path.read_bytes()
    with pytest.raises(
        SchemaTooNew, match=f"version {NEWEST + 1}, this code knows up to {NEWEST}: update kingdom here"
    ):
        await connect(url(path)).open()
    bus = connect(url(path))
    for operation in (bus.setup(), bus.publish("s", Envelope(type="T")), bus.depth(), bus.claim("s", worker="w")):
        with pytest.raises(SchemaTooNew):
            await operation
    await bus.close()
    assert path.read_bytes() == before
    assert [item.name for item in path.parent.iterdir()] == [path.name]


async def test_a_file_that_is_no_database_is_refused_and_not_touched(path: Path) -> None:
    path.write_text("Dear diary, today I was not a database. " * 50)
    before = path.read_bytes()
    bus = connect(url(path))
    with pytest.raises(BusError, match="is no SQLite database"):
        await bus.open()
    with pytest.raises(BusError, match="is no SQLite database"):
        await bus.setup()
    await bus.close()
    assert path.read_bytes() == before


async def test_a_directory_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(TransportUnavailable, match="unable to open database file; check that the file"):
        await connect(url(tmp_path)).open()


async def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    bus = connect(url(tmp_path / "file" / "bus.db"))
    with pytest.raises(TransportUnavailable, match=r"file/bus\.db: its directory cannot be created"):
        await bus.setup()
    await bus.close()


@pytest.mark.parametrize("address", ["sqlite::memory:", "sqlite:///:memory:", "sqlite://:memory:"])
def test_a_database_in_memory_is_refused(address: str) -> None:
    with pytest.raises(InvalidOption, match="use memory: for tests"):
        connect(address)


def test_options_nobody_knows_are_refused(path: Path) -> None:
    with pytest.raises(InvalidOption, match="remove 'cache'"):
        connect(f"{url(path)}?cache=shared")


def test_an_sqlite_that_is_too_old_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(BusError, match=r"too old for the bus: .* 3\.35\.0 or newer"):
        connect(url(path))


# ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_every_connection_is_durable(path: Path) -> None:
    async with connect(url(path)) as bus:
        await bus.setup()
        transport: Any = bus.transport
        for connection in (transport._writer, transport._reader):
            settings = await connection.run(
                lambda connection: [
                    connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
                ]
            )
            assert settings == ["wal", 2]


async def test_an_inbox_needs_no_time_from_its_caller(path: Path) -> None:
    await made(path)
    inbox = Inbox("push")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        with connection:
            assert inbox.first_sync("event-1", tx=connection)
        with connection:
            assert not inbox.first_sync("event-1", tx=connection)
        [[age]] = connection.execute("SELECT strftime('%s', 'now') - received_at FROM inbox_event").fetchall()
    assert -5 < age < 60


# ── the doctor ───────────────────────────────────────────────────────────────────────────────────────────────────


async def checks(path: Path) -> dict[str, Check]:
    bus = connect(url(path))
    found = await bus.doctor()
    await bus.close()
    return {check.name: check for check in found}


async def test_the_doctor_looks_at_everything(path: Path) -> None:
    await made(path)
    found = await checks(path)
    names = ["file system", "free space", "schema", "journal", "write-ahead log", "integrity"]
    assert list(found) == names
    assert [check for check in found.values() if check.level == "error"] == []


async def test_the_doctor_finds_a_missing_file(path: Path) -> None:
    assert (await checks(path))["file"].level == "error"
    assert not path.exists()


async def test_the_doctor_finds_missing_tables(path: Path) -> None:
    execute(path, "CREATE TABLE customer (name TEXT)")
    found = await checks(path)
    assert (found["schema"].level, found["schema"].hint) == ("error", "kingdom bus migrate")
    assert found["journal"].level == "error"


async def test_the_doctor_finds_a_schema_from_the_future(path: Path) -> None:
    await made(path)
    execute(path, "INSERT INTO kingdom_migration VALUES (?, 'from_the_future', 0)", NEWEST + 1)
    assert (await checks(path))["schema"].level == "error"


async def test_the_doctor_finds_a_file_that_is_no_database(path: Path) -> None:
    path.write_bytes(b"not a database " * 100)
    assert "is no SQLite database" in (await checks(path))["file"].message


async def test_the_doctor_finds_damage(path: Path) -> None:
    async with connect(url(path)) as bus:
        await bus.setup()
        await bus.publish("s", [Envelope(type="T", payload={"text": "x" * 500}) for _ in range(200)])
    page = execute(path, "SELECT rootpage FROM sqlite_master WHERE name = 'outbox_event_ready'")[0][0]
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 64)
    assert (await checks(path))["integrity"].level == "error"


async def test_the_doctor_finds_a_network_file_system(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await made(path)
    monkeypatch.setattr("kingdom.base.filesystems.filesystem_type", lambda path: "nfs4")
    found = (await checks(path))["file system"]
    assert found.level == "error"
    assert "is on nfs4: " in found.message
    monkeypatch.setattr("kingdom.base.filesystems.filesystem_type", lambda path: "tmpfs")
    assert (await checks(path))["file system"].level == "warning"


async def test_the_doctor_finds_a_disk_that_fills_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await made(path)
    monkeypatch.setattr(_doctor, "_LITTLE_SPACE", 1 << 60)
    assert (await checks(path))["free space"].level == "warning"
    monkeypatch.setattr(_doctor, "_NO_SPACE", 1 << 60)
    assert (await checks(path))["free space"].level == "error"


async def test_the_doctor_finds_a_log_that_only_grows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connect(url(path)) as bus:
        await bus.setup()
        await bus.publish("s", Envelope(type="T"))
        monkeypatch.setattr(_doctor, "_LARGE_LOG", 100)
        found = {check.name: check for check in await bus.doctor()}
    assert found["write-ahead log"].level == "warning"
