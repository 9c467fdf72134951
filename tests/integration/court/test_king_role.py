"""The king in his loop: woken by files, and with a heartbeat that says what waits."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

from kingdom.court.loop import Services, run_role
from kingdom.journal import Journal
from tests.support.kings import Realm


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_dropped_file_and_a_result_each_wake_the_king(tmp_path: Path) -> None:
    realm = Realm(tmp_path)
    realm.install(concurrency=1)
    async with realm.open():
        king = realm.king()
        king.interval = 3600.0  # only a wake-up can be what it acts on
        services = Services(realm.home, realm.bus, Journal(realm.home.journal), time.time)
        stop = asyncio.Event()
        role = asyncio.create_task(run_role(king, services, stop))
        await until(realm.home.heartbeat("king").exists)
        for number in (1, 2):
            document = {
                "id": f"evt-github-{number}",
                "type": "github.pr.opened",
                "source": "github",
                "created_at": "2026-02-07T12:00:00Z",
            }
            path = realm.home.queue / f"events/pending/evt-github-{number}.json"
            path.with_suffix(".tmp").write_text(json.dumps(document))
            path.with_suffix(".tmp").rename(path)
        await until(lambda: bool(realm.tasks()))
        await until(lambda: json.loads(realm.home.heartbeat("king").read_text())["waiting"] == 1)
        beat = json.loads(realm.home.heartbeat("king").read_text())
        assert beat["active"] == 1
        assert list(beat["holds"]) == ["gen-pr is at its limit of 1 at once"]
        await realm.work()
        await until(lambda: len(realm.ids("events", "completed")) == 1)
        await until(lambda: len(realm.tasks()) == 1)
        await realm.work()
        await until(lambda: len(realm.ids("events", "completed")) == 2)
        stop.set()
        await role
        assert realm.said() == ["thread_start", "thread_update"] * 2
