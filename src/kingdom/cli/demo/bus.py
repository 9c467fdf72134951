"""The demo of the bus: a worker is killed half way, another one finishes, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal, Self

from kingdom.bus import Depth, Envelope, EventBus, Record, connect
from kingdom.cli import output
from kingdom.cli.demo.shared import DemoView, Proof, Scene, prepare_folder
from kingdom.cli.demo.worker import EVENT_TYPE, LEASE_SECONDS, STREAM, DemoLedger
from kingdom.cli.output import CommandError

if TYPE_CHECKING:
    from rich.console import RenderableType

_TICK_SECONDS: Final = 0.1  # between two looks at the bus
_TIMEOUT_SECONDS: Final = 25.0  # beyond the work itself, before the demo reports that it is stuck
_DRAIN_SECONDS: Final = 10.0  # that a worker has to end after SIGTERM
_MIN_EVENTS_PER_SECOND: Final = 50  # that a worker handles on a slow machine
_PUBLISH_BATCH: Final = 20
_STATE_STYLES: Final = {"working": "green", "killed": "bold red", "finished": "dim"}


@dataclass
class BusDemoSite:
    """The folder of the demo and the bus in it."""

    url: str
    folder: Path
    events: int
    event_ids: list[str] = field(default_factory=list)

    @classmethod
    def build(cls, transport: str, events: int, folder: Path | None) -> Self:
        """Create the folder and name the bus."""
        place = prepare_folder(folder)
        return cls(f"{transport}://{place / ('bus.db' if transport == 'sqlite' else 'queue')}", place, events)


async def run_bus_demo(site: BusDemoSite, view: DemoView) -> Proof:
    """Run the demo and return its proof. No process is left, whatever happens."""
    ledger = await DemoLedger.create(site.folder / "app.db")
    with contextlib.closing(ledger), view:
        async with connect(site.url) as bus:
            held = await BusDemo(site, view, bus, ledger).run()
            return await _prove(site, bus, ledger, held)


@dataclass
class WorkerState:
    """A worker process as shown in the demo."""

    name: str
    pid: int
    state: Literal["working", "killed", "finished"] = "working"
    handled: int = 0


@dataclass
class BusScene(Scene):
    """The stream and the workers."""

    title: str
    total: int
    published: int = 0
    depth: Depth = field(default_factory=Depth)
    workers: list[WorkerState] = field(default_factory=list)
    _quarters: int = 0

    @property
    def done(self) -> int:
        """How many events are finished."""
        return self.published - self.depth.pending - self.depth.processing - self.depth.dead

    def progress(self) -> str | None:
        quarters = 4 * self.done // self.total
        if quarters <= self._quarters:
            return None
        self._quarters = quarters
        return f"{self.done} of {self.total} done, {self.depth.pending} pending, {self.depth.processing} held"

    def render(self) -> list[RenderableType]:
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        depth = self.depth
        streams = output.Table(
            ("stream", "pending", "processing", "done", "dead"),
            [(STREAM, depth.pending, depth.processing, output.Styled(str(self.done), "green"), depth.dead)],
            right=("pending", "processing", "done", "dead"),
        )
        workers = output.Table(
            ("worker", "pid", "state", "deliveries"),
            [
                (item.name, item.pid, output.Styled(item.state, _STATE_STYLES[item.state]), item.handled)
                for item in self.workers
            ],
            right=("pid", "deliveries"),
        )
        return [streams, Text(), workers, Text(), ProgressBar(total=self.total, completed=self.done)]


class BusDemo:
    """One run of the demo."""

    def __init__(self, site: BusDemoSite, view: DemoView, bus: EventBus, ledger: DemoLedger) -> None:
        self._site = site
        self._view = view
        self._bus = bus
        self._ledger = ledger
        self._scene = BusScene(title=f"kingdom bus demo on {site.url}", total=site.events)
        self._deadline = monotonic() + _TIMEOUT_SECONDS + site.events / _MIN_EVENTS_PER_SECOND

    async def run(self) -> int:
        """Run all steps; return how many events the killed worker held."""
        await self._publish()
        async with DemoWorkerProcess(self._site, "worker-1") as first:
            self._add_worker(first)
            await self._until(lambda: sum(self._ledger.effects().values()) >= self._site.events // 2, first)
            await first.kill()
            self._scene.workers[-1].state = "killed"
        held = await self._held()
        self._view.step(
            f"SIGKILL half way: {first.name} is gone and still holds {len(held)} events, "
            f"with a lease of {LEASE_SECONDS:g} s"
        )
        async with DemoWorkerProcess(self._site, "worker-2") as second:
            self._add_worker(second)
            self._view.reaction("it claims pending events; those of the dead worker must wait for the end of the lease")
            watching = asyncio.create_task(self._watch_leases(held))
            try:
                await self._until(self._all_settled, second)
            finally:
                watching.cancel()
            await second.terminate()
            self._scene.workers[-1].state = "finished"
        await self._look()
        self._view.step(f"{second.name} finished everything; both workers are gone")
        return len(held)

    async def _publish(self) -> None:
        await self._bus.setup()
        await self._bus.declare(STREAM)  # so that it is listed while it is empty
        for first in range(0, self._site.events, _PUBLISH_BATCH):
            orders = [
                Envelope(type=EVENT_TYPE, payload={"order": number}, aggregate_type="Order", aggregate_id=str(number))
                for number in range(first, min(first + _PUBLISH_BATCH, self._site.events))
            ]
            accepted = await self._bus.publish(STREAM, orders)
            if accepted != [order.event_id for order in orders]:
                raise CommandError(
                    "DEMO_NOT_PUBLISHED", f"the bus accepted {len(accepted)} of {len(orders)} new events"
                )
            self._site.event_ids.extend(accepted)
            self._scene.published = len(self._site.event_ids)
            await self._look()
        self._view.step(f"{self._site.events} events published and durable in {self._site.folder}")

    def _add_worker(self, process: DemoWorkerProcess) -> None:
        self._scene.workers.append(WorkerState(process.name, process.pid))
        self._view.step(f"{process.name} starts (process {process.pid})")

    async def _look(self) -> None:
        self._scene.depth = (await self._bus.depth())[STREAM]
        handled = self._ledger.handled_by()
        for worker in self._scene.workers:
            worker.handled = handled[worker.name]
        self._view.show(self._scene)

    async def _until(self, reached: Callable[[], bool], process: DemoWorkerProcess) -> None:
        """Look until the condition holds; fail when the worker ends or the time is up before."""
        while True:
            await self._look()
            if reached():
                return
            process.check_running()
            if monotonic() > self._deadline:
                raise CommandError("DEMO_STUCK", f"no progress at {self._scene.depth}: see {process.log}")
            await asyncio.sleep(_TICK_SECONDS)

    def _all_settled(self) -> bool:
        return self._scene.depth[:3] == (0, 0, 0)

    async def _held(self) -> list[Record]:
        """Return the records of the events that the dead worker holds."""
        records = [await self._bus.find(event_id) for event_id in self._site.event_ids]
        return [record for record in records if record is not None and record.status == "PROCESSING"]

    async def _watch_leases(self, held: list[Record]) -> None:
        """Report the end of the leases of the dead worker."""
        ends = max((record.locked_until for record in held if record.locked_until), default=datetime.now(UTC))
        await asyncio.sleep((ends - datetime.now(UTC)).total_seconds())
        self._view.reaction(f"the lease ran out: {len(held)} events of the dead worker are claimable again")


class DemoWorkerProcess:
    """A worker in a process of its own, killed when the block is left."""

    def __init__(self, site: BusDemoSite, name: str) -> None:
        self.name = name
        self.log = site.folder / f"{name}.log"
        self._command = (
            sys.executable,
            "-m",
            "kingdom.cli.demo.worker",
            site.url,
            str(site.folder / "app.db"),
            name,
        )
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,  # the worker ends when this pipe is closed
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches only the demo, which then ends its workers
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def check_running(self) -> None:
        """Raise an error when the process ended by itself."""
        if self._process is None or self._process.returncode is not None:
            raise CommandError("DEMO_WORKER_ENDED", f"{self.name} ended by itself: see {self.log}")

    async def kill(self) -> None:
        """End the process at once, like a power failure."""
        await self._end(signal.SIGKILL)

    async def terminate(self) -> None:
        """Ask the process to finish its work and end."""
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


async def _prove(site: BusDemoSite, bus: EventBus, ledger: DemoLedger, held: int) -> Proof:
    effects, deliveries = ledger.effects(), ledger.deliveries()
    records = [await bus.find(event_id) for event_id in site.event_ids]
    published = len(site.event_ids)
    handled = sum(effects[event_id] > 0 for event_id in site.event_ids)
    lost = published - handled
    redelivered = [event_id for event_id in site.event_ids if deliveries[event_id] > 1]
    doubled = sum(count > 1 for count in effects.values())
    unfinished = sum(record is None or record.status != "DONE" for record in records)
    command, url = output.program_name(), shlex.quote(site.url)
    return Proof(
        claims=(
            (lost == 0, f"{published} events published, {handled} handled, {lost} lost"),
            (
                doubled == 0,
                f"the killed worker held {held}; {len(redelivered)} were delivered twice, {doubled} took effect twice",
            ),
            (unfinished == 0, f"{published - unfinished} are DONE in the bus. Look at it:"),
        ),
        facts={
            "url": site.url,
            "directory": str(site.folder),
            "published": published,
            "handled": handled,
            "lost": lost,
            "heldByKilledWorker": held,
            "deliveredTwice": len(redelivered),
            "tookEffectTwice": doubled,
            "unfinished": unfinished,
        },
        next_steps=(
            "",
            f"  {command} bus depth --url {url}",
            f"  {command} bus show {(redelivered or site.event_ids)[0]} --url {url}",
            f"  {command} bus doctor --url {url}",
            f"  rm -r {shlex.quote(str(site.folder))}    # when you are done",
        ),
    )
