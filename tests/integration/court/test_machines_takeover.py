"""The lead of a court goes from machine to machine, again and again, and nothing is lost or done twice.

Two machines may lead, a third runs the general, all in real processes. The one that leads is killed as a whole, frozen
for longer than its lease, cut off from the database, or stopped by a person, while events come in.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from kingdom.agents.ledger import Ledger
from kingdom.base.files import read_object
from kingdom.court.home import Home
from kingdom.court.init_home import SharedQueues
from kingdom.court.machines.joining import join_court
from kingdom.court.machines.own_lead import LEASE_SECONDS, read_lead
from kingdom.court.machines.registry import Registry
from kingdom.court.queues import EVENTS, TASKS, open_queues
from tests.support.courts import PATIENCE, Court
from tests.support.cutting import Wire, wire_to
from tests.support.machines import Machine, eventually, first_machine, install_counting, kingdom_up

pytestmark = [pytest.mark.postgres, pytest.mark.walk, pytest.mark.timeout(900)]

EVENTS_IN_ALL = 50
FAULTS = int(os.environ.get("TAKEOVERS") or 5)


class _Host:
    """A machine: its home, its way to the database, and its processes."""

    def __init__(self, home: Home, wire: Wire) -> None:
        self.home = home
        self.wire = wire
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await kingdom_up(self.home)

    @property
    def leads(self) -> bool:
        lead = read_lead(self.home)
        return lead is not None and lead.leading and "king" in Court(self.home.root).pids()

    @property
    def stands_by(self) -> bool:
        lead = read_lead(self.home)
        return lead is not None and not lead.leading and self.home.role("link").joinpath("replica.json").exists()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        for pid in (self._process.pid, *Court(self.home.root).pids().values()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def die(self) -> None:
        """End all its processes at once."""
        assert self._process is not None
        self._signal(signal.SIGSTOP)  # so that none sees another die
        self._signal(signal.SIGKILL)
        await asyncio.wait_for(self._process.wait(), PATIENCE)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    async def stop(self) -> None:
        """As a person would."""
        assert self._process is not None
        if self._process.returncode is None:
            self.thaw()
            self._process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(self._process.wait(), PATIENCE)


async def test_the_lead_goes_from_machine_to_machine_and_each_task_is_done_once(
    tmp_path: Path, postgres_url: str
) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.randrange(1_000_000))
    print(f"seed {seed}")
    chance = random.Random(seed)
    async with contextlib.AsyncExitStack() as stack:
        wires: dict[str, Wire] = {}
        for name in ("seat", "spare", "builder"):
            (tmp_path / f"wire-{name}").mkdir()
            wires[name] = await stack.enter_async_context(wire_to(postgres_url, tmp_path / f"wire-{name}"))
        seat = await stack.enter_async_context(first_machine(tmp_path / "seat", postgres_url))
        settings = seat.home.config / "machine.yaml"
        settings.write_text(settings.read_text().replace(postgres_url, wires["seat"].url))
        done = install_counting(seat.home, tmp_path)
        await Registry(postgres_url).publish_packages(seat.home)
        hosts = {"seat": _Host(seat.home, wires["seat"])}
        for name, options in (("spare", {"generals": ()}), ("builder", {"joined": True, "generals": ("gen-work",)})):
            shared = SharedQueues(name, url=wires[name].url, **options)  # type: ignore[arg-type]
            result, _ = await join_court(tmp_path / name, shared, force=False)
            hosts[name] = _Host(result.home, wires[name])
        for host in hosts.values():
            await host.start()
            stack.push_async_callback(host.stop)
            if host is hosts["seat"]:
                await eventually(lambda: hosts["seat"].leads)
        leaders = [hosts["seat"], hosts["spare"]]
        await eventually(lambda: hosts["spare"].stands_by)

        for number in range(EVENTS_IN_ALL):
            await seat.emit(number, "gen-work")
            if number % (EVENTS_IN_ALL // FAULTS) == EVENTS_IN_ALL // FAULTS // 2:
                await _take_the_lead_away(chance, leaders)
        await eventually(lambda: _all_completed(seat))
        (leader,) = [host for host in leaders if host.leads]
        machine = Machine(leader.home, seat.services)
        await eventually(lambda: len(_ended(machine)) >= EVENTS_IN_ALL)

    tasks = _ended(machine)
    assert Counter(tasks) == Counter(set(tasks))
    assert len(tasks) == EVENTS_IN_ALL
    assert Counter(done.read_text().splitlines()) == Counter(tasks)
    results = [json.loads(path.read_text()) for path in leader.home.results.glob("task-*[0-9].json")]
    assert [one["status"] for one in results] == ["success"] * EVENTS_IN_ALL
    assert Ledger(leader.home.ledger).totals(0).runs == EVENTS_IN_ALL
    async with open_queues(postgres_url) as bus:
        events = [record async for record in bus.records(EVENTS)]
        stored = [record.envelope.event_id async for record in bus.records(TASKS)]
    assert {record.status for record in events} == {"DONE"}
    assert sorted(stored) == sorted(tasks)  # no king has made a second task of an event


def _ended(machine: Machine) -> list[str]:
    return [line["data"]["task_id"] for line in machine.journal if line["type"] == "task.completed"]


async def _take_the_lead_away(chance: random.Random, leaders: list[_Host]) -> None:
    """Do something to the machine that leads; return when another leads, and the former one stands by."""
    former = await eventually(lambda: next((host for host in leaders if host.leads), None))
    other = next(host for host in leaders if host is not former)
    await eventually(lambda: other.stands_by)
    term = read_object(former.home.role("link") / "lead.json")["term"]
    how = chance.choice(("killed", "frozen", "cut off", "stopped"))
    print(f"{former.home.root.name} is {how} in term {term}")
    if how == "killed":
        await former.die()
    elif how == "frozen":
        former.freeze()
    elif how == "cut off":
        former.wire.go_down()
    else:
        await former.stop()
    await eventually(lambda: other.leads)
    if how in ("killed", "stopped"):
        await former.start()
    elif how == "frozen":
        await asyncio.sleep(chance.uniform(0.0, LEASE_SECONDS / 4))  # how long it stays frozen after that
        former.thaw()
    else:
        former.wire.come_up()
    await eventually(lambda: former.stands_by)


async def _all_completed(seat: Machine) -> bool:
    states = Counter([record.status async for record in seat.services.bus.records(EVENTS)])
    return states == {"DONE": EVENTS_IN_ALL}
