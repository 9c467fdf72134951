"""The journal: what a line costs over a bare write, and how fast a log is counted, in how much memory."""

from __future__ import annotations

import json
import logging
import os
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice
from logging.handlers import WatchedFileHandler
from pathlib import Path
from time import gmtime, perf_counter, strftime
from typing import Any
from zoneinfo import ZoneInfo

from bench.bars import Bar
from bench.context import Context
from bench.harness import Contestant, Figures, Table
from kingdom.court.chamberlain.memory import ChamberlainMemory
from kingdom.court.chamberlain.tally import JournalCounter, JournalTally
from kingdom.court.home import Home
from kingdom.journal import EventData, Journal, Reader, catalog
from kingdom.journal.catalog import TaskCompleted
from kingdom.journal.lines import compose, encode_data

TITLE = "journal"
_numbers = count()


def emit(context: Context) -> list[Table]:
    """One line after another."""
    folder, lines = context.directory("journal-emit"), context.pick(20_000, 100_000)
    outcomes = context.race(
        Contestant("bare write", partial(_emit, "bare", folder, lines), "os.write of a ready line, O_APPEND"),
        Contestant("kingdom", partial(_emit, "typed", folder, lines), "emit(TaskCompleted(…), actor)"),
        Contestant("kingdom, by name", partial(_emit, "named", folder, lines), "emit(type, actor, {…})"),
        Contestant("logging", partial(_emit, "logging", folder, lines), "WatchedFileHandler and json.dumps; no lock"),
    )
    ours = [outcome for outcome in outcomes if outcome.name.startswith("kingdom")]
    return [
        Table("Append a line", "µs", outcomes, metric="micros", higher_is_better=False),
        Table(
            "Append a line, over a bare write in the same process",
            "µs",
            ours,
            metric="over",
            bars={outcome.name: [Bar("<", 20.0)] for outcome in ours},
            higher_is_better=False,
        ),
    ]


def aggregate(context: Context) -> list[Table]:
    """Count a large log by type, hour and general."""
    size = context.pick(20, 100) * 1_000_000
    home = Home(context.directory("journal-aggregate"))
    home.logs.mkdir(exist_ok=True)
    log = home.journal
    _fill(log, size)
    records, counting = "kingdom, records", "chamberlain"
    outcomes = context.race(
        Contestant("bare loop", partial(_aggregate, "bare", log), "json.loads of each line of open(…)"),
        Contestant(records, partial(_aggregate, "records", log), "read_records()"),
        Contestant("kingdom, events", partial(_aggregate, "events", log), "read(): each line checked and typed"),
        Contestant(counting, partial(_count, home), "statistics per hour, day and general, and all that alerts need"),
    )
    fast = {name: [Bar(">=", 40.0)] for name in (records, counting)}
    return [
        Table(f"Count a log of {size / 1e6:.0f} MB", "MB/s", outcomes, bars=fast),
        Table(
            "Memory that it took",
            "MB",
            outcomes,
            metric="memory",
            bars={name: [Bar("<", 16.0)] for name in (records, counting)},
            higher_is_better=False,
        ),
    ]


def _emit(how: str, folder: Path, lines: int) -> Figures:
    bare = _microseconds(_bare_writer(folder), lines)
    if how == "bare":
        return {"micros": bare}
    path = _new(folder)
    if how == "logging":
        write = _logging_writer(path)
    else:
        journal = Journal(path)
        write = _typed(journal) if how == "typed" else _named(journal)
    ours = _microseconds(write, lines)
    assert path.read_bytes().count(b"\n") == lines, "lines are missing"
    return {"micros": ours, "over": ours - bare}


