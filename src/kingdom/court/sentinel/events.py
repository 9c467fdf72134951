"""The sentinel's events: their types and ids, the index of events seen before, and the emitter."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kingdom.base.files import sync_directory
from kingdom.base.times import epoch_seconds
from kingdom.court.activity import missing_entries
from kingdom.court.home import check_name
from kingdom.court.models import DETECTED_BY
from kingdom.court.queues import put_documents
from kingdom.court.trust.text_hash import add_text_hash
from kingdom.journal import JournalError
from kingdom.journal.catalog import EventDetected

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kingdom.court.loop import Services
    from kingdom.court.models import Event, Priority

MAX_TEXT_CHARS: Final = 100_000
_UNSAFE_ID_CHARS: Final = re.compile(r"[^A-Za-z0-9._@+\-]+")
_MAX_ID_CHARS: Final = 180
_DAY_SECONDS: Final = 86400.0
ACTOR: Final = "sentinel"
log = logging.getLogger("kingdom.court.sentinel")


class SourceEventType(NamedTuple):
    type: str
    meaning: str
    priority: Priority = "normal"


SOURCE_EVENT_TYPES: Final = (
    SourceEventType("github.pr.opened", "a pull request was opened, without a request to this account"),
    SourceEventType("github.pr.updated", "new commits were pushed"),
    SourceEventType(
        "github.pr.review_requested", "a review was requested from this account or one of its teams", "high"
    ),
    SourceEventType("github.pr.review_request_removed", "the request for a review was taken back"),
    SourceEventType("github.pr.assigned", "the pull request was assigned to this account"),
    SourceEventType("github.pr.unassigned", "this account was unassigned from the pull request"),
    SourceEventType(
        "github.pr.mentioned", "this account was mentioned in the description, a comment or a review", "high"
    ),
    SourceEventType("github.pr.commented", "a comment, or a review that neither approves nor requests changes"),
    SourceEventType("github.pr.reviewed", "a review that approves or requests changes"),
    SourceEventType(
        "github.pr.check_failed", "a check failed or timed out; polling sees those of our own pull requests"
    ),
    SourceEventType("github.pr.labeled", "a label was added"),
    SourceEventType("github.pr.ready_for_review", "a draft became ready for review"),
    SourceEventType("github.pr.closed", "closed without being merged"),
    SourceEventType("github.pr.merged", "merged"),
    SourceEventType("github.pr.reopened", "reopened"),
    SourceEventType("github.issue.opened", "an issue was opened, without a request to this account"),
    SourceEventType("github.issue.assigned", "the issue was assigned to this account"),
    SourceEventType("github.issue.unassigned", "this account was unassigned from the issue"),
    SourceEventType("github.issue.mentioned", "this account was mentioned in the description or a comment", "high"),
    SourceEventType("github.issue.commented", "a comment"),
    SourceEventType("github.issue.labeled", "a label was added"),
    SourceEventType("github.issue.closed", "closed"),
    SourceEventType("github.issue.reopened", "reopened"),
    SourceEventType(
        "github.notification.*",
        "any other notification, by its subject type: release, discussion, check_suite, commit …",
        "low",
    ),
    SourceEventType("jira.ticket.created", "a ticket was created, not assigned to this account"),
    SourceEventType("jira.ticket.assigned", "the ticket was assigned to this account"),
    SourceEventType("jira.ticket.unassigned", "the ticket was taken from this account; the payload lists the changes"),
    SourceEventType("jira.ticket.closed", "the ticket got a resolution, such as Done; the payload lists the changes"),
    SourceEventType(
        "jira.ticket.updated", "other fields were changed; the payload lists each with its old and new value"
    ),
    SourceEventType("jira.ticket.commented", "a comment"),
    SourceEventType("jira.ticket.mentioned", "this account was mentioned in a comment", "high"),
)
"""All types of events that the sentinel emits, so what generals can subscribe to."""
_BY_TYPE: Final = {kind.type: kind for kind in SOURCE_EVENT_TYPES}


def default_priority(event_type: str) -> Priority:
    """Return the priority of a type; a subscription may override it."""
    kind = _BY_TYPE.get(event_type) or _BY_TYPE.get(event_type.rpartition(".")[0] + ".*")
    return kind.priority if kind else "normal"


def clean_text(value: Any, most: int = MAX_TEXT_CHARS) -> str:
    """Return a text that every queue can store: valid UTF-8, no NUL, of limited length; "" if it is no text."""
    if not isinstance(value, str):
        return ""
    text = value.encode("utf-8", "replace").decode().replace("\0", "")
    return text if len(text) <= most else f"{text[:most]}\n[… {len(text) - most} characters left out …]"


def make_event_id(source: str, *parts: object) -> str:
    """Make an event id that is a valid file name. The end of a long id is replaced by a hash."""
    name = "-".join(_UNSAFE_ID_CHARS.sub("_", str(part)) for part in parts)
    if len(name) > _MAX_ID_CHARS:
        name = f"{name[: _MAX_ID_CHARS - 33]}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    return f"evt-{source}-{name}"


def former_id(event: Event) -> str | None:
    """Return the id that this event had while ids contained the names of repositories and the keys of tickets.

    The seen index keeps ids for 30 days, so an upgraded court still meets the former ones.
    """
    payload = event.payload
    match event.source:
        case "github" if event.repo and "repo_id" in payload:
            prefix = make_event_id("github", payload["repo_id"], payload.get("number"), "")
            place: tuple[object, ...] = (event.repo.lower().replace("/", "."), payload.get("number"))
        case "jira" if "issue_id" in payload:
            prefix, place = make_event_id("jira", payload["issue_id"], ""), (payload.get("key"),)
        case _:
            return None
    return make_event_id(event.source, *place, event.id.removeprefix(prefix)) if event.id.startswith(prefix) else None


def parse_epoch(value: Any) -> float:
    """Parse a time as sources write it to seconds since the epoch; 0 if it is no time.

    Examples: 2026-02-07T10:00:00Z, 2026-02-07T19:00:00.000+0900.
    """
    return (epoch_seconds(value.strip()) or 0.0) if isinstance(value, str) else 0.0


class SeenIndex:
    """The ids of emitted events: an empty file for each in ``state/sentinel/seen/``, and a copy in memory.

    The chamberlain removes files that were not renewed for a month. As long as a source still lists an event, its file
    is renewed, because otherwise the event would count as new after that month.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._renewed: dict[str, float] = {}  # when this process wrote or renewed each id; 0: found on disk
        self._loaded_at: float | None = None

    def __len__(self) -> int:
        return len(self._renewed)

    def knows(self, event_id: str, now: float) -> bool:
        """Return whether an event was emitted before, by this process or another one, and renew its file."""
        self._load(now)
        renewed = self._renewed.get(event_id)
        if renewed is None:
            if not (self._folder / check_name("event", event_id)).exists():
                return False
            renewed = 0.0
        if abs(now - renewed) > _DAY_SECONDS:
            with contextlib.suppress(FileNotFoundError):
                os.utime(self._folder / event_id, (now, now))
            self._renewed[event_id] = now
        return True

    def add(self, event_ids: Iterable[str], now: float) -> None:
        """Store ids durably."""
        self._load(now)
        for event_id in event_ids:
            path = self._folder / check_name("event", event_id)
            path.touch()
            os.utime(path, (now, now))
            self._renewed[event_id] = now
        sync_directory(self._folder)

    def _load(self, now: float) -> None:
        """List the folder, and again once a day: ids that the chamberlain removed can be forgotten."""
        if self._loaded_at is not None and abs(now - self._loaded_at) < _DAY_SECONDS:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with os.scandir(self._folder) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".")]
        before = self._renewed
        self._renewed = {name: before.get(name, 0.0) for name in names}
        self._loaded_at = now


