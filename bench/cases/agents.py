"""Runs of agents: what starting, watching and writing down a run costs over its program."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from uuid import uuid4

from bench.bars import Bar
from bench.context import Context
from bench.court import nothing_to_do
from bench.harness import Contestant, Figures, Table
from bench.stats import percentile
from kingdom.agents.engine import (
    GATEWAY_URL,
    RUN_KEY,
    Confinement,
    Engine,
    InProcessEngine,
    Launch,
    ModelAccess,
)
from kingdom.agents.engines.command import CommandEngine
from kingdom.agents.engines.scripted import ScriptedEngine
from kingdom.agents.port import Order, SandboxMode, Text
from kingdom.agents.processes import descendants, find_process
from kingdom.agents.runner import Runner
from kingdom.agents.sandbox.sandbox import Sandbox

TITLE = "agents"
_AT_ONCE = 100
_PROGRAM = "/bin/true"
_STREAMS = 200
_EVENTS = 20  # of each stream
# Run inside the sandbox: opens all streams at once, and prints how many had all their events.
_ASK_AT_ONCE = """
import asyncio, os, sys
port, path, streams, events = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

async def ask():
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
    head = f"POST {path} HTTP/1.1\\r\\nhost: x\\r\\nx-api-key: {os.environ['KEY']}\\r\\n"
    writer.write(f"{head}connection: close\\r\\ncontent-length: 2\\r\\n\\r\\n{{}}".encode())
    found = 0
    while found < events and (line := await reader.readline()):
        found += line.startswith(b"data: ")
    writer.close()
    return found == events

async def main():
    print(sum(await asyncio.gather(*(ask() for _ in range(streams)))))

asyncio.run(main())
"""


def scripted(context: Context) -> list[Table]:
    runs = context.pick(500, 3_000)
    folder = context.directory("agents-scripted")
    outcomes = context.race(
        Contestant("scripted", partial(_many, folder, runs), f"{_AT_ONCE} at a time; each in the ledger, durably")
    )
    return [Table("Runs without a process", "runs/s", outcomes)]


def processes(context: Context) -> list[Table]:
    runs = context.pick(10, 40)
    folder = context.directory("agents-processes")
    outcomes = context.race(
        Contestant("bare", partial(_bare, runs), f"asyncio's create_subprocess_exec of {_PROGRAM}"),
        Contestant("command", partial(_one_by_one, folder, runs), "shim, transcript, timers, ledger, outcome"),
    )
    return [
        Table(
            f"A run of {_PROGRAM}, from its start to its outcome, p50",
            "ms",
            outcomes,
            metric="p50",
            higher_is_better=False,
        )
    ]


def confined(context: Context) -> list[Table]:
    runs = context.pick(10, 40)
    folder = context.directory("agents-confined")
    first_line = context.race(
        Contestant("not confined", partial(_first_lines, folder, runs, "off"), "the same run without a sandbox"),
        Contestant("confined", partial(_first_lines, folder, runs, "required"), "namespaces, mounts, limits, gateway"),
        Contestant("added", partial(_added, _first_lines, folder, runs), "the difference of both"),
    )
    answers = context.race(
        Contestant("direct", partial(_first_bytes, folder, runs, "off"), "curl to a service on loopback"),
        Contestant("gateway", partial(_first_bytes, folder, runs, "required"), "the same through the gateway"),
        Contestant("added", partial(_added, _first_bytes, folder, runs), "the difference of both"),
    )
    return [
        Table(
            "A run, from its start to its first line, p50",
            "ms",
            first_line,
            metric="p50",
            bars={"added": [Bar("<=", 40.0)]},
            higher_is_better=False,
        ),
        Table(
            "A model's first byte, p50",
            "ms",
            answers,
            metric="p50",
            bars={"added": [Bar("<=", 5.0)]},
            higher_is_better=False,
        ),
    ]


def crowded(context: Context) -> list[Table]:
    runs = context.pick(5, 20)
    folder = context.directory("agents-crowded")
    streams = context.race(
        Contestant("direct", partial(_streams, folder, "off"), "to a service on loopback"),
        Contestant("gateway", partial(_streams, folder, "required"), "the same through the gateway, by one run"),
    )
    memory = context.race(
        Contestant("not confined", partial(_memory, folder, runs, "off"), "the shim and a program that sleeps"),
        Contestant("confined", partial(_memory, folder, runs, "required"), "the same, bubblewrap, and our growth"),
    )
    return [
        Table(
            f"{_STREAMS} answers of a model at once, none of which ends before all have begun",
            "answers",
            streams,
            metric="whole",
            bars={"gateway": [Bar(">=", _STREAMS)]},
        ),
        Table(
            "Memory of a run, without what it shares with others",
            "MiB",
            memory,
            metric="mebibytes",
            bars={"confined": [Bar("<=", 10.0)]},
            higher_is_better=False,
        ),
    ]


async def _added(measure: Callable[[Path, int, SandboxMode], Awaitable[Figures]], folder: Path, runs: int) -> Figures:
    off, required = await measure(folder, runs, "off"), await measure(folder, runs, "required")
    return {"p50": required["p50"] - off["p50"]}


async def _first_lines(folder: Path, runs: int, mode: SandboxMode) -> Figures:
    place, runner = _runner(folder, mode)
    taken = []
    for number in range(runs + 1):
        said: list[float] = []
        order = _order(place, number, "command", {"argv": ["/bin/echo", "hello"]})
        started = perf_counter()
        running = await runner.start(order, lambda _, said=said: said.append(perf_counter()))  # type: ignore[misc]
        await running.wait()
        taken.append(1000 * (said[0] - started))
    await runner.close()
    return {"p50": percentile(taken[1:], 50)}  # the first one finds out whether the machine can confine


class _AskingEngine(CommandEngine):
    """A command whose model is a service on loopback."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    def launch(self, order: Order) -> Launch:
        launch = super().launch(order)
        return replace(launch, env={**launch.env, "KEY": RUN_KEY})

    def confinement(self, order: Order) -> Confinement:
        return Confinement(model=ModelAccess(f"http://127.0.0.1:{self._port}", "x-api-key", "real"))


