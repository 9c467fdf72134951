"""A run: its timers, what all runs have in common, and runs inside our own process."""

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
from kingdom.agents.engine import AgentCrashed, InProcessEngine
from kingdom.agents.errors import AgentsError
from kingdom.agents.folder import RunFolder
from kingdom.agents.ledger import Ledger, ledger_entry
from kingdom.agents.port import AgentEvent, Began, Finished, OnEvent, Order, Outcome, Timer, Timers
from kingdom.agents.usage import RunUsage
from kingdom.agents.verdict import ProcessExit, StopReason, judge
from kingdom.base.batches import Batcher

# Output extends the total time if it is recent enough: this share of the total, at most so many seconds.
_EXTENSION: Final = (0.1, 60.0)


class TimerState:
    """The state of a run's timers. The caller passes the time of a monotonic clock."""

    def __init__(self, timers: Timers, now: float, *, elapsed: float = 0.0, spoken: bool = False) -> None:
        self._timers = timers
        self._seen = now  # when it started, or was adopted
        self._began = now - elapsed
        self._last: float | None = now if spoken else None
        self._finished: float | None = None

    def output(self, now: float) -> None:
        """Record output of the agent."""
        self._last = now

    def finished(self, now: float) -> None:
        """Record that the agent reported its end."""
        if self._finished is None:
            self._finished = now

    def expired(self, now: float) -> Timer | Literal["after_result"] | None:
        """Return the timer that has expired, or None."""
        return next((name for name, at in self._deadlines() if now >= at), None)

    def due(self) -> float:
        """Return when the next timer expires, if nothing is recorded until then."""
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


log = logging.getLogger("kingdom.agents")


@dataclass(frozen=True, slots=True)
class RunDeps:
    """What runs need: their folders, the ledger and the clock."""

    soldiers: Path
    sessions: Path
    ledger: Ledger
    entries: Batcher[dict[str, Any]]  # appends to the ledger
    clock: Callable[[], float]

    def transcript(self, run_id: str) -> Path:
        """Return the path of the agent's standard output."""
        return self.sessions / f"{run_id}.json"

    def errors(self, run_id: str) -> Path:
        """Return the path of its standard error."""
        return self.sessions / f"{run_id}.err"


