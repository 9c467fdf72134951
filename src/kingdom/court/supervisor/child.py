"""A role in a process that was forked for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from kingdom.bus import BusError
from kingdom.court.errors import CourtError
from kingdom.court.supervisor.identity import Identity
from kingdom.court.supervisor.serving import serve
from kingdom.court.supervisor.speech import Say, Speaker, speak_logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from kingdom.court.home import Home

_REASON_BYTES: Final = 4000  # a pipe takes that much at once, so the child never waits for its parent
log = logging.getLogger("kingdom.court")


@dataclass(slots=True)
class Child:
    """A process we have forked."""

    name: str
    process: Identity
    began: float  # by the supervisor's clock, which nobody sets
    last_words: int  # the end of a pipe that says why it died
    stopping: bool = False
    kill_at: float | None = None
    beat: tuple[int, int] | None = None  # the heartbeat file seen last
    beat_seen: float = 0.0

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal. Its number is its own until we have waited for it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def farewell(self, status: int) -> str:
        """Why it died, from its last words and its exit status; closes the pipe."""
        words = ""
        with contextlib.suppress(OSError):
            words = os.read(self.last_words, _REASON_BYTES).decode(errors="replace")
        os.close(self.last_words)
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            return f"killed by {_signal_name(-code)}"
        return words or f"ended with exit code {code}"


def fork_role(home: Home, name: str, now: float, lifeline: int, let_go: Callable[[], None]) -> Child:
    """Start a role in a new process. ``let_go`` closes there what belongs to the supervisor only."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _become(home, name, lifeline, writing, let_go)
    os.close(writing)
    os.set_blocking(reading, False)
    return Child(name, Identity.of(pid), now, reading, beat_seen=now)


def _become(home: Home, name: str, lifeline: int, last_words: int, let_go: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()  # Ctrl-C is for the supervisor, who stops the roles in their order
        let_go()
        _no_input()
        say: Say = Speaker(sys.stderr)
        speak_logs(name, say, home)
        code = _run(home, name, lifeline, last_words)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # nothing of the supervisor's runs here: no exit handler, no finally above us


def _run(home: Home, name: str, lifeline: int, last_words: int) -> int:
    try:
        asyncio.run(serve(home, name, lifeline=lifeline))
    except (CourtError, BusError, OSError) as error:
        reason = str(error)
    except Exception as error:
        log.exception("%s: an error nobody expected", name)
        reason = f"{type(error).__name__}: {error}"
    else:
        return 0
    with contextlib.suppress(OSError):
        os.write(last_words, reason.encode(errors="replace")[:_REASON_BYTES])
    return 1


def _no_input() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    if nothing:
        os.close(nothing)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
