"""A large court: what grows with the machines and generals. The king and its link are real, the machines simulated."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg

from bench import ours, pg
from bench.context import Context
from bench.court import EVENT_TYPE, cpu_seconds, event, install_generals, peak_mib, up, wait_until
from bench.court import pids as running
from bench.harness import Contestant, Figures, Table
from bench.queues import Queues
from bench.stats import percentile
from kingdom.court.home import Home
from kingdom.court.init_home import HomeChoices, SharedQueues
from kingdom.court.machines.joining import create_first_machine
from kingdom.court.machines.registry import Registry
from kingdom.court.models import Event
from kingdom.court.queues import open_queues, put_documents
from tests.support.postgres import PostgresServer

TITLE = "a large court: machines and generals"
_SIZES = ((1, 10), (3, 30), (10, 100), (100, 1_000))
_CONNECTIONS = 5_000
_PROCESSES = 2  # that simulate machines


@dataclass
class _Simulation:
    """Processes that simulate machines, and when they claimed the task of each event."""

    processes: list[subprocess.Popen[str]]
    claimed: dict[str, float]


def grow(context: Context) -> list[Table]:
    """The same work, in courts of 10 to 100 generals, with ``--full`` 1,000."""
    events, looks = context.pick((300, 10), (2_000, 40), (1_000_000, 200))
    sizes = context.pick(_SIZES[:2], _SIZES[:3], _SIZES)
    with _server(context) as server:
        outcomes = context.race(
            *(
                Contestant(
                    f"{machines:,} machine{'s' if machines > 1 else ''}, {generals:,} generals",
                    partial(_measure, server, machines, generals, events, looks),
                    x=generals,
                    timeout=900.0 + events / 20,
                )
                for machines, generals in sizes
            ),
            reps=min(context.reps, context.pick(1, 2, 1)),
        )
    return [
        Table(title, unit, outcomes, metric=metric, higher_is_better=metric == "rate", remarks=remarks, x="generals")
        for metric, title, unit, remarks in (
            ("rate", f"{events:,} events", "events/s", ("From the first event put in to the last completed",)),
            ("p50", "From an event to its claim on its machine, p50", "ms", (f"{looks} events, one at a time",)),
            ("p99", "From an event to its claim on its machine, p99", "ms", ()),
            ("king", "Processor time of the king", "ms/event", ()),
            ("link", "Processor time of the leading machine's link", "ms/event", ()),
            ("postgres", "Processor time of PostgreSQL", "ms/event", ()),
            ("transactions", "Transactions", "per event", ()),
            ("idle_transactions", "Transactions of the idle court", "a second", ()),
            ("idle_postgres", "Processor of PostgreSQL, idle court", "%", ("Of one core",)),
            ("connections", "Connections", "connections", ()),
            ("memory", "Memory of the king, at most", "MiB", ()),
        )
    ]


@contextlib.contextmanager
def _server(context: Context) -> Iterator[str]:
    """A server of its own, which allows more connections."""
    server = PostgresServer(context.folder / "postgres-scale")
    server.start()
    asyncio.run(pg.execute(server.url, f"ALTER SYSTEM SET max_connections = {_CONNECTIONS}"))
    server.stop()
    with server:
        yield server.url


def _measure(server: str, machines: int, generals: int, events: int, looks: int) -> Figures:
    url = ours.postgres_url(server, asyncio.run(pg.create_schema(server)))
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        home = asyncio.run(_found(folder / "seat", url, generals))
        stack.enter_context(up(home, "--roles", "king,link"))
        wait_until(lambda: "king" in running(home), 60.0, "the king, who starts when his machine leads")
        pids = running(home)
        asyncio.run(_publish_packages(url, home))
        simulation = stack.enter_context(_simulated(url, folder, machines, generals))
        with Queues(home, url) as queues:
            figures = _idle(server)
            figures["connections"] = asyncio.run(_connections(server))
            figures |= asyncio.run(_react(url, simulation, generals, looks))
            before = _counts(server, pids)
            started = time.time()
            asyncio.run(_fill(url, looks, events, generals))
            wait_until(lambda: queues.finished(looks + events), 600.0 + events / 20, "all events completed", every=0.2)
            seconds = time.time() - started
            after = _counts(server, pids)
        figures |= {name: 1e3 * (after[name] - before[name]) / events for name in ("king", "link", "postgres")}
        figures["transactions"] = (after["transactions"] - before["transactions"]) / events
        figures["rate"] = events / seconds
        figures["memory"] = peak_mib(pids["king"])
    return figures


async def _found(folder: Path, url: str, generals: int) -> Home:
    shared = SharedQueues("seat", url=url, generals=())
    home = (await create_first_machine(folder, shared, HomeChoices(shared=shared), (), force=False)).home
    (home.config / "system.yaml").write_text("name: bench\nconcurrency:\n  max_soldiers: 10\n")
    install_generals(home, generals, 10)
    return home


async def _publish_packages(url: str, home: Home) -> None:
    await Registry(url).publish_packages(home)


@contextlib.contextmanager
def _simulated(url: str, folder: Path, machines: int, generals: int) -> Iterator[_Simulation]:
    number = min(_PROCESSES, machines)
    each, simulation = machines // number, _Simulation([], {})
    readers = []
    for index in range(number):
        arguments = [url, str(folder), str(index * each), str(each), str(generals // machines)]
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.simulated_machines", *arguments], stdout=subprocess.PIPE, text=True
        )
        simulation.processes.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == "ready\n", f"a process of machines ended with exit code {process.wait()}"
        readers.append(threading.Thread(target=_read, args=(process, simulation.claimed)))
        readers[-1].start()
    try:
        yield simulation
    finally:
        for process in simulation.processes:
            process.terminate()
            process.wait()
        for reader in readers:
            reader.join()


def _read(process: subprocess.Popen[str], claimed: dict[str, float]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        event_id, at = line.split()
        claimed[event_id] = float(at)


def _event(number: int, generals: int) -> Event:
    of = number % generals
    return Event.model_validate({**event(number), "type": EVENT_TYPE if of == 0 else f"{EVENT_TYPE}.{of}"})


async def _react(url: str, simulation: _Simulation, generals: int, looks: int) -> Figures:
    taken = []
    async with open_queues(url) as bus:
        for number in range(looks):
            one = _event(number, generals)
            began = time.time()
            await put_documents(bus, [one])
            async with asyncio.timeout(60):
                while one.id not in simulation.claimed:
                    await asyncio.sleep(0.02)
            taken.append(1e3 * (simulation.claimed[one.id] - began))
            await asyncio.sleep(0.2)
    return {"p50": percentile(taken, 50), "p99": percentile(taken, 99)}


async def _fill(url: str, first: int, events: int, generals: int) -> None:
    async with open_queues(url) as bus:
        for start in range(first, first + events, 1000):
            numbers = range(start, min(start + 1000, first + events))
            await put_documents(bus, [_event(number, generals) for number in numbers])


def _idle(server: str, seconds: float = 20.0) -> Figures:
    time.sleep(10)  # until the start is over
    before = _counts(server, {})
    time.sleep(seconds)
    after = _counts(server, {})
    return {
        "idle_transactions": (after["transactions"] - before["transactions"]) / seconds,
        "idle_postgres": 100 * (after["postgres"] - before["postgres"]) / seconds,
    }


def _counts(server: str, pids: dict[str, int]) -> dict[str, float]:
    """Processor seconds so far of some roles and of the server, and its transactions."""
    postmaster, transactions = asyncio.run(_of_server(server))
    roles = {name: cpu_seconds(pid) for name, pid in pids.items()}
    return {**roles, "postgres": _with_children(postmaster), "transactions": transactions}


async def _of_server(server: str) -> tuple[int, float]:
    connection: Any = await asyncpg.connect(server)
    try:
        folder = await connection.fetchval("SHOW data_directory")
        transactions = await connection.fetchval("SELECT sum(xact_commit) FROM pg_stat_database")
    finally:
        await connection.close()
    return int((Path(folder) / "postmaster.pid").read_text().split()[0]), float(transactions)


def _with_children(pid: int) -> float:
    """Processor seconds of a process and all its children, those that ended included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ended = (int(fields[13]) + int(fields[14])) / 100
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    living = 0.0
    for child in children:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            living += cpu_seconds(int(child))
    return cpu_seconds(pid) + ended + living


async def _connections(server: str) -> float:
    connection: Any = await asyncpg.connect(server)
    try:
        return float(
            await connection.fetchval("SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'client%'")
        )
    finally:
        await connection.close()


PARTS = (grow,)
