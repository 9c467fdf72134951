"""The database role of a joined machine: what it may do, and what somebody who has taken the machine over may not."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio

from kingdom.agents.ledger import Ledger
from kingdom.bus import BusError, Envelope, NotPermitted, connect
from kingdom.bus.transports.postgresql import split_url
from kingdom.court.errors import MachineRefused
from kingdom.court.init_home import HomeChoices, SharedQueues
from kingdom.court.machines.exchange import FILE, JOURNAL, LEDGER, REPORTS, RESULT
from kingdom.court.machines.intake import Intake
from kingdom.court.machines.joining import create_first_machine, join_court
from kingdom.court.machines.registry import Registry
from kingdom.court.machines.report_checks import ReportChecks
from kingdom.court.machines.rights import Rights, scram_verifier, url_of_role
from kingdom.court.soldiers import all_soldiers
from tests.support.machines import Machine, eventually, first_machine, joined_machine
from tests.support.postgres import create_schema

pytestmark = pytest.mark.postgres
_numbers = itertools.count()


@contextlib.asynccontextmanager
async def _first(folder: Path, url: str) -> AsyncIterator[Machine]:
    async with first_machine(folder / "seat", url) as seat:
        await Registry(url).publish_packages(seat.home)
        yield seat


@contextlib.asynccontextmanager
async def _joined(folder: Path, seat: Machine) -> AsyncIterator[Machine]:
    async with joined_machine(folder / "builder", seat.url, "builder", generals=("gen-quick",)) as builder:
        yield builder


@contextlib.asynccontextmanager
async def _attacking(builder: Machine) -> AsyncIterator[Any]:
    dsn, options = split_url(builder.url)
    connection = await asyncpg.connect(dsn, server_settings={"search_path": options["schema"]})
    yield connection
    await connection.close()


@pytest.fixture
async def seat(tmp_path: Path, postgres_url: str) -> AsyncIterator[Machine]:
    async with _first(tmp_path, postgres_url) as seat:
        yield seat


@pytest.fixture
async def builder(tmp_path: Path, seat: Machine) -> AsyncIterator[Machine]:
    async with _joined(tmp_path, seat) as builder:
        yield builder


@pytest.fixture
async def attacker(builder: Machine) -> AsyncIterator[Any]:
    """A connection with all that the machine knows: its URL."""
    async with _attacking(builder) as connection:
        yield connection


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attacked(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: str
) -> AsyncIterator[tuple[Machine, Any]]:
    """The first machine of a court, and the attacker: for attempts that change nothing, one after another."""
    folder, url = tmp_path_factory.mktemp("attacked"), await create_schema(postgres_server, "attacked")
    async with _first(folder, url) as seat, _joined(folder, seat) as builder, _attacking(builder) as connection:
        await _tasks(seat)
        yield seat, connection


async def _tasks(seat: Machine) -> None:
    """Two tasks, one for a general of the machine and one for another."""
    for general in ("gen-quick", "gen-endless"):
        envelope = Envelope(general, {"id": f"task-{general}"}, event_id=f"task-{general}")
        await seat.services.bus.publish("tasks", envelope)
    await seat.services.bus.publish("events", Envelope("x.y", {"secret": 1}, event_id="evt-1"))
    await seat.services.bus.publish("messages", Envelope("report", {"secret": 1}, event_id="msg-1"))


async def test_it_sees_the_tasks_of_its_generals_and_nothing_else_of_the_court(seat: Machine, attacker: Any) -> None:
    await _tasks(seat)
    assert [row["event_id"] for row in await attacker.fetch("SELECT event_id FROM outbox_event")] == ["task-gen-quick"]
    assert [row["general"] for row in await attacker.fetch("SELECT general FROM court_package")] == ["gen-quick"]
    assert {row["name"] for row in await attacker.fetch("SELECT name FROM court_machine")} == {"seat", "builder"}
    assert await seat.services.bus.find("evt-1") is not None  # the court's own role sees everything


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM court_file",
        "SELECT * FROM court_file_block",
        "SELECT * FROM court_right",
        "SELECT * FROM inbox_event",
        "UPDATE court_right SET generals = NULL",
        "UPDATE court_lead SET machine = 'builder', term = term + 1",
        "DELETE FROM outbox_event",
        "TRUNCATE outbox_event",
        "DELETE FROM court_machine",
        "INSERT INTO court_package (general, digest, archive) VALUES ('gen-quick', 'x', 'x')",
        "UPDATE court_package SET archive = 'x'",
        "UPDATE outbox_stream SET ordered = true",
        "INSERT INTO kingdom_migration (number, name) VALUES (99, 'x')",
        "UPDATE outbox_event SET payload_json = '{}'",
        "UPDATE outbox_event SET event_type = 'gen-quick'",
        "UPDATE outbox_event SET stream = 'events'",
        "CREATE TABLE mine (x integer)",
        "CREATE OR REPLACE FUNCTION court_own_machine() RETURNS text LANGUAGE sql AS $$ SELECT 'seat' $$",
        "ALTER TABLE outbox_event DISABLE ROW LEVEL SECURITY",
        "SET SESSION AUTHORIZATION postgres",
        "INSERT INTO court_machine (name, joined) VALUES ('other', true)",
        "INSERT INTO court_machine (name, joined) VALUES ('builder', false)",
        "UPDATE court_machine SET joined = false WHERE name = 'builder'",
        "UPDATE court_machine SET state = 'removed' WHERE name = 'builder'",
        "UPDATE court_machine SET name = 'seat-2' WHERE name = 'builder'",
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_the_database_refuses_what_is_not_its_business(attacked: tuple[Machine, Any], statement: str) -> None:
    _, attacker = attacked
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await attacker.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE court_machine SET state = 'left' WHERE name = 'seat'",
        "UPDATE outbox_event SET status = 'DEAD', finished = true, dead = true WHERE event_id = 'task-gen-endless'",
        "UPDATE outbox_event SET status = 'DONE', finished = true WHERE stream = 'events'",
        # held by another machine, for some time yet
        "UPDATE outbox_event SET locked_until = now() WHERE event_id = 'task-gen-quick'",
        "UPDATE outbox_event SET status = 'PENDING', locked_by = NULL WHERE event_id = 'task-gen-quick'",
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_the_rows_of_others_are_not_there_for_it(attacked: tuple[Machine, Any], statement: str) -> None:
    seat, attacker = attacked
    bus = seat.services.bus
    (held,) = await bus.claim("tasks", worker="gen-quick@other", types=["gen-quick"], limit=1, lease=60)
    assert await attacker.execute(statement) == "UPDATE 0"
    assert await bus.release([held]) == []


async def test_it_claims_in_its_own_name_only(seat: Machine, builder: Machine) -> None:
    await _tasks(seat)
    bus = builder.services.bus
    assert await bus.claim("tasks", worker="gen-endless@builder", types=["gen-endless"], limit=1, lease=60) == []
    with pytest.raises(NotPermitted):
        await bus.claim("tasks", worker="gen-quick@other", limit=9, lease=60)
    (held,) = await bus.claim("tasks", worker="gen-quick@builder", limit=9, lease=60)
    assert await bus.extend([held], 60) == []
    assert await bus.release([held]) == []
    (held,) = await bus.claim("tasks", worker="gen-quick@builder", limit=9, lease=60)
    assert await bus.settle(done=[held]) == []
    record = await seat.services.bus.find("task-gen-quick")
    assert record is not None
    assert (record.status, (record.locked_by or "").partition("/")[0]) == ("DONE", "gen-quick@builder")


def _report(kind: str, payload: dict[str, Any], *, machine: str = "builder", event_id: str | None = None) -> Envelope:
    event_id = event_id or f"{kind}:{machine}:{next(_numbers)}"
    return Envelope(kind, {"machine": machine, **payload}, event_id=event_id, aggregate_id=machine)


def _result(task: str, **changes: Any) -> Envelope:
    return _report(RESULT, {"result": {"task_id": task}, "ledger": []}, event_id=f"result:{task}", **changes)


async def test_it_reports_in_its_own_name_and_results_of_tasks_that_it_holds(seat: Machine, builder: Machine) -> None:
    await _tasks(seat)
    bus = builder.services.bus
    refused = [
        _report(JOURNAL, {"lines": []}, machine="other"),
        _report(JOURNAL, {"lines": []}, event_id="journal:other:1"),
        _report("nonsense", {}),
        _result("task-gen-quick"),  # not claimed yet
        _result("task-gen-endless"),
    ]
    for envelope in refused:
        with pytest.raises(NotPermitted):
            await bus.publish(REPORTS, envelope)
    for stream in ("events", "tasks", "messages", "machine-orders"):
        with pytest.raises(NotPermitted):
            await bus.publish(stream, _report(JOURNAL, {}))
    await bus.claim("tasks", worker="gen-quick@builder", limit=1, lease=60)
    assert await bus.publish(REPORTS, _result("task-gen-quick")) == ["result:task-gen-quick"]
    assert await bus.publish(REPORTS, _result("task-gen-quick")) == []  # known already
    assert await bus.publish(REPORTS, _report(JOURNAL, {"lines": []}))


@pytest.mark.parametrize(
    "document",
    [
        {"type": RESULT, "payload": {"machine": "builder", "result": {"task_id": "task-gen-endless"}}},
        {"type": JOURNAL, "payload": {"machine": "seat", "lines": []}},
        {"type": JOURNAL, "eventId": "result:task-gen-endless", "payload": {"machine": "builder"}},
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_columns_that_differ_from_the_document_are_refused(
    attacked: tuple[Machine, Any], document: dict[str, Any]
) -> None:
    _, attacker = attacked
    envelope = {**_report(JOURNAL, {}, event_id="journal:builder:0").to_dict(), **document}
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await attacker.execute(
            "INSERT INTO outbox_event (event_id, stream, event_type, aggregate_id, payload_json) "
            "VALUES ('journal:builder:0', 'machine-reports', 'journal', 'builder', $1)",
            json.dumps(envelope),
        )


async def test_results_of_its_generals_on_other_machines_can_be_read(seat: Machine, builder: Machine) -> None:
    await _tasks(seat)
    for task in ("task-gen-quick", "task-gen-endless"):
        await seat.services.bus.publish(REPORTS, _result(task, machine="other"))
    found = [await builder.services.bus.find(f"result:{task}") for task in ("task-gen-quick", "task-gen-endless")]
    assert [one is not None for one in found] == [True, False]


async def test_many_reports_at_once_are_published(seat: Machine, builder: Machine) -> None:
    reports = [_report(JOURNAL, {"lines": []}) for _ in range(1000)]  # which the bus would send with COPY
    assert len(await builder.services.bus.publish(REPORTS, reports)) == 1000
    assert await builder.services.bus.publish(REPORTS, [*reports, *reports]) == []


# ── what is inside of a report ────────────────────────────────────────────────────────────────────────────────────────


async def _dead(seat: Machine, builder: Machine, *reports: Envelope) -> list[str]:
    """Take the reports in; return why they are refused."""
    await builder.services.bus.publish(REPORTS, list(reports))
    await Intake(seat.services, Rights(seat.url)).take()
    return [letter.error_message or "" for letter in await seat.services.bus.dead(REPORTS, 10)]


def _file(path: str, content: object, offset: int = 0) -> Envelope:
    data = base64.b64encode(json.dumps(content).encode()).decode()
    return _report(FILE, {"files": [{"path": path, "offset": offset, "data": data}]})


async def test_costs_of_other_generals_are_refused(seat: Machine, builder: Machine) -> None:
    line = {"ts": "2026-01-01T00:00:00Z", "run_id": "r", "cost_usd": 1000.0}
    assert await _dead(seat, builder, _report(LEDGER, {"lines": [{**line, "general": "gen-endless"}]})) == [
        "builder may not report costs of 'gen-endless'"
    ]
    assert Ledger(seat.home.ledger).totals(0).runs == 0


async def test_journal_lines_of_other_roles_are_left_out(seat: Machine, builder: Machine) -> None:
    lines = [
        {"type": "task.started", "actor": "gen-quick", "data": {"task_id": "task-1"}},
        {"type": "system.startup", "actor": "system", "data": {}},
        {"type": "task.started", "actor": "gen-endless", "data": {"task_id": "task-1"}},
        {"type": "message.human_response", "actor": "envoy", "data": {"text": "yes"}},
        {"type": "system.health_changed", "actor": "chamberlain", "data": {}},
    ]
    report = _report(JOURNAL, {"batch": 0, "lines": [json.dumps(line) for line in lines]})
    assert await _dead(seat, builder, report) == []
    assert [line["actor"] for line in seat.journal if "from" in line] == ["gen-quick", "system"]


async def test_files_of_runs_that_are_not_its_own_are_refused(seat: Machine, builder: Machine) -> None:
    await _tasks(seat)
    own = seat.home.soldiers / "soldier-1-1"  # of the machine that leads
    own.mkdir(parents=True)
    (own / "identity.json").write_text("{}")
    await seat.services.bus.publish("tasks", Envelope("gen-quick", {"id": "task-1"}, event_id="task-1"))
    await seat.services.bus.claim("tasks", worker="gen-quick@other", ids=["task-1"], limit=1, lease=60)
    reasons = await _dead(
        seat,
        builder,
        _file("state/soldiers/soldier-1-1/order.json", {"task_id": "task-gen-quick"}),
        _file("state/soldiers/soldier-1-1/identity.json", {"pid": 1}),
        _file("logs/sessions/soldier-1-1.json", "forged"),
        _file("state/soldiers/soldier-2-1/order.json", {"task_id": "task-gen-endless"}),
        _file("state/prompts/task-1.md", "forged"),
        _file("state/results/task-2-raw.json", "forged"),
        _file("state/prompts/no id.md", "forged"),
        _file("state/soldiers/soldier-3-1/order.json", {"task_id": "no id"}),
    )
    assert sorted(reasons) == [
        "a machine may not write 'state/prompts/no id.md'",
        "soldier-1-1 is not a soldier of builder",
        "soldier-1-1 is not a soldier of builder",
        "soldier-1-1 is not a soldier of builder",
        "soldier-2-1 does not work for a general of builder",
        "soldier-3-1 does not work for a general of builder",
        "state/prompts/task-1.md: task-1 is not a task of builder",
        "state/results/task-2-raw.json: task-2 is not a task of builder",
    ]
    assert (own / "identity.json").read_text() == "{}"
    assert not (seat.home.soldiers / "soldier-2-1").exists()


async def _never(*_: Any, **__: Any) -> None:
    raise _Killed


class _Killed(BaseException):
    """Stands for kill -9: nothing handles it."""


@pytest.mark.parametrize("left", [(), (".tmp-1-machine",), ("machine",)])
async def test_a_soldier_is_accepted_whose_folder_a_killed_process_had_only_made(
    seat: Machine, builder: Machine, monkeypatch: pytest.MonkeyPatch, left: tuple[str, ...]
) -> None:
    await _tasks(seat)
    folder = seat.home.soldiers / "soldier-1-1"

    async def dies(*_: object) -> None:
        folder.mkdir(parents=True)
        for name in left:
            (folder / name).touch()
        raise _Killed

    files = [
        _file("state/soldiers/soldier-1-1/order.json", {"task_id": "task-gen-quick"}),
        _file("logs/sessions/soldier-1-1.json", "said"),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(ReportChecks, "save_marks", dies)
        patch.setattr(seat.services.bus, "settle", _never)
        with pytest.raises(_Killed):
            await _dead(seat, builder, *files)
    intake = Intake(seat.services, Rights(seat.url))
    await intake.recall()
    await intake.take()
    assert await seat.services.bus.dead(REPORTS, 10) == []
    assert (seat.home.sessions / "soldier-1-1.json").read_text() == '"said"'
    assert (folder / "machine").read_text() == "builder"


async def test_many_reports_are_checked_with_one_look_at_the_tasks(
    seat: Machine, builder: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _tasks(seat)
    bus, looks = seat.services.bus, []
    find_many = bus.find_many

    async def counted(ids: Iterable[str]) -> dict[str, Any]:
        looks.append(len(found := await find_many(ids)))
        return found

    monkeypatch.setattr(bus, "find_many", counted)
    monkeypatch.setattr(bus, "find", _never)
    orders = [
        _file(f"state/soldiers/soldier-{number}/order.json", {"task_id": "task-gen-quick", "number": number})
        for number in range(20)
    ]
    assert await _dead(seat, builder, *orders) == []
    assert looks == [1]


async def test_the_files_of_its_own_runs_arrive(seat: Machine, builder: Machine) -> None:
    seat.start("king", "link")
    builder.start("link", "gen-quick")
    await seat.emit(1)
    (task_id,) = await eventually(seat.tasks)
    assert (await eventually(lambda: seat.result(task_id)))["machine"] == "builder"
    (soldier,) = await eventually(lambda: [one for one in all_soldiers(seat.home) if one.transcript.exists()])
    (own,) = all_soldiers(builder.home)
    await eventually(lambda: soldier.transcript.read_bytes() == own.transcript.read_bytes())
    await eventually(lambda: seat.home.prompt(task_id).exists())
    assert await seat.services.bus.dead(REPORTS, 10) == []


# ── adding and removing ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_machine_that_is_removed_is_shut_out_at_once_and_its_tasks_go_to_others(
    seat: Machine, builder: Machine, attacker: Any, sql: Any
) -> None:
    await _tasks(seat)
    await builder.services.bus.claim("tasks", worker="gen-quick@builder", limit=1, lease=1_000_000)
    role = await sql.fetchval("SELECT role FROM court_right WHERE machine = 'builder'")
    assert await Rights(seat.url).remove("builder")
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)):
        await attacker.fetch("SELECT * FROM outbox_event")
    await eventually(attacker.is_closed)
    with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
        await asyncpg.connect(split_url(builder.url)[0])
    with pytest.raises(BusError, match=role):
        await builder.services.bus.claim("tasks", worker="gen-quick@builder", limit=1, lease=60)
    left = await sql.fetchval("SELECT locked_until - now() FROM outbox_event WHERE event_id = 'task-gen-quick'")
    assert left.total_seconds() <= 60
    assert not await Rights(seat.url).remove("builder")
    assert await sql.fetchval("SELECT count(*) FROM pg_roles WHERE rolname = $1", role) == 0


async def test_the_generals_and_the_password_of_a_machine_can_be_changed(
    seat: Machine, builder: Machine, attacker: Any
) -> None:
    await _tasks(seat)
    url = await Rights(seat.url).add("builder", ["gen-endless"])
    assert url != builder.url
    assert [row["event_id"] for row in await attacker.fetch("SELECT event_id FROM outbox_event")] == [
        "task-gen-endless"
    ]
    await Rights(seat.url).add("builder", None)
    assert len(await attacker.fetch("SELECT event_id FROM outbox_event")) == 2
    with pytest.raises(MachineRefused, match="the court has no general 'gen-x': it has gen-asks"):
        await Rights(seat.url).add("builder", ["gen-x"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"machine": "other"}, "is that of builder: join with --name builder"),
        ({"joined": False}, "a machine that stands by needs the court's own role"),
        ({"generals": ("gen-endless",)}, "the court has no general 'gen-endless': it has gen-quick"),
    ],
)
async def test_a_role_that_is_for_something_else_is_refused(
    seat: Machine, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    url = await Rights(seat.url).add("builder", ["gen-quick"])
    assert url is not None
    given = {"machine": "builder", "joined": True, "url_env": "OWN_URL", **changes}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OWN_URL", url)
        with pytest.raises(MachineRefused, match=said):
            await join_court(tmp_path / "new", SharedQueues(**given), force=False)
    assert not (tmp_path / "new").exists()


@pytest.fixture
async def plain_owner(sql: Any, postgres_url: str) -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """Make the URL of a role that owns the schema, and is no superuser; it may create roles, or not."""
    made: list[str] = []
    schema = split_url(postgres_url)[1]["schema"]

    async def make(rights: str) -> str:
        name = f"owner_{schema}"
        await sql.execute(f"CREATE ROLE {name} LOGIN {rights}")
        made.append(name)
        await sql.execute(f"ALTER SCHEMA {schema} OWNER TO {name}")
        return url_of_role(postgres_url, name, "")

    yield make
    for name in made:
        await sql.execute(f"DROP OWNED BY {name} CASCADE")
        await sql.execute(f"DROP ROLE {name}")


async def _court_of(url: str, root: Path) -> Machine:
    shared = SharedQueues("seat", url=url, generals=())
    result = await create_first_machine(root, shared, HomeChoices(shared=shared), (), force=False)
    async with connect(url) as bus:
        await bus.setup()
    return result.home  # type: ignore[return-value]


async def test_the_court_needs_no_superuser(
    plain_owner: Callable[[str], Awaitable[str]], tmp_path: Path, sql: Any
) -> None:
    url = await plain_owner("CREATEROLE")
    await _court_of(url, tmp_path / "seat")
    rights = Rights(url)
    own = await rights.add("builder", None)
    assert own is not None
    async with connect(own) as bus:
        assert await bus.claim("tasks", worker="gen-quick@builder", limit=1, lease=60) == []
        assert await rights.remove("builder")
        with pytest.raises(BusError):
            await bus.claim("tasks", worker="gen-quick@builder", limit=1, lease=60)
    assert await rights.all() == {}


async def test_without_the_right_to_create_roles_an_existing_one_is_used(
    plain_owner: Callable[[str], Awaitable[str]], tmp_path: Path, sql: Any
) -> None:
    url = await plain_owner("NOCREATEROLE")
    await _court_of(url, tmp_path / "seat")
    with pytest.raises(MachineRefused, match="run kingdom machines add builder --role ITS_NAME"):
        await Rights(url).add("builder", None)
    with pytest.raises(MachineRefused, match="the database has no role 'ready_made': create it first"):
        await Rights(url).add("builder", None, role="ready_made")
    with pytest.raises(MachineRefused, match="may do everything in the court: create one for this machine alone"):
        await Rights(url).add("builder", None, role=urlsplit(url).username)
    with pytest.raises(MachineRefused, match="the role postgres may do everything"):
        await Rights(url).add("builder", None, role="postgres")
    await sql.execute("CREATE ROLE ready_made LOGIN")
    try:
        assert await Rights(url).add("builder", None, role="ready_made") is None
        async with connect(url_of_role(url, "ready_made", "")) as bus:
            assert await bus.claim("tasks", worker="gen-quick@builder", limit=1, lease=60) == []
            with pytest.raises(NotPermitted):
                await bus.publish("tasks", Envelope("gen-quick", {}))
            assert await Rights(url).remove("builder")
            with pytest.raises(BusError):
                await bus.claim("tasks", worker="gen-quick@builder", limit=1, lease=60)
    finally:
        await sql.execute("DROP OWNED BY ready_made")
        await sql.execute("DROP ROLE ready_made")


async def test_postgresql_itself_makes_the_same_of_a_password(sql: Any) -> None:
    await sql.execute("SET password_encryption = 'scram-sha-256'")
    await sql.execute("CREATE ROLE scram_test LOGIN PASSWORD 'a secret'")
    try:
        stored = await sql.fetchval("SELECT rolpassword FROM pg_authid WHERE rolname = 'scram_test'")
        salt = base64.b64decode(stored.split("$")[1].partition(":")[2])
        assert scram_verifier("a secret", salt) == stored
    finally:
        await sql.execute("DROP ROLE scram_test")