def _bare_writer(folder: Path) -> Callable[[int], object]:
    line = compose("2026-02-07T10:00:00Z", "task.completed", "gen-pr", encode_data(_event(1)))
    fd = os.open(_new(folder), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    return lambda number: os.write(fd, line)


def _typed(journal: Journal) -> Callable[[int], object]:
    return lambda number: journal.emit(_event(number), "gen-pr")


def _named(journal: Journal) -> Callable[[int], object]:
    return lambda number: journal.emit("task.completed", "gen-pr", _data(number))


def _logging_writer(path: Path) -> Callable[[int], object]:
    logger = logging.getLogger("bench")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(WatchedFileHandler(path))

    def write(number: int) -> None:
        ts = strftime("%Y-%m-%dT%H:%M:%SZ", gmtime())
        logger.info(json.dumps({"ts": ts, "type": "task.completed", "actor": "gen-pr", "data": _data(number)}))

    return write


def _microseconds(write: Callable[[int], object], lines: int) -> float:
    started = perf_counter()
    for number in range(lines):
        write(number)
    return 1e6 * (perf_counter() - started) / lines


def _new(folder: Path) -> Path:
    return folder / f"{os.getpid()}-{next(_numbers)}.log"


def _event(number: int) -> TaskCompleted:
    return TaskCompleted(f"task-20260207-{number:03}", "success", 180)


def _data(number: int) -> dict[str, Any]:
    return {"task_id": f"task-20260207-{number:03}", "status": "success", "duration_seconds": 180}


def _fill(log: Path, size: int) -> None:
    """The lines of tasks that went well, again and again."""
    lines = []
    for number in range(1_250):
        minute = f"2026-02-07T{number // 60 % 24:02}:{number % 60:02}"
        for second, (actor, event) in enumerate(_life(number)):
            lines.append(compose(f"{minute}:{second:02}Z", event.spec.name, actor, encode_data(event)))
    block = b"".join(lines)
    with log.open("wb") as file:
        for _ in range(size // len(block) + 1):
            file.write(block)


def _life(number: int) -> Iterator[tuple[str, EventData]]:
    task, general, kind = f"task-20260207-{number:03}", f"gen-{number % 5}", "github.pr.review_requested"
    event, soldier = f"evt-github-{number}", f"soldier-1707300000-{number}"
    yield "sentinel", catalog.EventDetected(event, "github", kind)
    yield "king", catalog.EventDispatched(event, task, general)
    yield "king", catalog.TaskCreated(task, kind, general, "normal")
    yield general, catalog.TaskStarted(task)
    yield general, catalog.SoldierSpawned(task, soldier)
    yield general, catalog.SoldierCompleted(task, soldier, "success")
    yield general, catalog.TaskCompleted(task, "success", 180)
    yield "envoy", catalog.MessageSent(f"msg-20260207-{number:03}", task, "#kingdom")


def _aggregate(how: str, log: Path) -> Figures:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    types: Counter[tuple[str, str]] = Counter()
    seconds: Counter[str] = Counter()
    started = perf_counter()
    for batch in _BATCHES[how](log):
        types.update([(record["type"], record["ts"][:13]) for record in batch])
        for record in batch:
            if record["type"] == "task.completed":
                seconds[record["actor"]] += record["data"]["duration_seconds"]
    taken = perf_counter() - started
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert 8 * sum(seconds.values()) == 180 * sum(types.values())
    return {"rate": log.stat().st_size / 1e6 / taken, "memory": grown / 1024}


def _count(home: Home) -> Figures:
    """As the chamberlain does it at his start, when he has never read the log."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = ChamberlainMemory(JournalTally(ZoneInfo("Asia/Seoul")))
    lines = JournalCounter(home, memory)
    started = perf_counter()
    while not lines.read():
        pass
    taken = perf_counter() - started
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    lines.close()
    tally = memory.tally
    assert sum(day.count("task.completed") for day in tally.days.values()) * 8 == sum(
        count for day in tally.days.values() for count in day.types.values()
    )
    assert not tally.waiting
    assert not tally.soldiers
    return {"rate": home.journal.stat().st_size / 1e6 / taken, "memory": grown / 1024}


def _bare(log: Path) -> Iterator[list[dict[str, Any]]]:
    with log.open("rb") as file:
        while lines := file.readlines(64 * 1024):
            yield [json.loads(line) for line in lines]


def _records(log: Path) -> Iterator[list[dict[str, Any]]]:
    with Reader(log) as reader:
        yield from reader.read_records()


def _events(log: Path) -> Iterator[list[dict[str, Any]]]:
    with Reader(log) as reader:
        entries = reader.read()
        while some := list(islice(entries, 500)):
            yield [{"type": item.type, "ts": item.ts, "actor": item.actor, "data": item.fields} for item in some]


_BATCHES: dict[str, Callable[[Path], Iterator[list[dict[str, Any]]]]] = {
    "bare": _bare,
    "records": _records,
    "events": _events,
}
PARTS = (emit, aggregate)
