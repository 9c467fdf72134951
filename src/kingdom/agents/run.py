"""A run under way: its timers, what all runs have in common, and runs inside our own process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import IO, Any, Final, Literal

from kingdom.agents.contract import read_result
from kingdom.agents.engine import InProcessEngine
from kingdom.agents.engines.scripted import ScriptCrash
from kingdom.agents.errors import AgentsError
from kingdom.agents.folder import RunFolder
from kingdom.agents.ledger import Ledger, ledger_entry
from kingdom.agents.port import AgentEvent, Began, Finished, OnEvent, Order, Outcome, Timer, Timers
from kingdom.agents.usage import RunUsage
from kingdom.agents.verdict import ProcessExit, StopReason, judge
from kingdom.base.batches import Batcher

# The three timers of a run, and the grace after its result. No clock of its own: the caller says what time it is.


_EXTENSION: Final = (0.1, 60.0)  # how recent a line must be to extend total: this part of it, at most so many seconds


class TimerState:
    """When a run is to be ended, by a clock that never goes back."""

    def __init__(self, timers: Timers, now: float, *, elapsed: float = 0.0, spoken: bool = False) -> None:
        self._timers = timers
        self._seen = now  # when it began, or was taken over
        self._began = now - elapsed
        self._last: float | None = now if spoken else None
        self._finished: float | None = None

    def output(self, now: float) -> None:
        """The agent printed something."""
        self._last = now

    def finished(self, now: float) -> None:
        """The agent said that it is done."""
        if self._finished is None:
            self._finished = now

    def expired(self, now: float) -> Timer | Literal["after_result"] | None:
        """Which of them has run out."""
        return next((name for name, at in self._deadlines() if now >= at), None)

    def due(self) -> float:
        """When the next one runs out, as things are."""
        return min((at for _, at in self._deadlines()), default=math.inf)

    def _deadlines(self) -> list[tuple[Timer | Literal["after_result"], float]]:
        timers = self._timers
        if self._finished is not None:
            return [("after_result", self._finished + timers.after_result)]
        if self._last is None:
            return [("first_output", self._seen + timers.first_output), ("total", self._began + timers.total)]
        extended = self._last + min(_EXTENSION[0] * timers.total, _EXTENSION[1])
        total = min(self._began + 2 * timers.total, max(self._began + timers.total, extended))
        return [("silence", self._last + timers.silence), ("total", total)]


# What every run has in common: its events are told and added up, it is ended when it must be, and concluded once.


log = logging.getLogger("kingdom.agents")


@dataclass(frozen=True, slots=True)
class RunDeps:
    """Where runs leave what is to be known of them, and the time."""

    soldiers: Path
    sessions: Path
    ledger: Ledger
    entries: Batcher[dict[str, Any]]  # for the ledger
    clock: Callable[[], float]

    def transcript(self, run_id: str) -> Path:
        """What the agent printed."""
        return self.sessions / f"{run_id}.json"

    def errors(self, run_id: str) -> Path:
        """What it wrote to standard error."""
        return self.sessions / f"{run_id}.err"


class BaseRun(ABC):
    """A run under way, or at its end."""

    def __init__(self, place: RunDeps, folder: RunFolder, order: Order, on_event: OnEvent | None) -> None:
        self.run_id = order.run_id
        self.pid: int | None = None
        self._place = place
        self._folder = folder
        self._order = order
        self._on_event = on_event
        self._account = RunUsage(order.model, order.session_id)
        self._timing: TimerState | None = None
        self._stop: StopReason | None = None
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
        self._end(StopReason("killed", reason))

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

    def _end(self, stop: StopReason) -> None:
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
            self._end(StopReason("failed", over))

    def _check_timers(self, timing: TimerState) -> None:
        """End the run if one of its timers has run out."""
        match timing.expired(asyncio.get_running_loop().time()):
            case None:
                return
            case "after_result":
                self._end(StopReason(None, "it said that it was done, and did not end"))
            case timer:
                seconds = getattr(self._order.timers, timer)
                what = {
                    "first_output": f"it printed nothing for {seconds:g} s",
                    "silence": f"it was silent for {seconds:g} s",
                    "total": f"it took longer than {seconds:g} s altogether",
                }[timer]
                self._end(StopReason("timeout", what, timer))

    async def _conclude(self, ending: ProcessExit, started_at: float, ended_at: float, **how: Any) -> Outcome:
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
            line = ledger_entry(self._order, outcome, place.clock(), price_known=self._account.price_known)
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


# A run without a process: an engine that plays its part inside ours. It ends with us.


class InProcessRun(BaseRun):
    """A run of a :class:`~kingdom.agents.engine.InProcessEngine`."""

    def __init__(
        self, place: RunDeps, folder: RunFolder, order: Order, on_event: OnEvent | None, *, player: InProcessEngine
    ) -> None:
        super().__init__(place, folder, order, on_event)
        self._player = player
        self._playing: asyncio.Task[Finished] | None = None
        self._alarm: asyncio.TimerHandle | None = None

    async def _watch(self) -> Outcome:
        loop = asyncio.get_running_loop()
        started_at = self._place.clock()
        self._timing = timing = TimerState(self._order.timers, loop.time())
        with self._place.transcript(self.run_id).open("a", encoding="utf-8") as transcript:

            def hear(event: AgentEvent) -> None:
                timing.output(loop.time())
                _write(transcript, event)
                self._take([event])
                self._set_alarm(timing)

            self._playing = playing = asyncio.create_task(self._player.play(self._order, hear))
            self._set_alarm(timing)
            try:
                if self._stop is None:
                    await asyncio.wait([playing])
            finally:
                if self._alarm is not None:
                    self._alarm.cancel()
                playing.cancel(self._stop.reason if self._stop else None)
                await asyncio.wait([playing])
            self._hear_end(playing, transcript)
        ending = ProcessExit(code=0 if self._account.finished else 1)
        return await self._conclude(ending, started_at, self._place.clock(), exit_code_decides=False)

    def _end(self, stop: StopReason) -> None:
        super()._end(stop)
        if self._playing is not None and self._stop is not None:
            self._playing.cancel(self._stop.reason)

    def _set_alarm(self, timing: TimerState) -> None:
        """Look at the timers when the next of them may have run out; it may be sooner than it was."""
        due = timing.due()
        if self._alarm is None or due < self._alarm.when():
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = asyncio.get_running_loop().call_at(due, self._ring, timing)

    def _ring(self, timing: TimerState) -> None:
        self._alarm = None
        self._check_timers(timing)
        if self._stop is None:
            self._set_alarm(timing)

    async def conclude_lost(self) -> Outcome:
        """For a run whose process is gone, and its part with it."""
        self._adopted = True
        now = self._place.clock()
        return await self._conclude(ProcessExit(seen=False), now, now, exit_code_decides=False)

    def _hear_end(self, playing: asyncio.Task[Finished], transcript: IO[str]) -> None:
        if playing.cancelled():
            return
        error = playing.exception()
        if isinstance(error, ScriptCrash):
            self._end(StopReason("killed", f"the agent crashed: {error}"))
            return
        if error is None:
            finished = playing.result()
        elif isinstance(error, AgentsError | OSError):
            finished = Finished(ok=False, error=str(error))
        else:
            raise error
        _write(transcript, finished)
        self._take([finished])


def _write(transcript: IO[str], event: AgentEvent) -> None:
    fields = {name: getattr(event, name) for name in event.__slots__}
    transcript.write(json.dumps({"type": type(event).__name__.lower(), **fields}, default=_plain) + "\n")
    transcript.flush()


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)
