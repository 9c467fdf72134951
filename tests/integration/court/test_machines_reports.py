"""Reports between machines arrive once and in order, wherever either side is killed."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.folder import RunFolder
from kingdom.agents.ledger import Ledger
from kingdom.agents.port import Order
from kingdom.bus import Envelope
from kingdom.court.config import MachineSection
from kingdom.court.landings import note_landing
from kingdom.court.machines import shipping
from kingdom.court.machines.exchange import FILE, JOURNAL, LEDGER, REPORTS, RESULT, declare_exchange, publish_file
from kingdom.court.machines.intake import Intake
from kingdom.court.machines.rights import Rights
from kingdom.court.machines.shipping import Shipper
from kingdom.journal.catalog import TaskCompleted, TaskStarted
from tests.support.machines import Machine, first_machine, joined_machine

pytestmark = pytest.mark.postgres


@pytest.fixture
async def seat(tmp_path: Path, postgres_url: str) -> AsyncIterator[Machine]:
    async with first_machine(tmp_path / "seat", postgres_url) as seat:
        await declare_exchange(seat.services.bus)
        yield seat


@pytest.fixture
async def builder(tmp_path: Path, postgres_url: str, seat: Machine) -> AsyncIterator[Machine]:
    async with joined_machine(tmp_path / "builder", postgres_url, "builder") as builder:
        yield builder


class _Killed(BaseException):
    """Stands for kill -9: nothing handles it."""


def _write(builder: Machine, first: int, count: int) -> None:
    for number in range(first, first + count):
        builder.services.journal.emit(TaskStarted(f"task-{number}"), "gen-quick")


def _arrived(seat: Machine) -> list[str]:
    return [line["data"]["task_id"] for line in seat.journal if line["type"] == "task.started"]


async def _ship_all(shipper: Shipper) -> None:
    while await shipper.ship():
        pass


async def _take_all(intake: Intake) -> None:
    while await intake.take():
        pass


async def test_journal_lines_arrive_once_and_in_order_whichever_call_the_shipping_process_dies_in(
    seat: Machine, builder: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before and after each publish and each save, then started again with more lines than before."""
    written = 0
    for victim in ("publish-before", "publish-after", "save-before", "save-after"):
        _write(builder, written, 5)
        written += 5
        shipper = Shipper(builder.home, builder.services.bus, "builder")
        with monkeypatch.context() as patch:
            _kill_in(patch, shipper, victim)
            with pytest.raises(_Killed):
                await _ship_all(shipper)
        _write(builder, written, 3)
        written += 3
        await _ship_all(Shipper(builder.home, builder.services.bus, "builder"))
        await _take_all(Intake(seat.services, Rights(seat.url)))
        assert _arrived(seat) == [f"task-{number}" for number in range(written)], victim


def _kill_in(patch: pytest.MonkeyPatch, shipper: Shipper, victim: str) -> None:
    bus, what = shipper._bus, victim.partition("-")[0]
    real: Any = bus.publish if what == "publish" else shipper._save

    async def publish(*args: Any, **options: Any) -> list[str]:
        if victim == "publish-before":
            raise _Killed
        await real(*args, **options)
        raise _Killed

    def save() -> None:
        if victim == "save-before":
            raise _Killed
        real()
        raise _Killed

    patch.setattr(bus, "publish", publish) if what == "publish" else patch.setattr(shipper, "_save", save)


