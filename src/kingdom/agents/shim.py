"""The shim: a small process between the daemon and an agent. It outlives the daemon; no process outlives the run.

``python -m kingdom.agents.shim SPEC.json`` writes the identity of the agent before the agent runs (``identity.json``),
waits for it, ends everything it started, and writes how it ended (``exit.json``). It adopts orphaned grandchildren
(``PR_SET_CHILD_SUBREAPER``), so that it finds daemonised ones too. The agent dies with it (``PR_SET_PDEATHSIG``).

SIGTERM, SIGHUP and SIGINT stop the run: SIGINT to the agent's group, after ``stop`` seconds SIGTERM, and after as many
seconds again SIGKILL to all that is left. So does the first time in the file ``lease`` of its spec, and before the
second one all is gone: the daemon renews them while the run may go on. Standard library only and few imports: it starts
with every run.

A confined run (``network`` in its spec) has a network namespace, whose listening sockets the shim keeps and passes to
the gateway in the daemon, again and again when that is restarted.
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

from kingdom.agents.processes import boot_id, descendants, find_process, send
from kingdom.base.files import encode_json, read_json, write_json, write_once
from kingdom.base.uptime import uptime

TYPE_CHECKING = False  # not the one of typing: importing that would take a fifth of the start of a shim
if TYPE_CHECKING:
    from socket import socket
    from typing import Any, Final, NoReturn

    from kingdom.agents.sandbox.namespace import HandOver

_SUBREAPER: Final = 36
_PDEATHSIG: Final = 1
_LEFTOVER_SECONDS: Final = 1.0  # seconds from SIGTERM to SIGKILL for processes that the agent left behind
_KILL_INTERVAL: Final = 0.05  # seconds between two rounds of SIGKILL
_GIVE_UP_SECONDS: Final = 10.0  # seconds of SIGKILL without effect: another user's process, or one stuck in the kernel
_LEASE_INTERVAL: Final = 1.0  # seconds between two looks at the lease
_SCREEN_INTERVAL: Final = 0.2  # seconds between two updates of the terminal
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Shim:
    """Runs one agent."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._stop = float(spec["stop"])
        self._agent = 0
        self._status: int | None = None  # of the agent, as waitpid returns it
        self._stopped: str | None = None  # by which signal, "ceiling" or "lease"
        self._term_at = self._kill_at = self._give_up_at = math.inf
        self._ceiling_at = time.monotonic() + float(spec["ceiling"])
        self._screen = _Screen(spec["stdout"]) if spec.get("show") else None
        self._confined = "network" in spec
        self._limits: dict[str, int] | None = spec.get("limits")
        self._limits_at = math.inf
        self._lease_at = 0.0 if "lease" in spec else math.inf
        self._groups: list[str] = []  # control groups
        self._network: HandOver | None = None

    def run(self) -> int:
        """Run the agent to its end. The exit code is for people; the daemon reads ``exit.json``."""
        started_at = time.time()
        wakeups = _listen()
        _prctl(_SUBREAPER, 1)
        # Imported before the fork, once for both processes.
        channels = _socket_pair() if self._confined else None
        self._make_groups()
        self._agent, gate, failure = self._fork(self._environment(), channels)
        if not self._take_place(started_at):
            os.close(gate)  # the daemon gave this run up; the agent sees the gate close and exits
            os.waitpid(self._agent, 0)
            self._remove_groups()
            return 3
        _open(gate)
        if channels is not None:
            self._serve_network(channels)
        error = os.read(failure, 4096).decode(errors="replace")  # returns when the program was executed
        left = self._wait(wakeups)
        if self._limits is not None:
            self._check_limits(time.monotonic())  # the kernel may have ended it
        self._remove_groups()
        if error.startswith("{"):  # bubblewrap's report
            error = self._sandbox_error(failure)
        self._write_exit(started_at, error, left)
        return 0

    def _take_place(self, started_at: float) -> bool:
        """Write the identity. False when the daemon gave this run up, or has even removed its folder."""
        identity = encode_json(self._identity(started_at))
        try:
            return write_once(f"{self._spec['folder']}/identity.json", identity, durable=False, mode=0o600)
        except FileNotFoundError:
            return False

    def _sandbox_error(self, report: int) -> str:
        """Return why bubblewrap could not execute the program; empty when it did: then it reported the exit code."""
        os.set_blocking(report, False)
        try:
            rest = os.read(report, 4096)
        except BlockingIOError:
            rest = b""
        if b"exit-code" in rest or self._stopped is not None or self._status != 0x100:  # it exits with 1 for its errors
            return ""
        with open(self._spec["stderr"], "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 2000))
            return file.read().decode(errors="replace").strip() or "bubblewrap failed without a message"

    def _serve_network(self, channels: tuple[socket, socket]) -> None:
        """Take the sockets that the agent's process made in its network namespace; none when it failed before that."""
        from kingdom.agents.sandbox.namespace import HandOver, receive_sockets

        ours, theirs = channels
        theirs.close()
        sockets = receive_sockets(ours)
        ours.close()
        self._network = HandOver(self._spec["folder"], sockets) if sockets else None

    def _environment(self) -> dict[str, str]:
        """Return our environment, or that of a file, which is removed: its values must not stay on disk."""
        path = self._spec.get("env_file")
        if not path:
            return dict(os.environ)
        environment: dict[str, str] = read_json(path) or {}
        os.unlink(path)
        return environment

    def _make_groups(self) -> None:
        if self._limits is None:
            return
        from kingdom.agents.sandbox.limits import make_groups

        self._limits_at = time.monotonic()
        self._groups = make_groups(self._spec["run_id"], self._limits)

    def _remove_groups(self) -> None:
        if self._limits is None:
            return
        from kingdom.agents.sandbox.limits import remove_groups

        remove_groups(self._spec["run_id"])

    def _check_limits(self, now: float) -> None:
        """Stop a run at once whose processes together use more than they may."""
        from kingdom.agents.sandbox.limits import CHECK_SECONDS, FILE_SIZE, exceeded, met

        assert self._limits is not None
        self._limits_at = now + CHECK_SECONDS
        if self._groups:
            found = met(self._groups, self._limits)
        else:
            found = exceeded([process.pid for process in descendants(self._agent)], self._limits)
        if found is None and self._ended_by(signal.SIGXFSZ):
            found = FILE_SIZE
        if found is not None and self._stopped is None:
            self._stopped = found
            self._set_kill(now)

    def _ended_by(self, number: signal.Signals) -> bool:
        """Tell whether a signal ended the agent; bubblewrap and shells report that as an exit code."""
        if self._status is None:
            return False
        return os.WTERMSIG(self._status) == number or os.WEXITSTATUS(self._status) == 128 + number

    def _fork(self, environment: dict[str, str], channels: tuple[socket, socket] | None) -> tuple[int, int, int]:
        """Fork the agent's process, which waits at a gate. Returns its pid, the gate, and a pipe for its failure.

        bubblewrap writes a report to that pipe.
        """
        gate, opened = os.pipe()
        failure, failed = os.pipe()
        shim = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(opened)
            os.close(failure)
            _become(self._spec, environment, shim, gate, failed, channels[1] if channels else None, self._groups)
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
            if now >= self._limits_at:
                self._check_limits(now)
            screen_at = now + (_SCREEN_INTERVAL if self._screen else math.inf)
            due = min(self._term_at, self._kill_at, self._ceiling_at, self._limits_at, self._lease_at, screen_at)
            watched: list[Any] = [wakeups]
            if self._network is not None:
                self._network.connect()
                due = min(due, now + (self._network.retry_seconds or math.inf))
                watched += [self._network.channel] if self._network.channel else []
            readable, _, _ = select.select(watched, [], [], None if due == math.inf else max(0.0, due - now))
            if self._network is not None and self._network.channel in readable:
                self._network.drop()
            for number in os.read(wakeups, 512) if wakeups in readable else b"":
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
        if now >= self._lease_at:
            self._lease_at = now + _LEASE_INTERVAL
            stop_at, ends_at = read_lease(self._spec["lease"])
            if uptime() >= stop_at:
                self._lease_at = math.inf
                self._begin_stop("lease")
                self._set_kill(now + max(0.0, ends_at - uptime() - _LEASE_INTERVAL))
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
        self._signal_agent(signal.SIGINT)
        self._term_at = time.monotonic() + self._stop
        self._set_kill(self._term_at + self._stop)

    def _set_kill(self, at: float) -> None:
        self._kill_at = min(self._kill_at, at)
        self._give_up_at = min(self._give_up_at, at + _GIVE_UP_SECONDS)

    def _signal_agent(self, number: signal.Signals) -> None:
        """Signal the agent's group. bubblewrap is in it too, and would end the agent with SIGKILL: it is left out."""
        if not self._confined:
            _signal_group(self._agent, number)
            return
        for process in descendants(self._agent):
            if process.session == self._agent:
                send(process.pid, process.start, number)

    def _signal_all(self, number: signal.Signals) -> None:
        if self._status is None and (not self._confined or number == signal.SIGKILL):
            _signal_group(self._agent, number)
        for process in descendants(os.getpid()):
            if process.pid != self._agent or not self._confined or number == signal.SIGKILL:
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


def read_lease(path: str) -> tuple[float, float]:
    """Return when to stop and when the lease ends, by :func:`uptime`; one that cannot be read ends no run."""
    try:
        with open(path, encoding="ascii") as file:
            stop_at, ends_at = map(float, file.read().split())
    except (OSError, ValueError):
        return math.inf, math.inf
    return stop_at, ends_at


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


def _become(
    spec: dict[str, Any],
    environment: dict[str, str],
    shim: int,
    gate: int,
    failed: int,
    channel: socket | None,
    groups: list[str],
) -> NoReturn:
    """In the child: execute the agent's program when the gate opens. Never returns."""
    try:
        os.setsid()
        _prctl(_PDEATHSIG, signal.SIGKILL)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(os.open(spec["stdin"], os.O_RDONLY), 0)
        output = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(spec["stdout"], output, 0o600), 1)
        os.dup2(os.open(spec["stderr"], output, 0o600), 2)
        os.chdir(spec["cwd"])
        # Before the gate: control groups and namespaces take as long as the shim needs to write the identity.
        argv = spec["argv"] if channel is None else _confine(spec, failed, channel, groups)
        if os.getppid() != shim or os.read(gate, 1) != b"!":
            os._exit(126)
        os.execvpe(argv[0], argv, environment)  # noqa: S606
    except OSError as error:
        os.write(failed, f"{error.strerror}: {error.filename or spec['argv'][0]}".encode())
    finally:
        os._exit(127)


def _confine(spec: dict[str, Any], failed: int, channel: socket, groups: list[str]) -> list[str]:
    """In the child: enter a network namespace, pass its sockets to the shim, and return the arguments to execute."""
    from kingdom.agents.sandbox.limits import join_groups, limit_process
    from kingdom.agents.sandbox.namespace import enter, send_sockets

    ports = spec["network"]
    join_groups(groups)
    limit_process(spec["limits"])
    sockets = enter(ports)
    send_sockets(channel, ports, [one.fileno() for one in sockets])
    _prctl(_PDEATHSIG, signal.SIGKILL)  # new credentials may have cleared it
    os.set_inheritable(failed, True)
    return [str(failed) if argument == "{status_fd}" else argument for argument in spec["argv"]]


def _socket_pair() -> tuple[socket, socket]:
    import socket

    from kingdom.agents.sandbox import limits, namespace  # noqa: F401

    return socket.socketpair()


def _open(gate: int) -> None:
    """Let the agent's process execute its program; it may have failed already."""
    try:
        os.write(gate, b"!")
    except BrokenPipeError:
        pass
    finally:
        os.close(gate)


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
