"""A court on several machines: work goes where there is room, and the first machine knows of all of it."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.ledger import Ledger
from kingdom.base.files import read_object
from kingdom.court.commands import answer_question, cancel_task
from kingdom.court.errors import MachineRefused
from kingdom.court.general import machine as general_machine
from kingdom.court.general.preparation import new_soldier_id
from kingdom.court.init_home import CannotInitHome, SharedQueues
from kingdom.court.machines.capacity import machine_state
from kingdom.court.machines.database import CourtDatabase
from kingdom.court.machines.exchange import CANCEL
from kingdom.court.machines.joining import join_court
from kingdom.court.machines.listing import (
    clones_elsewhere,
    describe_machine,
    homeless_generals,
    machine_problems,
    read_machines,
)
from kingdom.court.machines.registry import DamagedPackage, Registry
from kingdom.court.machines.role import Link
from kingdom.court.packages.installed import load_generals
from kingdom.court.soldiers import all_soldiers
from kingdom.court.supervisor.policy import WantedRoles
from tests.support.machines import QUICK, Machine, eventually, first_machine, install, joined_machine
from tests.support.repositories import Remote

pytestmark = pytest.mark.postgres


@pytest.fixture
async def seat(tmp_path: Path, postgres_url: str) -> AsyncIterator[Machine]:
    async with first_machine(tmp_path / "seat", postgres_url) as seat:
        await Registry(postgres_url).publish_packages(seat.home)
        seat.start("king", "link")
        yield seat


@pytest.fixture
async def builder(tmp_path: Path, postgres_url: str, seat: Machine) -> AsyncIterator[Machine]:
    async with joined_machine(tmp_path / "builder", postgres_url, "builder") as builder:
        yield builder


async def test_a_task_is_done_on_another_machine_and_everything_about_it_reaches_the_first(
    seat: Machine, builder: Machine
) -> None:
    builder.start("link", "gen-quick")
    await seat.emit(1)
    (task_id,) = await eventually(seat.tasks)
    result = await eventually(lambda: seat.result(task_id))
    assert (result["status"], result["machine"]) == ("success", "builder")
    await eventually(lambda: [line for line in seat.journal if line["type"] == "task.completed"])
    ended = [line for line in seat.journal if line.get("data", {}).get("task_id") == task_id and "from" in line]
    assert [line["type"] for line in ended] == [
        "task.started",
        "soldier.spawned",
        "soldier.completed",
        "task.completed",
    ]
    assert {line["from"].partition("/")[0] for line in ended} == {"builder"}
    (soldier,) = await eventually(lambda: [one for one in all_soldiers(seat.home) if one.transcript.exists()])
    (own,) = all_soldiers(builder.home)
    assert soldier.transcript.read_bytes() == own.transcript.read_bytes()
    assert not soldier.at_work
    await builder.stop()
    await seat.stop("link")
    spent = Ledger(seat.home.ledger).totals(0)
    assert (spent.runs, spent.cost_usd) == (1, 0.5)
    assert len(next(seat.home.ledger.iterdir()).read_text().splitlines()) == 1  # a run is written once


async def test_a_cancelled_task_is_ended_on_the_machine_that_has_it(seat: Machine, builder: Machine) -> None:
    builder.start("link", "gen-endless")
    await seat.emit(1, "gen-endless")
    (task_id,) = await eventually(seat.tasks)
    soldier = await eventually(lambda: next((one for one in all_soldiers(builder.home) if one.alive), None))
    assert await seat.holder(task_id) == "gen-endless@builder"
    await cancel_task(seat.services, task_id, "ada", "test")
    result = await eventually(lambda: seat.result(task_id))
    assert result["status"] == "cancelled"
    assert not soldier.alive
    await eventually(lambda: _is_told_by(seat, builder, task_id))


async def test_those_who_asked_are_told_by_the_machine_that_asked_them_a_question(
    seat: Machine, builder: Machine
) -> None:
    builder.start("link", "gen-asks")
    await seat.emit(1, "gen-asks")
    (asked,) = await eventually(seat.tasks)
    await eventually(lambda: seat.result(asked))
    await eventually(lambda: asked in read_object(seat.home.heartbeat("king"))["asking"])
    await cancel_task(seat.services, asked, "ada", "test", "Too dear.")
    await eventually(lambda: _is_told_by(seat, builder, asked, "Too dear."))


async def _is_told_by(seat: Machine, builder: Machine, task_id: str, note: str = "") -> bool:
    """Whether a machine has carried out the order to tell those who asked for a task, and nothing is left of it."""
    order = await seat.services.bus.find(f"{CANCEL}:{task_id}:builder")
    left = [path for machine in (seat, builder) for path in machine.home.state.glob("*/cancel/task-*.json")]
    return order is not None and order.status == "DONE" and order.envelope.payload["note"] == note and not left


async def test_a_resumed_task_waits_for_the_machine_that_has_the_conversation(
    seat: Machine, builder: Machine, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder.start("link", "gen-asks")
    await seat.emit(1, "gen-asks")
    (asked,) = await eventually(seat.tasks)
    await eventually(lambda: seat.result(asked))
    await builder.stop("gen-asks")
    async with joined_machine(tmp_path / "other", postgres_url, "other") as other:
        other.start("link", "gen-asks")
        await eventually(lambda: [line for line in seat.journal if line["type"] == "task.needs_human"])
        await answer_question(seat.services, asked, "yes", "ada", "test")
        resumed = await eventually(lambda: _other(seat, asked))
        assert await other.holder(resumed) is None  # it is left to the builder
        builder.start("gen-asks")
        result = await eventually(lambda: seat.result(resumed))
        assert (result["machine"], result["summary"]) == ("builder", "the answer was yes")
        await builder.stop("gen-asks")

        await seat.emit(2, "gen-asks")
        third = await eventually(lambda: _other(seat, asked, resumed))
        await eventually(lambda: seat.result(third))
        await other.stop("gen-asks")
        monkeypatch.setattr(general_machine, "STICKY_SECONDS", 0.0)  # the machine does not come back
        await eventually(lambda: len([one for one in seat.journal if one["type"] == "task.needs_human"]) == 2)
        await answer_question(seat.services, third, "no", "ada", "test")
        fourth = await eventually(lambda: _other(seat, asked, resumed, third))
        builder.start("gen-asks")
        assert (await eventually(lambda: seat.result(fourth)))["machine"] == "builder"
        prompt = builder.home.prompt(fourth).read_text()  # a new conversation, which has to know what was said
        assert "Release it?" in prompt
        assert "\nno\n" in prompt


async def _other(seat: Machine, *known: str) -> str | None:
    return next((task_id for task_id in sorted(await seat.tasks()) if task_id not in known), None)


async def test_what_a_machine_says_about_a_task_that_another_has_taken_over_is_not_heard(
    seat: Machine, builder: Machine, tmp_path: Path, postgres_url: str, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kingdom.court.general import general

    monkeypatch.setattr(general, "RENEWAL_SECONDS", 3600.0)
    builder.start("link", "gen-endless")
    await seat.emit(1, "gen-endless")
    (task_id,) = await eventually(seat.tasks)
    soldier = await eventually(lambda: next((one for one in all_soldiers(builder.home) if one.alive), None))
    await sql.execute("UPDATE outbox_event SET locked_until = now() - interval '1 second' WHERE stream = 'tasks'")
    async with joined_machine(tmp_path / "other", postgres_url, "other") as other:
        other.start("link", "gen-endless")
        await eventually(lambda: _held_by(seat, task_id, "gen-endless@other"))
        os.kill(soldier.pid or 0, signal.SIGKILL)  # the first one ends, and its general has a result
        await eventually(lambda: not soldier.alive)
        await eventually(lambda: builder.home.heartbeat("gen-endless").read_text().count("soldier_id") == 0)
        assert builder.result(task_id) is None
        assert seat.result(task_id) is None
        assert await seat.holder(task_id) == "gen-endless@other"
        await cancel_task(seat.services, task_id, "ada", "test")
        assert (await eventually(lambda: seat.result(task_id)))["machine"] == "other"


async def _held_by(seat: Machine, task_id: str, worker: str) -> bool:
    return await seat.holder(task_id) == worker


async def test_soldiers_end_before_another_machine_may_take_their_tasks(
    seat: Machine, builder: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(general_machine, "STOP_MARGIN_SECONDS", 59.0)  # of 60: the lease counts as lost after a second
    builder.start("link", "gen-endless")
    await seat.emit(1, "gen-endless")
    soldier = await eventually(lambda: next((one for one in all_soldiers(builder.home) if one.alive), None))
    await eventually(lambda: not soldier.alive)


async def test_a_result_on_its_way_is_not_taken_for_a_lost_task(seat: Machine, builder: Machine) -> None:
    await seat.stop("link")  # nothing is taken in
    builder.start("gen-quick")
    await seat.emit(1)
    (task_id,) = await eventually(seat.tasks)
    await eventually(lambda: _status_is(seat, task_id, "DONE"))
    await seat.stop("king")
    seat.home.heartbeat("king").unlink()
    seat.start("king")
    await eventually(lambda: seat.home.heartbeat("king").exists())  # its first look includes that for lost tasks
    assert seat.result(task_id) is None
    assert not [line for line in seat.journal if line["type"] == "task.failed"]
    seat.start("link")
    assert (await eventually(lambda: seat.result(task_id)))["status"] == "success"


async def _status_is(seat: Machine, task_id: str, status: str) -> bool:
    return (await seat.tasks())[task_id] == status


async def test_a_machine_runs_no_more_soldiers_than_it_has_slots(
    seat: Machine, tmp_path: Path, postgres_url: str
) -> None:
    async with joined_machine(tmp_path / "small", postgres_url, "small", soldiers=1) as small:
        small.start("link", "gen-endless", "gen-quick")
        await seat.emit(1, "gen-endless")
        first = await eventually(lambda: next((one for one in all_soldiers(small.home) if one.alive), None))
        await seat.emit(2)
        second = await eventually(lambda: _other(seat, first.task_id))
        await eventually(lambda: '"waiting": 1' in small.home.heartbeat("gen-quick").read_text().replace("\n", ""))
        assert await seat.holder(second) is None
        await cancel_task(seat.services, first.task_id, "ada", "test")
        assert (await eventually(lambda: seat.result(second)))["status"] == "success"


# ── joining and leaving ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_joining_needs_a_court_a_free_name_and_known_generals(tmp_path: Path, postgres_url: str) -> None:
    async def join(name: str, generals: tuple[str, ...] | None = None) -> None:
        await join_court(
            tmp_path / name, SharedQueues(name, url=postgres_url, joined=True, generals=generals), force=False
        )

    with pytest.raises(MachineRefused, match="no court yet: run kingdom init --database"):
        await join("builder")
    async with first_machine(tmp_path / "seat", postgres_url) as seat:
        await Registry(postgres_url).publish_packages(seat.home)
        with pytest.raises(MachineRefused, match="a machine named seat already"):
            await join_court(tmp_path / "x", SharedQueues("seat", url=postgres_url, joined=True), force=False)
        with pytest.raises(MachineRefused, match="no general 'gen-none': it has gen-asks, gen-endless, gen-quick"):
            await join("builder", ("gen-none",))
        assert not (tmp_path / "x").exists()
        assert not (tmp_path / "builder").exists()
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "file").touch()
        with pytest.raises(CannotInitHome, match="is not empty"):
            await join("full")
        await join("builder", ("gen-quick",))
        assert [one.name for one in (tmp_path / "builder/config/generals").iterdir() if one.is_dir()] == ["gen-quick"]
        names = [one.name for one in await Registry(postgres_url).machines()]
        assert names == ["seat", "builder"]  # the name of the refused one is free again
        with pytest.raises(MachineRefused, match="whose first machine is seat: kingdom join adds this machine"):
            async with first_machine(tmp_path / "second", postgres_url):
                pass


async def test_twenty_machines_set_up_the_tables_at_once(postgres_url: str) -> None:
    await asyncio.gather(*(Registry(postgres_url).setup() for _ in range(20)))
    await asyncio.gather(*(Registry(postgres_url).register(f"m{number}", joined=True) for number in range(20)))
    assert len(await Registry(postgres_url).machines()) == 20


async def test_a_changed_package_comes_and_a_damaged_one_does_not(
    seat: Machine, builder: Machine, postgres_url: str, sql: Any
) -> None:
    registry = Registry(postgres_url)
    prompt = seat.home.general("gen-quick") / "prompt.md"
    prompt.write_text("Do it well.\n{{ report }}\n")
    shutil.rmtree(seat.home.general("gen-asks"))
    await registry.publish_packages(seat.home)
    assert sorted(await registry.fetch_packages(builder.home, None)) == ["gen-asks", "gen-quick"]
    assert (builder.home.general("gen-quick") / "prompt.md").read_text() == prompt.read_text()
    assert not builder.home.general("gen-asks").exists()
    assert await registry.fetch_packages(builder.home, None) == []

    await sql.execute("UPDATE court_package SET archive = archive || 'x'::bytea, digest = 'other'")
    with pytest.raises(DamagedPackage, match="is damaged"):
        await registry.fetch_packages(builder.home, None)
    assert (builder.home.general("gen-quick") / "prompt.md").read_text() == prompt.read_text()


async def test_a_removed_machine_ends_its_soldiers_and_claims_nothing_more(
    seat: Machine, builder: Machine, postgres_url: str
) -> None:
    from kingdom.court.machines.capacity import note_machine_state

    builder.start("gen-endless")
    await seat.emit(1, "gen-endless")
    soldier = await eventually(lambda: next((one for one in all_soldiers(builder.home) if one.alive), None))
    assert await Registry(postgres_url).set_state("builder", "removed")
    state = await Registry(postgres_url).sign("builder", joined=True, report={})
    assert state == "removed"
    note_machine_state(builder.home, state)
    await seat.emit(2, "gen-endless")  # wakes the general
    await eventually(lambda: not soldier.alive)
    await builder.stop("gen-endless")
    assert [await seat.holder(task_id) for task_id in sorted(await seat.tasks())][1:] == [None]


async def test_a_general_that_needs_a_label_runs_only_where_it_is(
    tmp_path: Path, postgres_url: str, seat: Machine
) -> None:
    install(seat.home, "gen-train", script=QUICK)
    manifest = seat.home.general("gen-train") / "manifest.yaml"
    manifest.write_text(manifest.read_text().replace('"retries": 0', '"retries": 0, "runs_on": ["gpu"]'))
    await Registry(postgres_url).publish_packages(seat.home)
    async with joined_machine(tmp_path / "plain", postgres_url, "plain") as plain:
        wanted = WantedRoles(plain.home, None, lambda *_: None)
        assert set(wanted.roles(())) == {"link", "gen-quick", "gen-asks", "gen-endless"}
        plain.start("link")
        (problem,) = await eventually(lambda: _problems(seat))
        assert problem == "no machine runs it, so its tasks wait: kingdom join --labels gpu adds one that can"
        async with joined_machine(tmp_path / "strong", postgres_url, "strong", labels=("gpu", "big")) as strong:
            assert "gen-train" in WantedRoles(strong.home, None, lambda *_: None).roles(())
            strong.start("link", "gen-train")
            await seat.emit(1, "gen-train")
            (task_id,) = await eventually(seat.tasks)
            assert (await eventually(lambda: seat.result(task_id)))["machine"] == "strong"
        stopped = await Registry(postgres_url).machines()
        assert {one.name: describe_machine(one, "seat").state for one in stopped}["strong"] == "stopped"
        await eventually(lambda: "strong" in "".join(_problems(seat)))
        (problem,) = _problems(seat)
        assert problem.startswith("no machine runs it, so its tasks wait: kingdom up on strong starts it, kingdom join")
        later = read_machines(seat.home, seat.services.clock() + 3600)
        assert "machine strong" not in [one.what for one in machine_problems(later)]
        own = [one for one in read_machines(strong.home, strong.services.clock()) if one.here]
        assert [one.state for one in own] == ["stopped"]
        assert not list(homeless_generals(own, [one.manifest for one in load_generals(strong.home).by_name.values()]))


def _problems(seat: Machine) -> list[str]:
    """What the court says about the general that demands a label, once it has heard of the other machine."""
    machines = read_machines(seat.home, seat.services.clock())
    if {"seat", "plain"} > {one.name for one in machines if one.version}:
        return []
    general = load_generals(seat.home).by_name["gen-train"]
    return [one.why for one in homeless_generals(machines, [general.manifest])]


async def test_a_machine_whose_version_is_too_far_from_the_leader_claims_nothing(
    seat: Machine, builder: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await eventually(lambda: read_machines(seat.home, seat.services.clock()))
    monkeypatch.setattr("kingdom.court.machines.lead.FORMAT", 2)  # one step is no problem
    builder.start("link")
    await eventually(lambda: (builder.home.role("link") / "heartbeat").exists())
    assert machine_state(builder.home) == "active"
    await builder.stop("link")
    async with CourtDatabase(seat.services.bus.url).connection() as connection:
        await seat.stop("link")
        await connection.execute("UPDATE court_lead SET format = 4")
    builder.start("link", "gen-quick")
    await eventually(lambda: machine_state(builder.home) == "refused")
    beat = await eventually(lambda: read_object(builder.home.heartbeat("link")).get("trouble"))
    assert "older by more than one step than on seat (format 2 and 4): update it on this machine first" in beat
    await seat.emit(1)
    (task_id,) = await eventually(seat.tasks)
    assert await builder.holder(task_id) is None


@pytest.mark.walk
@pytest.mark.parametrize("hours", [0, 3])
async def test_tasks_go_to_the_machine_with_a_clone_of_their_repository_and_to_others_when_it_does_not_take_them(
    tmp_path: Path, postgres_url: str, seat: Machine, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the clock of the other machine is hours behind."""
    monkeypatch.setattr(Link, "interval", 0.2)
    monkeypatch.setattr("kingdom.court.machines.role._SIGN_SECONDS", 0.2)
    remote = Remote(tmp_path / "shop")
    remote.commit({"a.txt": "one\n"})
    install(seat.home, "gen-warm", script=QUICK)
    manifest = seat.home.general("gen-warm") / "manifest.yaml"
    more = f'"retries": 0, "affinity": "repository", "default_repo": "{remote.folder}"'
    manifest.write_text(manifest.read_text().replace('"retries": 0', more))
    await Registry(postgres_url).publish_packages(seat.home)

    async def machine_of(number: int) -> str:
        before = set(await seat.tasks())
        await seat.emit(number, "gen-warm")
        (task_id,) = await eventually(lambda: _new_tasks(seat, before))
        return str((await eventually(lambda: seat.result(task_id)))["machine"])

    async with (
        joined_machine(tmp_path / "builder", postgres_url, "builder") as builder,
        joined_machine(tmp_path / "other", postgres_url, "other") as other,
    ):
        other.services.clock = lambda: time.time() - 3600 * hours
        other.start("link")
        builder.start("link", "gen-warm")
        assert await machine_of(1) == "builder"  # no machine has a clone, and no other runs the general
        other.start("gen-warm")
        await eventually(lambda: clones_elsewhere(other.home, "other", "gen-warm", other.services.clock()))
        assert [await machine_of(number) for number in range(2, 6)] == ["builder"] * 4
        monkeypatch.setattr(general_machine, "CLONE_SECONDS", 1.0)
        await builder.stop("gen-warm")
        assert await machine_of(6) == "other"


async def _new_tasks(seat: Machine, before: set[str]) -> set[str]:
    return set(await seat.tasks()) - before


def test_soldiers_of_two_machines_differ_even_with_the_same_process_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers, in which a general has the same process id everywhere."""
    made = set()
    for machine in (None, "builder-1", "builder-2"):
        monkeypatch.setattr("kingdom.court.general.preparation._numbers", itertools.count(1))
        made |= {new_soldier_id(1_770_458_400.0, machine) for _ in range(3)}
    assert len(made) == 9