class BaseRun(ABC):
    """What runs with a process and runs inside ours have in common."""

    def __init__(self, deps: RunDeps, folder: RunFolder, order: Order, on_event: OnEvent | None) -> None:
        self.run_id = order.run_id
        self.pid: int | None = None
        self._deps = deps
        self._folder = folder
        self._order = order
        self._on_event = on_event
        self._usage = RunUsage(order.model, order.session_id)
        self._timing: TimerState | None = None
        self._stop: StopReason | None = None
        self._adopted = False
        self._woken = asyncio.Event()
        self._task: asyncio.Task[Outcome] | None = None

    def begin(self) -> None:
        """Start to watch it."""
        self._task = asyncio.create_task(self._watch(), name=f"run {self.run_id}")

    async def wait(self) -> Outcome:
        """Wait until it has ended and none of its processes is alive."""
        assert self._task is not None
        return await asyncio.shield(self._task)

    async def stop(self, reason: str) -> None:
        """Stop it; the outcome is ``killed``. Returns at once."""
        self._stop_run(StopReason("killed", reason))

    async def detach(self) -> None:
        """Stop watching it. A run with a process continues."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def when_done(self, call: Callable[[str], object]) -> None:
        """Call ``call`` with the run id when it has ended or was detached."""
        assert self._task is not None
        self._task.add_done_callback(lambda _: call(self.run_id))

    @abstractmethod
    async def _watch(self) -> Outcome:
        """Watch the run to its end, and return the outcome."""

    def _stop_run(self, stop: StopReason) -> None:
        """Stop the run. Of several reasons the first counts."""
        if self._stop is None:
            self._stop = stop
        self._woken.set()

    def _take(self, events: list[AgentEvent], *, new: bool = True) -> None:
        """Accumulate events, check the caps, and call the listener. Of old events it gets only ``Began``."""
        now = asyncio.get_running_loop().time()
        for event in events:
            self._usage.take(event)
            if isinstance(event, Finished) and self._timing:
                self._timing.finished(now)
            if self._on_event and (new or isinstance(event, Began)):
                try:
                    self._on_event(event)
                except Exception:  # an error of the listener must not end the run
                    log.exception("a listener of run %s raised", self.run_id)
        if self._usage.finished is None and (over := self._usage.over(self._order.caps)):
            self._stop_run(StopReason("failed", over))

    def _check_timers(self, timing: TimerState) -> None:
        """Stop the run if a timer has expired."""
        match timing.expired(asyncio.get_running_loop().time()):
            case None:
                return
            case "after_result":
                self._stop_run(StopReason(None, "it said that it was done, and did not end"))
            case timer:
                seconds = getattr(self._order.timers, timer)
                what = {
                    "first_output": f"it printed nothing for {seconds:g} s",
                    "silence": f"it was silent for {seconds:g} s",
                    "total": f"it took longer than {seconds:g} s altogether",
                }[timer]
                self._stop_run(StopReason("timeout", what, timer))

    async def _conclude(self, ending: ProcessExit, started_at: float, ended_at: float, **how: Any) -> Outcome:
        """Decide the outcome, record it, and return it."""
        usage = self._usage
        result = read_result(self._order.result_path)
        verdict = judge(usage, ending, self._stop, result, **how)
        rejected = usage.rejected
        outcome = Outcome(
            status=verdict.status,
            result=verdict.result,
            error=verdict.error,
            session_id=usage.session_id,
            model=usage.model,
            tokens=usage.tokens,
            cost_usd=usage.cost_usd,
            cost_source=usage.cost_source,
            turns=usage.turns,
            exit_code=ending.exit_code,
            timer=verdict.timer,
            lease_ended=verdict.lease_ended,
            resets_at=rejected.resets_at if rejected and verdict.status == "rate_limited" else None,
            started_at=started_at,
            ended_at=ended_at,
        )
        try:
            await self._record(outcome)
        except OSError:  # a full disk does not change the outcome
            log.exception("run %s ended (%s), but its outcome could not be recorded", self.run_id, outcome.status)
        return outcome

    async def _record(self, outcome: Outcome) -> None:
        """Write the ledger, then the outcome: a process that finds no outcome checks the ledger before it writes."""
        deps = self._deps
        if not (self._adopted and await asyncio.to_thread(deps.ledger.has, self.run_id, outcome.started_at)):
            line = ledger_entry(self._order, outcome, deps.clock(), price_known=self._usage.price_known)
            await deps.entries.do(line)
        self._folder.write_outcome(outcome)


class EndedRun:
    """A run that has ended, with a known outcome."""

    def __init__(self, run_id: str, outcome: Outcome, pid: int | None = None) -> None:
        self.run_id = run_id
        self.pid = pid
        self._outcome = outcome

    async def wait(self) -> Outcome:
        """Return the outcome."""
        return self._outcome

    async def stop(self, reason: str) -> None:
        """Do nothing: the run has ended."""


class InProcessRun(BaseRun):
    """A run of a :class:`~kingdom.agents.engine.InProcessEngine`. It ends with our process."""

    def __init__(
        self, deps: RunDeps, folder: RunFolder, order: Order, on_event: OnEvent | None, *, player: InProcessEngine
    ) -> None:
        super().__init__(deps, folder, order, on_event)
        self._player = player
        self._playing: asyncio.Task[Finished] | None = None
        self._alarm: asyncio.TimerHandle | None = None

    async def _watch(self) -> Outcome:
        loop = asyncio.get_running_loop()
        started_at = self._deps.clock()
        self._timing = timing = TimerState(self._order.timers, loop.time())
        with self._deps.transcript(self.run_id).open("a", encoding="utf-8") as transcript:

            def on_event(event: AgentEvent) -> None:
                timing.output(loop.time())
                _write(transcript, event)
                self._take([event])
                self._set_alarm(timing)

            self._playing = playing = asyncio.create_task(self._player.play(self._order, on_event))
            self._set_alarm(timing)
            try:
                if self._stop is None:
                    await asyncio.wait([playing])
            finally:
                if self._alarm is not None:
                    self._alarm.cancel()
                playing.cancel(self._stop.reason if self._stop else None)
                await asyncio.wait([playing])
            self._take_result(playing, transcript)
        ending = ProcessExit(code=0 if self._usage.finished else 1)
        return await self._conclude(ending, started_at, self._deps.clock(), exit_code_decides=False)

    def _stop_run(self, stop: StopReason) -> None:
        super()._stop_run(stop)
        if self._playing is not None and self._stop is not None:
            self._playing.cancel(self._stop.reason)

    def _set_alarm(self, timing: TimerState) -> None:
        """Schedule a check of the timers for when the next one may expire, which may be earlier than before."""
        due = timing.due()
        if self._alarm is None or due < self._alarm.when():
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = asyncio.get_running_loop().call_at(due, self._on_alarm, timing)

    def _on_alarm(self, timing: TimerState) -> None:
        self._alarm = None
        self._check_timers(timing)
        if self._stop is None:
            self._set_alarm(timing)

    async def conclude_lost(self) -> Outcome:
        """Conclude a run whose process is gone."""
        self._adopted = True
        now = self._deps.clock()
        return await self._conclude(ProcessExit(seen=False), now, now, exit_code_decides=False)

    def _take_result(self, playing: asyncio.Task[Finished], transcript: IO[str]) -> None:
        if playing.cancelled():
            return
        error = playing.exception()
        if isinstance(error, AgentCrashed):
            self._stop_run(StopReason("killed", f"the agent crashed: {error}"))
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
