"""One task, from the first look at it to what came of it.

::

    prepare → start a soldier → wait ─┬─ success, and the evidence is there ─────────→ Ended
       ↑                              ├─ skipped, needs_human, killed from outside ──→ Ended
       │                              ├─ rate limited ───────────────────────────────→ Parked
       └── a fresh soldier, later ────┴─ failed, timeout; when the tries are spent ──→ Ended
       └── a fresh soldier, at once ──── it died together with a former process of ours

Which soldier is on the task is noted before it starts, and what came of it before the next one does. So a campaign that
is cut off anywhere goes on in the next process: it takes over the soldier that runs, or starts one if none does.
A campaign writes neither the result nor to the queue: that is for whoever holds the task (:mod:`.general`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from kingdom.agents.errors import AgentsError, StartFailed
from kingdom.agents.port import Began, Outcome
from kingdom.agents.untrusted import clean, cut_middle
from kingdom.bus import BusError
from kingdom.court.errors import CourtError
from kingdom.court.files import write_atomic
from kingdom.court.general.errand import Errand, learn
from kingdom.court.general.errors import NotNow, TaskRefused
from kingdom.court.general.evidence import examine, missing
from kingdom.court.general.lineage import Lineage
from kingdom.court.general.mcp import servers_of
from kingdom.court.general.notes import Note
from kingdom.court.general.preparing import prepare
from kingdom.court.general.reporting import Report
from kingdom.court.general.soldiers import (
    assigned,
    assignment,
    keep_raw_result,
    make_room,
    new_soldier_id,
    order_for,
    session,
    time_allowed,
)
from kingdom.gitops import GitError
from kingdom.journal.catalog import SoldierCompleted, SoldierSpawned, SoldierTimeout, TaskStarted

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kingdom.agents.port import AgentEvent, Running
    from kingdom.bus import Delivery
    from kingdom.court.general.quarters import Quarters
    from kingdom.court.general.workspace import Workplace
    from kingdom.court.models import EvidenceCheck, Result, Task

T = TypeVar("T")
_LONGEST_ERROR: Final = 4000  # bytes of it that the next soldier is told
_MOST_RESTARTS: Final = 20  # of a task whose soldiers die together with us: perhaps it is the reason
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_BACKOFF: Final = (5.0, 120.0)  # seconds before another try: at first, at most
log = logging.getLogger("kingdom.court")


@dataclass(frozen=True, slots=True)
class Ended:
    """There is a result."""

    result: Result


@dataclass(frozen=True, slots=True)
class Parked:
    """The engine's account is over its limit: nothing is lost, it goes on later."""

    resets_at: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The task is not ours any more: nothing is to be written."""


Ending = Ended | Parked | GivenUp
Halt = Literal["cancelled", "lost"]


class _Halted(Exception):
    """The campaign shall end now."""


class Campaign:
    """The work on one task."""

    def __init__(self, quarters: Quarters, task: Task, delivery: Delivery, *, begun: bool = False) -> None:
        """``begun``: the journal says already that the task was started."""
        self.task = task
        self.delivery = delivery
        self.soldier_id: str | None = None
        self._quarters = quarters
        self._begun = begun
        self._note = quarters.notes.load(task.id)
        self._errand = Errand(task, Lineage(task.id))  # until more is known
        self._running: Running | None = None
        self._adopted = False
        self._place: Workplace | None = None
        self._halt: Halt | None = None
        self._halted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # ── from outside ──────────────────────────────────────────────────────────────────────────────────────────

    @property
    def retries(self) -> int:
        """How many runs have failed so far."""
        return self._note.retries if self._note else 0

    def cancel(self, reason: str) -> None:
        """End it with the result ``failed``. Noted first: a soldier found dead later was not killed by others."""
        if self._halt is None:
            note = self._noted()
            note.cancelled = note.cancelled or reason
            self._quarters.notes.save(note)
            self._stop("cancelled")

    def give_up(self) -> None:
        """End it without a result: somebody else has the task."""
        self._stop("lost")

    async def run(self) -> Ending:
        """Work until there is an ending. Raises only what has nothing to do with the task itself."""
        try:
            return await self._run()
        except _Halted:
            return self._cut_short()
        except BusError:  # the queue cannot be reached: that says nothing about the task
            raise
        except (CourtError, AgentsError, GitError) as error:
            return await self._failed(str(error))
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise  # it will be made: the task waits, and a soldier that runs goes on
            return await self._failed(f"the task could not be prepared: {error}")
        except Exception as error:
            log.exception("%s: unexpected while working on %s", self._quarters.name, self.task.id)
            return await self._failed(f"unexpected: {type(error).__name__}: {error}")

    # ── the run ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> Ending:
        note = self._begin()
        self._running = await self._adopt(note)
        self._errand = await learn(self._quarters.home, self._quarters.bus, self.task)
        if note.cancelled is not None:
            self._stop("cancelled")
        while True:
            if self._running is None:
                try:
                    self._running = await self._launch(note)
                except (NotNow, StartFailed) as error:
                    outcome = Outcome("failed", error=str(error))
                    if (ending := await self._after(note, outcome)) is not None:
                        return ending
                    continue
            outcome = await self._watch(self._running)
            self._running = None
            self._told(outcome)
            if self._halt is not None:
                return self._cut_short(outcome)
            if (ending := await self._after(note, outcome)) is not None:
                return ending

    def _begin(self) -> Note:
        if self._note is not None:
            return self._note
        note = self._noted()
        note.soldier = assigned(self._quarters.home, self.task.id)  # one, when only the note was lost
        if not self._begun:
            self._begun = True
            self._quarters.tell(TaskStarted(self.task.id))
        return note

    async def _adopt(self, note: Note) -> Running | None:
        """Take over the soldier that a former process of ours has started."""
        if note.soldier is None:
            return None
        self.soldier_id = note.soldier
        self._adopted = True
        return await self._quarters.agents.adopt(note.soldier, self._heard)

    async def _launch(self, note: Note) -> Running:
        """Prepare everything and start a fresh soldier."""
        quarters = self._quarters
        prepared = await self._unless_halted(prepare(quarters, self._errand, note))
        self._place = prepared.place
        without = prepared.permit is not None and not prepared.permit.mcp
        servers = {} if without else servers_of(quarters.manifest, quarters.habits.environment)
        soldier_id = new_soldier_id(quarters.clock())
        self._adopted = False
        note.soldier = self.soldier_id = soldier_id
        make_room(quarters.home, self.task.id)
        await quarters.scribe.write(
            (quarters.home.prompt(self.task.id), prepared.prompt),
            quarters.notes.file(note),
            assignment(quarters.home, self.task.id, soldier_id),
        )
        order = order_for(
            self.task,
            quarters.manifest,
            quarters.system,
            quarters.home,
            soldier_id=soldier_id,
            prompt=prepared.prompt,
            folder=prepared.place.folder,
            session_id=prepared.session_id,
            options=prepared.options,
            permit=prepared.permit,
            environment=quarters.habits.environment,
            mcp_config=quarters.mcp.write(soldier_id, servers),
        )
        try:
            running = await quarters.agents.start(order, self._heard)
        except AgentsError:
            quarters.mcp.remove(soldier_id)
            raise
        quarters.tell(SoldierSpawned(self.task.id, soldier_id))
        return running

    async def _watch(self, running: Running) -> Outcome:
        """Wait for the end of a run; end it when the campaign is halted."""
        waiting = asyncio.ensure_future(running.wait())
        try:
            await self._either(waiting)
            if self._halt is not None and not waiting.done():
                await running.stop(self._reason())
            outcome = await waiting
            self._quarters.mcp.remove(running.run_id)
            return outcome
        finally:
            waiting.cancel()

    async def _after(self, note: Note, outcome: Outcome) -> Ending | None:
        """What follows from an outcome: an ending, or None for another try."""
        if self._died_with_us(note, outcome):
            note.restarts += 1
            await self._absorb(note, outcome)
            return None
        checks: list[EvidenceCheck] = []
        status, error = outcome.status, outcome.error
        if status == "rate_limited":
            await self._absorb(note, outcome)
            return Parked(outcome.resets_at, error or "the engine's limit is reached")
        if status == "success":
            checks = await self._unless_halted(self._evidence()) if self._quarters.manifest.evidence else []
            if (error := missing(checks)) is not None:
                status = "failed"
        if status not in ("failed", "timeout") or note.retries >= self._quarters.manifest.retries:
            return Ended(self._report(outcome).of(status, error, checks))
        note.retries += 1
        note.errors.append(
            cut_middle(clean(error or f"the soldier ended as {status} and gave no reason"), _LONGEST_ERROR)
        )
        await self._absorb(note, outcome)
        first, most = _BACKOFF
        await self._unless_halted(self._pause(min(first * 2 ** (note.retries - 1), most)))
        return None

    async def _absorb(self, note: Note, outcome: Outcome) -> None:
        """Note what came of a run, before the next one."""
        note.soldier = None
        note.charge(outcome)
        await self._quarters.scribe.write(self._quarters.notes.file(note))

    def _died_with_us(self, note: Note, outcome: Outcome) -> bool:
        """Whether a run that was taken over ended unseen (a reboot, a part played in our process): not its fault."""
        unseen = self._adopted and outcome.status == "killed" and outcome.exit_code is None
        return unseen and note.restarts < _MOST_RESTARTS

    async def _pause(self, seconds: float) -> None:
        await self._quarters.habits.sleep(seconds)

    async def _evidence(self) -> list[EvidenceCheck]:
        # A run that was taken over was prepared by somebody else.
        place = self._place or self._quarters.workspace.find(self._errand.line.work_id)
        if place is None:
            raise TaskRefused("the place where the task was done is gone, and with it the evidence of its success")
        return await examine(self._quarters.manifest.evidence, place, self._quarters.habits.environment)

    # ── small things ──────────────────────────────────────────────────────────────────────────────────────────

    def _heard(self, event: AgentEvent) -> None:
        if isinstance(event, Began) and event.session_id:
            with contextlib.suppress(OSError):  # written again with the result
                write_atomic(*session(self._quarters.home, self.task.id, event.session_id), durable=False)

    def _told(self, outcome: Outcome) -> None:
        """Keep what a run left, and tell the journal how it ended."""
        with contextlib.suppress(OSError):  # for people who look for it; what counts is the result
            keep_raw_result(self._quarters.home, self.task.id, outcome)
        soldier_id = self.soldier_id or ""
        if outcome.status == "timeout":
            allowed = time_allowed(self._quarters.manifest, outcome)
            self._quarters.tell(SoldierTimeout(self.task.id, soldier_id, allowed))
        else:
            self._quarters.tell(SoldierCompleted(self.task.id, soldier_id, outcome.status))

    async def _unless_halted(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something that may be cut off; raises :class:`_Halted` then."""
        doing = asyncio.ensure_future(work)
        try:
            await self._either(doing)
            if self._halt is None:
                return doing.result()
            raise _Halted
        finally:
            if doing.cancel():
                await asyncio.wait([doing])

    async def _either(self, future: asyncio.Future[Any]) -> None:
        """Wait until something has happened, or the campaign is halted."""
        await asyncio.wait([future, self._halted], return_when=asyncio.FIRST_COMPLETED)

    def _stop(self, halt: Halt) -> None:
        self._halt = self._halt or halt
        if not self._halted.done():
            self._halted.set_result(None)

    def _reason(self) -> str:
        note = self._note
        return (note.cancelled if note else None) or "the task is not ours any more"

    def _cut_short(self, outcome: Outcome | None = None) -> Ending:
        note = self._noted()
        if self._halt == "lost":
            note.soldier = None
            self._quarters.notes.save(note)
            return GivenUp()
        return Ended(self._report(outcome).failure(self._reason()))

    def _noted(self) -> Note:
        if self._note is None:
            self._note = Note(self.task.id, self._quarters.clock())
        return self._note

    async def _failed(self, error: str) -> Ending:
        """The task itself cannot be done. No soldier goes on with it."""
        if self._running is not None:
            await self._running.stop(error)
            await self._running.wait()
            self._quarters.mcp.remove(self._running.run_id)
        return Ended(self._report().failure(error))

    def _report(self, outcome: Outcome | None = None) -> Report:
        return Report(self._quarters, self._errand, self._noted(), outcome, self.soldier_id)
