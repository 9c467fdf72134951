"""The general's role: hold its tasks, work on as many at once as it may, and settle them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.errors import InvalidDocument
from kingdom.court.general.campaign import Campaign, Ended, GivenUp
from kingdom.court.general.cancelling import CANCEL, cancel
from kingdom.court.general.closing import known_result, parking_time, write_down
from kingdom.court.general.quarters import Habits, Quarters
from kingdom.court.general.results import outcome_of, started_lately
from kingdom.court.general.tidying import tidy
from kingdom.court.leftovers import sweep
from kingdom.court.models import Task
from kingdom.court.queues import TASKS, read

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from kingdom.agents.port import Agents
    from kingdom.bus import Delivery
    from kingdom.court.config.system import SystemConfig
    from kingdom.court.general.campaign import Ending, Parked
    from kingdom.court.loop import Services
    from kingdom.court.models import Result
    from kingdom.court.packages.loading import General as Package

LEASE: Final = 60.0
RENEWAL: Final = 20.0
_TIDY: Final = 3600.0  # seconds between two looks for places that nobody works in any more
_LOOK: Final = 200  # waiting tasks looked at: one that cancels another must be seen however many wait
_ATTEMPTS: Final = 1_000_000  # a task ends by its result, never by a count of leases
log = logging.getLogger("kingdom.court")


@dataclass(slots=True)
class _Held:
    """A task we hold."""

    task: Task
    delivery: Delivery
    campaign: Campaign | None = None  # none for a task that only has to be settled, or cancels another
    run: asyncio.Task[Ending] | None = None
    result: Result | None = None
    parked: Parked | None = None
    written: bool = False  # the result is on disk, and everybody was told
    lost: bool = False


class General:
    """One general. It is a :class:`~kingdom.court.loop.Role` under its own name."""

    interval = 10.0

    def __init__(
        self, services: Services, package: Package, system: SystemConfig, agents: Agents, habits: Habits | None = None
    ) -> None:
        self.name = package.manifest.name
        self._quarters = Quarters(services, package, system, agents, habits or Habits())
        self._bus = services.bus
        self._held: dict[str, _Held] = {}
        self._renewed = self._quarters.habits.monotonic()
        self._tidied: float | None = None
        self._tidying: asyncio.Task[list[str]] | None = None
        self._wake: Callable[[], None] = lambda: None
        self._finished: dict[str, int] = {}
        self._waiting = 0

    # ── the role ──────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Take back what a former process held, and go on with it."""
        await self._quarters.workspace.prune()
        sweep(self._quarters.home.general_memory(self.name))
        self._renewed = self._quarters.habits.monotonic()
        recalled = await self._bus.recall(TASKS, worker=self.name, lease=LEASE)
        begun = started_lately(self._quarters.home) if recalled else set()
        for delivery in recalled:
            await self._take_up(delivery, begun)
        await self._forget_old_notes()
        self._quarters.mcp.sweep(self._quarters.notes.soldiers())
        self._set_out()

    async def tick(self) -> float | None:
        """Renew the leases, settle what has ended, take up what waits."""
        await self._renew()
        await self._close(await self._ended())
        more = await self._claim_waiting()
        self._set_out()
        await self._close(await self._cancel())
        self._tidy_up()
        return 0.0 if more else None

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Look when a task arrives, or when one of ours ends."""
        self._wake = wake
        return self._bus.subscribe(TASKS, wake)

    def report(self) -> Mapping[str, Any]:
        """What it works on."""
        return {
            "engine": self._quarters.manifest.engine.name,
            "concurrency": self._quarters.manifest.concurrency,
            "waiting": self._waiting,
            "running": [
                {"task_id": held.task.id, "soldier_id": campaign.soldier_id, "retries": campaign.retries}
                for held in self._held.values()
                if (campaign := held.campaign) is not None
            ],
            "finished": dict(self._finished),
        }

    async def stop(self) -> None:
        """Let go. Soldiers run on, their tasks stay ours, and the next process takes both over."""
        doing: list[asyncio.Task[Any]] = [held.run for held in self._held.values() if held.run is not None]
        doing += [self._tidying] if self._tidying is not None else []
        for task in doing:
            task.cancel()
        await asyncio.gather(*doing, return_exceptions=True)
        await self._quarters.agents.close()
        self._quarters.scribe.close()
        self._held.clear()

    # ── taking up ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _claim_waiting(self) -> bool:
        """Claim what there is room for; return whether there may be more. What cancels another task needs no room."""
        found = await self._bus.peek(TASKS, limit=_LOOK, types=[self.name], skip=self._held)
        room = self._quarters.manifest.concurrency - sum(held.campaign is not None for held in self._held.values())
        urgent = [record.envelope.event_id for record in found if _type_of(record.envelope.payload) == CANCEL]
        others = [record.envelope.event_id for record in found if _type_of(record.envelope.payload) != CANCEL]
        wanted = [*urgent, *others[: max(room, 0)]]
        self._waiting = len(found) - len(wanted)
        await self._claim(wanted)
        return len(found) == _LOOK and len(others) < room

    async def _claim(self, ids: list[str]) -> None:
        if not ids:
            return
        claimed = await self._bus.claim(
            TASKS,
            worker=self.name,
            limit=len(ids),
            lease=LEASE,
            types=[self.name],
            ids=ids,
            max_attempts=_ATTEMPTS,
        )
        for delivery in claimed:
            await self._take_up(delivery)

    async def _take_up(self, delivery: Delivery, begun: Container[str] = ()) -> None:
        try:
            task = read(Task, delivery.envelope.payload, f"the task {delivery.event_id}")
        except InvalidDocument as error:
            log.warning("%s: %s", self.name, error)
            await self._bus.settle(dead=[(delivery, "INVALID", str(error))])
            return
        held = self._held[task.id] = _Held(task, delivery)
        held.result = known_result(self._quarters, task.id)
        if held.result is None and task.type != CANCEL:
            held.campaign = Campaign(self._quarters, task, delivery, begun=task.id in begun)

    def _set_out(self) -> None:
        """Begin, or begin again, every campaign that does not run."""
        for held in self._held.values():
            if held.campaign is not None and held.run is None:
                held.run = asyncio.create_task(held.campaign.run(), name=f"{self.name} {held.task.id}")
                held.run.add_done_callback(lambda _: self._wake())

    def _tidy_up(self) -> None:
        """Look for old places now and then, beside everything else."""
        now = self._quarters.habits.monotonic()
        if self._tidied is None or now - self._tidied >= _TIDY:
            self._tidied = now
            held = self._held
            self._tidying = asyncio.create_task(tidy(self._quarters, lambda: [one.task for one in held.values()]))

    async def _forget_old_notes(self) -> None:
        self._quarters.notes.sweep()
        for task_id in self._quarters.notes.ids():
            if task_id not in self._held:
                record = await self._bus.find(task_id)
                if record is None or record.status in ("DONE", "DEAD"):
                    self._quarters.notes.forget(task_id)

    # ── holding on ────────────────────────────────────────────────────────────────────────────────────────────

    async def _renew(self) -> None:
        """Keep the leases. Where one is lost the soldier is stopped, and nothing is written."""
        if self._quarters.habits.monotonic() - self._renewed < RENEWAL:
            return
        held = {id(one.delivery): one for one in self._held.values() if not one.lost}
        for delivery in await self._bus.extend([one.delivery for one in held.values()], LEASE):
            one = held[id(delivery)]
            log.warning("%s: the lease of %s is lost; its soldier is stopped", self.name, one.task.id)
            one.lost = True
            if one.campaign is None:
                del self._held[one.task.id]
            else:
                one.campaign.give_up()
        self._renewed = self._quarters.habits.monotonic()

    # ── letting go ────────────────────────────────────────────────────────────────────────────────────────────

    async def _ended(self) -> list[_Held]:
        """The tasks that are to be settled now."""
        ended: list[_Held] = []
        for held in list(self._held.values()):
            if held.run is not None and held.run.done():
                ending = self._ending_of(held, held.run)
                if held.lost or isinstance(ending, GivenUp):
                    del self._held[held.task.id]
                    continue
                if isinstance(ending, Ended):
                    held.result = ending.result
                else:
                    held.parked = ending
            if held.result is not None or held.parked is not None:
                ended.append(held)
        return ended

    def _ending_of(self, held: _Held, run: asyncio.Task[Ending]) -> Ending:
        try:
            return run.result()
        except Exception:
            if held.lost:
                return GivenUp()
            # Nothing is known against the task: it is begun again with the next look, which comes after a moment.
            held.run, held.campaign = None, Campaign(self._quarters, held.task, held.delivery, begun=True)
            raise

    async def _cancel(self) -> list[_Held]:
        """Do what cancelling tasks ask for; those that are done with it."""
        done: list[_Held] = []
        for held in [one for one in self._held.values() if one.task.type == CANCEL and one.result is None]:
            campaigns = {one.task.id: one.campaign for one in self._held.values() if one.campaign is not None}
            held.result = await cancel(self._quarters, held.task, campaigns, self._claim_one)
            if held.result is not None:
                done.append(held)
        return done

    async def _claim_one(self, task_id: str) -> Campaign | None:
        await self._claim([task_id])
        self._set_out()
        held = self._held.get(task_id)
        return None if held is None else held.campaign

    async def _close(self, ended: Iterable[_Held]) -> None:
        """Write down and settle. What could not be written down stays held, and is tried again with the next look."""
        done: list[tuple[Delivery, str | None]] = []
        parked: list[tuple[Delivery, float, str, str]] = []
        closed: list[_Held] = []
        ended = list(ended)
        trouble = await self._write_down(ended)
        for held in ended:
            if held.parked is not None:
                wait = parking_time(self._quarters, held.parked)
                parked.append((held.delivery, wait, "RATE_LIMITED", held.parked.reason))
            elif held.result is not None and held.written:
                done.append((held.delivery, outcome_of(held.result)))
            else:
                continue
            closed.append(held)
        lost = {id(delivery) for delivery in await self._bus.settle(done=done, retry=parked)}
        for held in closed:
            del self._held[held.task.id]
            if id(held.delivery) in lost:
                log.warning("%s: %s was not ours any more when it ended", self.name, held.task.id)
            elif held.result is not None:
                self._quarters.notes.forget(held.task.id)
                self._finished[held.result.status] = self._finished.get(held.result.status, 0) + 1
        if trouble is not None:
            raise trouble

    async def _write_down(self, ended: Iterable[_Held]) -> OSError | None:
        """Write all results at the same time; return what kept one of them from being written."""
        new = {held.task.id: held for held in ended if held.result is not None and not held.written}
        troubles = await write_down(self._quarters, *(held.result for held in new.values() if held.result is not None))
        for task_id, held in new.items():
            held.written = task_id not in troubles
        return next(iter(troubles.values()), None)


def _type_of(payload: Any) -> Any:
    return payload.get("type") if isinstance(payload, dict) else None
