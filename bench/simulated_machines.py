"""Many joined machines in one process: ``python -m bench.simulated_machines URL FOLDER FIRST COUNT GENERALS``.

A machine signs, fetches packages and listens as ``link`` does. Each of its generals has connections of its own, as a
process has, looks, claims, reports and settles by the calls that a real one makes; no agent runs. For each task that is
claimed, a line with the id of its event and the time goes to standard output.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

from kingdom import __version__
from kingdom.bus import Delivery, Envelope, EventBus
from kingdom.court.home import Home
from kingdom.court.machines.exchange import REPORTS, RESULT, result_id, worker_name
from kingdom.court.machines.registry import Registry
from kingdom.court.models import Result
from kingdom.court.queues import TASKS, open_queues

_CONCURRENCY = 10  # tasks of one general at once
_PEEK_LIMIT = 200
_LEASE_SECONDS = 60.0
_LOOK_SECONDS = 10.0  # between two looks, when nothing wakes a general
_SIGN_SECONDS = 10.0


class _Machine:
    def __init__(self, name: str, url: str, folder: Path, generals: list[str]) -> None:
        self._name = name
        self._generals = generals
        self._home = Home(folder)
        self._home.config.mkdir(parents=True)
        self._registry = Registry(url)
        self._link = open_queues(url)
        self._buses = {general: open_queues(url) for general in generals}

    async def open(self, stack: AsyncExitStack) -> None:
        """Connect the link and every general."""
        for bus in (self._link, *self._buses.values()):
            await stack.enter_async_context(bus)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sign())
            for general, bus in self._buses.items():
                group.create_task(self._work(general, bus))

    async def _sign(self) -> None:
        report = {"version": __version__, "generals": self._generals, "soldiers": [], "slots": _CONCURRENCY}
        await asyncio.sleep(random.uniform(0, _SIGN_SECONDS))
        while True:
            await self._registry.sign(self._name, joined=True, report=report)
            await self._registry.machines()
            await self._registry.fetch_packages(self._home, self._generals)
            await asyncio.sleep(_SIGN_SECONDS)

    async def _work(self, general: str, bus: EventBus) -> None:
        wake = asyncio.Event()
        self._link.subscribe(TASKS, wake.set, types=[general])
        worker = worker_name(general, self._name)
        while True:
            wake.clear()
            found = await bus.peek(TASKS, limit=_PEEK_LIMIT, types=[general])
            if found:
                ids = [record.envelope.event_id for record in found[:_CONCURRENCY]]
                claimed = await bus.claim(
                    TASKS, worker=worker, limit=len(ids), lease=_LEASE_SECONDS, types=[general], ids=ids
                )
                await self._finish(general, bus, claimed)
            else:
                try:
                    async with asyncio.timeout(_LOOK_SECONDS * random.uniform(0.8, 1.2)):
                        await wake.wait()
                except TimeoutError:
                    continue

    async def _finish(self, general: str, bus: EventBus, claimed: list[Delivery]) -> None:
        now = time.time()
        for delivery in claimed:
            print(delivery.envelope.payload["event_id"], now)
            await bus.find(result_id(delivery.event_id))
        await bus.extend(claimed, _LEASE_SECONDS)
        await bus.publish(REPORTS, [self._report(general, delivery) for delivery in claimed])
        await bus.settle(done=claimed)

    def _report(self, general: str, delivery: Delivery) -> Envelope:
        now = datetime.now(UTC)
        result = Result(
            task_id=delivery.event_id,
            general=general,
            status="success",
            summary="nothing to do",
            started_at=now,
            ended_at=now,
        )
        payload = {"machine": self._name, "result": result.document(), "ledger": []}
        return Envelope(RESULT, payload, event_id=result_id(delivery.event_id), aggregate_id=self._name)


async def _run(url: str, folder: Path, first: int, count: int, generals: int) -> None:
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        for number in range(first, first + count):
            own = [f"gen-{index}" for index in range(number * generals, (number + 1) * generals)]
            machine = _Machine(f"m{number}", url, folder / f"m{number}", own)
            await machine.open(stack)
            group.create_task(machine.run())
        print("ready", flush=True)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    asyncio.run(_run(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:])))
