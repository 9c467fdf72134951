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
    send,
)
from kingdom.agents.run import BaseRun, RunDeps, TimerState, log
from kingdom.agents.sandbox.limits import remove_groups
from kingdom.agents.sandbox.namespace import SOCKET_NAME
from kingdom.agents.transcript import FileTail, LineSplitter, read_end
from kingdom.agents.verdict import StopReason
from kingdom.base.inotify import CREATE, MODIFY, MOVED_TO, FileWatcher
from kingdom.base.uptime import uptime

_KILL_SECONDS: Final = 5.0  # until we report that a process cannot be killed
_KILL_INTERVAL: Final = 0.05  # seconds between two rounds of SIGKILL
_LAUNCH_SECONDS: Final = 300.0  # no process of a run is older than this when its launch has ended


def kill_strays(
    run_id: str, session: int | None = None, outputs: Sequence[Path] | None = None, *, oldest: int = 0
) -> list[int]:
    """Kill every process of a run whose shim is gone, and remove its control groups.

    Returns the pids of the processes that cannot be killed. Only processes with the run's id in their environment are
    killed, and those of its ``session``, which may have lost the id (``env -i``). A caller that has not watched the run
    until now passes its ``outputs`` too: the session id may have been reused since, but a process of the session that
    writes to a file of the run belongs to the run. No process of the run started before ``oldest``, in ticks since
    boot: the environment of an older one is not read.
    """
    deadline = time.monotonic() + _KILL_SECONDS
    while strays := _find(run_id, session, outputs, oldest):
        for process in strays:
            send(process.pid, process.start, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return [process.pid for process in strays]
        time.sleep(_KILL_INTERVAL)
    remove_groups(run_id)
    return []


def _find(run_id: str, session: int | None, outputs: Sequence[Path] | None, oldest: int) -> list[Process]:
    own = os.getpid()  # we may have been started by an agent ourselves
    files = None if outputs is None else {str(path.resolve()) for path in outputs}
    found = {
        process.pid: process
        for process in all_processes()
        if process.alive
        and process.pid != own
        and process.start >= oldest
        and (
            has_run_id(process.pid, run_id)
            or (process.session == session and (files is None or writes_to(process.pid, files)))
        )
    }
    for pid in list(found):
        found |= {process.pid: process for process in descendants(pid)}
    found.pop(own, None)
    return list(found.values())


def writes_to(pid: int, files: set[str]) -> bool:
    """Tell whether the standard output or error of a process is one of these files, given by their real paths."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if str(Path(f"/proc/{pid}/fd/{descriptor}").readlink()) in files:
                return True
    return False


_NOTIFIED_INTERVAL: Final = 5.0  # seconds between two checks if the kernel reports changes
_POLL_INTERVAL: Final = 0.2  # and if it does not


class RunFileWatch:
    """Watches the files of all runs of an event loop with one inotify instance: a machine allows few of them."""

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
    """Notices that a shim has ended, whether it is our child or not."""

    def __init__(self, pid: int, start: int | None, wake: Callable[[], None]) -> None:
        self._pid = pid
        self._start = start
        self._handle: int | None = None
        with contextlib.suppress(AttributeError, OSError):
            self._handle = os.pidfd_open(pid)
            asyncio.get_running_loop().add_reader(self._handle, self._ended, wake)

    @property
    def notifies(self) -> bool:
        """Whether ``wake`` is called at its end; if not, poll."""
        return self._handle is not None

    @property
    def running(self) -> bool:
        """Whether the shim is alive."""
        process = find_process(self._pid)
        if process is not None and not process.alive and self._start in (None, process.start):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, os.WNOHANG)  # reap it if it is our child
        return is_running(self._pid, self._start)

    def close(self) -> None:
        """Stop watching the shim. Safe to call twice."""
        if self._handle is not None:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None

    def _ended(self, wake: Callable[[], None]) -> None:
        if self._handle is not None:
            asyncio.get_running_loop().remove_reader(self._handle)  # it stays readable: one call is enough
        wake()


def poll_interval(*, notified: bool) -> float:
    """Return the longest pause between two checks, in seconds."""
    return _NOTIFIED_INTERVAL if notified else _POLL_INTERVAL


MAX_TRANSCRIPT_BYTES: Final = 1024**3  # a program that prints endlessly must not fill the disk
_MAX_READS: Final = 16  # of the transcript, before the timers are checked again
_READ_INTERVAL: Final = 0.01  # seconds between two reads, so that frequent output is read in larger pieces
_SHIM_GRACE: Final = 5.0  # seconds for a shim to end, beyond the time for stopping the agent


class ProcessRun(BaseRun):
    """A run under a shim. ``identity`` is what the shim wrote about itself and the agent."""

    def __init__(
        self,
        deps: RunDeps,
        folder: RunFolder,
        order: Order,
        on_event: OnEvent | None,
        *,
        engine: Engine,
        files: RunFileWatch,
        identity: ProcessIdentity,
        adopted: bool = False,
    ) -> None:
        super().__init__(deps, folder, order, on_event)
        self.pid = identity.pid
        self._engine = engine
        self._files = files
        self._identity = identity
        self._adopted = adopted
        self._reader = engine.reader(order)
        self._lines = LineSplitter()
        self._signalled = False
        self._force_at: float | None = None
        self._oldest = int((uptime() - _LAUNCH_SECONDS) * os.sysconf("SC_CLK_TCK"))  # in ticks since boot
        self._old = 0  # size of the transcript when the run was adopted
        if adopted:
            self._stop = folder.read_stop()
            with contextlib.suppress(FileNotFoundError):
                self._old = deps.transcript(order.run_id).stat().st_size

    async def _watch(self) -> Outcome:
        transcript = self._deps.transcript(self.run_id)
        tail = FileTail(transcript)
        shim = ShimWatch(self._identity.shim_pid, self._identity.shim_start, self._woken.set)
        try:
            self._timing = self._make_timing(spoken=self._old > 0)
            with self._files.follow(transcript, self._folder.path, self._woken.set) as notified:
                watched = await self._until_gone(tail, shim, poll_interval(notified=notified and shim.notifies))
            while await self._read(tail):
                pass
            self._feed([self._lines.rest()], new=tail.offset > self._old)
            if isinstance(self._reader, EndReader):
                self._take(list(self._reader.end()), new=True)
        finally:
            shim.close()
            tail.close()
        return await self._finish(watched=watched)

    async def _until_gone(self, tail: FileTail, shim: ShimWatch, at_most: float) -> bool:
        """Wait until the shim is gone. Returns whether it was alive when we started to watch."""
        assert self._timing is not None
        loop = asyncio.get_running_loop()
        watched = False
        if not self._is_ours():
            return False
        while shim.running:
            watched = True
            self._woken.clear()
            if await self._read(tail):
                self._woken.set()  # there is more, but check the timers first
            if tail.offset > MAX_TRANSCRIPT_BYTES:
                self._stop_run(StopReason("failed", f"it printed more than {MAX_TRANSCRIPT_BYTES} bytes"))
            if self._stop is None:
                self._check_timers(self._timing)
            if self._stop is not None:
                self._stop_shim(self._stop)
            due = self._force_at if self._force_at is not None else self._timing.due()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(at_most, due - loop.time()))):
                    await self._woken.wait()
            await asyncio.sleep(_READ_INTERVAL)
        return watched

    async def _read(self, tail: FileTail) -> bool:
        """Process new output in the transcript. Returns whether there may be more.

        Listeners got the output before the adoption from the earlier process.
        """
        for _ in range(_MAX_READS):
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
        """Return timers on a monotonic clock. After an adoption, total still counts from the start of the run."""
        elapsed = 0.0
        start = self._identity.start
        if self._adopted and start is not None:
            elapsed = time.clock_gettime(time.CLOCK_BOOTTIME) - start / os.sysconf("SC_CLK_TCK")
        elif self._adopted:
            elapsed = self._deps.clock() - self._identity.started_at
        return TimerState(
            self._order.timers, asyncio.get_running_loop().time(), elapsed=max(0.0, elapsed), spoken=spoken
        )

    def _stop_shim(self, stop: StopReason) -> None:
        """Make the shim stop the run; kill the shim if that takes too long."""
        now = asyncio.get_running_loop().time()
        if not self._signalled:
            self._signalled = True
            # Written first: a process that adopts the run must know that we stopped it.
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
        """Check that the process in the identity file is our shim: the agent can write to that file too."""
        if not self._adopted or self._identity.shim_start is None:
            return True
        return self._same_boot() and has_run_id(self._identity.shim_pid, self.run_id)

    async def _finish(self, *, watched: bool) -> Outcome:
        """After the shim has ended: kill what is left, and conclude."""
        if self._order.confined:  # before there is an outcome: a run that has one is never looked after again
            (self._folder.path / SOCKET_NAME).unlink(missing_ok=True)
        if self._same_boot():
            outputs = None if watched else (self._deps.transcript(self.run_id), self._deps.errors(self.run_id))
            left = await asyncio.to_thread(
                kill_strays, self.run_id, self._identity.pid, outputs, oldest=0 if self._adopted else self._oldest
            )
            if left:
                log.error("run %s has ended, but processes %s could not be ended", self.run_id, left)
        ending, ended_at = self._folder.read_ending(read_end(self._deps.errors(self.run_id)))
        return await self._conclude(
            ending,
            self._identity.started_at,
            ended_at or self._deps.clock(),
            exit_code_decides=getattr(self._engine, "exit_code_decides", False),
        )
