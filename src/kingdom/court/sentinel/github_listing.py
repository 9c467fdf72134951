"""Which subjects have to be looked at: from the account's notifications, and from lists of repositories.

Both lists are asked for with ``since`` and the validators of the last answer, and every few looks without those: an
answer "unchanged" is not always true. What was looked at is known by its time of update, never by being absent or
read, since other programs and people read the same notifications.

Times are in whole seconds. What is listed within the second of its update may be updated once more in that second, and
then looks as before: it counts as handled only when it is listed later than that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.sentinel.events import parse_epoch
from kingdom.court.sentinel.github_api import SubjectRef, fetch_all_items, issue_ref, notification_ref
from kingdom.court.sentinel.watcher import SourceNotFound, SourceRefused

if TYPE_CHECKING:
    from kingdom.court.sentinel.config import GitHubSection
    from kingdom.court.sentinel.http import Params, SourceClient, SourceResponse

_OVERLAP_SECONDS: Final = 600.0  # seconds that each look goes back before the newest thing known
_FULL_OVERLAP_SECONDS: Final = 86400.0  # the same when everything is read
_HANDLED_TTL_SECONDS: Final = 2 * _FULL_OVERLAP_SECONDS
_SETTLED_SECONDS: Final = 2.0  # seconds after which an update's own second is over, by the server's clock
_UNSETTLED_MARK: Final = "?"  # behind the time of an update whose second was not over when it was listed
_NOTIFICATIONS_PAGE_SIZE: Final = 50  # the most there is
_ISSUES_PAGE_SIZE: Final = 100
_NO_NOTIFICATIONS_ACCESS: Final = (
    "this token may not read notifications: GitHub gives them to classic tokens with the scope notifications or repo "
    "only. Use such a token, or set notifications: false and name repositories under repos"
)


@dataclass(slots=True)
class ListedSubjects:
    """What came of one list."""

    refs: list[SubjectRef]
    cursor: dict[str, Any]
    """The list's own part, for when all refs have been looked at."""
    unread: list[str] = field(default_factory=list)
    """Notifications that were looked at before and are unread still."""


class _SubjectList:
    """What both lists share: a cursor of the newest update, those handled, and validators."""

    def __init__(
        self, client: SourceClient, section: GitHubSection, cursor: Mapping[str, Any], baseline: float, *, full: bool
    ) -> None:
        self._client = client
        self._section = section
        self._baseline = baseline
        self._newest = float(cursor.get("newest") or baseline)
        self._handled: dict[str, str] = dict(cursor.get("handled") or {})
        self._validators: dict[str, dict[str, str]] = dict(cursor.get("validators") or {})
        self._full = full
        self._asked_at: float | None = None  # by the server's clock, if it says

    @property
    def _since(self) -> float:
        return max(self._newest - (_FULL_OVERLAP_SECONDS if self._full else _OVERLAP_SECONDS), self._baseline)

    @property
    def _floor(self) -> float:
        """What happened before to a subject that was never looked at did not concern this list."""
        return max(self._newest - _OVERLAP_SECONDS, self._baseline)

    async def _read(self, path: str, params: Params) -> tuple[list[dict[str, Any]], SourceResponse]:
        """All pages of a list. Validators are for exactly this question, and remembered only when all was read."""
        question = f"{path}?{'&'.join(f'{name}={value}' for name, value in params.items())}"
        validators = {} if self._full else self._validators.get(question, {})
        found, first = await fetch_all_items(self._client, path, params, validators)
        if not first.unchanged:
            self._validators = {question: first.validators} if first.validators else {}
            self._asked_at = _server_time(first)
        return found, first

    def _cursor(self, refs: list[SubjectRef], names: list[str], listed: set[str]) -> dict[str, Any]:
        """Where to go on, with everything in ``names`` handled."""
        newest = max([self._newest, *(parse_epoch(ref.updated_at) for ref in refs)])
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
            "newest": newest,
            "handled": handled,
            # The next question is another one when something is newer, and must be answered when something is open.
            "validators": self._validators if newest == self._newest and not is_open else {},
        }

    def _mark(self, ref: SubjectRef) -> str:
        """What is remembered of an update that was looked at."""
        settled = self._asked_at is None or self._asked_at - parse_epoch(ref.updated_at) >= _SETTLED_SECONDS
        return ref.updated_at if settled else f"{ref.updated_at}{_UNSETTLED_MARK}"

    def _new(self, name: str, ref: SubjectRef) -> bool:
        return self._handled.get(name) != ref.updated_at and parse_epoch(ref.updated_at) >= self._baseline


class NotificationList(_SubjectList):
    """The account's notifications."""

    poll_interval: float = 0.0

    async def list(self) -> ListedSubjects:
        """The threads that were touched since they were last looked at."""
        params: Params = {"all": "true", "since": _iso_time(self._since), "per_page": _NOTIFICATIONS_PAGE_SIZE}
        try:
            threads, first = await self._read("/notifications", params)
        except (SourceNotFound, SourceRefused) as error:
            if isinstance(error, SourceNotFound) or "not accessible" in str(error) or " 403" in str(error):
                raise SourceRefused(f"github: {_NO_NOTIFICATIONS_ACCESS} ({error})") from None
            raise
        self.poll_interval = _parse_seconds(first.headers.get("x-poll-interval"))
        if self._full:  # what is unread from before, too
            more, _ = await fetch_all_items(self._client, "/notifications", {"per_page": _NOTIFICATIONS_PAGE_SIZE})
            threads += more
        found: dict[str, SubjectRef] = {}
        unread: list[str] = []
        for thread in threads:
            ref = notification_ref(thread)
            if ref is None or ref.thread is None or not self._wanted(ref.repo):
                continue
            found[ref.thread] = replace(ref, since=self._floor)
            if thread.get("unread") and not self._new(ref.thread, ref) and ref.thread in self._handled:
                unread.append(ref.thread)
        refs = {name: ref for name, ref in found.items() if self._new(name, ref)}
        cursor = self._cursor(list(refs.values()), list(refs), set(found))
        return ListedSubjects(list(refs.values()), cursor, unread)

    def _wanted(self, repo: str) -> bool:
        only, exclude = self._section.only_repos, self._section.exclude_repos
        return (not only or _matches_any(repo, only)) and not _matches_any(repo, exclude)


class RepositoryList(_SubjectList):
    """The issues and pull requests of one repository."""

    def __init__(
        self,
        repo: str,
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
        """Those that were touched since they were last looked at."""
        params: Params = {
            "state": "all",
            "sort": "updated",
            "direction": "asc",
            "since": _iso_time(self._since),
            "per_page": _ISSUES_PAGE_SIZE,
        }
        issues, _ = await self._read(f"/repos/{self._repo}/issues", params)
        found = {
            str(ref.number): replace(ref, since=self._floor)
            for issue in issues
            if (ref := issue_ref(self._repo, issue)) is not None
        }
        refs = {name: ref for name, ref in found.items() if self._new(name, ref)}
        return ListedSubjects(list(refs.values()), self._cursor(list(refs.values()), list(refs), set(found)))


def _matches_any(repo: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(repo.lower(), pattern.lower()) for pattern in patterns)


def _server_time(answer: SourceResponse) -> float | None:
    try:
        return parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError):
        return None


def _iso_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _parse_seconds(value: str | None) -> float:
    return float(value) if value is not None and value.isdigit() else 0.0
