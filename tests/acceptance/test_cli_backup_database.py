"""``kingdom backup`` of a court whose queues are in PostgreSQL: one file has both, as of one instant."""

from __future__ import annotations

import asyncio
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from kingdom.bus import Delivery, Envelope
from kingdom.bus.transports.postgresql import split_url
from kingdom.court.database_backup import DatabaseBackupFailed, DatabaseSnapshot, restore_database
from kingdom.court.home import MARKER
from kingdom.court.machines.registry import Registry
from kingdom.court.queues import MESSAGES, declare_queues, open_queues
from tests.support.command import Background, kingdom
from tests.support.courts import Court, until
from tests.support.postgres import create_schema, with_schema
from tests.support.repositories import Remote

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(240)]


@pytest.fixture
def court(tmp_path: Path, postgres_url: str) -> Court:
    made = Court(tmp_path / "home")
    made.make()
    (made.root / MARKER).write_text(f"queue:\n  transport: '{postgres_url}'\n")
    made.install("gen-test", concurrency=3)
    return made


def statuses(court: Court) -> dict[str, str]:
    return {task["event_id"]: task["status"] for task in court.ask("task", "ls")["tasks"]}


def completed(court: Court, *events: str) -> bool:
    return all(statuses(court).get(event_id) == "completed" for event_id in events)


def query(url: str, statement: str) -> Any:
    async def run() -> Any:
        dsn, options = split_url(url)
        connection = await asyncpg.connect(dsn, server_settings={"search_path": options["schema"]})
        try:
            return await connection.fetch(statement)
        finally:
            await connection.close()

    return asyncio.run(run())


def lose(court: Court, process: Background, url: str) -> None:
    """Kill the whole court at once; its disk and its database are lost."""
    court.lose(process)
    schema = split_url(url)[1]["schema"]
    query(url, f'DROP SCHEMA "{schema}" CASCADE')


def test_a_court_that_is_lost_with_its_database_comes_back(court: Court, tmp_path: Path, postgres_url: str) -> None:
    release, file = tmp_path / "release", tmp_path / "court.tar.gz"
    with court.up() as process:
        done = court.emit({"number": 1})
        until(partial(completed, court, done), "the first task")
        held = [court.emit({"until": str(release)}) for _ in range(2)]
        court.soldier_at_work()
        made = court.ask("backup", str(file))
        assert made["info"]["rows"] >= 4
        assert process.poll() is None
        after = court.emit({"number": 2})
        until(partial(completed, court, after), "a task after the backup")
        refused = kingdom("restore", str(file), str(court.root))
        assert "is not empty" in refused.stderr
        lose(court, process, postgres_url)
    restored = kingdom("restore", str(file), str(court.root))
    assert restored.returncode == 0, restored.stderr
    assert not list(tmp_path.glob(".*"))
    assert not list(court.root.glob(".backup-*"))
    release.touch()
    with court.up():
        until(partial(completed, court, *held), "what was in progress")
    assert statuses(court) == dict.fromkeys((done, *held), "completed"), f"{after} came after the backup"
    columns = "event_id, event_type, priority, created_at, payload_json"
    tasks = query(postgres_url, f"SELECT {columns} FROM outbox_event WHERE stream = 'tasks'")
    assert len(tasks) == 3, "each was done once"


@pytest.mark.walk
def test_a_backup_is_restored_to_a_database_that_is_named_and_empty(
    court: Court, tmp_path: Path, postgres_url: str, postgres_server: str
) -> None:
    file = tmp_path / "court.tar.gz"
    event_id = court.emit({"number": 1})
    court.ask("backup", str(file))
    shutil.rmtree(court.root)
    query(postgres_url, "UPDATE outbox_event SET attempt_count = attempt_count + 1")  # another state: not this backup
    refused = kingdom("restore", str(file), str(court.root))
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "has a court already (1 rows): name an empty database or another schema" in refused.stderr
    assert not court.root.exists()
    other = asyncio.run(create_schema(postgres_server, "elsewhere"))
    for _ in range(2):  # the second time as after an interruption between database and home
        done = kingdom("restore", str(file), str(court.root), "--database", other)
        assert done.returncode == 0, done.stderr
        assert other in (court.root / MARKER).read_text()
        kept = court.root.rename(tmp_path / "kept")
        shutil.rmtree(kept) if _ == 0 else kept.rename(court.root)
    with court.up():
        until(partial(completed, court, event_id), "what had been waiting")
    assert [row["status"] for row in query(postgres_url, "SELECT status FROM outbox_event")] == ["PENDING"]


