"""Removing what is past its time, while everybody else goes on: how long any role had to wait for it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter, time

from bench.bars import Bar
from bench.context import Context
from bench.harness import Contestant, Figures, Table
from kingdom.bus import EventBus
from kingdom.court.chamberlain import Chamberlain
from kingdom.court.config import SystemConfig
from kingdom.court.home import Home
from kingdom.court.loop import Services
from kingdom.court.models import Event, timestamp
from kingdom.court.queues import EVENTS, declare_queues, open_queues, put_documents
from kingdom.journal import Journal, Reader

TITLE = "retention"
_OLD = 40 * 86400.0
_TICK = 0.001
_REST = 10.0  # seconds
_KINDS = {  # what one finished task leaves
    "state/results": ("{task}.json", "{task}-raw.json", "{task}-soldier-id", "{task}-session-id"),
    "state/prompts": ("{task}.md",),
    "state/sentinel/seen": ("evt-github-{number}",),
    "logs/sessions": ("soldier-{number}.json", "soldier-{number}.err"),
    "queue/tasks/completed": ("{task}.json",),
    "queue/events/completed": ("evt-github-{number}.json",),
}
_CONTENT: dict[str, dict[str, str]] = {
    "queue/tasks/completed": {"type": "a.b", "target_general": "gen-a"},
    "queue/events/completed": {"type": "a.b", "source": "github"},
}
_EACH = sum(map(len, _KINDS.values()))


def retention(context: Context) -> list[Table]:
    """A night's cleaning, with the roles in the same process: the hardest case."""
    files, folder = context.pick(20_000, 200_000), context.directory("retention")
    outcomes = context.race(
        Contestant("quiet court", partial(_clean, folder / "quiet", files, False), "nothing is open"),
        Contestant(
            "busy court",
            partial(_clean, folder / "busy", files, True),
            "an open event: each task is looked up",
            timeout=900.0,
        ),
        Contestant("nobody cleans", partial(_rest, folder / "rest"), "what the machine does by itself"),
        reps=1,
    )
    waits: dict[str, list[Bar]] = {name: [Bar("<", 100.0)] for name in ("quiet court", "busy court")}
    return [
        Table(
            f"Longest pause of the loop while {files:,} files are removed",
            "ms",
            outcomes,
            metric="pause",
            bars=waits,
            higher_is_better=False,
        ),
        Table("Longest claim meanwhile", "ms", outcomes, metric="claim", bars=waits, higher_is_better=False),
        Table("Files removed", "files/s", outcomes[:2]),
    ]


class _Rested:
    """A machine that is well, whatever this one is doing."""

    def read(self) -> Mapping[str, float]:
        return {}


async def _clean(root: Path, files: int, busy: bool) -> Figures:
    home = Home(root)
    made = await asyncio.to_thread(_fill, home, files)
    async with open_queues(home.queue_url) as bus, open_queues(home.queue_url) as other:
        await declare_queues(bus)
        await declare_queues(other)
        if busy:
            await _open_event(bus)
        chamberlain = Chamberlain(Services(home, bus, Journal(home.journal), time), SystemConfig(), resources=_Rested())
        await chamberlain.start()
        over = asyncio.Event()
        pauses, claims = asyncio.create_task(_longest_pause(over)), asyncio.create_task(_longest_claim(other, over))
        started = perf_counter()
        while await chamberlain.tick() == 0.0:
            pass
        taken = perf_counter() - started
        over.set()
        figures = {"rate": made / taken, "pause": 1e3 * await pauses, "claim": 1e3 * await claims}
        await chamberlain.stop()
    with Reader(home.journal) as reader:
        removed = sum(
            entry.fields["deleted_count"] for entry in reader.read() if entry.type == "recovery.files_cleaned"
        )
    assert removed == made, f"{removed:,} of {made:,} files are gone"
    return figures


async def _rest(root: Path) -> Figures:
    """The same court, and nothing to remove."""
    home = Home(root)
    home.logs.mkdir(parents=True)
    async with open_queues(home.queue_url) as bus:
        await declare_queues(bus)
        await _open_event(bus)
        over = asyncio.Event()
        pauses, claims = asyncio.create_task(_longest_pause(over)), asyncio.create_task(_longest_claim(bus, over))
        await asyncio.sleep(_REST)
        over.set()
        return {"pause": 1e3 * await pauses, "claim": 1e3 * await claims}


async def _open_event(bus: EventBus) -> None:
    await put_documents(bus, [Event(id="evt-a-1", type="a.b", source="a", created_at=datetime.now(UTC))])


async def _longest_pause(over: asyncio.Event) -> float:
    """How long the loop did not come around, at worst."""
    longest, last = 0.0, perf_counter()
    while not over.is_set():
        await asyncio.sleep(_TICK)
        now = perf_counter()
        longest, last = max(longest, now - last - _TICK), now
    return longest


async def _longest_claim(bus: EventBus, over: asyncio.Event) -> float:
    """How long a role waited for its queue, at worst."""
    longest = 0.0
    while not over.is_set():
        began = perf_counter()
        await bus.release(await bus.claim(EVENTS, worker="king", limit=1, lease=60))
        longest = max(longest, perf_counter() - began)
        await asyncio.sleep(0.01)
    return longest


def _fill(home: Home, files: int) -> int:
    """Files as finished tasks leave them, all of them old; returns how many."""
    then = time() - _OLD
    usual = {"status": "completed", "created_at": timestamp(then)}
    for folder, forms in _KINDS.items():
        place = home.root / folder
        place.mkdir(parents=True)
        for number in range(files // _EACH):
            for form in forms:
                path = place / form.format(task=f"task-20260101-{number:03}", number=number)
                own = {"id": path.stem, "event_id": f"evt-github-{number}"}
                path.write_text(json.dumps({**usual, **own, **_CONTENT.get(folder, {})}))
                os.utime(path, (then, then))
    os.sync()  # files of last month are on the disk: writing them is nobody's wait
    return files // _EACH * _EACH


PARTS = (retention,)
