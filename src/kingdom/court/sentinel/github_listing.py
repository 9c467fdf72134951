"""Lists the subjects to read: from the account's notifications, and from the issue lists of repositories.

Both lists are requested with ``since`` and the validators of the last response, and every few polls without validators,
because the answer "unchanged" is not always true. A subject counts as handled by its time of update, never because it
is absent or marked as read: other programs and people read the same notifications.

Times are in whole seconds. A subject that is listed in the second of its update may be updated again within that second
and would then look unchanged. So it counts as handled only if it is listed after that second.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.sentinel.events import parse_epoch
from kingdom.court.sentinel.github_api import (
    Repository,
    SubjectRef,
    fetch_all_items,
    issue_ref,
    list_items,
    notification_ref,
)
from kingdom.court.sentinel.github_unread import withheld_organizations
from kingdom.court.sentinel.watcher import SourceElsewhere, SourceNotFound, SourceRefused, SourceUnavailable

if TYPE_CHECKING:
    from kingdom.court.sentinel.config import GitHubSection
    from kingdom.court.sentinel.http import Params, SourceClient, SourceResponse

_OVERLAP_SECONDS: Final = 600.0  # each poll starts this long before the newest known update
_FULL_OVERLAP_SECONDS: Final = 86400.0  # the same for a full read
_HANDLED_TTL_SECONDS: Final = 2 * _FULL_OVERLAP_SECONDS
_SETTLED_SECONDS: Final = 2.0  # after this time, by the server's clock, the second of an update is over
_UNSETTLED_MARK: Final = "?"  # appended to the time of an update whose second was not over when it was listed
_NOTIFICATIONS_PAGE_SIZE: Final = 50  # GitHub's maximum
_ISSUES_PAGE_SIZE: Final = 100
_MAX_PAGES: Final = 200
_SECOND: Final = 1.0  # times are in whole seconds, and the list may begin after the time that is asked for
_Issues = list[dict[str, Any]]
_NO_NOTIFICATIONS_ACCESS: Final = (
    "this token may not read notifications: GitHub allows that only to classic tokens with the scope notifications or "
    "repo. Use such a token, or set notifications: false and list repositories under repos"
)


@dataclass(slots=True)
class ListedSubjects:
    """The result of reading a list."""

    refs: list[SubjectRef]
    cursor: dict[str, Any]
    """The list's part of the cursor, valid once all refs were read."""
    unread: list[str] = field(default_factory=list)
    """Notifications that were handled before and are still unread."""


class _SubjectList:
    """The common part of both lists: a cursor with the newest update, the handled subjects, and validators."""

    def __init__(
        self, client: SourceClient, section: GitHubSection, cursor: Mapping[str, Any], baseline: float, *, full: bool
    ) -> None:
        self._client = client
        self._section = section
        self._baseline = baseline
        self._newest = float(cursor.get("newest") or baseline)
        self._handled: dict[str, str] = dict(cursor.get("handled") or {})
        self._validators: dict[str, dict[str, str]] = dict(cursor.get("validators") or {})
        self._withheld: list[str] = list(cursor.get("withheld") or [])
        self._full = full
        self._asked_at: float | None = None  # by the server's clock, if known

    @property
    def _since(self) -> float:
        return max(self._newest - (_FULL_OVERLAP_SECONDS if self._full else _OVERLAP_SECONDS), self._baseline)

    @property
    def _floor(self) -> float:
        """For a subject that was never read, ignore what happened before this time."""
        return max(self._newest - _OVERLAP_SECONDS, self._baseline)

    async def _read_first(self, path: str, params: Params) -> tuple[list[dict[str, Any]], SourceResponse]:
        """Read the first page of a list; no items if it is unchanged. Validators hold for exactly this request."""
        question = f"{path}?{'&'.join(f'{name}={value}' for name, value in params.items())}"
        validators = {} if self._full else self._validators.get(question, {})
        first = await self._client.get(path, params, validators)
        if first.unchanged:
            return [], first
        self._validators = {question: first.validators} if first.validators else {}
        self._asked_at = _server_time(first)
        self._withheld = withheld_organizations(first.headers)
        return list_items(first), first

    def _cursor(self, refs: list[SubjectRef], names: list[str], listed: set[str]) -> dict[str, Any]:
        """Return the next cursor, with everything in ``names`` handled."""
        # What is withheld may appear later, with its old time: until then each poll starts where this one did.
        newest = self._newest if self._withheld else max([self._newest, *(parse_epoch(r.updated_at) for r in refs)])
        marks = {name: self._mark(ref) for name, ref in zip(names, refs, strict=True)}
        is_open = any(mark.endswith(_UNSETTLED_MARK) for mark in marks.values())
        handled = {**self._handled, **marks}
        if self._full:
            kept = newest - _HANDLED_TTL_SECONDS
            handled = {
                n: at
                for n, at in handled.items()
                if n in listed or parse_epoch(at.removesuffix(_UNSETTLED_MARK)) > kept
            }
        return {
            **({"withheld": self._withheld} if self._withheld else {}),
            "newest": newest,
            "handled": handled,
            # A newer update changes the next request, and an unsettled one must be read again: no validators then.
            "validators": self._validators if newest == self._newest and not is_open else {},
        }

    def _mark(self, ref: SubjectRef) -> str:
        """Return what the cursor stores for a handled update."""
        settled = self._asked_at is None or self._asked_at - parse_epoch(ref.updated_at) >= _SETTLED_SECONDS
        return ref.updated_at if settled else f"{ref.updated_at}{_UNSETTLED_MARK}"

    def _new(self, name: str, ref: SubjectRef) -> bool:
        return self._handled.get(name) != ref.updated_at and parse_epoch(ref.updated_at) >= self._baseline