def test_the_password_of_the_database_of_a_restored_court_stands_in_no_argument_and_no_file(
    court: Court, tmp_path: Path, postgres_url: str, postgres_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "court.tar.gz"
    (court.root / MARKER).write_text("queue:\n  transport_env: KINGDOM_FORMER  # the URL\n")
    monkeypatch.setenv("KINGDOM_FORMER", postgres_url)
    event_id = court.emit()
    court.ask("backup", str(file))
    shutil.rmtree(court.root)
    monkeypatch.delenv("KINGDOM_FORMER")
    refusals: dict[tuple[str, ...], str] = {
        (): "takes the URL of the database from KINGDOM_FORMER, which is not set",
        ("--database", "postgresql://me:secret@db.example/court"): "a password does not belong in a file",
        ("--database-env", "KINGDOM_OTHER"): "the environment variable KINGDOM_OTHER is not set",
        ("--database", postgres_url, "--database-env", "KINGDOM_OTHER"): "give --database or --database-env, not both",
    }
    for options, reason in refusals.items():
        done = kingdom("restore", str(file), str(court.root), *options)
        assert done.returncode != 0
        assert reason in done.stderr
        assert ".restored" not in done.stderr
        assert "secret" not in done.stderr
        assert not court.root.exists()
    monkeypatch.setenv("KINGDOM_OTHER", asyncio.run(create_schema(postgres_server, "another")))
    done = kingdom("restore", str(file), str(court.root), "--database-env", "KINGDOM_OTHER")
    assert done.returncode == 0, done.stderr
    assert (court.root / MARKER).read_text() == "queue:\n  transport_env: KINGDOM_OTHER  # the URL\n"
    assert statuses(court) == {}
    assert court.ask("trace", event_id)["story"]


def message(number: int) -> Envelope:
    document = {"id": f"msg-20260207-{number:03d}", "type": "report", "content": "a\tb\\n\n한", "status": "pending"}
    return Envelope("report", document, event_id=document["id"])


def test_a_snapshot_has_one_instant_and_the_streams_of_the_court_alone(
    tmp_path: Path, postgres_url: str, postgres_server: str
) -> None:
    async def fill() -> list[Delivery]:
        await Registry(postgres_url).setup()
        await Registry(postgres_url).register("seat", joined=False)
        async with open_queues(postgres_url) as bus:
            await declare_queues(bus)
            await bus.declare("shop.orders")
            await bus.publish("shop.orders", Envelope("Ordered", {"id": 1}))
            await bus.publish(MESSAGES, [message(number) for number in range(1, 6)])
            claimed = await bus.claim(MESSAGES, worker="envoy", limit=2, lease=600)
            await bus.settle(done=claimed[:1])
            return claimed

    async def go_on() -> None:
        async with open_queues(postgres_url) as bus:
            await bus.publish(MESSAGES, message(6))
            await bus.settle(done=first[1:])

    async def check() -> None:
        assert [one.name for one in await Registry(other).machines()] == ["seat"]
        async with open_queues(other) as copied:
            found = {record.envelope.event_id: record async for record in copied.records(MESSAGES)}
            assert sorted(found) == [f"msg-20260207-{number:03d}" for number in range(1, 6)]
            assert [found[one.event_id].status for one in first] == ["DONE", "PROCESSING"]
            assert found["msg-20260207-003"].envelope.payload["content"] == "a\tb\\n\n한"
            assert "shop.orders" not in await copied.depth()
            rest = await copied.claim(MESSAGES, worker="envoy", limit=9, lease=60)
            assert [one.event_id for one in rest] == [f"msg-20260207-{number:03d}" for number in (3, 4, 5)]

    first = asyncio.run(fill())
    with DatabaseSnapshot(postgres_url) as snapshot:
        snapshot.take()
        asyncio.run(go_on())
        assert snapshot.write(tmp_path / "rows") == 3 + 5 + 1
    other = with_schema(postgres_server, "copied")
    restore_database(other, tmp_path / "rows")
    restore_database(other, tmp_path / "rows")  # as after an interruption
    asyncio.run(check())
    with pytest.raises(DatabaseBackupFailed, match=r"has a court already \(6 rows\)"):  # its messages were claimed
        restore_database(other, tmp_path / "rows")


PLAN = """\
name: half
works:
  - name: one
    engine: {name: command, options: {argv: [sh, -c, "echo 1 > one.txt"]}}
    pause_after: true
    tasks: [Do one.]
  - name: two
    engine: {name: command, options: {argv: [sh, -c, "cat one.txt > two.txt"]}}
    tasks: [Do two.]
"""


@pytest.mark.walk
def test_workflows_in_a_database_come_back_with_the_court(
    tmp_path: Path, postgres_url: str, postgres_server: str
) -> None:
    court, file = Court(tmp_path / "home"), tmp_path / "court.tar.gz"
    court.make()
    remote = Remote(tmp_path / "remote")
    remote.commit({"README": "hello\n"})
    (tmp_path / "half.yaml").write_text(PLAN)

    def run(store: str, *words: str) -> str:
        done = kingdom(*words, KINGDOM_HOME=str(court.root), KINGDOM_WORKFLOW_STORE=store)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(postgres_url, "git", "add", remote.url, "--name", "app")
    run(postgres_url, "workflow", "create", str(tmp_path / "half.yaml"), "--repo", "app")
    paused = kingdom("workflow", "start", "half", KINGDOM_HOME=str(court.root), KINGDOM_WORKFLOW_STORE=postgres_url)
    assert "review after one" in paused.stdout, paused.stderr
    before = json.loads(run(postgres_url, "workflow", "show", "half", "--json"))
    made = json.loads(run(postgres_url, "backup", str(file), "--json"))
    assert made["info"]["rows"] > 10
    shutil.rmtree(court.root)
    refused = kingdom("restore", str(file), str(court.root))
    assert "set KINGDOM_WORKFLOW_STORE to the URL of one that has none" in refused.stderr
    query(postgres_url, "UPDATE outbox_event SET attempt_count = attempt_count + 1")  # another state: not this backup
    refused = kingdom("restore", str(file), str(court.root), KINGDOM_WORKFLOW_STORE=postgres_url)
    assert "has workflows already" in refused.stderr
    assert not court.root.exists()
    other = asyncio.run(create_schema(postgres_server, "restored"))
    run(other, "restore", str(file), str(court.root))
    assert json.loads(run(other, "workflow", "show", "half", "--json")) == before
    run(other, "workflow", "resume", "half")
    after = json.loads(run(other, "workflow", "show", "half", "--json"))
    assert after["status"] == "COMPLETED"
    assert [work["attempt"] for work in after["works"]] == [1, 1]
    (tree,) = [Path(one["path"]) for one in after["repositories"]]
    assert (tree / "two.txt").read_text() == "1\n"


def test_what_is_in_no_backup_is_refused(court: Court, tmp_path: Path) -> None:
    done = kingdom(
        "backup", str(tmp_path / "x.tar.gz"), KINGDOM_HOME=str(court.root), KINGDOM_WORKFLOW_STORE="sqlite:///x/y.db"
    )
    assert "the workflows are in a sqlite database outside of" in done.stderr
    (court.root / MARKER).write_text("queue: {transport: 'postgresql://nobody:secret@127.0.0.1:1/none'}\n")
    done = court.call("backup", str(tmp_path / "x.tar.gz"))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "secret" not in done.stderr
    assert not list(tmp_path.glob("*.gz*"))