async def _first_bytes(folder: Path, runs: int, mode: SandboxMode) -> Figures:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    place, runner = _runner(folder, mode, _AskingEngine(port))
    url = f"http://127.0.0.1:{port}/messages" if mode == "off" else f"{GATEWAY_URL}/model/messages"
    ask = f"curl -s -o /dev/null -w '%{{time_starttransfer}}\\n' --noproxy '*' {url} -H \"x-api-key: $KEY\" -d '{{}}'"
    script = f"for i in $(seq {runs}); do {ask}; done"
    said: list[str] = []
    running = await runner.start(
        _order(place, 0, "command", {"argv": ["/bin/sh", "-c", script]}),
        lambda event: said.append(event.text) if isinstance(event, Text) else None,
    )
    await running.wait()
    await runner.close()
    server.close()
    return {"p50": percentile([1000 * float(text) for text in said], 50)}


async def _streams(folder: Path, mode: SandboxMode) -> Figures:
    """Have one run ask for many answers at once. The service ends none of them before all are asked for."""
    asked, all_there = 0, asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(2)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: 0\n\n")
        asked += 1
        if asked == _STREAMS:
            all_there.set()
        await all_there.wait()
        for number in range(1, _EVENTS):
            writer.write(f"data: {number}\n\n".encode())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=_STREAMS)
    port = server.sockets[0].getsockname()[1]
    place, runner = _runner(folder, mode, _AskingEngine(port))
    (place / "ask.py").write_text(_ASK_AT_ONCE)
    to = (str(port), "/messages") if mode == "off" else ("3128", "/model/messages")
    said: list[str] = []
    argv = [sys.executable, "-I", str(place / "ask.py"), *to, str(_STREAMS), str(_EVENTS)]
    running = await runner.start(
        _order(place, 0, "command", {"argv": argv}),
        lambda event: said.append(event.text) if isinstance(event, Text) else None,
    )
    await running.wait()
    await runner.close()
    server.close()
    return {"whole": float("".join(said).strip() or 0)}


