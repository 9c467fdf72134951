"""The real ``kingdom`` command in a process of its own, on a pipe or on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import termios
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support import cli_process
from tests.support.forking import fate, forked

COMMAND = (sys.executable, "-m", "kingdom")


def environment(**extra: str) -> dict[str, str]:
    """This process's environment without what would change how the command behaves."""
    ignored = {"KINGDOM_BUS_URL", "NO_COLOR", "FORCE_COLOR", "COLUMNS"}
    return {**{key: value for key, value in os.environ.items() if key not in ignored}, **extra}


def kingdom(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run the command without a terminal; keywords are environment variables."""
    if any(name.startswith("PYTHON") for name in extra):  # they count when Python starts
        return subprocess.run(
            [*COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environment(**extra),
            timeout=90,
            check=False,
        )
    with tempfile.TemporaryDirectory() as name:
        folder, words = Path(name), list(arguments)
        code = fate(cli_process.run, folder, os.getcwd(), words, within=90, environment=environment(**extra))
        out, err = ((folder / part).read_bytes().decode() for part in ("out", "err"))
    return subprocess.CompletedProcess([*COMMAND, *words], code, out, err)


class Background:
    """The command in the background, in a session of its own, and what tests need of ``subprocess.Popen``.

    What it prints is added to ``log``. Where the block ends, it is waited for.
    """

    def __init__(self, log: Path, *arguments: str, **extra: str) -> None:
        given = (log.absolute(), os.getcwd(), list(arguments))
        self._process = forked(cli_process.run_apart, *given, environment=environment(**extra))
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.returncode: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wait()
        self._process.close()

    def poll(self) -> int | None:
        """Its exit code, when it has ended; that of a signal is negative."""
        if self.returncode is None:
            self.returncode = self._process.exitcode
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, when it has ended."""
        if self.returncode is None:
            self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise TimeoutError(f"process {self.pid} has not ended after {timeout} s")
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it without warning."""
        self.send_signal(signal.SIGKILL)


def kingdom_json(*arguments: str) -> Any:
    """Run a command that must succeed, and return its JSON document."""
    result = kingdom(*arguments, "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout)


def kingdom_tty(*arguments: str, answer: str = "", **extra: str) -> tuple[int, str]:
    """Run the command on a terminal of its own, typing ``answer``; return its exit code and what was on the screen."""
    return run_tty([*COMMAND, *arguments], answer, **extra)


def run_tty(argv: Sequence[str], answer: str = "", after: Sequence[str] = (), **extra: str) -> tuple[int, str]:
    """Run a program on a terminal of its own; type ``answer`` when one of ``after``, if any, is on the screen."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        argv,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment(TERM="xterm-256color", COLUMNS="140", **extra),
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:
        os.close(slave)
        screen = bytearray()
        typed = False
        with contextlib.suppress(OSError):  # how Linux says that the other end of a terminal is gone
            while True:
                if not typed and (not after or any(text.encode() in screen for text in after)):
                    os.write(master, answer.encode())
                    typed = True
                if not (chunk := os.read(master, 65536)):
                    break
                screen += chunk
        os.close(master)
        code = process.wait(timeout=60)
    return code, screen.decode(errors="replace")
