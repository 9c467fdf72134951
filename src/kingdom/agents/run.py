"""What every run has in common: its events are told and added up, it is ended when it must be, and concluded once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kingdom.agents.account import Account
from kingdom.agents.contract import read_result
from kingdom.agents.folder import RunFolder
from kingdom.agents.ledger import Ledger, entry
from kingdom.agents.port import AgentEvent, Began, Finished, OnEvent, Order, Outcome
from kingdom.agents.timing import Timing
from kingdom.agents.verdict import Ending, Stop, judge
from kingdom.batches import Batches

log = logging.getLogger("kingdom.agents")


@dataclass(frozen=True, slots=True)
class Place:
    """Where runs leave what is to be known of them, and the time."""

    soldiers: Path
    sessions: Path
    ledger: Ledger
    entries: Batches[dict[str, Any]]  # for the ledger
    clock: Callable[[], float]

    def transcript(self, run_id: str) -> Path:
        """What the agent printed."""
        return self.sessions / f"{run_id}.json"

    def errors(self, run_id: str) -> Path:
        """What it wrote to standard error."""
        return self.sessions / f"{run_id}.err"


class Run(ABC):
    """A run under way, or at its end."""

    def __init__(self, place: Place, folder: RunFolder, order: Order, on_event: OnEvent | None) -> None:
        self.run_id = order.run_id
        self.pid: int | None = None
        self._place = place
        self._folder = folder
        self._order = order
        self._on_event = on_event
        self._account = Account(order.model, order.session_id)
        self._timing: Timing | None = None
        self._stop: Stop | None = None
        self._adopted = False
        self._woken = asyncio.Event()
        self._task: asyncio.Task[Outcome] | None = None

    def begin(self) -> None:
        """Watch it from now on."""
        self._task = asyncio.create_task(self._watch(), name=f"run {self.run_id}")

    async def wait(self) -> Outcome:
        """Return when it has ended and nothing of it is alive."""
        assert self._task is not None
        return await asyncio.shield(self._task)

    async def stop(self, reason: str) -> None:
        """End it; the outcome is ``killed``. Returns at once: ``wait`` waits."""
        self._end(Stop("killed", reason))

    async def let_go(self) -> None:
        """Stop watching. The run goes on."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def when_done(self, call: Callable[[str], object]) -> None:
        """Have ``call`` called with the run id when it has ended, or was let go."""
        assert self._task is not None
        self._task.add_done_callback(lambda _: call(self.run_id))

    @abstractmethod
    async def _watch(self) -> Outcome:
        """See the run to its end."""

    def _end(self, stop: Stop) -> None:
        """End the run for this reason; the first reason counts."""
        if self._stop is None:
            self._stop = stop
        self._woken.set()

    def _take(self, events: list[AgentEvent], *, new: bool = True) -> None:
        """Add events up, look at the caps, and tell whoever listens. Of old ones, only how it began."""
        now = asyncio.get_running_loop().time()
        for event in events:
            self._account.take(event)
            if isinstance(event, Finished) and self._timing:
                self._timing.finished(now)
            if self._on_event and (new or isinstance(event, Began)):
                try:
                    self._on_event(event)
                except Exception:  # a listener's mistake must not end the run it listens to
                    log.exception("a listener of run %s raised", self.run_id)
        if self._account.finished is None and (over := self._account.over(self._order.caps)):
            self._end(Stop("failed", over))

    def _check_timers(self, timing: Timing) -> None:
        """End the run if one of its timers has run out."""
        match timing.expired(asyncio.get_running_loop().time()):
            case None:
                return
            case "after_result":
                self._end(Stop(None, "it said that it was done, and did not end"))
            case timer:
                seconds = getattr(self._order.timers, timer)
                what = {
                    "first_output": f"it printed nothing for {seconds:g} s",
                    "silence": f"it was silent for {seconds:g} s",
                    "total": f"it took longer than {seconds:g} s altogether",
                }[timer]
                self._end(Stop("timeout", what, timer))

    async def _conclude(self, ending: Ending, started_at: float, ended_at: float, **how: Any) -> Outcome:
        """Decide what came of it, write that down once, and return it."""
        account = self._account
        result = read_result(self._order.result_path)
        verdict = judge(account, ending, self._stop, result, **how)
        rejected = account.rejected
        outcome = Outcome(
            status=verdict.status,
            result=verdict.result,
            error=verdict.error,
            session_id=account.session_id,
            model=account.model,
            tokens=account.tokens,
            cost_usd=account.cost_usd,
            cost_source=account.cost_source,
            turns=account.turns,
            exit_code=ending.exit_code,
            timer=verdict.timer,
            resets_at=rejected.resets_at if rejected and verdict.status == "rate_limited" else None,
            started_at=started_at,
            ended_at=ended_at,
        )
        try:
            await self._write_down(outcome)
        except OSError:  # a full disk: what was done is still done
            log.exception("run %s ended (%s), but that could not be written down", self.run_id, outcome.status)
        return outcome

    async def _write_down(self, outcome: Outcome) -> None:
        """First the ledger, then the outcome: whoever finds no outcome looks into the ledger before it writes there."""
        place = self._place
        if not (self._adopted and await asyncio.to_thread(place.ledger.has, self.run_id, outcome.started_at)):
            line = entry(self._order, outcome, place.clock(), price_known=self._account.price_known)
            await place.entries.do(line)
        self._folder.write_outcome(outcome)


class EndedRun:
    """A run whose outcome is known."""

    def __init__(self, run_id: str, outcome: Outcome, pid: int | None = None) -> None:
        self.run_id = run_id
        self.pid = pid
        self._outcome = outcome

    async def wait(self) -> Outcome:
        """What came of it."""
        return self._outcome

    async def stop(self, reason: str) -> None:
        """There is nothing left to stop."""
