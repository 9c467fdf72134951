"""The shim: a small process between the daemon and an agent. It outlives the daemon; no process outlives the run.

``python -m kingdom.agents.shim SPEC.json`` writes the identity of the agent before the agent runs (``identity.json``),
waits for it, ends everything it started, and writes how it ended (``exit.json``). It adopts orphaned grandchildren
(``PR_SET_CHILD_SUBREAPER``), so that it finds daemonised ones too. The agent dies with it (``PR_SET_PDEATHSIG``).

SIGTERM, SIGHUP and SIGINT stop the run: SIGINT to the agent's group, after ``stop`` seconds SIGTERM, and after as many
seconds again SIGKILL to all that is left. Standard library only and few imports: it starts with every run.
"""
# ruff: noqa: PTH108, PTH123

from __future__ import annotations

import ctypes
import math
import os
import select
import signal
import sys
import time
from typing import Any, Final, NoReturn

if __name__ == "__main__" and not __package__:  # run by path, isolated from site-packages
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120

from kingdom.agents.processes import boot_id, descendants, find_process, send
from kingdom.base.files import encode_json, read_json, write_json, write_once

_SUBREAPER: Final = 36
_PDEATHSIG: Final = 1
_LEFTOVER_SECONDS: Final = 1.0  # seconds from SIGTERM to SIGKILL for processes that the agent left behind
_KILL_INTERVAL: Final = 0.05  # seconds between two rounds of SIGKILL
_GIVE_UP_SECONDS: Final = 10.0  # seconds of SIGKILL without effect: another user's process, or one stuck in the kernel
_SCREEN_INTERVAL: Final = 0.2  # seconds between two updates of the terminal
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Shim:
    """Runs one agent."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._stop = float(spec["stop"])
        self._agent = 0
        self._status: int | None = None  # of the agent, as waitpid returns it
        self._stopped: str | None = None  # by which signal, or "ceiling"
        self._term_at = self._kill_at = self._give_up_at = math.inf
        self._ceiling_at = time.monotonic() + float(spec["ceiling"])
        self._screen = _Screen(spec["stdout"]) if spec.get("show") else None

    def run(self) -> int:
        """Run the agent to its end. The exit code is for people; the daemon reads ``exit.json``."""
        started_at = time.time()
        wakeups = _listen()
        _prctl(_SUBREAPER, 1)
        self._agent, gate, failure = self._fork(self._environment())
        identity = encode_json(self._identity(started_at))
        if not write_once(f"{self._spec['folder']}/identity.json", identity, durable=False, mode=0o600):
            return 3  # the daemon gave this run up; the agent sees the gate close and exits
        os.write(gate, b"!")
        os.close(gate)
        error = os.read(failure, 4096).decode(errors="replace")  # returns when the program was executed
        left = self._wait(wakeups)
        self._write_exit(started_at, error, left)
        return 0

    def _environment(self) -> dict[str, str]:
        """Return our environment, or that of a file, which is removed: its values must not stay on disk."""
        path = self._spec.get("env_file")
        if not path:
            return dict(os.environ)
        environment: dict[str, str] = read_json(path) or {}
        os.unlink(path)
        return environment

    def _fork(self, environment: dict[str, str]) -> tuple[int, int, int]:
        """Fork the agent's process, which waits at a gate. Returns its pid, the gate, and a pipe for its failure."""
        gate, opened = os.pipe()
        failure, failed = os.pipe()
        shim = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(opened)
            os.close(failure)
            _become(self._spec, environment, shim, gate, failed)
        os.close(gate)
        os.close(failed)
        return pid, opened, failure

    def _identity(self, started_at: float) -> dict[str, Any]:
        agent, own = find_process(self._agent), find_process(os.getpid())
        return {
            "run_id": self._spec["run_id"],
            "boot_id": boot_id(),
            "pid": self._agent,
            "pgid": self._agent,
            "start": agent.start if agent else None,
            "shim_pid": os.getpid(),
            "shim_start": own.start if own else None,
            "started_at": started_at,
        }

    def _wait(self, wakeups: int) -> list[int]:
        """Wait until the agent and its descendants are gone. Returns the pids that could not be ended."""
        while self._reap():
            now = time.monotonic()
            if now >= self._give_up_at:
                return [process.pid for process in descendants(os.getpid())]
            self._act(now)
            if self._screen:
                self._screen.update()
            due = min(
                self._term_at, self._kill_at, self._ceiling_at, now + (_SCREEN_INTERVAL if self._screen else math.inf)
            )
            readable, _, _ = select.select([wakeups], [], [], None if due == math.inf else max(0.0, due - now))
            for number in os.read(wakeups, 512) if readable else b"":
                if number in _STOP_SIGNALS:
                    self._begin_stop(signal.Signals(number).name)
        if self._screen:
            self._screen.update()
        return []

    def _reap(self) -> bool:
        """Reap dead children. False when no child is left: orphans become our children, so no descendant is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._agent:
                self._status = status
                if sys.platform != "linux":  # orphans are not reparented to us: only the group can be signalled
                    _signal_group(self._agent, signal.SIGKILL)
                self._term_at = time.monotonic()
                self._set_kill(self._term_at + min(self._stop, _LEFTOVER_SECONDS))

    def _act(self, now: float) -> None:
        if now >= self._ceiling_at:
            self._ceiling_at = math.inf
            self._begin_stop("ceiling")
        if now >= self._term_at:
            self._term_at = math.inf
            self._signal_all(signal.SIGTERM)
        if now >= self._kill_at:
            self._kill_at = now + _KILL_INTERVAL
            self._signal_all(signal.SIGKILL)

    def _begin_stop(self, why: str) -> None:
        if self._stopped is not None or self._status is not None:
            return
        self._stopped = why
        _signal_group(self._agent, signal.SIGINT)
        self._term_at = time.monotonic() + self._stop
        self._set_kill(self._term_at + self._stop)

    def _set_kill(self, at: float) -> None:
        self._kill_at = min(self._kill_at, at)
        self._give_up_at = min(self._give_up_at, at + _GIVE_UP_SECONDS)

    def _signal_all(self, number: signal.Signals) -> None:
        if self._status is None:
            _signal_group(self._agent, number)
        for process in descendants(os.getpid()):
            send(process.pid, process.start, number)

    def _write_exit(self, started_at: float, error: str, left: list[int]) -> None:
        status = self._status if self._status is not None else 0
        signalled = os.WIFSIGNALED(status)
        write_json(
            f"{self._spec['folder']}/exit.json",
            {
                "run_id": self._spec["run_id"],
                "code": None if signalled or self._status is None else os.WEXITSTATUS(status),
                "signal": os.WTERMSIG(status) if signalled else None,
                "stopped": self._stopped,
                "error": error or None,
                "left": left,
                "started_at": started_at,
                "ended_at": time.time(),
            },
            durable=False,
            mode=0o600,
        )


class _Screen:
    """Shows a growing file in our terminal, without control characters."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0
        self._plain = bytes(b if b in b"\n\t" or 32 <= b != 127 else 0x3F for b in range(256))
        os.set_blocking(1, False)  # a terminal that nobody reads must not block the run

    def update(self) -> None:
        """Print what was appended."""
        try:
            with open(self._path, "rb", buffering=0) as file:
                file.seek(self._offset)
                while data := file.read(65536):
                    self._offset += len(data)
                    os.write(1, data.translate(self._plain))
        except OSError:
            return


