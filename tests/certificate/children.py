"""Programs that a part starts: their output in a log, and nobody left of them when they are over."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

_SET_CHILD_SUBREAPER = 36  # of prctl(2)
_SECONDS_TO_STOP = 30.0
_SECONDS_TO_LEAVE = 15.0  # for servers that a part told to stop, and that are not gone when it is
_SECONDS_OF_SILENCE = 60.0  # between two words about a part that runs


def adopt_orphans() -> bool:
    """Become the parent of every process below us whose own parent is gone; False where that cannot be had."""
    if not sys.platform.startswith("linux"):
        return False
    return ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def run_program(
    command: list[str], log: Path, environment: Mapping[str, str], limit: float, tell: Callable[[str], None]
) -> int | None:
    """Run a program to its end and return its exit code; None when it took too long and was ended."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    started = time.monotonic()
    try:
        while True:
            try:
                return process.wait(_SECONDS_OF_SILENCE)
            except subprocess.TimeoutExpired:
                passed = time.monotonic() - started
                if passed > limit:
                    _stop(process)
                    return None
                tell(f"      {passed / 60:.0f} min: {_last_line(log)}")
    except BaseException:
        _stop(process)
        end_strays(grace=0)
        raise


def end_strays(grace: float = _SECONDS_TO_LEAVE) -> list[str]:
    """Return what still runs below us when the grace is over, and end it."""
    deadline = time.monotonic() + grace
    while (left := _below_us()) and time.monotonic() < deadline:
        psutil.wait_procs(left, timeout=0.2)
    found = []
    for process in left:
        try:
            found.append(f"{process.pid}: {' '.join(process.cmdline())[:200] or process.name()}")
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(left, timeout=_SECONDS_TO_STOP)
    return found


def _below_us() -> list[psutil.Process]:
    left = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(process.pid, os.WNOHANG)
            else:
                left.append(process)
        except (psutil.NoSuchProcess, ChildProcessError):
            continue
    return left


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a program as Ctrl-C would, so that it can clean up; kill its group if it does not end."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(_SECONDS_TO_STOP)
        except ProcessLookupError:
            pass
        except subprocess.TimeoutExpired:
            continue
        return


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 2000))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][-100:] if lines else "no output yet"
