"""The demo of the bus: a worker is killed half way, another one finishes, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self

from kingdom.bus import Envelope, EventBus, Record, connect
from kingdom.cli import output
from kingdom.cli.demo.view import BusDemoView, BusScene, WorkerState
from kingdom.cli.demo.worker import EVENT_TYPE, LEASE_SECONDS, STREAM, DemoLedger
from kingdom.cli.output import CommandError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


# What the demo claims, checked against what is on disk.


@dataclass(frozen=True)
class BusProof:
    """Counted from the bus and from the application's database after the workers are gone."""

    published: int
    held: int  # by the killed worker when it died
    handled: int  # published events that took effect
    redelivered: tuple[str, ...]  # ids handed to a handler more than once
    doubled: int  # events whose effect happened more than once
    unfinished: int  # events that are not DONE in the bus

    @property
    def lost(self) -> int:
        """Events that never took effect."""
        return self.published - self.handled

    @property
    def holds(self) -> bool:
        """Whether nothing was lost, nothing happened twice, and everything is finished."""
        return self.lost == 0 and self.doubled == 0 and self.unfinished == 0

    def document(self) -> dict[str, Any]:
        """The form for programs."""
        return {
            "published": self.published,
            "handled": self.handled,
            "lost": self.lost,
            "heldByKilledWorker": self.held,
            "deliveredTwice": len(self.redelivered),
            "tookEffectTwice": self.doubled,
            "unfinished": self.unfinished,
            "holds": self.holds,
        }

    def lines(self, stage: BusDemoSite) -> Iterator[str]:
        """The form for people: what was proved, where it lies, and what to try next."""
        yield ""
        yield f"{_mark(self.lost == 0)} {self.published} events published, {self.handled} handled, {self.lost} lost"
        yield (
            f"{_mark(self.doubled == 0)} the killed worker held {self.held}: {len(self.redelivered)} it had begun were "
            f"delivered a second time, {self.doubled} took effect twice (the Inbox sees to that)"
        )
        yield f"{_mark(self.unfinished == 0)} {self.published - self.unfinished} are DONE in the bus; ask it:"
        yield ""
        kingdom = output.program_name()
        url = shlex.quote(stage.url)
        yield f"  {kingdom} bus depth --url {url}"
        yield f"  {kingdom} bus show {(self.redelivered or stage.event_ids)[0]} --url {url}"
        yield f"  {kingdom} bus doctor --url {url}"
        yield f"  rm -r {shlex.quote(str(stage.folder))}    # when you have seen enough"


async def prove_bus(bus: EventBus, ledger: DemoLedger, event_ids: Collection[str], held: int) -> BusProof:
    """Count what became of every published event."""
    effects, deliveries = ledger.effects(), ledger.deliveries()
    records = [await bus.find(event_id) for event_id in event_ids]
    return BusProof(
        published=len(event_ids),
        held=held,
        handled=sum(effects[event_id] > 0 for event_id in event_ids),
        redelivered=tuple(event_id for event_id in event_ids if deliveries[event_id] > 1),
        doubled=sum(count > 1 for count in effects.values()),
        unfinished=sum(record is None or record.status != "DONE" for record in records),
    )


def _mark(good: bool) -> str:
    return "✓" if good else "✗"


# The demo's plot: publish, kill a worker half way, let another one finish, prove that nothing was lost.


_TICK_SECONDS: Final = 0.1  # seconds between two looks
_TIMEOUT_SECONDS: Final = 25.0  # seconds beyond the work itself, before the demo admits that it failed
_DRAIN_SECONDS: Final = 10.0  # seconds a worker gets to end after SIGTERM
_MIN_EVENTS_PER_SECOND: Final = 50  # events per second that a worker surely manages, on a slow machine too


@dataclass
class BusDemoSite:
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
            raise CommandError(
                "NOT_EMPTY", f"{place} is not empty: give --dir an empty directory, or one that is to be made"
            )
        return cls(f"{transport}://{place / ('bus.db' if transport == 'sqlite' else 'queue')}", place, events)


async def run_bus_demo(stage: BusDemoSite, view: BusDemoView) -> BusProof:
    """Perform the demo and return what it proved."""
    ledger = await DemoLedger.create(stage.folder / "app.db")
    with contextlib.closing(ledger), view:
        async with connect(stage.url) as bus:
            return await BusDemo(stage, view, bus, ledger).perform()


class BusDemo:
    """One performance."""

    def __init__(self, stage: BusDemoSite, view: BusDemoView, bus: EventBus, ledger: DemoLedger) -> None:
        self._stage = stage
        self._view = view
        self._bus = bus
        self._ledger = ledger
        self._scene = BusScene(title=f"kingdom bus demo on {stage.url}", stream=STREAM, total=stage.events)
        self._deadline = monotonic() + _TIMEOUT_SECONDS + stage.events / _MIN_EVENTS_PER_SECOND

    async def perform(self) -> BusProof:
        """All acts in order. Whatever happens, no process is left."""
        await self._publish()
        async with DemoWorkerProcess(self._stage, "worker-1") as first:
            self._enter(first)
            await self._until(lambda: sum(self._ledger.effects().values()) >= self._stage.events // 2, first)
            await first.kill()
            self._scene.actors[-1].state = "killed"
        held = await self._held()
        self._view.happened(
            f"half way: SIGKILL. {first.name} is gone and still holds {len(held)} events under a lease of {LEASE_SECONDS:g} s"
        )
        async with DemoWorkerProcess(self._stage, "worker-2") as second:
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
        return await prove_bus(self._bus, self._ledger, self._stage.event_ids, len(held))

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
                raise CommandError(
                    "DEMO_NOT_PUBLISHED", f"the bus accepted {len(accepted)} of {len(orders)} new events"
                )
            self._stage.event_ids.extend(accepted)
            self._scene.published = len(self._stage.event_ids)
            await self._look()
        self._view.happened(f"{self._stage.events} events published and durable in {self._stage.folder}")

    def _enter(self, process: DemoWorkerProcess) -> None:
        self._scene.actors.append(WorkerState(process.name, process.pid))
        self._view.happened(f"{process.name} starts (process {process.pid})")

    async def _look(self) -> None:
        """See how it stands and show it."""
        self._scene.depth = (await self._bus.depth())[STREAM]
        handled = self._ledger.handled_by()
        for actor in self._scene.actors:
            actor.handled = handled[actor.name]
        self._view.show(self._scene)

    async def _until(self, reached: Callable[[], bool], process: DemoWorkerProcess) -> None:
        """Look again and again until it is ``reached``; fail when the worker or the time is gone before."""
        while True:
            await self._look()
            if reached():
                return
            process.must_live()
            if monotonic() > self._deadline:
                raise CommandError("DEMO_STUCK", f"{self._scene.depth} for too long: see {process.log}")
            await asyncio.sleep(_TICK_SECONDS)

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


class DemoWorkerProcess:
    """A worker in a process of its own, ended when the block is left."""

    def __init__(self, stage: BusDemoSite, name: str) -> None:
        self.name = name
        self.log = stage.folder / f"{name}.log"
        self._command = (
            sys.executable,
            "-m",
            "kingdom.cli.demo.worker",
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
            raise CommandError("DEMO_WORKER_ENDED", f"{self.name} ended by itself: see {self.log}")

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
                async with asyncio.timeout(_DRAIN_SECONDS):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