async def test_shipping_says_whether_more_was_there_already(
    builder: Machine, seat: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it is called again at once; lines that come later wait for their notification, and gather meanwhile."""
    monkeypatch.setattr(shipping, "_BATCH_LINES", 5)
    _write(builder, 0, 7)
    shipper = Shipper(builder.home, builder.services.bus, "builder")
    assert [await shipper.ship() for _ in range(3)] == [True, False, False]
    _write(builder, 7, 1)
    with monkeypatch.context() as patch:
        _kill_in(patch, shipper, "publish-after")
        with pytest.raises(_Killed):
            await shipper.ship()
    _write(builder, 8, 1)
    shipper = Shipper(builder.home, builder.services.bus, "builder")
    assert [await shipper.ship() for _ in range(3)] == [True, False, False]  # the former process sent fewer lines
    await _take_all(Intake(seat.services, Rights(seat.url)))
    assert _arrived(seat) == [f"task-{number}" for number in range(9)]


@pytest.mark.parametrize("month_bytes", [0, 1000])
async def test_shipping_goes_on_while_there_are_costs(
    builder: Machine, seat: Machine, monkeypatch: pytest.MonkeyPatch, month_bytes: int
) -> None:
    monkeypatch.setattr(shipping, "_BATCH_BYTES", 300)
    line = {"ts": "2026-02-07T10:00:00.000Z", "general": "gen-quick", "cost_usd": 0.25}
    Ledger(builder.home.ledger).append(*({**line, "run_id": f"r{number}"} for number in range(10)))
    if month_bytes:  # a line that is not finished, and longer than a report
        (builder.home.ledger / "2026-03.jsonl").write_bytes(b"x" * month_bytes)
    await _ship_all(Shipper(builder.home, builder.services.bus, "builder"))
    await _take_all(Intake(seat.services, Rights(seat.url)))
    assert Ledger(seat.home.ledger).totals(0).runs == 10


@pytest.mark.parametrize("lines_written", [0, 1, 4, 5])
async def test_journal_lines_are_written_once_when_the_first_machine_dies_while_it_takes_them_in(
    seat: Machine, builder: Machine, lines_written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(builder, 0, 5)
    await _ship_all(Shipper(builder.home, builder.services.bus, "builder"))
    journal = seat.services.journal
    copy = journal.copy

    def dies(lines: list[bytes]) -> None:
        copy(lines[:lines_written])
        raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr(journal, "copy", dies)
        patch.setattr(seat.services.bus, "settle", _never)
        patch.setattr(seat.services.bus, "release", _never)
        with pytest.raises(_Killed):
            await Intake(seat.services, Rights(seat.url)).take()
    intake = Intake(seat.services, Rights(seat.url))
    await intake.recall()
    await _take_all(intake)
    assert _arrived(seat) == [f"task-{number}" for number in range(5)]


async def _never(*_: Any, **__: Any) -> None:
    raise _Killed


async def test_a_full_disk_keeps_reports_and_their_order(
    seat: Machine, builder: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in (0, 5):
        _write(builder, first, 5)
        await Shipper(builder.home, builder.services.bus, "builder").ship()
    intake = Intake(seat.services, Rights(seat.url))
    journal = seat.services.journal
    copy = journal.copy

    def full(lines: list[bytes]) -> None:
        copy(lines[:2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "copy", full)
        with pytest.raises(OSError, match="No space"):
            await intake.take()
    await _take_all(intake)
    assert _arrived(seat) == [f"task-{number}" for number in range(10)]


async def test_the_files_of_an_ended_task_arrive_whole_in_few_reports(seat: Machine, builder: Machine) -> None:
    """Small files share a report; a transcript that is larger than a report comes in pieces."""
    bus = builder.services.bus
    sizes = {"task-small": 100, "task-large": 1_500_000}
    for task_id, size in sizes.items():
        await seat.services.bus.publish("tasks", Envelope("gen-quick", {"id": task_id}, event_id=task_id))
        await bus.claim("tasks", worker="gen-quick@builder", ids=[task_id], limit=1, lease=60)
        _finish(builder, task_id, random.Random(size).randbytes(size))
    await _ship_all(Shipper(builder.home, bus, "builder"))
    reports = [record.envelope.payload for record in await bus.peek(REPORTS, limit=100) if record.envelope.type == FILE]
    await _take_all(Intake(seat.services, Rights(seat.url)))
    assert await bus.dead(REPORTS) == []
    per_task = [sum(task_id in json.dumps(report["files"]) for report in reports) for task_id in sizes]
    assert per_task == [1, 6]
    for task_id in sizes:
        for path in (f"logs/sessions/soldier-{task_id}.json", f"state/prompts/{task_id}.md"):
            assert (seat.home.root / path).read_bytes() == (builder.home.root / path).read_bytes()


def _finish(machine: Machine, task_id: str, transcript: bytes) -> None:
    """Leave the files of a task as its soldier does."""
    home, soldier = machine.home, f"soldier-{task_id}"
    folder = RunFolder(home.soldiers, soldier)
    folder.path.mkdir(parents=True)
    folder.write_order(Order(soldier, task_id, "command", "", home.root, home.root / "result.json"))
    folder.outcome.write_text("{}")
    for path, content in (
        (home.prompt(task_id), f"Do {task_id}.".encode()),
        (home.sessions / f"{soldier}.json", transcript),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    machine.services.journal.emit(TaskCompleted(task_id, "success", 0.1), "gen-quick")


async def test_what_a_machine_does_for_a_task_after_its_end_arrives_and_only_from_the_machine_that_had_it(
    seat: Machine, builder: Machine
) -> None:
    await seat.services.bus.publish("tasks", Envelope("gen-quick", {"id": "task-1"}, event_id="task-1"))
    claimed = await builder.services.bus.claim("tasks", worker="gen-quick@builder", ids=["task-1"], lease=60)
    await builder.services.bus.settle(done=claimed)
    note = {"task_id": "task-1", "links": ["https://github.example/pull/1"]}
    for machine, name in ((seat, "other"), (builder, "builder"), (builder, "builder")):
        await note_landing(machine.services, MachineSection(name=name, joined=True), note)
    await publish_file(builder.services.bus, "builder", "state/results/task-1-asked", b"2026-02-07T12:00:00Z")
    assert len(await seat.services.bus.peek(REPORTS, limit=10)) == 3
    rights = Rights(seat.url)
    await rights.add("other", None)
    await Intake(seat.services, rights).take()
    (letter,) = await seat.services.bus.dead(REPORTS)
    assert letter.error_message == "state/landings/task-1.json: task-1 is not a task of other"
    assert json.loads(seat.home.landing("task-1").read_text()) == note
    assert seat.home.asked("task-1").read_text() == "2026-02-07T12:00:00Z"
    assert not builder.home.landing("task-1").exists()


async def test_a_report_with_one_forbidden_file_writes_none(seat: Machine) -> None:
    files = [
        {"path": path, "offset": 0, "data": base64.b64encode(b"mine").decode()}
        for path in ("logs/sessions/a.json", "config/trust.yaml")
    ]
    await seat.services.bus.publish(REPORTS, Envelope(FILE, {"machine": "evil", "files": files}))
    await Intake(seat.services, Rights(seat.url)).take()
    assert len(await seat.services.bus.dead(REPORTS)) == 1
    assert not (seat.home.root / "logs/sessions/a.json").exists()


@pytest.mark.parametrize(
    "path",
    [
        "config/system.yaml",
        "state/king/log.jsonl",
        "logs/sessions/../../config/trust.yaml",
        "/etc/passwd",
        "logs/x.json",
    ],
)
async def test_a_machine_can_write_only_the_files_of_its_runs(seat: Machine, path: str) -> None:
    before = sorted(one.read_bytes() for one in seat.home.config.rglob("*") if one.is_file())
    payload = {"machine": "evil", "path": path, "offset": 0, "data": base64.b64encode(b"mine").decode()}
    await seat.services.bus.publish(REPORTS, Envelope(FILE, payload))
    await Intake(seat.services, Rights(seat.url)).take()
    (letter,) = await seat.services.bus.dead(REPORTS)
    assert "may not write" in (letter.error_message or "")
    assert sorted(one.read_bytes() for one in seat.home.config.rglob("*") if one.is_file()) == before


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (RESULT, {"machine": "evil", "result": {"task_id": "../../x"}}),
        (RESULT, {"machine": "evil", "result": None}),
        (JOURNAL, {"machine": "evil", "lines": "all"}),
        (JOURNAL, {"lines": []}),
        ("other", {"machine": "evil"}),
        (FILE, {"machine": "evil", "path": "logs/sessions/a.json", "offset": -1, "data": ""}),
        (FILE, {"machine": "evil", "path": "logs/sessions/a.json", "offset": 0, "data": "%"}),
        (FILE, {"machine": "evil", "files": "all"}),
        (FILE, {"machine": "evil", "files": ["logs/sessions/a.json"]}),
    ],
)
async def test_an_invalid_report_is_set_aside_and_the_next_one_is_taken_in(
    seat: Machine, kind: str, payload: dict[str, Any]
) -> None:
    line = json.dumps({"ts": "2026-02-07T10:00:00Z", "type": "task.started", "actor": "g", "data": {"task_id": "t"}})
    good = Envelope(JOURNAL, {"machine": "m", "batch": 0, "lines": [line, "no JSON", 7]})
    await seat.services.bus.publish(REPORTS, Envelope(kind, payload), good)
    await Intake(seat.services, Rights(seat.url)).take()
    assert len(await seat.services.bus.dead(REPORTS)) == 1
    assert _arrived(seat) == ["t"]


async def test_costs_are_counted_once_however_often_they_are_reported(seat: Machine) -> None:
    line = {"ts": "2026-02-07T10:00:00.000Z", "run_id": "r1", "general": "gen-quick", "cost_usd": 0.25}
    for _ in range(3):
        await seat.services.bus.publish(REPORTS, Envelope(LEDGER, {"machine": "m", "lines": [line, "x", {}]}))
    await Intake(seat.services, Rights(seat.url)).take()
    assert Ledger(seat.home.ledger).totals(0).cost_usd == 0.25
    assert len((seat.home.ledger / "2026-02.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("dies_in", ["costs", "results"])
async def test_results_and_their_costs_arrive_once_when_the_first_machine_dies_while_it_stores_them(
    seat: Machine, monkeypatch: pytest.MonkeyPatch, dies_in: str
) -> None:
    """All of a batch are stored together: the costs before the results, which release what the budget reserved."""
    tasks = [f"task-20260207-{number:03d}" for number in range(1, 4)]
    await seat.services.bus.publish(REPORTS, [_result(task_id) for task_id in tasks])
    intake = Intake(seat.services, Rights(seat.url))
    with monkeypatch.context() as patch:
        if dies_in == "costs":
            append = intake._ledger.append
            patch.setattr(intake._ledger, "append", lambda *lines: (append(*lines[:2]), _die()))
        else:
            patch.setattr(intake._writer, "write", _never)
        patch.setattr(seat.services.bus, "settle", _never)
        with pytest.raises(_Killed):
            await intake.take()
    assert Ledger(seat.home.ledger).totals(0).runs == (2 if dies_in == "costs" else 3)
    assert not any(seat.home.result(task_id).exists() for task_id in tasks)
    intake = Intake(seat.services, Rights(seat.url))
    await intake.recall()
    await _take_all(intake)
    assert Ledger(seat.home.ledger).totals(0).cost_usd == 0.75
    assert all(seat.home.result(task_id).exists() for task_id in tasks)
    assert len((seat.home.ledger / "2026-02.jsonl").read_text().splitlines()) == 3


def _result(task_id: str) -> Envelope:
    now = "2026-02-07T10:00:00.000Z"
    result = {"task_id": task_id, "general": "gen-quick", "status": "success", "started_at": now, "ended_at": now}
    cost = {"ts": now, "run_id": f"run-of-{task_id}", "task_id": task_id, "general": "gen-quick", "cost_usd": 0.25}
    return Envelope(RESULT, {"machine": "m", "result": result, "ledger": [cost]}, event_id=f"result:{task_id}")


def _die() -> None:
    raise _Killed


async def test_what_many_soldiers_say_is_published_at_once(
    seat: Machine, builder: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, bus = builder.home, builder.services.bus
    for number in range(5):
        task = Envelope("gen-quick", {"id": f"task-{number}"}, event_id=f"task-{number}")
        await seat.services.bus.publish("tasks", task)
        folder = RunFolder(home.soldiers, f"soldier-{number}")
        folder.path.mkdir(parents=True)
        folder.write_order(Order(folder.run_id, f"task-{number}", "scripted", "", home.root, home.root / "result.json"))
        for path, content in (
            (home.soldier_id(f"task-{number}"), folder.run_id),
            (home.sessions / f"{folder.run_id}.json", "Hello."),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    published: list[int] = []
    publish = bus.publish

    async def counted(stream: str, reports: list[Envelope]) -> list[str]:
        published.append(len(reports))
        return await publish(stream, reports)

    monkeypatch.setattr(bus, "publish", counted)
    shipper = Shipper(home, bus, "builder")
    assert await shipper.ship_transcripts()
    assert published == [5]
    assert await shipper.ship_transcripts()
    assert published == [5]  # nobody said more
    await _take_all(Intake(seat.services, Rights(seat.url)))
    assert {path.read_text() for path in seat.home.sessions.glob("soldier-*.json")} == {"Hello."}
