"""The server is killed again and again while things happen: numbers go on, none is missing, none is given twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kingdom.court.home import Home
from kingdom.journal import Journal
from kingdom.web.live.feed import FeedFile
from kingdom.web.live.hub import open_hub
from kingdom.web.record import STATE_FOLDER
from kingdom.workflow.context import system_clock
from kingdom.workflow.ports import WorkflowStore
from kingdom.workflow.store import open_store
from tests.support.live import PATIENCE, emit, happen

_DEATHS = [
    *(f"{when} {batch}" for when in ("inside", "after") for batch in (1, 2, 5)),
    *["wait"] * 8,
]


@pytest.mark.walk
async def test_a_feeder_that_is_killed_at_any_moment_leaves_no_gap_and_no_repetition(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    services: Any = SimpleNamespace(home=Home(tmp_path))
    journal = Journal(services.home.journal)
    services.home.journal.parent.mkdir(parents=True)
    async with open_store(f"sqlite://{tmp_path}/workflows.db", system_clock) as store:
        await store.setup()
        async with open_hub(tmp_path, store, services):
            pass  # the feed begins here
        busy = Busy(store, journal)
        async with _victims(tmp_path) as victims:
            for death in chance.sample(_DEATHS, len(_DEATHS)):
                pid = await victims.make(death)
                if death == "wait":
                    await asyncio.sleep(chance.uniform(0, 0.1))
                    os.kill(pid, signal.SIGKILL)
                await victims.answer("gone")
        count = await busy.stop()
        async with open_hub(tmp_path, store, services) as hub, asyncio.timeout(PATIENCE):
            while hub.head < 2 * count:
                await asyncio.sleep(0.01)
    journal.close()
    file = FeedFile(tmp_path / STATE_FOLDER / "feed.db")
    kept = file.after(0, 10**6)
    file.close()
    assert [frame.sequence for frame in kept] == list(range(1, 2 * count + 1))
    assert [frame.workflow_sequence for frame in kept if frame.workflow_id] == list(range(1, count + 1))
    lines = [frame.event().data["task_id"] for frame in kept if not frame.workflow_id]
    assert lines == [f"task-{number}" for number in range(count)]


class Busy:
    """Has something happen all the time: a line and an event of a workflow in turns."""

    def __init__(self, store: WorkflowStore, journal: Journal) -> None:
        self._store, self._journal = store, journal
        self._stop = False
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> int:
        number = 0
        while not self._stop:
            emit(self._journal, number)
            await happen(self._store, "wf-a")
            number += 1
            await asyncio.sleep(0.003)
        return number

    async def stop(self) -> int:
        """Returns how many there were of each."""
        self._stop = True
        return await self._task


class Victims:
    """See :mod:`tests.support.live_victim`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def make(self, death: str) -> int:
        """The next one; returns its process id."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{death}\n".encode())
        return int((await self.answer("ready"))[0])

    async def answer(self, word: str) -> list[str]:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
        found, *rest = line.decode().split()
        assert found == word
        return rest


@contextlib.asynccontextmanager
async def _victims(root: Path) -> AsyncIterator[Victims]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.live_victim", str(root),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Victims(process)
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(process.wait(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
