"""A run without a process: an engine that plays its part inside ours. It ends with us."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, is_dataclass
from typing import IO, Any

from kingdom.agents.engine import Player
from kingdom.agents.engines.scripted import Crashed
from kingdom.agents.errors import AgentsError
from kingdom.agents.folder import RunFolder
from kingdom.agents.port import AgentEvent, Finished, OnEvent, Order, Outcome
from kingdom.agents.run import Place, Run
from kingdom.agents.timing import Timing
from kingdom.agents.verdict import Ending, Stop


class PlayedRun(Run):
    """A run of a :class:`~kingdom.agents.engine.Player`."""

    def __init__(
        self, place: Place, folder: RunFolder, order: Order, on_event: OnEvent | None, *, player: Player
    ) -> None:
        super().__init__(place, folder, order, on_event)
        self._player = player
        self._playing: asyncio.Task[Finished] | None = None
        self._alarm: asyncio.TimerHandle | None = None

    async def _watch(self) -> Outcome:
        loop = asyncio.get_running_loop()
        started_at = self._place.clock()
        self._timing = timing = Timing(self._order.timers, loop.time())
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
        ending = Ending(code=0 if self._account.finished else 1)
        return await self._conclude(ending, started_at, self._place.clock(), exit_code_decides=False)

    def _end(self, stop: Stop) -> None:
        super()._end(stop)
        if self._playing is not None and self._stop is not None:
            self._playing.cancel(self._stop.reason)

    def _set_alarm(self, timing: Timing) -> None:
        """Look at the timers when the next of them may have run out; it may be sooner than it was."""
        due = timing.due()
        if self._alarm is None or due < self._alarm.when():
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = asyncio.get_running_loop().call_at(due, self._ring, timing)

    def _ring(self, timing: Timing) -> None:
        self._alarm = None
        self._check_timers(timing)
        if self._stop is None:
            self._set_alarm(timing)

    async def conclude_lost(self) -> Outcome:
        """For a run whose process is gone, and its part with it."""
        self._adopted = True
        now = self._place.clock()
        return await self._conclude(Ending(seen=False), now, now, exit_code_decides=False)

    def _hear_end(self, playing: asyncio.Task[Finished], transcript: IO[str]) -> None:
        if playing.cancelled():
            return
        error = playing.exception()
        if isinstance(error, Crashed):
            self._end(Stop("killed", f"the agent crashed: {error}"))
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
