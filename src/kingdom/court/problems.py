"""Problems of a court that need a person: failed tasks, invalid documents, dead letters, its configuration."""

from __future__ import annotations

import asyncio
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from kingdom.base.files import read_object
from kingdom.court.activity import RecentJournal
from kingdom.court.models import timestamp
from kingdom.court.packages.installed import load_generals
from kingdom.court.pull_requests import NOT_LANDED
from kingdom.court.queues import (
    EVENTS,
    MESSAGES,
    STATES,
    TASKS,
    invalid_files,
    repair_hint,
    uses_files,
)
from kingdom.court.trust.config import TRUST_FILE as TRUST
from kingdom.journal import JournalError
from kingdom.journal.catalog import EventDiscarded, EventDispatched, TaskFailed, TaskNotLanded

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.court.home import Home
    from kingdom.court.loop import Services

_MAX_PROBLEMS: Final = 200  # of each kind; the rest is counted
_MAX_LETTERS: Final = 20  # of a stream that are read; the rest is counted
_MAX_WAITING_TASKS: Final = 1000  # that are checked for a missing general
_MIN_FREE_BYTES: Final = 1 << 20  # on the disk of the home
_FAILED: Final = "failed: "
_RETRY_EVENT: Final = re.compile(r"-retry-(task-\d{8}-\d{3,})-\d+$")
_RETRY_MARKER: Final = b"-retry-task-"

# The state classes are also response models of the API. There, fields have camelCase names.
API_CONFIG: Final = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class CourtProblem:
    """A problem that needs attention."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    what: Annotated[str, Field(examples=["queue/events/invalid/evt-github-1.json"])]
    why: str
    count: Annotated[int, Field(description="How many it stands for; more than 1 where a list was cut.")] = 1
    at: Annotated[str | None, Field(description="When it happened, where that is known.")] = None

    @property
    def item_id(self) -> str:
        """The id by which people acknowledge it."""
        return f"task:{self.what}" if self.is_failed_task else f"problem:{self.what}"

    @property
    def is_failed_task(self) -> bool:
        return self.what.startswith("task-") and self.why.startswith(_FAILED)


def home_problems(home: Home) -> list[CourtProblem]:
    found = [CourtProblem("config", problem) for problem in load_generals(home).problems]
    free = shutil.disk_usage(home.root).free
    if free < _MIN_FREE_BYTES:
        found.append(CourtProblem("disk", f"only {free:,} bytes are free on the disk of the home: free some space"))
    return found


async def queue_problems(services: Services) -> list[CourtProblem]:
    """Return tasks without a general, invalid files and dead letters."""
    generals = await asyncio.to_thread(load_generals, services.home)
    known = {*generals.by_name, *generals.broken}
    waiting = await services.bus.peek(TASKS, limit=_MAX_WAITING_TASKS)
    strays = [record.envelope for record in waiting if record.envelope.type not in known]
    waits = [CourtProblem(one.event_id, f"waits: {one.type} is not installed") for one in strays]
    aside = [*await asyncio.to_thread(lambda: [*invalid_files(services.home)])]
    invalid = [CourtProblem(path, f"{why}: {repair_hint(path.split('/')[1], path)}") for path, why in aside]
    found = _cut(waits, "tasks", "more tasks wait") + _cut(invalid, "queue/*/invalid/", "more documents are invalid")
    depths = await services.bus.depth()
    for stream in (EVENTS, TASKS, MESSAGES):
        known_paths = {path for path, _ in aside if path.startswith(f"queue/{stream}/")}
        for letter in await services.bus.dead(stream, _MAX_LETTERS):
            path = letter.event_id
            if uses_files(services.bus):
                path = f"queue/{stream}/{STATES[stream]['DEAD']}/{letter.event_id}.json"
            if path not in known_paths:
                known_paths.add(path)
                found.append(CourtProblem(path, letter.error_message or letter.error_code or "no reason given"))
        if (more := depths[stream].dead - len(known_paths)) > 0:
            found.append(CourtProblem(stream, f"{more} more dead letters", more))
    return found


def failure_journal(path: Path) -> RecentJournal:
    """Return a reader of the journal lines that :func:`recent_failures` needs."""
    failures = (TaskFailed.spec.name, TaskNotLanded.spec.name, EventDiscarded.spec.name)
    markers = (*(f'"{name}"'.encode() for name in failures), _RETRY_MARKER)
    return RecentJournal(path, (*failures, EventDispatched.spec.name), markers)


def recent_failures(home: Home, journal: RecentJournal, now: float) -> list[CourtProblem]:
    """Return the tasks that failed in the last 24 hours or were not landed, and the events that were refused.

    The newest come first. A task that was retried is left out: what matters is the new one.
    """
    try:
        recent = journal.read(now)
    except JournalError as error:
        return [CourtProblem("journal", str(error))]
    dispatched = [entry for entry in recent if entry.type == EventDispatched.spec.name]
    retried = {found[1] for entry in dispatched if (found := _RETRY_EVENT.search(str(entry.fields.get("event_id"))))}
    failed = [
        CourtProblem(task_id, f"{_FAILED}{entry.fields.get('error')}", at=timestamp(entry.at.timestamp()))
        for entry in reversed(recent)
        if entry.type == TaskFailed.spec.name and (task_id := str(entry.fields.get("task_id"))) not in retried
    ]
    unlanded = {
        str(entry.fields.get("task_id")): entry for entry in recent if entry.type == TaskNotLanded.spec.name
    }  # of several lines of a task, written by generals that were killed, the last one counts
    waiting = [
        CourtProblem(
            task_id,
            f"not landed: {entry.fields.get('reason')}: kingdom task land {task_id}",
            at=timestamp(entry.at.timestamp()),
        )
        for task_id, entry in reversed(unlanded.items())
        if task_id not in retried and read_object(home.result(task_id)).get(NOT_LANDED)
    ]
    refused = [
        CourtProblem(
            str(entry.fields.get("event_id")),
            f"refused: {entry.fields.get('reason')}",
            at=timestamp(entry.at.timestamp()),
        )
        for entry in reversed(recent)
        if entry.type == EventDiscarded.spec.name and TRUST in str(entry.fields.get("reason"))
    ]
    tasks = _cut(failed, "tasks", "more tasks failed") + _cut(waiting, "tasks", "more tasks were not landed")
    return tasks + _cut(refused, "events", "more events were refused")


def _cut(problems: list[CourtProblem], what: str, words: str) -> list[CourtProblem]:
    """Keep the first ones, and one that counts the rest."""
    more = len(problems) - _MAX_PROBLEMS
    return [*problems[:_MAX_PROBLEMS], *([CourtProblem(what, f"{more} {words}", more)] if more > 0 else [])]
