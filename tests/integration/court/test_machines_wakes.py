"""One process of a machine listens for all of its generals; without it each listens for itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.inotify import FileWatcher
from kingdom.bus import Envelope, EventBus
from kingdom.court.home import Home
from kingdom.court.machines.wakes import TaskWakes, WakeCarrier
from kingdom.court.queues import TASKS, open_queues
from tests.support.courts import PATIENCE
from tests.support.machines import eventually

pytestmark = pytest.mark.postgres


class Waiting:
    """A general that waits for tasks, with a bus of its own."""

    def __init__(self, home: Home, bus: EventBus, name: str) -> None:
        self.name = name
        self._woken = asyncio.Event()
        self.wakes = TaskWakes(home, bus, name, self._woken.set)

    async def is_woken(self) -> None:
        """Wait until it is woken."""
        async with asyncio.timeout(PATIENCE):
            await self._woken.wait()

    def forget(self) -> bool:
        """Say whether it was woken, and forget it."""
        woken = self._woken.is_set()
        self._woken.clear()
        return woken


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.role("link").mkdir(parents=True)
    return home


@pytest.fixture
async def generals(home: Home, postgres_bus: EventBus, postgres_url: str) -> AsyncIterator[list[Waiting]]:
    async with open_queues(postgres_url) as one, open_queues(postgres_url) as two:
        made = [Waiting(home, one, "gen-one"), Waiting(home, two, "gen-two")]
        yield made
        for general in made:
            general.wakes.close()


async def _until_listening(sql: Any, count: int) -> None:
    query = "SELECT count(*) = $1 FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
    await eventually(lambda: sql.fetchval(query, count))


async def _listen(generals: list[Waiting], sql: Any) -> None:
    """Have each listen for itself."""
    for general in generals:
        general.wakes.open()
    await _until_listening(sql, len(generals))


async def _carry(home: Home, bus: EventBus, generals: list[Waiting], sql: Any, other: EventBus) -> WakeCarrier:
    """Take over from all generals. They are woken when that begins, which is over then."""
    carrier = WakeCarrier(home, bus)
    carrier.carry_for([general.name for general in generals])
    for general in generals:
        general.wakes.check()
    await _until_listening(sql, 1)
    assert all(await _woken_by(other, bus, generals, []))
    return carrier


async def _woken_by(bus: EventBus, listening: EventBus, generals: list[Waiting], names: list[str]) -> list[bool]:
    """Publish a task for each name; return which of the generals were woken until now."""
    marked = asyncio.Event()
    undo = listening.subscribe("marks", marked.set)
    for name in names:
        await bus.publish(TASKS, Envelope(name, {}))
    await bus.transport._notifier.close()  # type: ignore[attr-defined]  # what is owed is sent now
    await bus.publish("marks", Envelope("Mark", {}))
    async with asyncio.timeout(PATIENCE):
        await marked.wait()  # notifications come in the order of their commits
    for _ in range(3):  # until the folders that were touched are noticed
        await asyncio.sleep(0)
    undo()
    return [general.forget() for general in generals]


async def test_one_listens_for_all_and_wakes_the_one_that_has_a_task(
    home: Home, generals: list[Waiting], postgres_bus: EventBus, postgres_url: str, sql: Any
) -> None:
    await _listen(generals, sql)
    async with open_queues(postgres_url) as bus:
        carrier = await _carry(home, bus, generals, sql, postgres_bus)
        assert await _woken_by(postgres_bus, bus, generals, ["gen-two"]) == [False, True]
        assert await _woken_by(postgres_bus, bus, generals, ["gen-one"]) == [True, False]
        assert await _woken_by(postgres_bus, bus, generals, ["gen-three"]) == [False, False]
        carrier.close()


async def test_each_listens_for_itself_while_nobody_does(
    home: Home, generals: list[Waiting], postgres_bus: EventBus, postgres_url: str, sql: Any
) -> None:
    await _listen(generals, sql)
    async with open_queues(postgres_url) as bus:
        (await _carry(home, bus, generals, sql, postgres_bus)).close()
    for general in generals:
        general.wakes.check()
        await general.is_woken()  # as it begins to listen
        general.forget()
    await postgres_bus.publish(TASKS, Envelope("gen-two", {}))
    await generals[1].is_woken()
    assert not generals[0].forget()


async def test_a_task_that_came_while_nobody_listened_wakes(
    home: Home, generals: list[Waiting], postgres_bus: EventBus, postgres_url: str
) -> None:
    async with open_queues(postgres_url) as bus:
        carrier = WakeCarrier(home, bus)
        carrier.carry_for([])
        generals[0].wakes.open()
        await postgres_bus.publish(TASKS, Envelope("gen-one", {}))
        assert not generals[0].forget()
        carrier.carry_for(["gen-one"])
        await generals[0].is_woken()
        carrier.close()


async def test_a_general_that_is_gone_is_listened_for_no_more(
    home: Home, generals: list[Waiting], postgres_bus: EventBus, postgres_url: str, sql: Any
) -> None:
    await _listen(generals, sql)
    async with open_queues(postgres_url) as bus:
        carrier = await _carry(home, bus, generals, sql, postgres_bus)
        carrier.carry_for(["gen-two"])
        assert await _woken_by(postgres_bus, bus, generals, ["gen-one", "gen-two"]) == [False, True]
        carrier.close()


async def test_a_general_that_cannot_watch_files_listens_for_itself(
    home: Home, generals: list[Waiting], postgres_bus: EventBus, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without inotify, or when the kernel has none left, it would not notice that it is woken."""
    monkeypatch.setattr(FileWatcher, "available", False)
    async with open_queues(postgres_url) as bus:
        carrier = WakeCarrier(home, bus)
        carrier.carry_for([])
        generals[0].wakes.open()
        await generals[0].is_woken()  # as it begins to listen
        generals[0].forget()
        await postgres_bus.publish(TASKS, Envelope("gen-one", {}))
        await generals[0].is_woken()
        carrier.close()