async def _memory(folder: Path, runs: int, mode: SandboxMode) -> Figures:
    """Measure what runs that do nothing take together: their processes, and what this one grew by."""
    place, runner = _runner(folder, mode)
    orders = [
        _order(place, number, "command", {"argv": ["/bin/sh", "-c", "echo up; exec sleep 600"]})
        for number in range(runs + 1)
    ]
    ready = [asyncio.Event() for _ in orders]
    running = []
    before = 0
    for order, event in zip(orders, ready, strict=True):
        running.append(await runner.start(order, lambda _, event=event: event.set()))  # type: ignore[misc]
        await event.wait()
        before = before or _proportional_bytes([os.getpid()])  # with everything imported that a run needs
    children = [one for run in running[1:] for one in _family(run.pid or 0)]
    taken = _proportional_bytes(children) + max(0, _proportional_bytes([os.getpid()]) - before)
    for one in running:
        await one.stop("measured")
    await asyncio.gather(*(one.wait() for one in running))
    await runner.close()
    return {"mebibytes": taken / runs / 1024**2}


def _family(agent: int) -> list[int]:
    """Return the shim of an agent and all that it started."""
    process = find_process(agent)
    return [] if process is None else [process.parent, *(one.pid for one in descendants(process.parent))]


def _proportional_bytes(pids: list[int]) -> int:
    """Return the memory of processes; what n processes share counts an n-th."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            total += 1024 * int(line.split()[1]) if line.startswith("Pss:") else 0
    return total


async def _many(folder: Path, runs: int) -> Figures:
    place, runner = _runner(folder)
    room = asyncio.Semaphore(_AT_ONCE)

    async def run(number: int) -> None:
        async with room:
            order = _order(place, number, "scripted", {"script": nothing_to_do()})
            outcome = await (await runner.start(order)).wait()
            assert outcome.status == "success", outcome

    started = perf_counter()
    await asyncio.gather(*map(run, range(runs)))
    seconds = perf_counter() - started
    await runner.close()
    return {"rate": runs / seconds}


async def _one_by_one(folder: Path, runs: int) -> Figures:
    place, runner = _runner(folder)
    taken = []
    for number in range(runs):
        started = perf_counter()
        outcome = await (await runner.start(_order(place, number, "command", {"argv": [_PROGRAM]}))).wait()
        taken.append(1000 * (perf_counter() - started))
        assert outcome.status == "success", outcome
    await runner.close()
    return {"p50": percentile(taken, 50)}


async def _bare(runs: int) -> Figures:
    taken = []
    for _ in range(runs):
        started = perf_counter()
        process = await asyncio.create_subprocess_exec(_PROGRAM)
        await process.wait()
        taken.append(1000 * (perf_counter() - started))
    return {"p50": percentile(taken, 50)}


def _runner(folder: Path, mode: SandboxMode = "off", command: CommandEngine | None = None) -> tuple[Path, Runner]:
    place = folder / uuid4().hex
    place.mkdir()
    engines: dict[str, Engine | InProcessEngine] = {"scripted": ScriptedEngine(), "command": command or CommandEngine()}
    runner = Runner(
        soldiers=place / "soldiers",
        sessions=place / "sessions",
        ledger=place / "ledger",
        engines=engines,
        environ=os.environ,
        sandbox=Sandbox(mode),
    )
    return place, runner


def _order(place: Path, number: int, engine: str, options: dict[str, object]) -> Order:
    return Order(
        run_id=f"run-{number}",
        task_id=f"task-20260207-{number:03d}",
        engine=engine,
        prompt="Do nothing.",
        cwd=place,
        result_path=place / "results" / f"{number}.json",
        options=options,
    )


PARTS = (scripted, processes, confined, crowded)