class EventEmitter:
    """Puts events into the queue, each once, and then marks them as seen.

    In this order a kill at any point neither loses nor repeats an event. Each payload is stored with a hash of itself.
    """

    def __init__(self, services: Services, seen: SeenIndex) -> None:
        self._services = services
        self._seen = seen

    async def emit(self, events: Iterable[Event]) -> list[str]:
        """Put new events into the queue durably, and return the ids of those that were not there before."""
        now = self._services.clock()
        fresh: dict[str, Event] = {}
        renamed: list[str] = []
        for event in events:
            if event.id in fresh or self._seen.knows(event.id, now):
                continue
            former = former_id(event)
            if former is not None and self._seen.knows(former, now):
                renamed.append(event.id)
            else:
                fresh[event.id] = event
        if renamed:
            self._seen.add(renamed, now)
        if not fresh:
            return []
        frozen = [
            event.model_copy(update={"payload": add_text_hash(event.payload), DETECTED_BY: ACTOR})
            for event in fresh.values()
        ]
        accepted = await put_documents(self._services.bus, frozen)
        self._write_down(fresh, set(accepted))
        self._seen.add(fresh, now)
        for event_id in accepted:
            log.info("[EVENT] Emitted: %s", event_id)
        return accepted

    def _write_down(self, fresh: dict[str, Event], accepted: set[str]) -> None:
        """Write a journal line for each event.

        Events that were in the queue already get one if theirs is missing: the process that put them there was killed
        before it could write it.
        """
        lines = {event.id: EventDetected(event.id, event.source, event.type) for event in fresh.values()}
        known = [(line.spec.name, line.to_dict()) for name, line in lines.items() if name not in accepted]
        services = self._services
        missing = {str(data["event_id"]) for _, data in missing_entries(services.home.journal, services.clock(), known)}
        try:
            for name, line in lines.items():
                if name in accepted or name in missing:
                    self._services.journal.emit(line, ACTOR)
        except JournalError as error:  # the events are in the queue, so processing continues
            log.warning("events are in the queue, but could not be written to the journal: %s", error)
