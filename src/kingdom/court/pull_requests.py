"""Pull requests that tasks opened, so that what people say about one goes on with the same work.

There is one file for each, ``state/pull-requests/<hash of its address>.json``, and another with the same content under
the hash of the issue or ticket for which it was opened. The king writes them when it reads the result of the task, and
so does ``kingdom task land``. An event about the pull request, or about its issue, is then given to the general that
opened it, as a task with a ``follow_up``: the same worktree and branch, and the conversation of the last task.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import read_object, write_json
from kingdom.court.models import FOLLOW_UP_FIELD
from kingdom.court.request_threads import REQUEST_EVENTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kingdom.court.home import Home

_MARK: Final = "<!-- kingdom {} -->"
_MARKED: Final = re.compile(_MARK.format(r"task-\d{8}-\d{3,}(?: answered| stopped)?"))
PULL_REQUEST_EVENTS: Final = "github.pr."
ISSUE_EVENTS: Final = "github.issue."
TICKET_EVENTS: Final = "jira.ticket."
GITHUB_EVENTS: Final = (ISSUE_EVENTS, PULL_REQUEST_EVENTS)
CHECK_FAILED: Final = "github.pr.check_failed"
PULL_REQUEST_ENDS: Final = ("github.pr.merged", "github.pr.closed")
NOT_LANDED: Final = "not_landed"
"""The field of a result that says why its commits are not at their remote, until ``kingdom task land`` brings them."""
_OPEN_STATES: Final = (None, "open")
_NAMES: Final = ("url", "branch", "general", "task_id", "work_id")
_ADDRESS: Final = re.compile(r"https?://[^/]+/([^/]+/[^/]+)/pull/(\d+)\Z")


def post_mark(task_id: str) -> str:
    """Return the invisible mark of what is posted for a task. It is found by it, and is not heard as an event."""
    return _MARK.format(task_id)


def answered_mark(task_id: str) -> str:
    """Return the mark of the note that a task goes on with an answer."""
    return _MARK.format(f"{task_id} answered")


def stopped_mark(task_id: str) -> str:
    """Return the mark of the note that a person has cancelled a task."""
    return _MARK.format(f"{task_id} stopped")


def is_marked(text: str) -> bool:
    """Whether a text was posted for a task."""
    return _MARKED.search(text) is not None


@dataclass(frozen=True, slots=True)
class OpenedPullRequest:
    """A pull request that a task opened."""

    url: str
    branch: str
    general: str
    task_id: str  # the last task that worked on it
    work_id: str  # the task whose workplace all of them use
    checks: int = 0  # how many tasks in a row were about a failed check, and nobody said anything
    opened_for: str | None = None  # the subject of its issue, ticket or thread

    @classmethod
    def from_document(cls, document: Any) -> OpenedPullRequest | None:
        """Return the pull request of a JSON object, or None when it describes none."""
        if not isinstance(document, dict):
            return None
        values = {name: value for name in _NAMES if isinstance(value := document.get(name), str) and value}
        if len(values) != len(_NAMES):
            return None
        checks, subject = document.get("checks"), document.get("opened_for")
        return cls(
            **values,
            checks=checks if type(checks) is int else 0,
            opened_for=subject if isinstance(subject, str) and subject else None,
        )

    @property
    def number(self) -> int:
        """Its number; 0 when its address names none."""
        found = _ADDRESS.match(self.url)
        return 0 if found is None else int(found[2])

    @property
    def repo(self) -> str | None:
        """The repository, as ``owner/name``."""
        found = _ADDRESS.match(self.url)
        return None if found is None else found[1].lower()

    @property
    def subject(self) -> str | None:
        """The subject of events about it, as :func:`kingdom.court.models.subject_of` returns it."""
        return None if self.repo is None else f"{self.repo}#{self.number}"

    def document(self) -> dict[str, Any]:
        """Return the JSON form: of its file, and of the field ``follow_up``."""
        return asdict(self)

    def after(self, event_type: str, before: OpenedPullRequest | None) -> OpenedPullRequest:
        """Return it after a task about an event: ``before`` is what was recorded until then."""
        if before is None:
            return replace(self, checks=0)
        checks = before.checks + 1 if event_type == CHECK_FAILED else 0
        return replace(self, checks=checks, opened_for=self.opened_for or before.opened_for)


def is_about_work(event_type: Any) -> bool:
    """Whether events of a type are what a pull request is opened for: about an issue or a ticket, or a request."""
    return isinstance(event_type, str) and event_type.startswith((ISSUE_EVENTS, TICKET_EVENTS, *REQUEST_EVENTS))


def opened_by(result: Mapping[str, Any], general: str) -> list[OpenedPullRequest]:
    """Return the pull requests that the result of a task of ``general`` names.

    Only the court writes ``pull_requests``, never a soldier.
    """
    named = result.get("pull_requests")
    more = {"general": general, "task_id": result.get("task_id"), "work_id": result.get("work_id")}
    documents = [{**one, **more} for one in named if isinstance(one, dict)] if isinstance(named, list) else []
    return [found for one in documents if (found := OpenedPullRequest.from_document(one)) is not None]


def pull_request_of(event_type: str, payload: Mapping[str, Any]) -> str | None:
    """Return the address of the pull request that an event is about, if it is open or this is its end; or None."""
    url = payload.get("url")
    open_until_now = payload.get("state") in _OPEN_STATES or event_type in PULL_REQUEST_ENDS
    return url if event_type.startswith(PULL_REQUEST_EVENTS) and open_until_now and isinstance(url, str) else None


def topic_of(task: Mapping[str, Any], subject: str | None) -> str | None:
    """Return the subject of what a task was first asked for: its own, or that for which its pull request was opened."""
    opened = OpenedPullRequest.from_document(task.get(FOLLOW_UP_FIELD))
    return subject if opened is None else opened.opened_for or subject


class OpenedPullRequests:
    """The pull requests that tasks of a court opened."""

    def __init__(self, home: Home) -> None:
        self._folder = home.state / "pull-requests"

    def files(self, opened: OpenedPullRequest) -> list[Path]:
        """Return the files of a pull request."""
        return [self._path(key) for key in (opened.url, opened.opened_for) if key is not None]

    def find(self, url: str | None) -> OpenedPullRequest | None:
        """Return the pull request with this address, if a task opened it."""
        return None if url is None else OpenedPullRequest.from_document(read_object(self._path(url)))

    def find_for(self, subject: str | None) -> OpenedPullRequest | None:
        """Return the last pull request that a task opened for an issue or ticket. It may have ended since."""
        found = self.find(subject)
        return None if found is None or found.opened_for != subject else self.find(found.url)

    def record(self, opened: OpenedPullRequest) -> None:
        """Record a pull request, or the last task that worked on it. May be repeated."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in self.files(opened):
            write_json(path, opened.document())

    def _path(self, key: str) -> Path:
        return self._folder / f"{hashlib.sha256(key.lower().encode()).hexdigest()[:32]}.json"
