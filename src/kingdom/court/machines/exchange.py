"""The two streams between the machines of a court, and the results that travel in one of them.

A result is published before its task is settled, so a task that has ended always has one: on the machine that leads, on
its way there, or in the stream. The id of the report is that of the task, so a task has one result: the one that is
reported first.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import read_json, read_object, write_json
from kingdom.bus import Envelope
from kingdom.bus.delivery import Record
from kingdom.court.home import check_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from kingdom.bus import EventBus
    from kingdom.court.home import Home
    from kingdom.court.models import Result

REPORTS: Final = "machine-reports"
ORDERS: Final = "machine-orders"
RESULT: Final = "result"  # types of reports
JOURNAL: Final = "journal"
LEDGER: Final = "ledger"
FILE: Final = "file"
CANCEL: Final = "cancel"
_MAX_LEDGER_BYTES: Final = 1024 * 1024  # of a month's file, from its end: the runs of one task are near it
_DIGEST_CHARS: Final = 40
_TASK_ID: Final = re.compile(rb'"task_id": ?"([A-Za-z0-9._:@+\-]+)"')
log = logging.getLogger("kingdom.court.machines")


async def declare_exchange(bus: EventBus) -> None:
    """Create the two streams. Idempotent."""
    for stream in (REPORTS, ORDERS):
        await bus.declare(stream)


def worker_name(general: str, machine: str | None) -> str:
    """Return the name under which a general claims tasks: with its machine, if the court has several."""
    return general if machine is None else f"{general}@{machine}"


def machine_of(locked_by: str | None) -> str | None:
    """Return the machine of the worker that holds a task: its name is before the token of the claim."""
    return (locked_by or "").partition("/")[0].partition("@")[2] or None


def result_id(task_id: str) -> str:
    """Return the id of the report with a task's result."""
    return f"{RESULT}:{check_name('task', task_id)}"


async def publish_results(bus: EventBus, home: Home, machine: str, results: Sequence[Result]) -> None:
    """Report results durably, each with the cost of its runs. A result that is known already is skipped."""
    if not results:
        return
    costs = _ledger_lines(home, {result.task_id for result in results})
    reports = []
    for result in results:
        payload = {"machine": machine, "result": result.document(), "ledger": costs.get(result.task_id, [])}
        reports.append(Envelope(RESULT, payload, event_id=result_id(result.task_id), aggregate_id=machine))
    await bus.publish(REPORTS, reports)


async def publish_file(bus: EventBus, machine: str, path: str, data: bytes) -> None:
    """Report a small file of a task that this machine had. The same content is reported once."""
    digest = hashlib.sha256(b"\n".join((path.encode(), data))).hexdigest()[:_DIGEST_CHARS]
    piece = {"path": path, "offset": 0, "data": base64.b64encode(data).decode()}
    payload = {"machine": machine, "files": [piece]}
    await bus.publish(REPORTS, Envelope(FILE, payload, event_id=f"{FILE}:{machine}:{digest}", aggregate_id=machine))


async def reported_result(bus: EventBus, task_id: str) -> dict[str, Any] | None:
    """Return the result that some machine has reported, if there is one."""
    record = await bus.find(result_id(task_id))
    return None if record is None else _result_in(record)


async def fetch_results(bus: EventBus, home: Home, task_ids: Iterable[str]) -> None:
    """Bring the results that other machines have reported for some tasks into this home."""
    missing = [task_id for task_id in task_ids if read_json(home.result(task_id)) is None]
    found = await bus.find_many(map(result_id, missing)) if missing else {}
    for task_id in missing:
        record = found.get(result_id(task_id))
        if record is not None and (document := _result_in(record)) is not None:
            path = home.result(task_id)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, document)


async def fetch_former_results(bus: EventBus, home: Home, task_id: str, limit: int = 50) -> None:
    """Bring the result of a task, and those of the tasks that it continues, into this home."""
    for _ in range(limit):
        await fetch_results(bus, home, [task_id])
        before = read_object(home.result(task_id)).get("original_task_id")
        if not isinstance(before, str):
            return
        task_id = before


def _result_in(record: Record) -> dict[str, Any] | None:
    payload = record.envelope.payload
    result = payload.get("result") if isinstance(payload, dict) else None
    return result if isinstance(result, dict) else None


def _ledger_lines(home: Home, task_ids: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the ledger lines of the runs of tasks on this machine, by task."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(home.ledger.glob("*.jsonl"))[-2:]:  # a run may begin in one month and end in the next
        for line in _last_lines(path):
            named = _TASK_ID.search(line)  # before the line is parsed: most are of other tasks
            if named is None or named[1].decode() not in task_ids:
                continue
            try:
                document = json.loads(line)
            except ValueError:
                continue  # a truncated line
            if isinstance(document, dict) and document.get("task_id") in task_ids:
                found.setdefault(document["task_id"], []).append(document)
    return found


def _last_lines(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            start = max(0, file.tell() - _MAX_LEDGER_BYTES)
            file.seek(start)
            lines = file.read().split(b"\n")
    except OSError:
        return []
    return lines[1:] if start else lines
