"""The processes of one court, found by what only they carry, and killed: never by name, never another's."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kingdom.agents.processes import RUN_ID_VARIABLE
from kingdom.court.home import HOME_VARIABLE
from tests.chaos.processes import die_with_parent
from tests.support.command import COMMAND, environment

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Found:
    """A live process of a court."""

    pid: int
    soldier: str | None  # the run it belongs to; None for the supervisor, a role, or a helper of a role

    def __str__(self) -> str:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{self.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            return f"{self.pid} ({words.strip()[:200]})"
        return f"{self.pid} (gone)"


class CourtProcesses:
    """``kingdom up`` on a home, again and again, and everything that comes of it."""

    def __init__(self, root: Path, log: Path, command: Sequence[str] = COMMAND) -> None:
        self.root = root
        self.log = log
        self._command = command
        self._mark = f"{HOME_VARIABLE}={root}".encode()
        self._up: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Start ``kingdom up``. It is in a session of its own: nothing of ours reaches it by accident."""
        with self.log.open("ab") as output:
            self._up = subprocess.Popen(
                [*self._command, "up", *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment(**{HOME_VARIABLE: str(self.root)}),
                start_new_session=True,
                cwd=ROOT,
                preexec_fn=die_with_parent,  # and the roles with it: a campaign that is killed leaves no court behind
            )
        return self._up

    def at_work(self, *names: str) -> bool:
        """Whether this very court, not a former one, has these roles, and each has given a sign of life."""
        assert self._up is not None
        state = self.root / "state"
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            record = json.loads((state / "supervisor/pid.json").read_text())
            beats = {name: json.loads((state / name / "heartbeat").read_text())["pid"] for name in names}
            pids = {name: role["process"]["pid"] for name, role in record["roles"].items()}
            return record["pid"] == self._up.pid and all(pids[name] == beats[name] for name in names)
        return False

    @property
    def ended(self) -> int | None:
        """The exit code of ``kingdom up``, when it has ended."""
        return None if self._up is None else self._up.poll()

    def stop(self, patience: float = 60.0) -> int:
        """Ask it to stop, and wait until it has."""
        assert self._up is not None
        self._up.send_signal(signal.SIGTERM)
        return self._up.wait(patience)

    def court(self) -> list[Found]:
        """The supervisor, the roles, and what a role started without a soldier's mark."""
        return [found for found in self._look() if found.soldier is None]

    def soldiers(self) -> list[Found]:
        """Shims, agents and what these started."""
        return [found for found in self._look() if found.soldier is not None]

    def kill_all(self, chance: random.Random, *, soldiers: bool) -> set[str]:
        """``kill -9`` of the court, in any order, in one go; returns the soldiers that were hit."""
        hit: set[str] = set()
        while found := [one for one in self._look() if soldiers or one.soldier is None]:
            chance.shuffle(found)
            for one in found:
                if kill(one.pid) and one.soldier is not None:
                    hit.add(one.soldier)
        if self._up is not None:
            self._up.wait(60)
        return hit

    def kill_everything(self) -> None:
        """The same for the way out, with all soldiers."""
        self.kill_all(random.Random(), soldiers=True)

    def kill_some(self, found: list[Found]) -> set[str]:
        """``kill -9`` of these; returns the soldiers that were hit."""
        return {one.soldier for one in found if kill(one.pid) and one.soldier is not None}

    def left(self) -> list[Found]:
        """Every live process that has to do with the home, by whatever sign: nobody may be left when it is down."""
        return self._look(anything=True)

    def _look(self, *, anything: bool = False) -> list[Found]:
        known: dict[bytes, str] = {}
        with contextlib.suppress(FileNotFoundError):
            known = {name.encode(): name for name in os.listdir(self.root / "state/soldiers")}
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                one = self._identify(int(name), known, anything=anything)
                if one is not None:
                    found.append(one)
        return found

    def _identify(self, pid: int, known: dict[bytes, str], *, anything: bool) -> Found | None:
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if not _alive(pid):
                return None
            for variable in variables:
                if variable.startswith(f"{RUN_ID_VARIABLE}=".encode()) and variable.partition(b"=")[2] in known:
                    return Found(pid, known[variable.partition(b"=")[2]])
            if self._mark in variables:
                return Found(pid, None)
            if anything and pid not in _ancestors():
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                inside = Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(self.root)
                if inside or os.fsencode(self.root) in words:
                    return Found(pid, None)
        except OSError:  # it ended, or is not ours to look at
            return None
        return None


def kill(pid: int) -> bool:
    """``kill -9``; False when it was gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def wait_for(condition: Callable[[], object], patience: float) -> bool:
    """Whether a condition comes true in time."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"


def _ancestors() -> set[int]:
    found, pid = set(), os.getpid()
    while pid > 1:
        found.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found