def _become(spec: dict[str, Any], environment: dict[str, str], shim: int, gate: int, failed: int) -> NoReturn:
    """In the child: execute the agent's program when the gate opens. Never returns."""
    try:
        os.setsid()
        _prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != shim or os.read(gate, 1) != b"!":
            os._exit(126)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(os.open(spec["stdin"], os.O_RDONLY), 0)
        output = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(spec["stdout"], output, 0o600), 1)
        os.dup2(os.open(spec["stderr"], output, 0o600), 2)
        os.chdir(spec["cwd"])
        os.execvpe(spec["argv"][0], spec["argv"], environment)  # noqa: S606
    except OSError as error:
        os.write(failed, f"{error.strerror}: {error.filename or spec['argv'][0]}".encode())
    finally:
        os._exit(127)


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except OSError:
        return


def _listen() -> int:
    """Make signals wake ``select`` through a pipe, so that none is missed between two system calls."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *_STOP_SIGNALS):
        signal.signal(number, lambda *_: None)
    return reading


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def main() -> int:
    """Run the agent of a spec file."""
    if os.getsid(0) != os.getpid() and os.getpgrp() != os.getpid():
        os.setsid()
    os.closerange(3, 1024)  # a lock or pipe inherited from our parent must not stay open
    return Shim(read_json(sys.argv[1])).run()


if __name__ == "__main__":
    sys.exit(main())
