"""Requests that people make in Slack, and the threads in which they do: what is said later goes on with the same work.

A request is a mention of the app or a direct message. Its subject is its thread, so that one task at a time works for a
thread. There is a file for each thread, ``state/request-threads/<hash of its subject>.json``, with the last task. The
king writes it when it reads the result. The next request in the thread then becomes a task with a ``follow_up``: the
same worktree, and the conversation of the last task. Once there is a pull request, that is what the tasks go on with
(:mod:`.pull_requests`).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kingdom.base.files import read_object, write_json
from kingdom.court.patterns import type_matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from kingdom.court.home import Home
    from kingdom.court.packages.manifest import Manifest

MENTION: Final = "slack.mention.received"
DIRECT_MESSAGE: Final = "slack.dm.received"
REQUEST_EVENTS: Final = (MENTION, DIRECT_MESSAGE)
THREAD_FIELD: Final = "thread"
"""The field of a payload with what was said in the thread before its first request."""
SHIPPED_GENERAL: Final = "gen-slack"
"""The general of the package that takes requests."""
_SUBJECT: Final = re.compile(r"slack-([CDG][A-Z0-9]+)-(\d+\.\d+)\Z")


class SlackThread(NamedTuple):
    """A thread in Slack."""

    channel: str
    ts: str  # of its first post

    @property
    def subject(self) -> str:
        """The subject of the requests in it."""
        return f"slack-{self.channel}-{self.ts}"

    @classmethod
    def of_subject(cls, subject: str) -> SlackThread | None:
        """Return the thread with a subject, or None when it names something else."""
        found = _SUBJECT.match(subject)
        return None if found is None else cls(found[1], found[2])


def is_request(event_type: Any) -> bool:
    """Whether events of a type are requests that people make in Slack."""
    return event_type in REQUEST_EVENTS


def untaken_requests(manifests: Iterable[Manifest]) -> list[str]:
    """Return the types of requests that no general takes."""
    patterns = [one.type for manifest in manifests for one in manifest.subscribes]
    return [event for event in REQUEST_EVENTS if not any(type_matches(pattern, event) for pattern in patterns)]


def untaken_warning(untaken: Sequence[str]) -> str:
    """Describe the types of requests that no general takes."""
    return f"no general takes {' and '.join(untaken)}: such requests from Slack are dropped"


@dataclass(frozen=True, slots=True)
class RequestThread:
    """The last task of a thread."""

    subject: str
    general: str
    task_id: str
    work_id: str  # the task whose workplace all of them use
    repo: str | None = None

    @classmethod
    def of_result(cls, subject: str, general: str, result: Mapping[str, Any]) -> RequestThread | None:
        """Return the thread of a request whose task has ended; None when no general worked on it."""
        task_id, work_id, repo = (result.get(name) for name in ("task_id", "work_id", "repo"))
        if not (isinstance(task_id, str) and isinstance(work_id, str) and work_id):
            return None
        return cls(subject, general, task_id, work_id, repo if isinstance(repo, str) else None)

    def document(self) -> dict[str, Any]:
        """Return the JSON form: of its file, and of the field ``follow_up``."""
        return asdict(self)

    def is_about(self, repo: str | None) -> bool:
        """Whether a request goes on with it: one that names another repository does not."""
        return repo is None or self.repo is None or repo.lower() == self.repo.lower()


class RequestThreads:
    """The threads in which tasks of a court have ended."""

    def __init__(self, home: Home) -> None:
        self._folder = home.state / "request-threads"

    def find(self, subject: str) -> RequestThread | None:
        """Return the thread with a subject."""
        document = read_object(self._path(subject))
        if document.get("subject") != subject or not isinstance(general := document.get("general"), str):
            return None
        return RequestThread.of_result(subject, general, document)

    def record(self, thread: RequestThread) -> None:
        """Record the last task of a thread. May be repeated."""
        self._folder.mkdir(parents=True, exist_ok=True)
        write_json(self.file(thread), thread.document())

    def file(self, thread: RequestThread) -> Path:
        """Return the file of a thread."""
        return self._path(thread.subject)

    def _path(self, subject: str) -> Path:
        return self._folder / f"{hashlib.sha256(subject.encode()).hexdigest()[:32]}.json"
