"""The demo's plot: publish, kill a worker half way, let another one finish, prove that nothing was lost."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Final, Self

from kingdom.bus import Envelope, EventBus, Record, connect
from kingdom.cli.bus.demo.ledger import Ledger
from kingdom.cli.bus.demo.proof import Proof, prove
from kingdom.cli.bus.demo.view import Actor, Scene, View
from kingdom.cli.bus.demo.worker import EVENT_TYPE, LEASE, STREAM
from kingdom.cli.output import Failure

_TICK: Final = 0.1  # seconds between two looks
_PATIENCE: Final = 25.0  # seconds beyond the work itself, before the demo admits that it failed
_DRAIN: Final = 10.0  # seconds a worker gets to end after SIGTERM
_RATE: Final = 50  # events per second that a worker surely manages, on a slow machine too


@dataclass
class Stage:
    """Where the demo takes place."""

    url: str
    folder: Path
    events: int
    event_ids: list[str] = field(default_factory=list)

    @classmethod
    def build(cls, transport: str, events: int, folder: Path | None) -> Self:
        """Make the directory and name the bus in it."""
        place = Path(tempfile.mkdtemp(prefix="kingdom-demo-")) if folder is None else folder.resolve()
        place.mkdir(parents=True, exist_ok=True)
        if any(place.iterdir()):
            raise Failure(
                "NOT_EMPTY", f"{place} is not empty: give --dir an empty directory, or one that is to be made"
            )
        return cls(f"{transport}://{place / ('bus.db' if transport == 'sqlite' else 'queue')}", place, events)


async def tell(stage: Stage, view: View) -> Proof:
    """Perform the demo and return what it proved."""
    ledger = await Ledger.create(stage.folder / "app.db")
    with contextlib.closing(ledger), view:
        async with connect(stage.url) as bus:
            return await Play(stage, view, bus, ledger).perform()


class Play:
    """One performance."""

    def __init__(self, stage: Stage, view: View, bus: EventBus, ledger: Ledger) -> None:
        self._stage = stage
        self._view = view
        self._bus = bus
        self._ledger = ledger
        self._scene = Scene(title=f"kingdom bus demo on {stage.url}", stream=STREAM, total=stage.events)
        self._deadline = monotonic() + _PATIENCE + stage.events / _RATE

    async def perform(self) -> Proof:
        """All acts in order. Whatever happens, no process is left."""
        await self._publish()
        async with WorkerProcess(self._stage, "worker-1") as first:
            self._enter(first)
            await self._until(lambda: sum(self._ledger.effects().values()) >= self._stage.events // 2, first)
            await first.kill()
            self._scene.actors[-1].state = "killed"
        held = await self._held()
        self._view.happened(
            f"half way: SIGKILL. {first.name} is gone and still holds {len(held)} events under a lease of {LEASE:g} s"
        )
        async with WorkerProcess(self._stage, "worker-2") as second:
            self._enter(second)
            self._view.happened("it takes what is pending; what the dead worker holds must wait for the lease to end")
            watching = asyncio.create_task(self._watch_leases(held))
            try:
                await self._until(self._all_settled, second)
            finally:
                watching.cancel()
            await second.terminate()
            self._scene.actors[-1].state = "finished"
        await self._look()
        self._view.happened(f"{second.name} finished everything; both workers are gone")
        return await prove(self._bus, self._ledger, self._stage.event_ids, len(held))

    async def _publish(self) -> None:
        await self._bus.setup()
        await self._bus.declare(STREAM)  # so that it is listed when it is empty, too
        for first in range(0, self._stage.events, 20):
            orders = [
                Envelope(type=EVENT_TYPE, payload={"order": number}, aggregate_type="Order", aggregate_id=str(number))
                for number in range(first, min(first + 20, self._stage.events))
            ]
            accepted = await self._bus.publish(STREAM, orders)
            if accepted != [order.event_id for order in orders]:
                raise Failure("DEMO_NOT_PUBLISHED", f"the bus accepted {len(accepted)} of {len(orders)} new events")
            self._stage.event_ids.extend(accepted)
            self._scene.published = len(self._stage.event_ids)
            await self._look()
        self._view.happened(f"{self._stage.events} events published and durable in {self._stage.folder}")

    def _enter(self, process: WorkerProcess) -> None:
        self._scene.actors.append(Actor(process.name, process.pid))
        self._view.happened(f"{process.name} starts (process {process.pid})")

    async def _look(self) -> None:
        """See how it stands and show it."""
        self._scene.depth = (await self._bus.depth())[STREAM]
        handled = self._ledger.handled_by()
        for actor in self._scene.actors:
            actor.handled = handled[actor.name]
        self._view.show(self._scene)

    async def _until(self, reached: Callable[[], bool], process: WorkerProcess) -> None:
        """Look again and again until it is ``reached``; fail when the worker or the time is gone before."""
        while True:
            await self._look()
            if reached():
                return
            process.must_live()
            if monotonic() > self._deadline:
                raise Failure("DEMO_STUCK", f"{self._scene.depth} for too long: see {process.log}")
            await asyncio.sleep(_TICK)

    def _all_settled(self) -> bool:
        return self._scene.depth[:3] == (0, 0, 0)

    async def _held(self) -> list[Record]:
        """The records of the events that the dead worker holds."""
        records = [await self._bus.find(event_id) for event_id in self._stage.event_ids]
        return [record for record in records if record is not None and record.status == "PROCESSING"]

    async def _watch_leases(self, held: list[Record]) -> None:
        """Say when the dead worker's leases have run out."""
        ends = max((record.locked_until for record in held if record.locked_until), default=datetime.now(UTC))
        await asyncio.sleep((ends - datetime.now(UTC)).total_seconds())
        self._view.happened(f"the lease ran out: {len(held)} events of the dead worker are claimable again")


class WorkerProcess:
    """A worker in a process of its own, ended when the block is left."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.name = name
        self.log = stage.folder / f"{name}.log"
        self._command = (
            sys.executable,
            "-m",
            "kingdom.cli.bus.demo.worker",
            stage.url,
            str(stage.folder / "app.db"),
            name,
        )
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,  # it ends with us: see the worker
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which then ends its workers
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self._process is not None
        return self._process.pid

    def must_live(self) -> None:
        """Fail when the process ended by itself."""
        if self._process is None or self._process.returncode is not None:
            raise Failure("DEMO_WORKER_ENDED", f"{self.name} ended by itself: see {self.log}")

    async def kill(self) -> None:
        """End the process at once, as a power cut would."""
        await self._end(signal.SIGKILL)

    async def terminate(self) -> None:
        """Ask the process to drain and end."""
        await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
            try:
                async with asyncio.timeout(_DRAIN):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
