"""Three machines in real processes: roles are killed and machines cut off again and again, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kingdom.agents.ledger import Ledger
from kingdom.court.home import Home
from kingdom.court.init_home import SharedQueues
from kingdom.court.machines.exchange import REPORTS
from kingdom.court.machines.joining import join_court
from kingdom.court.machines.registry import Registry
from kingdom.court.queues import EVENTS
from kingdom.court.soldiers import all_soldiers
from tests.support.courts import PATIENCE, Court
from tests.support.cutting import Wire, wire_to
from tests.support.machines import Machine, eventually, first_machine, install_counting, kingdom_up

pytestmark = [pytest.mark.postgres, pytest.mark.walk, pytest.mark.timeout(600)]

FAULTS = 16
EVENTS_IN_ALL = 60


@contextlib.asynccontextmanager
async def _up(home: Home) -> AsyncIterator[None]:
    """``kingdom up`` for a home; stopped at the end."""
    process = await kingdom_up(home)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), PATIENCE)


async def test_each_task_is_done_once_while_roles_are_killed_and_machines_are_cut_off(
    tmp_path: Path, postgres_url: str
) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.randrange(1_000_000))
    print(f"seed {seed}")
    chance = random.Random(seed)
    async with contextlib.AsyncExitStack() as stack:
        seat = await stack.enter_async_context(first_machine(tmp_path / "seat", postgres_url))
        done = install_counting(seat.home, tmp_path)
        await Registry(postgres_url).publish_packages(seat.home)
        homes, wires = [seat.home], []
        for name in ("one", "two"):
            (tmp_path / f"wire-{name}").mkdir()
            wire = await stack.enter_async_context(wire_to(postgres_url, tmp_path / f"wire-{name}"))
            shared = SharedQueues(name, url=wire.url, joined=True, generals=("gen-work",), soldiers=3)
            result, _ = await join_court(tmp_path / name, shared, force=False)
            wires.append(wire)
            homes.append(result.home)
        for home in homes:
            await stack.enter_async_context(_up(home))
        await eventually(lambda: all(Court(home.root).pids() for home in homes))

        for number in range(EVENTS_IN_ALL):
            await seat.emit(number, "gen-work")
            if number % (EVENTS_IN_ALL // FAULTS) == 0:
                await _strike(chance, homes, wires)
        await eventually(lambda: _all_completed(seat))
        await eventually(lambda: _nothing_to_report(seat, homes))

    tasks = [line["data"]["task_id"] for line in seat.journal if line["type"] == "task.completed"]
    assert Counter(tasks) == Counter(set(tasks))
    assert len(tasks) == EVENTS_IN_ALL
    assert Counter(done.read_text().splitlines()) == Counter(tasks)
    assert {json.loads(home.read_text())["status"] for home in seat.home.results.glob("task-*[0-9].json")} == {
        "success"
    }
    assert {line.get("from", "").partition("/")[0] for line in seat.journal if line["type"] == "task.completed"} == {
        "one",
        "two",
    }
    assert Ledger(seat.home.ledger).totals(0).runs == EVENTS_IN_ALL
    assert not [soldier for home in homes for soldier in all_soldiers(home) if soldier.alive]


async def _strike(chance: random.Random, homes: list[Home], wires: list[Wire]) -> None:
    """Kill a role of a machine, or cut a machine off for a moment."""
    if chance.random() < 0.3:
        wire = chance.choice(wires)
        wire.go_down()
        await asyncio.sleep(chance.uniform(0.1, 2.0))  # how long it is cut off
        wire.come_up()
        return
    pids = Court(chance.choice(homes).root).pids()
    if pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[chance.choice(sorted(pids))], signal.SIGKILL)


async def _all_completed(seat: Machine) -> bool:
    states = Counter([record.status async for record in seat.services.bus.records(EVENTS)])
    return states == {"DONE": EVENTS_IN_ALL}


async def _nothing_to_report(seat: Machine, homes: list[Home]) -> bool:
    own = [
        json.loads(line)
        for home in homes[1:]
        for line in home.journal.read_text().splitlines()
        if "task.completed" in line
    ]
    arrived = [line for line in seat.journal if line["type"] == "task.completed"]
    depth = (await seat.services.bus.depth())[REPORTS]
    return len(arrived) >= len(own) and not depth.pending and not depth.processing
