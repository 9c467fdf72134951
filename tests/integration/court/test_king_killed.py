"""Kings killed with SIGKILL under load, one after another: each event is done once, each message written once."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.kings import Realm

ROOT = Path(__file__).resolve().parents[3]


async def generals(realm: Realm) -> None:
    while True:
        await realm.work()
        await asyncio.sleep(0.01)


def completed(realm: Realm) -> int:
    return len(list((realm.home.queue / "events/completed").glob("*.json")))


@pytest.mark.parametrize(("events", "reigns"), [(30, 2), pytest.param(120, 9, marks=pytest.mark.walk)])
async def test_no_event_is_lost_or_done_twice_however_often_the_king_is_killed(
    tmp_path: Path, events: int, reigns: int
) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    realm = Realm(tmp_path)
    realm.install(concurrency=10)
    async with realm.open():
        for number in range(events):
            await realm.event(number, priority=chance.choice(["high", "normal", "low"]))
        working = asyncio.create_task(generals(realm))
        for reign in range(reigns + 1):
            king = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.support.king_process", str(tmp_path), cwd=ROOT
            )
            goal = events if reign == reigns else min(completed(realm) + chance.randrange(1, 12), events)
            async with asyncio.timeout(60):
                # The last one is given the time to close what he has begun.
                while completed(realm) < goal or (reign == reigns and realm.ids("events", "dispatched")):
                    await asyncio.sleep(0.01 * chance.random())
            king.kill()
            await king.wait()
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        await realm.work()
    done = Counter(task.event_id for task in realm.tasks("completed"))
    assert set(done.values()) == {1}, f"seed {seed}"
    assert len(done) == events
    told = Counter((message.type, message.context["event_id"]) for message in realm.messages())
    assert set(told.values()) == {1}, f"seed {seed}"
    assert len(told) == 2 * events, f"seed {seed}"
    assert realm.ids("events", "dispatched") == realm.ids("events", "pending") == []
