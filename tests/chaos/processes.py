"""The processes of the campaign: started, killed, paused and read from outside."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[2]
READY = "ready"


class Violation(AssertionError):
    """A promise of the bus was broken, or a process ended that nobody killed."""


class Member:
    """One process of the campaign and its successors: whoever is killed is started again under the same name."""

    def __init__(
        self, name: str, module: str, arguments: list[str], logs: Path, env: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.name = name
        self.generation = 0
        self._command = [sys.executable, "-m", f"tests.chaos.{module}", "--name", name, *arguments]
        self._logs = logs
        self._env = {**os.environ, "PYTHONFAULTHANDLER": "1", **env}  # SIGABRT prints where each thread is
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """What the present generation printed."""
        return self._logs / f"{self.name}.{self.generation}.log"

    def start(self) -> None:
        """Start the next generation."""
        self.generation += 1
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=self._env,
            )

    def is_ready(self) -> bool:
        """Whether the present generation is at work."""
        return self.said(READY)

    def said(self, word: str) -> bool:
        """Whether the present generation printed a line that starts with ``word``."""
        return any(line.startswith(word) for line in self.log.read_text().splitlines())

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the present generation without a word: ``kill -9``."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def check_alive(self) -> None:
        """Raise when the process ended by itself."""
        assert self._process is not None
        if (code := self._process.poll()) is not None:
            raise Violation(f"{self.name} ended by itself with exit code {code}:\n{self.tail()}")

    def stop(self, timeout: float = 60) -> None:
        """Ask it to drain and end (SIGTERM); raise when it does not, or not cleanly."""
        assert self._process is not None
        self.check_alive()
        self._process.terminate()
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGUSR1)
            time.sleep(1)  # for what it says about its tasks
            self._process.send_signal(signal.SIGABRT)
            self._process.wait()
            raise Violation(f"{self.name} did not drain within {timeout} s of SIGTERM:\n{self.tail(400)}") from None
        if code != 0:
            raise Violation(f"{self.name} drained with exit code {code}:\n{self.tail()}")

    def end(self) -> None:
        """End it, whatever state it is in; for the way out."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def tail(self, lines: int = 25) -> str:
        """The end of the present generation's log, for messages."""
        return "\n".join(self.log.read_text().splitlines()[-lines:]) or "(it printed nothing)"


def wait_until(condition: Callable[[], bool], what: str, timeout: float, watch: list[Member]) -> None:
    """Wait for something other processes do; raise when one of ``watch`` ends, or after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        for member in watch:
            member.check_alive()
        if time.monotonic() > deadline:
            logs = "\n".join(f"── {member.name}\n{member.tail(5)}" for member in watch)
            raise Violation(f"waited {timeout:.0f} s in vain for {what}\n{logs}")
        time.sleep(0.02)


def die_with_parent() -> None:
    """Have the kernel end this process with the one that started it, so that an interrupted campaign leaves nobody."""
    set_death_signal = 1
    parent = os.getppid()
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit("the campaign ended while this process was starting")


def say(*words: object) -> None:
    """Print one line for the campaign to read; unbuffered, so that a kill loses none that was said."""
    os.writev(1, [(" ".join(map(str, words)) + "\n").encode()])