class NotificationList(_SubjectList):
    """Lists the account's notifications."""

    poll_interval: float = 0.0

    async def list(self, waiting: Container[str | None] = ()) -> ListedSubjects:
        """Return the notifications that were updated since they were handled.

        Those in ``waiting`` are not to be marked as read: their subjects could not be read yet.
        """
        params: Params = {"all": "true", "since": _iso_time(self._since), "per_page": _NOTIFICATIONS_PAGE_SIZE}
        try:
            threads, first = await self._read_first("/notifications", params)
            if first.next is not None:
                threads = [thread async for page in self._client.pages(first) for thread in list_items(page)]
        except (SourceNotFound, SourceRefused) as error:
            if not isinstance(error, SourceElsewhere) and _is_no_access(error):
                raise SourceRefused(f"github: {_NO_NOTIFICATIONS_ACCESS} ({error})") from None
            raise
        self.poll_interval = _parse_seconds(first.headers.get("x-poll-interval"))
        if self._full:  # older unread notifications, too
            threads += await fetch_all_items(self._client, "/notifications", {"per_page": _NOTIFICATIONS_PAGE_SIZE})
        found: dict[str, SubjectRef] = {}
        unread: set[str] = set()
        for thread in threads:
            ref = notification_ref(thread)
            if ref is None or ref.thread is None or not self._section.wants_notifications_of(ref.repo):
                continue
            # A notification that appears late is about something that happened before it.
            since = max(min(self._floor, parse_epoch(ref.updated_at) - _OVERLAP_SECONDS), self._baseline)
            found[ref.thread] = replace(ref, since=since)
            is_handled = ref.thread in self._handled and not self._new(ref.thread, ref)
            if thread.get("unread") and is_handled and ref.thread not in waiting:
                unread.add(ref.thread)
        refs = {name: ref for name, ref in found.items() if self._new(name, ref)}
        cursor = self._cursor(list(refs.values()), list(refs), set(found))
        return ListedSubjects(list(refs.values()), cursor, sorted(unread))


class RepositoryList(_SubjectList):
    """Lists the issues and pull requests of one repository."""

    def __init__(
        self,
        repo: Repository,
        client: SourceClient,
        section: GitHubSection,
        cursor: Mapping[str, Any],
        baseline: float,
        *,
        full: bool,
    ) -> None:
        super().__init__(client, section, cursor, baseline, full=full)
        self._repo = repo

    async def list(self) -> ListedSubjects:
        """Return the subjects that were updated since they were handled."""
        found = {
            str(ref.number): replace(ref, since=self._floor)
            for issue in await self._read_issues()
            if (ref := issue_ref(self._repo, issue)) is not None
        }
        refs = {name: ref for name, ref in found.items() if self._new(name, ref)}
        return ListedSubjects(list(refs.values()), self._cursor(list(refs.values()), list(refs), set(found)))

    async def _read_issues(self) -> _Issues:
        """Read the list in the order of updates, each page from the time at which the one before it ends.

        Page numbers would skip an issue: when one of page 1 is updated, it moves to the end, all others move up by one,
        and the first of page 2 becomes the last of page 1. So the next page is requested by number only if a whole page
        was updated within the same second.
        """
        since = self._since
        found, answer = await self._read_first(self._path, self._params(since))
        for _ in range(_MAX_PAGES):
            following = answer.next
            if following is None:
                return found
            last = max((parse_epoch(issue.get("updated_at")) for issue in found), default=0.0) - _SECOND
            if last > since:
                since = last
                answer = await self._client.get(self._path, self._params(since))
            else:
                answer = await self._client.get(following)
            found += list_items(answer)
        raise SourceUnavailable(f"github: the list of {self._repo.name} has over {_MAX_PAGES} pages")

    @property
    def _path(self) -> str:
        return f"/repos/{self._repo.name}/issues"

    def _params(self, since: float) -> Params:
        return {
            "state": "all",
            "sort": "updated",
            "direction": "asc",
            "since": _iso_time(since),
            "per_page": _ISSUES_PAGE_SIZE,
        }


def _is_no_access(error: Exception) -> bool:
    return isinstance(error, SourceNotFound) or "not accessible" in str(error) or " 403" in str(error)


def _server_time(answer: SourceResponse) -> float | None:
    try:
        return parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError):
        return None


def _iso_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _parse_seconds(value: str | None) -> float:
    return float(value) if value is not None and value.isdigit() else 0.0
