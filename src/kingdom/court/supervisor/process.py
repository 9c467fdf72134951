"""Processes of a court: one role in a process, and a court in the background."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from kingdom.base.garbage import collect_rarely
from kingdom.bus import BusError
from kingdom.court.bootstrap import make_role, open_services
from kingdom.court.errors import CourtError
from kingdom.court.loop import run_role
from kingdom.court.supervisor.logs import Announce, ConsoleWriter, configure_logging
from kingdom.court.supervisor.record import ProcessHandle

if TYPE_CHECKING:
    from collections.abc import Callable

    from kingdom.court.home import Home


async def serve_role(home: Home, name: str, *, lifeline: int | None = None, foreground: bool = False) -> None:
    """Run a role until SIGTERM, SIGINT, or the end of ``lifeline``: a pipe whose other end the supervisor holds."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if lifeline is not None:
        end = lifeline

        def orphaned() -> None:
            loop.remove_reader(end)
            stop.set()

        loop.add_reader(end, orphaned)
    name_process(name)
    collect_rarely()
    async with open_services(home) as services:
        await run_role(make_role(name, services, foreground=foreground), services, stop)


def name_process(role: str) -> None:
    """Set the process name that ``ps`` and ``top`` show, where the system supports it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(f"kd:{role}"[:15], encoding="utf-8")


_MAX_REASON_BYTES: Final = 4000  # fits into a pipe at once, so the child never waits for its parent
log = logging.getLogger("kingdom.court")


@dataclass(slots=True)
class RoleProcess:
    """A forked process that runs one role."""

    name: str
    process: ProcessHandle
    began: float  # monotonic
    reason_pipe: int  # the reading end of a pipe for the reason of its death
    stopping: bool = False
    kill_at: float | None = None
    beat: tuple[int, int] | None = None  # inode and mtime of the heartbeat file seen last
    beat_seen: float = 0.0

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal. The pid is not reused until we have waited for it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def exit_reason(self, status: int) -> str:
        """Return why it died, from the pipe or the exit status; close the pipe."""
        words = ""
        with contextlib.suppress(OSError):
            words = os.read(self.reason_pipe, _MAX_REASON_BYTES).decode(errors="replace")
        os.close(self.reason_pipe)
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            return f"killed by {_signal_name(-code)}"
        return words or f"ended with exit code {code}"


def fork_role(home: Home, name: str, now: float, lifeline: int, close_inherited: Callable[[], None]) -> RoleProcess:
    """Start a role in a forked process. ``close_inherited`` runs there and closes what belongs to the supervisor."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _run_child(home, name, lifeline, writing, close_inherited)
    os.close(writing)
    os.set_blocking(reading, False)
    return RoleProcess(name, ProcessHandle.of(pid), now, reading, beat_seen=now)


def _run_child(home: Home, name: str, lifeline: int, reason_pipe: int, close_inherited: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()  # Ctrl-C goes to the supervisor only, which stops the roles in their order
        close_inherited()
        _close_stdin()
        say: Announce = ConsoleWriter(sys.stderr)
        configure_logging(name, say, home)
        code = _serve_and_report(home, name, lifeline, reason_pipe)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # skip the supervisor's exit handlers and finally blocks


def _serve_and_report(home: Home, name: str, lifeline: int, reason_pipe: int) -> int:
    try:
        asyncio.run(serve_role(home, name, lifeline=lifeline))
    except (CourtError, BusError, OSError) as error:
        reason = str(error)
    except Exception as error:
        log.exception("%s: unexpected error", name)
        reason = f"{type(error).__name__}: {error}"
    else:
        return 0
    with contextlib.suppress(OSError):
        os.write(reason_pipe, reason.encode(errors="replace")[:_MAX_REASON_BYTES])
    return 1


def _close_stdin() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    if nothing:
        os.close(nothing)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ── a court in the background ─────────────────────────────────────────────────────────────────────────────────────


class NotStarted(CourtError):
    """The background process ended before it was ready."""

    code = "NOT_STARTED"


def detach(log: Path, run: Callable[[Callable[[], None]], object]) -> int:
    """Call ``run(ready)`` in a background process without a terminal; its output goes to ``log``.

    Return the process id once ``ready`` was called there. Raises :class:`NotStarted` with the reason otherwise.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(writing)
        said = os.read(reading, 65536)  # not until EOF: the forked roles hold the other end open
        os.close(reading)
        if said == b"ready":
            return pid
        os.waitpid(pid, 0)
        raise NotStarted(said.decode(errors="replace") or f"the process ended at once: see {log}")
    os.close(reading)
    _run_in_background(log, run, writing)
    os._exit(0)


def _run_in_background(log: Path, run: Callable[[Callable[[], None]], object], writing: int) -> None:
    sent = False

    def report(words: bytes) -> None:
        nonlocal sent
        if not sent:
            sent = True
            os.write(writing, words)
            os.close(writing)

    try:
        os.setsid()
        _redirect_output(log)
        run(lambda: report(b"ready"))
    except BaseException as error:  # noqa: BLE001 - the top of this process
        with contextlib.suppress(OSError):
            report(str(error).encode(errors="replace"))
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _redirect_output(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        (2, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, number)
        os.close(opened)
