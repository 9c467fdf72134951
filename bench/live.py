"""A web server in a process of its own, many clients in others, and events that tell when they happened.

``python -m bench.live serve FOLDER`` and ``python -m bench.live listen URL …`` are those processes.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlsplit

from kingdom.base.garbage import collect_rarely, exclude_current
from kingdom.court.home import Home
from kingdom.court.init_home import create_home
from kingdom.homes import WORKFLOWS_FOLDER
from kingdom.journal import Journal
from kingdom.web.app import create_app
from kingdom.web.bootstrap import open_context
from kingdom.web.server import serve
from kingdom.web.settings import WebSettings
from kingdom.workflow.context import system_clock
from kingdom.workflow.domain.events import TaskStarted
from kingdom.workflow.home import WorkflowHome
from kingdom.workflow.ports import RecordedEvent, WorkflowStore
from kingdom.workflow.store import open_store

TOKEN: Final = "b" * 32
WORKFLOW: Final = "wf-bench"
_STAMPED: Final = re.compile(rb'"sequenceNumber":(\d+),"workflowId":[^{]*?"event":\{.*?"task(?:_i|I)d":"t-(\d+)"')
_READY: Final = 60.0


# ── the server ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Server:
    """A server process."""

    url: str
    pid: int
    root: Path


@contextlib.contextmanager
def server(root: Path, *, pages: bool = False) -> Iterator[Server]:
    """A web server of a court, which is created where there is none; stopped in the end."""
    if not root.exists():
        asyncio.run(create_home(root, generals=()))
    with _process("serve", str(root), *(["pages"] if pages else [])) as process:
        assert process.stdout is not None
        yield Server(json.loads(process.stdout.readline())["url"], process.pid, root)


async def _serve(root: Path, *, pages: bool) -> None:
    settings = WebSettings(port=0, requests_per_second=100_000.0, idle_seconds=600.0)
    async with (
        open_context(root, settings, TOKEN, engine=False) as context,
        serve(create_app(context, pages=pages), context) as running,
    ):
        collect_rarely()
        exclude_current()
        print(json.dumps({"url": running.url}), flush=True)
        await _until_stdin_ends()


# ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────────


class Happening:
    """Makes things happen at a rate, half of them in the journal and half in a workflow, each with its moment."""

    def __init__(self, store: WorkflowStore, journal: Journal) -> None:
        self._store = store
        self._journal = journal
        self.count = 0

    async def run(self, rate: float, seconds: float) -> None:
        """At a steady pace; what is late is made up for."""
        began = time.monotonic()
        for number in range(round(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            await self.one()

    async def one(self) -> None:
        self.count += 1
        if self.count % 2:
            self._journal.emit("task.started", "gen-bench", {"task_id": f"t-{time.monotonic_ns()}"})
        else:
            async with self._store.transaction() as tx:
                tx.record(RecordedEvent(TaskStarted("work-1", f"t-{time.monotonic_ns()}"), "Workflow", WORKFLOW))


@contextlib.asynccontextmanager
async def happening(root: Path) -> AsyncIterator[Happening]:
    """From this process, which is not the server's."""
    async with open_store(WorkflowHome(root / WORKFLOWS_FOLDER).store, system_clock) as store:
        journal = Journal(Home(root).journal)
        try:
            yield Happening(store, journal)
        finally:
            journal.close()


# ── who listens ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Heard:
    """What some clients heard: how late (ms), and how often something was missing, repeated or out of order."""

    events: int = 0
    wrong: int = 0
    lost: int = 0  # connections that the server closed
    late: list[float] = field(default_factory=list)

    def add(self, other: Heard) -> None:
        self.events += other.events
        self.wrong += other.wrong
        self.lost += other.lost
        self.late += other.late


@contextlib.contextmanager
def listeners(url: str, clients: int, *, batch: bool) -> Iterator[Listeners]:
    """A process with clients that are subscribed to everything."""
    with _process("listen", url, str(clients), "batch" if batch else "single") as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert json.loads(process.stdout.readline()) == {"ready": clients}
        yield Listeners(process.stdin, process.stdout)


