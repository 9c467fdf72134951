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

from kingdom.court.sentinel.errors import Missing, Refused
from kingdom.court.sentinel.github.api import all_items
from kingdom.court.sentinel.github.subject import Ref, ref_of_issue, ref_of_notification
from kingdom.court.sentinel.texts import instant

if TYPE_CHECKING:
    from kingdom.court.sentinel.config import GitHubSection
    from kingdom.court.sentinel.http import Answer, Client, Params

_OVERLAP: Final = 600.0  # seconds that each look goes back before the newest thing known
_FULL_OVERLAP: Final = 86400.0  # the same when everything is read
_KEPT: Final = 2 * _FULL_OVERLAP
_SETTLED: Final = 2.0  # seconds after which an update's own second is over, by the server's clock
_OPEN: Final = "?"  # behind the time of an update whose second was not over when it was listed
_NOTIFICATIONS_PAGE: Final = 50  # the most there is
_ISSUES_PAGE: Final = 100
_MAY_NOT: Final = (
    "this token may not read notifications: GitHub gives them to classic tokens with the scope notifications or repo "
    "only. Use such a token, or set notifications: false and name repositories under repos"
)


@dataclass(slots=True)
class Listed:
    """What came of one list."""

    refs: list[Ref]
    cursor: dict[str, Any]
    """The list's own part, for when all refs have been looked at."""
    unread: list[str] = field(default_factory=list)
    """Notifications that were looked at before and are unread still."""


class _List:
    """What both lists share: a cursor of the newest update, those handled, and validators."""

    def __init__(
        self, client: Client, section: GitHubSection, cursor: Mapping[str, Any], baseline: float, *, full: bool
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
        return max(self._newest - (_FULL_OVERLAP if self._full else _OVERLAP), self._baseline)

    @property
    def _floor(self) -> float:
        """What happened before to a subject that was never looked at did not concern this list."""
        return max(self._newest - _OVERLAP, self._baseline)

    async def _read(self, path: str, params: Params) -> tuple[list[dict[str, Any]], Answer]:
        """All pages of a list. Validators are for exactly this question, and remembered only when all was read."""
        question = f"{path}?{'&'.join(f'{name}={value}' for name, value in params.items())}"
        validators = {} if self._full else self._validators.get(question, {})
        found, first = await all_items(self._client, path, params, validators)
        if not first.unchanged:
            self._validators = {question: first.validators} if first.validators else {}
            self._asked_at = _server_time(first)
        return found, first

    def _cursor(self, refs: list[Ref], names: list[str], listed: set[str]) -> dict[str, Any]:
        """Where to go on, with everything in ``names`` handled."""
        newest = max([self._newest, *(instant(ref.updated_at) for ref in refs)])
        marks = {name: self._mark(ref) for name, ref in zip(names, refs, strict=True)}
        is_open = any(mark.endswith(_OPEN) for mark in marks.values())
        handled = {**self._handled, **marks}
        if self._full:
            kept = newest - _KEPT
            handled = {n: at for n, at in handled.items() if n in listed or instant(at.removesuffix(_OPEN)) > kept}
        return {
            "newest": newest,
            "handled": handled,
            # The next question is another one when something is newer, and must be answered when something is open.
            "validators": self._validators if newest == self._newest and not is_open else {},
        }

    def _mark(self, ref: Ref) -> str:
        """What is remembered of an update that was looked at."""
        settled = self._asked_at is None or self._asked_at - instant(ref.updated_at) >= _SETTLED
        return ref.updated_at if settled else f"{ref.updated_at}{_OPEN}"

    def _new(self, name: str, ref: Ref) -> bool:
        return self._handled.get(name) != ref.updated_at and instant(ref.updated_at) >= self._baseline


class Inbox(_List):
    """The account's notifications."""

    poll_interval: float = 0.0

    async def list(self) -> Listed:
        """The threads that were touched since they were last looked at."""
        params: Params = {"all": "true", "since": _iso(self._since), "per_page": _NOTIFICATIONS_PAGE}
        try:
            threads, first = await self._read("/notifications", params)
        except (Missing, Refused) as error:
            if isinstance(error, Missing) or "not accessible" in str(error) or " 403" in str(error):
                raise Refused(f"github: {_MAY_NOT} ({error})") from None
            raise
        self.poll_interval = _seconds(first.headers.get("x-poll-interval"))
        if self._full:  # what is unread from before, too
            more, _ = await all_items(self._client, "/notifications", {"per_page": _NOTIFICATIONS_PAGE})
            threads += more
        found: dict[str, Ref] = {}
        unread: list[str] = []
        for thread in threads:
            ref = ref_of_notification(thread)
            if ref is None or ref.thread is None or not self._wanted(ref.repo):
                continue
            found[ref.thread] = replace(ref, since=self._floor)
            if thread.get("unread") and not self._new(ref.thread, ref) and ref.thread in self._handled:
                unread.append(ref.thread)
        refs = {name: ref for name, ref in found.items() if self._new(name, ref)}
        cursor = self._cursor(list(refs.values()), list(refs), set(found))
        return Listed(list(refs.values()), cursor, unread)

    def _wanted(self, repo: str) -> bool:
        only, exclude = self._section.only_repos, self._section.exclude_repos
        return (not only or _among(repo, only)) and not _among(repo, exclude)


class RepoList(_List):
    """The issues and pull requests of one repository."""

    def __init__(
        self,
        repo: str,
        client: Client,
        section: GitHubSection,
        cursor: Mapping[str, Any],
        baseline: float,
        *,
        full: bool,
    ) -> None:
        super().__init__(client, section, cursor, baseline, full=full)
        self._repo = repo

    async def list(self) -> Listed:
        """Those that were touched since they were last looked at."""
        params: Params = {
            "state": "all",
            "sort": "updated",
            "direction": "asc",
            "since": _iso(self._since),
            "per_page": _ISSUES_PAGE,
        }
        issues, _ = await self._read(f"/repos/{self._repo}/issues", params)
        found = {
            str(ref.number): replace(ref, since=self._floor)
            for issue in issues
            if (ref := ref_of_issue(self._repo, issue)) is not None
        }
        refs = {name: ref for name, ref in found.items() if self._new(name, ref)}
        return Listed(list(refs.values()), self._cursor(list(refs.values()), list(refs), set(found)))


def _among(repo: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(repo.lower(), pattern.lower()) for pattern in patterns)


def _server_time(answer: Answer) -> float | None:
    try:
        return parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError):
        return None


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds(value: str | None) -> float:
    return float(value) if value is not None and value.isdigit() else 0.0
