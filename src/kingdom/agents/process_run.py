"""A run with a process: its transcript is followed, its shim watched, and nothing of it is left at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from typing import Final

from kingdom.agents.engine import EndReader, Engine
from kingdom.agents.folder import Identity, RunFolder
from kingdom.agents.port import Heartbeat, OnEvent, Order, Outcome
from kingdom.agents.processes import boot_id, carries, send
from kingdom.agents.run import Place, Run, log
from kingdom.agents.strays import end_strays
from kingdom.agents.tail import Lines, Tail, end_of
from kingdom.agents.timing import Timing
from kingdom.agents.verdict import Stop
from kingdom.agents.watch import Files, ShimWatch, interval

MAX_TRANSCRIPT: Final = 1024**3  # bytes: a program that prints without end must not fill the disk
_PIECES: Final = 16  # of the transcript, taken in before we look at the timers again
_BREATH: Final = 0.01  # seconds between two reads: a chatty program is read in pieces worth the trouble
_SHIM_GRACE: Final = 5.0  # seconds a shim has beyond the time its stopping takes


class ProcessRun(Run):
    """A run under a shim. ``identity`` is what the shim wrote of itself and the agent."""

    def __init__(
        self,
        place: Place,
        folder: RunFolder,
        order: Order,
        on_event: OnEvent | None,
        *,
        engine: Engine,
        files: Files,
        identity: Identity,
        adopted: bool = False,
    ) -> None:
        super().__init__(place, folder, order, on_event)
        self.pid = identity.pid
        self._engine = engine
        self._files = files
        self._identity = identity
        self._adopted = adopted
        self._reader = engine.reader(order)
        self._lines = Lines()
        self._signalled = False
        self._force_at: float | None = None
        self._old = 0  # how much of the transcript was there when we took over
        if adopted:
            self._stop = folder.read_stop()
            with contextlib.suppress(FileNotFoundError):
                self._old = place.transcript(order.run_id).stat().st_size

    async def _watch(self) -> Outcome:
        transcript = self._place.transcript(self.run_id)
        tail = Tail(transcript)
        shim = ShimWatch(self._identity.shim_pid, self._identity.shim_start, self._woken.set)
        try:
            self._timing = self._make_timing(spoken=self._old > 0)
            with self._files.follow(transcript, self._folder.path, self._woken.set) as told:
                watched = await self._until_gone(tail, shim, interval(told=told and shim.tells))
            while await self._read(tail):
                pass
            self._feed([self._lines.rest()], new=tail.offset > self._old)
            if isinstance(self._reader, EndReader):
                self._take(list(self._reader.end()), new=True)
        finally:
            shim.close()
            tail.close()
        return await self._bury(watched=watched)

    async def _until_gone(self, tail: Tail, shim: ShimWatch, at_most: float) -> bool:
        """Until the shim is gone. Returns whether it was there when we began to watch."""
        assert self._timing is not None
        loop = asyncio.get_running_loop()
        watched = False
        if not self._is_ours():
            return False
        while shim.running:
            watched = True
            self._woken.clear()
            if await self._read(tail):
                self._woken.set()  # there is more: first look whether it may go on at all
            if tail.offset > MAX_TRANSCRIPT:
                self._end(Stop("failed", f"it printed more than {MAX_TRANSCRIPT} bytes"))
            if self._stop is None:
                self._check_timers(self._timing)
            if self._stop is not None:
                self._stop_shim(self._stop)
            due = self._force_at if self._force_at is not None else self._timing.due()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(at_most, due - loop.time()))):
                    await self._woken.wait()
            await asyncio.sleep(_BREATH)
        return watched

    async def _read(self, tail: Tail) -> bool:
        """Take in a good piece of what is new in the transcript. Returns whether there may be more.

        What was there before we took over was told then.
        """
        for _ in range(_PIECES):
            data = tail.read(until=self._old)
            if not data:
                return False
            new = tail.offset > self._old
            if new and self._timing:
                self._timing.output(asyncio.get_running_loop().time())
            self._feed(self._lines.feed(data), new=new)
            await asyncio.sleep(0)
        return True

    def _feed(self, lines: list[bytes | None], *, new: bool) -> None:
        for line in lines:
            if line is None:
                self._take([Heartbeat()], new=new)
            elif line:
                self._take(list(self._reader.feed(line)), new=new)

    def _make_timing(self, *, spoken: bool) -> Timing:
        """Timers by a clock that never goes back; total counts from the true start also after an adoption."""
        elapsed = 0.0
        start = self._identity.start
        if self._adopted and start is not None:
            elapsed = time.clock_gettime(time.CLOCK_BOOTTIME) - start / os.sysconf("SC_CLK_TCK")
        elif self._adopted:
            elapsed = self._place.clock() - self._identity.started_at
        return Timing(self._order.timers, asyncio.get_running_loop().time(), elapsed=max(0.0, elapsed), spoken=spoken)

    def _stop_shim(self, stop: Stop) -> None:
        """Have the shim end the run; end the shim itself if that takes too long."""
        now = asyncio.get_running_loop().time()
        if not self._signalled:
            self._signalled = True
            # Written first: whoever takes over from us must know that this end is our doing.
            with contextlib.suppress(OSError):
                self._folder.write_stop(stop)
            self._signal_shim(signal.SIGTERM)
            self._force_at = now + 2 * self._order.timers.stop + _SHIM_GRACE
        elif self._force_at is not None and now >= self._force_at:
            log.error("the shim of run %s (pid %s) does not end: killing it", self.run_id, self._identity.shim_pid)
            self._signal_shim(signal.SIGKILL)
            self._force_at = now + _SHIM_GRACE

    def _signal_shim(self, number: signal.Signals) -> None:
        send(self._identity.shim_pid, self._identity.shim_start, number)

    def _same_boot(self) -> bool:
        return self._identity.boot_id == boot_id()

    def _is_ours(self) -> bool:
        """Whether the process the file names is our shim. The agent can write to that file as well as we can."""
        if not self._adopted or self._identity.shim_start is None:
            return True
        return self._same_boot() and carries(self._identity.shim_pid, self.run_id)

    async def _bury(self, *, watched: bool) -> Outcome:
        """When the shim is gone: make sure that nothing is left, and conclude."""
        if self._same_boot():
            outputs = None if watched else (self._place.transcript(self.run_id), self._place.errors(self.run_id))
            left = await asyncio.to_thread(end_strays, self.run_id, self._identity.pid, outputs)
            if left:
                log.error("run %s has ended, but processes %s could not be ended", self.run_id, left)
        ending, ended_at = self._folder.read_ending(end_of(self._place.errors(self.run_id)))
        return await self._conclude(
            ending,
            self._identity.started_at,
            ended_at or self._place.clock(),
            exit_code_decides=getattr(self._engine, "exit_code_decides", False),
        )
