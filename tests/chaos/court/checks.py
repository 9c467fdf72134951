"""What must hold when a court was killed again and again, and then left to finish.

Each function returns complaints, one a line; none means that the promise holds.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kingdom.court.config import load_system
from kingdom.court.home import Home
from kingdom.court.queues import MESSAGES, STATES, declare_queues, open_queues
from tests.chaos.court.homes import ASK, HAND, TREE, Effect
from tests.chaos.court.load import read_all

_SHOWN = 5


def shown(items: Iterable[object]) -> str:
    """A few of them."""
    found = sorted(map(str, items))
    return ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")


def disagreements(queue: Path) -> list[str]:
    """Documents whose ``status`` is not that of the directory they lie in. Holds at every instant, dead or alive."""
    found = []
    for stream, states in STATES.items():
        for state in set(states.values()) - {"invalid"}:
            words = {state, "failed", "needs_human", "cancelled"} if state == "completed" else {state}
            for path in (queue / stream / state).glob("[!.]*.json"):
                try:
                    status = json.loads(path.read_text())["status"]
                except FileNotFoundError:  # it went on
                    continue
                except (ValueError, KeyError) as error:
                    found.append(f"{path} cannot be read: {error!r}")
                    continue
                if status not in words:
                    found.append(f"{path} says {status}")
    return found


def unfinished(queue: Path, expected: set[str]) -> list[str]:
    """No event is lost, and nothing waits, is held, or was put aside."""
    found = []
    completed = {path.stem for path in (queue / "events/completed").glob("*.json")}
    if lost := expected - completed:
        found.append(f"{len(lost)} events are not completed: {shown(lost)}")
    if unknown := completed - expected:
        found.append(f"events that nobody put in: {shown(unknown)}")
    for stream, states in STATES.items():
        done = states["DONE"]
        for state in (*states.values(), "invalid"):
            left = [path.name for path in (queue / stream / state).glob("[!.]*")] if state != done else []
            if left:
                found.append(f"{stream}/{state} is not empty: {shown(left)}")
    return found


def wrong_results(root: Path, queue: Path, events: Mapping[str, str], to_cancel: set[str]) -> list[str]:
    """Each event has exactly one task that succeeded; before it only killed ones, or one that asked.

    One that a person wanted to end may have been ended instead.
    """
    found = []
    results = {task: one for task, one in read_all(root / "state/results").items() if not task.endswith("-raw")}
    tasks = read_all(queue / "tasks/completed")
    documents = read_all(queue / "events/completed")
    statuses: dict[str, list[str]] = defaultdict(list)
    for task_id, task in tasks.items():
        if task_id not in results:
            found.append(f"{task_id} is completed and has no result")
        else:
            statuses[str(task.get("case") or task["event_id"])].append(results[task_id]["status"])
    if strange := results.keys() - tasks.keys():
        found.append(f"results of tasks that are not completed: {shown(strange)}")
    for event_id, general in events.items():
        count = Counter(statuses[event_id])
        killed = count.pop("killed", 0)
        wanted = {"needs_human": 1, "success": 1} if general == ASK else {"success": 1}
        ended = documents.get(event_id, {}).get("status")
        if (count, ended) == (wanted, "completed"):
            continue
        if not (event_id in to_cancel and (count, ended) == ({"cancelled": 1}, "cancelled")):
            found.append(f"{event_id} for {general}: {dict(count)} and {killed} killed, {ended}")
    return found


def repeated_effects(effects: Iterable[Effect], events: Mapping[str, str], hit: set[str]) -> list[str]:
    """No work was begun again unless the soldier on it had been killed; and what is reported as done was done."""
    began: dict[str, set[str]] = defaultdict(set)
    did: Counter[str] = Counter()
    found = []
    for effect in effects:
        if effect.what == "began":
            began[effect.event].add(effect.run)
        else:
            did[effect.event] += 1
    for event_id, general in events.items():
        if general in (HAND, TREE):
            unharmed = began[event_id] - hit
            if len(unharmed) > 1:
                found.append(f"{event_id} was begun by {shown(unharmed)}, and nobody killed these")
            if did[event_id] > 1 + len(began[event_id] & hit):
                found.append(f"{event_id} was done {did[event_id]} times")
    return found


def undone(effects: Iterable[Effect], root: Path) -> list[str]:
    """What is reported as a success was done by the soldier that the result names."""
    did = {effect.run for effect in effects if effect.what == "did"}
    found = []
    for task_id, result in read_all(root / "state/results").items():
        programmed = result.get("general") in (HAND, TREE)
        if programmed and result["status"] == "success" and result["soldier_id"] not in did:
            found.append(f"{task_id} is reported as done by {result['soldier_id']}, which did nothing")
    return found


def repeated_messages(root: Path, queue: Path, events: Mapping[str, str], journal: list[dict[str, Any]]) -> list[str]:
    """Each message was said once, and each event was spoken of as often as it should."""
    found = []
    lines = (root / "logs/console.log").read_text().split("\n")
    said = Counter(line.removeprefix("-- ") for line in lines if line.startswith("-- "))
    sent = read_all(queue / MESSAGES / "sent")
    if twice := [name for name, count in said.items() if count > 1]:
        found.append(f"said twice: {shown(twice)}")
    if missing := sent.keys() - said.keys():
        found.append(f"sent and never said: {shown(missing)}")
    told = Counter(line["data"]["msg_id"] for line in journal if line["type"] == "message.sent")
    if wrong := [f"{name} {told[name]}×" for name in sent if told[name] != 1]:
        found.append(f"message.sent in the journal: {shown(wrong)}")
    kinds: Counter[tuple[str, str]] = Counter()
    for message in sent.values():
        if "event_id" in message["context"]:
            kinds[message["context"]["event_id"], message["type"]] += 1
    for event_id, general in events.items():
        for kind in ("thread_start", "thread_update", "human_input_request"):
            wanted = 0 if kind == "human_input_request" and general != ASK else 1
            if kinds[event_id, kind] != wanted:
                found.append(f"{event_id} for {general}: {kinds[event_id, kind]} messages {kind}")
    return found


def repeated_entries(journal: list[dict[str, Any]]) -> list[str]:
    """A task is made once, and an event given out once, and the journal says so."""
    found = []
    for kind, keys in (
        ("task.created", ["task_id"]),
        ("event.dispatched", ["event_id", "task_id"]),  # a cancel is given out for the task that it ends
        ("task.completed", ["task_id"]),
    ):
        count = Counter(" ".join(line["data"][key] for key in keys) for line in journal if line["type"] == kind)
        if twice := [name for name, times in count.items() if times > 1]:
            found.append(f"{kind} more than once: {shown(twice)}")
    return found


def wrong_runs(root: Path) -> list[str]:
    """Every run that began has an outcome and one line in the ledger."""
    found = []
    lines = [json.loads(line) for path in (root / "state/ledger").glob("*.jsonl") for line in _lines(path)]
    entries = Counter(line["run_id"] for line in lines)
    if twice := [run for run, count in entries.items() if count > 1]:
        found.append(f"more than one line in the ledger: {shown(twice)}")
    for folder in (root / "state/soldiers").iterdir():
        if not (folder / "outcome.json").exists() and (folder / "identity.json").exists():
            found.append(f"{folder.name} began and has no outcome")
        elif (folder / "identity.json").exists() and folder.name not in entries:
            found.append(f"{folder.name} is not in the ledger")
    return found


def half_written(root: Path) -> list[Path]:
    """What was being written when its writer was killed. What lies with a soldier or its work goes with that."""
    kept = (root / "workspace", root / "state/soldiers")
    return [path for path in root.rglob(".tmp-*") if not any(path.is_relative_to(place) for place in kept)]


def make_old(paths: Iterable[Path]) -> None:
    """Let files seem to be of the day before yesterday."""
    for path in paths:
        then = path.stat().st_mtime - 2 * 86400
        os.utime(path, (then, then))


def left_behind(root: Path) -> list[str]:
    """Files that nobody will need any more, after a day and the cleaning of that day."""
    left = [*half_written(root), *root.glob("state/*/campaigns/*")]
    names = [str(path.relative_to(root)) for path in left]
    return [f"{len(left)} files were left behind: {shown(names)}"] if left else []


def doctor(root: Path) -> list[str]:
    """What the bus itself finds wrong with the queues."""

    async def ask() -> list[str]:
        home = Home(root)
        async with open_queues(load_system(home).queue_url(home)) as bus:
            await declare_queues(bus)
            return [f"doctor: {one.name}: {one.message}" for one in await bus.doctor() if one.level == "error"]

    return asyncio.run(ask())


def read_journal(root: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The lines of the journal, and complaints about those that are none."""
    lines, found = [], []
    for path in sorted((root / "logs").glob("events*.log")):
        for number, raw in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
            try:
                lines.append(json.loads(raw))
            except ValueError:
                found.append(f"{path.name}:{number} is no journal line: {raw[:80]!r}")
    return lines, found


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()
