"""A run with a process: follow its transcript, watch its shim, and leave no process behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from kingdom.agents.engine import EndReader, Engine
from kingdom.agents.folder import ProcessIdentity, RunFolder
from kingdom.agents.port import Heartbeat, OnEvent, Order, Outcome
from kingdom.agents.processes import (
    Process,
    all_processes,
    boot_id,
    descendants,
    find_process,
    has_run_id,
    is_running,
    processes_of_run,
    send,
)
from kingdom.agents.run import BaseRun, RunDeps, TimerState, log
from kingdom.agents.transcript import FileTail, LineSplitter, read_end
from kingdom.agents.verdict import StopReason
from kingdom.base.inotify import CREATE, MODIFY, MOVED_TO, FileWatcher

# Ending what is left of a run whose shim is gone: only what carries the run's own mark, or is certainly its own.


_PATIENCE: Final = 5.0  # seconds until we say that something cannot be ended
_AGAIN: Final = 0.05


def kill_strays(run_id: str, session: int | None = None, outputs: Sequence[Path] | None = None) -> list[int]:
    """Kill every process of a run and wait until none is left. Returns the pids of those that cannot be ended.

    ``session`` is the agent's: members of it that have lost the mark (``env -i``) are ended too. Who has not watched
    the run to this moment also gives its ``outputs``: the number of the session may be another's by now, but a member
    that writes to a file of the run is the run's.
    """
    deadline = time.monotonic() + _PATIENCE
    while strays := _find(run_id, session, outputs):
        for process in strays:
            send(process.pid, process.start, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return [process.pid for process in strays]
        time.sleep(_AGAIN)
    return []


def _find(run_id: str, session: int | None, outputs: Sequence[Path] | None) -> list[Process]:
    found = {process.pid: process for process in processes_of_run(run_id)}
    if session is not None:
        for process in all_processes():
            if process.session == session and process.alive and (outputs is None or writes_to(process.pid, outputs)):
                found[process.pid] = process
    for pid in list(found):
        found |= {process.pid: process for process in descendants(pid)}
    found.pop(os.getpid(), None)  # we may ourselves have been started by an agent
    return list(found.values())


def writes_to(pid: int, outputs: Sequence[Path]) -> bool:
    """Whether the standard output or error of a process is one of these files."""
    names = {str(path.resolve()) for path in outputs}
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if str(Path(f"/proc/{pid}/fd/{descriptor}").readlink()) in names:
                return True
    return False


# Being woken when a run's files or its shim change; where the kernel cannot tell, by looking often.


_TOLD: Final = 5.0  # seconds between two looks when the kernel tells us of changes
_BLIND: Final = 0.2  # and when it does not


class RunFileWatch:
    """One inotify instance for all runs of an event loop: there are few of them on a machine."""

    def __init__(self) -> None:
        self._watch: FileWatcher | None = None
        self._users = 0

    @contextlib.contextmanager
    def follow(self, transcript: Path, folder: Path, wake: Callable[[], None]) -> Iterator[bool]:
        """Call ``wake`` when the transcript grows or a file appears in the folder. Yields whether that works."""
        if self._watch is None:
            self._watch = FileWatcher(asyncio.get_running_loop())
        self._users += 1
        with contextlib.ExitStack() as stack:
            stack.callback(self._leave)
            try:
                stack.callback(self._watch.add(transcript, MODIFY, lambda _: wake()))
                stack.callback(self._watch.add(folder, CREATE | MOVED_TO, lambda _: wake()))
                works = self._watch.available
            except OSError:
                works = False
            yield works

    def _leave(self) -> None:
        self._users -= 1
        if self._users == 0 and self._watch is not None:
            self._watch.close()
            self._watch = None


class ShimWatch:
    """Tells when a shim is gone, whether it is our child or not."""

    def __init__(self, pid: int, start: int | None, wake: Callable[[], None]) -> None:
        self._pid = pid
        self._start = start
        self._handle: int | None = None
        with contextlib.suppress(AttributeError, OSError):
            self._handle = os.pidfd_open(pid)
            asyncio.get_running_loop().add_reader(self._handle, self._ended, wake)

    @property
    def tells(self) -> bool:
        """Whether ``wake`` is called at its end; if not, look often."""
        return self._handle is not None

    @property
    def running(self) -> bool:
        """Whether it is alive."""
        process = find_process(self._pid)
        if process is not None and not process.alive and self._start in (None, process.start):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, os.WNOHANG)  # if it is our child, it shall not stay behind as a zombie
        return is_running(self._pid, self._start)

    def close(self) -> None:
        """Stop watching it. Safe to call twice."""
        if self._handle is not None:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None

    def _ended(self, wake: Callable[[], None]) -> None:
        if self._handle is not None:
            asyncio.get_running_loop().remove_reader(self._handle)  # it stays readable: once is enough
        wake()


def poll_interval(*, told: bool) -> float:
    """How long to sleep at most between two looks."""
    return _TOLD if told else _BLIND


# A run with a process: its transcript is followed, its shim watched, and nothing of it is left at the end.


MAX_TRANSCRIPT: Final = 1024**3  # bytes: a program that prints without end must not fill the disk
_PIECES: Final = 16  # of the transcript, taken in before we look at the timers again
_BREATH: Final = 0.01  # seconds between two reads: a chatty program is read in pieces worth the trouble
_SHIM_GRACE: Final = 5.0  # seconds a shim has beyond the time its stopping takes


class ProcessRun(BaseRun):
    """A run under a shim. ``identity`` is what the shim wrote of itself and the agent."""

    def __init__(
        self,
        place: RunDeps,
        folder: RunFolder,
        order: Order,
        on_event: OnEvent | None,
        *,
        engine: Engine,
        files: RunFileWatch,
        identity: ProcessIdentity,
        adopted: bool = False,
    ) -> None:
        super().__init__(place, folder, order, on_event)
        self.pid = identity.pid
        self._engine = engine
        self._files = files
        self._identity = identity
        self._adopted = adopted
        self._reader = engine.reader(order)
        self._lines = LineSplitter()
        self._signalled = False
        self._force_at: float | None = None
        self._old = 0  # how much of the transcript was there when we took over
        if adopted:
            self._stop = folder.read_stop()
            with contextlib.suppress(FileNotFoundError):
                self._old = place.transcript(order.run_id).stat().st_size

    async def _watch(self) -> Outcome:
        transcript = self._place.transcript(self.run_id)
        tail = FileTail(transcript)
        shim = ShimWatch(self._identity.shim_pid, self._identity.shim_start, self._woken.set)
        try:
            self._timing = self._make_timing(spoken=self._old > 0)
            with self._files.follow(transcript, self._folder.path, self._woken.set) as told:
                watched = await self._until_gone(tail, shim, poll_interval(told=told and shim.tells))
            while await self._read(tail):
                pass
            self._feed([self._lines.rest()], new=tail.offset > self._old)
            if isinstance(self._reader, EndReader):
                self._take(list(self._reader.end()), new=True)
        finally:
            shim.close()
            tail.close()
        return await self._bury(watched=watched)

    async def _until_gone(self, tail: FileTail, shim: ShimWatch, at_most: float) -> bool:
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
                self._end(StopReason("failed", f"it printed more than {MAX_TRANSCRIPT} bytes"))
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

    async def _read(self, tail: FileTail) -> bool:
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

    def _make_timing(self, *, spoken: bool) -> TimerState:
        """Timers by a clock that never goes back; total counts from the true start also after an adoption."""
        elapsed = 0.0
        start = self._identity.start
        if self._adopted and start is not None:
            elapsed = time.clock_gettime(time.CLOCK_BOOTTIME) - start / os.sysconf("SC_CLK_TCK")
        elif self._adopted:
            elapsed = self._place.clock() - self._identity.started_at
        return TimerState(
            self._order.timers, asyncio.get_running_loop().time(), elapsed=max(0.0, elapsed), spoken=spoken
        )

    def _stop_shim(self, stop: StopReason) -> None:
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
        return self._same_boot() and has_run_id(self._identity.shim_pid, self.run_id)

    async def _bury(self, *, watched: bool) -> Outcome:
        """When the shim is gone: make sure that nothing is left, and conclude."""
        if self._same_boot():
            outputs = None if watched else (self._place.transcript(self.run_id), self._place.errors(self.run_id))
            left = await asyncio.to_thread(kill_strays, self.run_id, self._identity.pid, outputs)
            if left:
                log.error("run %s has ended, but processes %s could not be ended", self.run_id, left)
        ending, ended_at = self._folder.read_ending(read_end(self._place.errors(self.run_id)))
        return await self._conclude(
            ending,
            self._identity.started_at,
            ended_at or self._place.clock(),
            exit_code_decides=getattr(self._engine, "exit_code_decides", False),
        )
