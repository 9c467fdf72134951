"""Machines on this host: network namespaces, each with a link of its own to a database: cut, slow or lossy at times.

The other ends of the links are in a namespace of their own, the hub: to programs on the host, such as a browser,
nothing changes when links come and go.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from kingdom.agents.processes import find_process
from tests.support.proxy import ThreadedServers

_NAMESPACES: Final = Path("/run/netns")
_CLONE_NEWNET: Final = 0x40000000


def why_not_possible() -> str | None:
    """Why there cannot be namespaces here; None if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no program ip (iproute2)"
    tried = subprocess.run(["ip", "netns", "add", f"kt{os.getpid()}"], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", f"kt{os.getpid()}"], capture_output=True, check=False)
    return tried.stderr.strip() or None


def can_lose_packets() -> bool:
    """Whether links can be lossy here."""
    return shutil.which("nft") is not None


class Hub:
    """Where the links of all machines end."""

    def __init__(self) -> None:
        self.name = f"kt{os.getpid()}-hub"
        _ip("netns", "add", self.name)

    def ip(self, *words: str) -> None:
        """Run ``ip`` there."""
        _ip("netns", "exec", self.name, "ip", *words)

    def enter(self) -> None:
        """Have the calling thread make its sockets there."""
        with (_NAMESPACES / self.name).open() as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"the namespace {self.name} cannot be entered")

    def remove(self) -> None:
        """Remove it, with all links."""
        _ip("netns", "del", self.name)


class Space:
    """One machine. ``address`` is where it finds the hub."""

    def __init__(self, hub: Hub, number: int) -> None:
        self._hub = hub
        self.name = f"kt{os.getpid()}-{number}"
        self._clock: tuple[str, ...] = ()
        self._link = f"link{number}"
        self.address = f"10.77.{number}.1"
        _ip("netns", "add", self.name)
        hub.ip("link", "add", self._link, "type", "veth", "peer", "name", "db", "netns", self.name)
        hub.ip("addr", "add", f"{self.address}/30", "dev", self._link)
        hub.ip("link", "set", self._link, "up")
        self._inside("addr", "add", f"10.77.{number}.2/30", "dev", "db")
        self._inside("link", "set", "db", "up")
        self._inside("link", "set", "lo", "up")

    @property
    def inside(self) -> tuple[str, ...]:
        """What a command begins with that runs on this machine."""
        return "ip", "netns", "exec", self.name, *self._clock

    def shift_clock(self, library: Path, seconds: int) -> None:
        """Have the clock of what is started from now on be so many seconds ahead (:func:`clock_library`)."""
        self._clock = "env", *(f"{name}={value}" for name, value in shifted_clock(library, seconds).items())

    def start(self, argv: Sequence[str], **more: Any) -> subprocess.Popen[bytes]:
        """Start a program on this machine."""
        return subprocess.Popen([*self.inside, *argv], **more)

    def pids(self) -> list[int]:
        """All processes of this machine."""
        return [int(word) for word in _ip("netns", "pids", self.name).split()]

    def send(self, number: signal.Signals) -> list[int]:
        """Send a signal to all its processes, again until none is new."""
        sent: set[int] = set()
        while new := {pid for pid in self.pids() if find_process(pid) is not None} - sent:
            for pid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            sent |= new
        return sorted(sent)

    def cut(self) -> None:
        """Take its link down: what is sent is lost, without an error."""
        self._hub.ip("link", "set", self._link, "down")

    def mend(self) -> None:
        """Bring its link up again."""
        self._hub.ip("link", "set", self._link, "up")
        self._hub.ip("addr", "replace", f"{self.address}/30", "dev", self._link)

    def lose(self, percent: int) -> None:
        """Lose so many of the packets of its link, in both directions; 0 for none."""
        for space, device in ((self.name, "db"), (self._hub.name, self._link)):  # each end loses what arrives there
            table = f"table ip lossy-{device}"
            rules = f"{table}\ndelete {table}\n"
            if percent:
                drop = f"iifname {device} numgen random mod 100 < {percent} drop"
                rules += f"{table} {{\nchain input {{\ntype filter hook input priority 0;\n{drop}\n}}\n}}\n"
            subprocess.run(["ip", "netns", "exec", space, "nft", "-f", "-"], input=rules, text=True, check=True)

    def remove(self) -> None:
        """End everything on it, and it."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGKILL)
        _ip("netns", "del", self.name)

    def _inside(self, *words: str) -> None:
        _ip("netns", "exec", self.name, "ip", *words)


@contextmanager
def open_spaces(count: int) -> Iterator[tuple[Hub, list[Space]]]:
    """So many machines and their hub, which end with the block, with all that runs on them."""
    spaces: list[Space] = []
    hub = Hub()
    try:
        spaces.extend(Space(hub, number) for number in range(count))  # those that were made go if one cannot be
        yield hub, spaces
    finally:
        for space in spaces:
            space.remove()
        hub.remove()


def clock_library(folder: Path) -> Path:
    """Make the library that shifts the clock of a process; it needs a C compiler."""
    library = folder / "shifted_clock.so"
    source = Path(__file__).with_name("shifted_clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


def shifted_clock(library: Path, seconds: int) -> dict[str, str]:
    """The environment of a process whose clock is so many seconds ahead (:func:`clock_library`)."""
    return {"LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(seconds)}


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout


class Relay(ThreadedServers):
    """Passes connections to addresses of the hub on to a unix socket; each may be ``slow``, by seconds."""

    def __init__(self, target: Path, hub: Hub) -> None:
        super().__init__()
        self._target = target
        self._hub = hub
        self.slow: dict[str, float] = {}

    def __enter__(self) -> Self:
        super().__enter__()
        self.run(self._enter())
        return self

    async def _enter(self) -> None:
        self._hub.enter()

    def open(self, address: str) -> int:
        """Pass connections to this address on; return the port."""
        return self.listen(partial(self._serve, address), address)

    async def _serve(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_unix_connection(self._target)
        except OSError:  # the server is down
            writer.transport.abort()
            return
        try:
            await asyncio.gather(self._pass(address, reader, back), self._pass(address, there, writer))
        finally:
            back.transport.abort()

    async def _pass(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                if seconds := self.slow.get(address):
                    await asyncio.sleep(seconds)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