@dataclass
class Listeners:
    """The clients of a process."""

    _stdin: IO[str]
    _stdout: IO[str]

    def heard(self, events: int) -> Heard:
        """Have them wait for that many events each (for a while), and tell what they heard."""
        print(events, file=self._stdin, flush=True)
        return Heard(**json.loads(self._stdout.readline()))


class _Ear(asyncio.Protocol):
    """A WebSocket client that does next to nothing with what it hears, so that two hundred of them fit in one core."""

    def __init__(self, url: str, batch: bool, heard: Heard) -> None:
        self._host = urlsplit(url).netloc
        self._batch = batch
        self._heard = heard
        self._rest = b""
        self._open = False
        self.last: int | None = None
        self.count = 0
        self.ready = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        key = base64.b64encode(os.urandom(16)).decode()
        lines = (
            "GET /ws/events HTTP/1.1",
            f"Host: {self._host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
            f"Authorization: Bearer {TOKEN}",
        )
        self._transport.write("\r\n".join((*lines, "", "")).encode())

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self._rest += data
        if not self._open:
            head, found, self._rest = self._rest.partition(b"\r\n\r\n")
            if not found:
                self._rest = head
                return
            assert head.startswith(b"HTTP/1.1 101"), head
            self._open = True
            self._say({"action": "subscribe", "batch": self._batch})
        self._frames(now)

    def _frames(self, now: int) -> None:
        at, rest = 0, self._rest
        while len(rest) - at >= 2:
            length, start = rest[at + 1], at + 2
            if length == 126:
                length, start = int.from_bytes(rest[start : start + 2], "big"), start + 2
            elif length == 127:
                length, start = int.from_bytes(rest[start : start + 8], "big"), start + 8
            if len(rest) < start + length:
                break
            if rest[at] == 0x81:
                self._message(rest[start : start + length], now)
            at = start + length
        self._rest = rest[at:]

    def _message(self, text: bytes, now: int) -> None:
        if text.startswith(b'{"type":"event'):
            for found in _STAMPED.finditer(text):
                number = int(found[1])
                if self.last is not None and number != self.last + 1:
                    self._heard.wrong += 1
                self.last = number
                self.count += 1
                self._heard.late.append((now - int(found[2])) / 1e6)
        elif text.startswith(b'{"type":"subscribed"'):
            self.last = json.loads(text)["sequenceNumber"]
            self.ready.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._heard.lost += 1
        if not self.ready.done():
            self.ready.set_exception(error or ConnectionError("the server closed the connection"))

    def _say(self, document: dict[str, Any]) -> None:
        raw = json.dumps(document).encode()
        assert len(raw) < 126
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[number % 4] for number, byte in enumerate(raw))
        self._transport.write(bytes((0x81, 0x80 | len(raw))) + mask + masked)


async def _listen(url: str, clients: int, batch: bool) -> None:
    loop = asyncio.get_running_loop()
    heard = Heard()
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    ears = []
    for _ in range(clients):
        _, ear = await loop.create_connection(lambda: _Ear(url, batch, heard), parts.hostname, parts.port)
        async with asyncio.timeout(_READY):
            await ear.ready
        ears.append(ear)
    print(json.dumps({"ready": clients}), flush=True)
    wanted = int(await loop.run_in_executor(None, sys.stdin.readline))
    give_up = time.monotonic() + _READY
    while any(ear.count < wanted for ear in ears) and time.monotonic() < give_up:
        await asyncio.sleep(0.05)
    heard.events = sum(ear.count for ear in ears)
    heard.wrong += sum(abs(wanted - ear.count) for ear in ears)
    print(json.dumps(vars(heard)), flush=True)


# ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """One of our processes; it ends when we close its input."""
    command = (sys.executable, "-m", "bench.live", *arguments)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


async def _until_stdin_ends() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def _main(arguments: Sequence[str]) -> None:
    if arguments[0] == "serve":
        asyncio.run(_serve(Path(arguments[1]), pages="pages" in arguments))
    else:
        asyncio.run(_listen(arguments[1], int(arguments[2]), arguments[3] == "batch"))


if __name__ == "__main__":
    _main(sys.argv[1:])
