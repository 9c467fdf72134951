"""The real ``kingdom`` command in a process of its own, on a pipe or on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from tests.support import cli_process
from tests.support.forking import Given, fate, forked

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

    What it prints is added to ``log``, a path or an open file; without one it is read from ``stdout``. An open file may
    be a terminal, then it reads from there. Where the block ends, it is waited for.
    """

    def __init__(self, log: Path | int | None, *arguments: str, **extra: str) -> None:
        self._read: TextIO | None = None
        if log is None:
            reading, output = os.pipe()
            self._read = open(reading, encoding="utf-8")  # noqa: SIM115 - closed where the block ends
        else:
            output = log if isinstance(log, int) else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            given = (Given(output), os.getcwd(), list(arguments))
            self._process = forked(cli_process.run_apart, *given, environment=environment(**extra))
        finally:
            if output != log:
                os.close(output)
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.returncode: int | None = None

    @property
    def stdout(self) -> TextIO:
        """What it prints, on stderr too."""
        assert self._read is not None, "it prints elsewhere"
        return self._read

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._read is not None:
            self._read.close()
        self.wait()
        self._process.close()

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """The rest of what it prints, when it has ended."""
        said = "" if self.stdout.closed else self.stdout.read()
        self.stdout.close()
        self.wait(timeout)
        return said, None

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


def script(path: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a Python script of this repository, as :func:`kingdom` runs a command."""
    with tempfile.TemporaryDirectory() as name:
        folder, words = Path(name), list(arguments)
        code = fate(cli_process.run_script, folder, str(cwd), str(path), words, within=90, environment=environment())
        out, err = ((folder / part).read_bytes().decode() for part in ("out", "err"))
    return subprocess.CompletedProcess([str(path), *words], code, out, err)


def kingdom_json(*arguments: str) -> Any:
    """Run a command that must succeed, and return its JSON document."""
    result = kingdom(*arguments, "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout)


def kingdom_tty(*arguments: str, answer: str = "", **extra: str) -> tuple[int, str]:
    """Run the command on a terminal of its own, typing ``answer``; return its exit code and what was on the screen."""
    master, slave = pty.openpty()
    with Background(slave, *arguments, TERM="xterm-256color", COLUMNS="140", **extra) as process:
        os.close(slave)
        screen = _seen(master, answer)
        code = process.wait(timeout=60)
    return code, screen


class Terminal:
    """The command on a terminal of its own, for a person who reads and types. Killed in the end if it still runs."""

    def __init__(self, *arguments: str, columns: int = 140, **extra: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._process = Background(slave, *arguments, TERM="xterm-256color", **extra)
        os.close(slave)
        self.screen = ""
        self._seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._master)

    def see(self, text: str) -> str:
        """Wait until something new is on the screen; return what is new, up to its end."""
        while text not in self.screen[self._seen :]:
            assert self._read(), f"{text!r} never came: {self.screen}"
        end = self.screen.index(text, self._seen) + len(text)
        new, self._seen = self.screen[self._seen : end], end
        return new

    def type(self, text: str) -> None:
        """Type something; Ctrl-C is its signal, as a shell has the terminal."""
        if text == "\x03":
            self._process.send_signal(signal.SIGINT)
        else:
            os.write(self._master, text.encode())

    def wait(self) -> int:
        """Read on until it has ended; return its exit code."""
        while self._read():
            pass
        return self._process.wait(timeout=60)

    def _read(self) -> bool:
        """Read more of the screen; False if nobody has the terminal any more."""
        ready, _, _ = select.select([self._master], [], [], 90)
        assert ready, f"nothing more came: {self.screen}"
        try:
            found = os.read(self._master, 65536)
        except OSError:  # how Linux says that the other end is gone
            return False
        self.screen += found.decode(errors="replace")
        return bool(found)


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
        screen = _seen(master, answer, after)
        code = process.wait(timeout=60)
    return code, screen


def _seen(master: int, answer: str, after: Sequence[str] = ()) -> str:
    """What is on a terminal until nobody has it; ``answer`` is typed when one of ``after``, if any, is there."""
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
    return screen.decode(errors="replace")
