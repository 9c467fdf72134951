"""The Jira Cloud watcher: reads issues in the order of their last update."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from kingdom.court.sentinel.config import read_secret
from kingdom.court.sentinel.events import parse_epoch
from kingdom.court.sentinel.http import SourceClient
from kingdom.court.sentinel.jira_events import JIRA, JiraAccount, extract_jira_events
from kingdom.court.sentinel.watcher import (
    CircuitOpen,
    FetchedBatch,
    Hints,
    SourceNotFound,
    SourceRefused,
    SourceUnauthorized,
    SourceUnavailable,
)

if TYPE_CHECKING:
    from kingdom.court.loop import Services
    from kingdom.court.models import Event
    from kingdom.court.sentinel.config import JiraSection


SEARCH_PATH: Final = "/rest/api/3/search/jql"
SEARCH_FIELDS: Final = [
    *("summary", "description", "status", "issuetype", "priority", "assignee", "reporter", "creator", "labels"),
    *("project", "created", "updated", "comment"),
]
_PAGE_SIZE: Final = 100
_MAX_PAGES: Final = 200
log = logging.getLogger("kingdom.court.sentinel")
_LATE_CHANGE_SECONDS: Final = 3600.0  # a change this long before the cursor may appear only now
_MAX_READ_ATTEMPTS: Final = 5  # polls that may fail because of one ticket
_DAY_SECONDS: Final = 86400.0
_PROJECT_CHECK_SECONDS: Final = 600.0  # how often a project that cannot be read is checked


def connect_jira(section: JiraSection, clock: Callable[[], float]) -> SourceClient:
    """Create a client with the account's token. Raises :class:`InvalidConfig` if it is not set."""
    token = read_secret(section.token_env, "jira")
    email = section.email or read_secret(section.email_env, "jira (and jira.email is not configured)")
    basic = base64.b64encode(f"{email}:{token}".encode()).decode()
    headers = {"Authorization": f"Basic {basic}", "Accept": "application/json"}
    hint = " (kingdom connect jira checks the token; restart the court to use a new one)"
    return SourceClient("jira", section.url, headers, clock, hint=hint)


async def fetch_account(client: SourceClient) -> dict[str, Any]:
    found = (await client.get("/rest/api/3/myself")).body
    if not isinstance(found, dict) or not isinstance(found.get("accountId"), str):
        raise SourceUnavailable("jira: the response of /myself contains no account")
    return found


def jql_since(section: JiraSection, since: float, projects: Sequence[str] | None = None) -> str:
    """Return the JQL query for all tickets updated since then; ``projects`` replaces those of the section.

    The time is given in milliseconds since the epoch. Jira would read a date in the account's time zone, with a
    resolution of minutes, and it would be wrong twice a year.
    """
    wanted, keys = [], section.projects if projects is None else projects
    if keys:
        wanted.append("project in ({})".format(", ".join(f'"{key}"' for key in keys)))
    if section.jql:
        wanted.append(f"({section.jql})")
    if not wanted:
        wanted.append("(assignee = currentUser() OR watcher = currentUser())")
    return f"{' AND '.join(wanted)} AND updated >= {int(since * 1000)} ORDER BY updated ASC"


async def project_exists(client: SourceClient, key: str) -> bool:
    """Return whether there is a project that the account may browse."""
    try:
        await client.get(f"/rest/api/3/project/{key}")
    except SourceUnauthorized:
        raise
    except (SourceNotFound, SourceRefused):
        return False
    return True


async def search_issues(client: SourceClient, jql: str) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield all tickets of a query, page by page. An empty page need not be the last; one without a token is."""
    token: str | None = None
    seen_tokens: set[str] = set()
    for _ in range(_MAX_PAGES):
        request = {"jql": jql, "fields": SEARCH_FIELDS, "expand": "changelog", "maxResults": _PAGE_SIZE}
        body = (await client.post(SEARCH_PATH, request | ({"nextPageToken": token} if token else {}))).body
        if not isinstance(body, dict) or not isinstance(body.get("issues"), list):
            raise SourceUnavailable("jira: the response to a search contains no list of issues")
        yield [issue for issue in body["issues"] if isinstance(issue, dict)]
        token = body.get("nextPageToken")
        if not isinstance(token, str) or not token or body.get("isLast") is True:
            return
        if token in seen_tokens:
            log.warning("jira: received the same page twice; continuing from there at the next poll")
            return
        seen_tokens.add(token)


async def complete_issue(client: SourceClient, issue: dict[str, Any], since: float) -> None:
    """Read what a search leaves out of a ticket with a long history: older changes and comments."""
    changelog = issue.get("changelog")
    histories = changelog.get("histories") if isinstance(changelog, dict) else None
    if not isinstance(histories, list) or _total_count(changelog) > len(histories):
        issue["changelog"] = {
            "histories": await _fetch_all(client, f"/rest/api/3/issue/{_issue_id(issue)}/changelog", "values")
        }
    fields = issue.get("fields") or {}
    comments = fields.get("comment")
    found = comments.get("comments") if isinstance(comments, dict) else None
    if not isinstance(found, list) or _total_count(comments) > len(found):
        path = f"/rest/api/3/issue/{_issue_id(issue)}/comment?orderBy=-created"
        newest = await _fetch_all(
            client, path, "comments", enough=lambda page: parse_epoch(page[-1].get("created")) < since
        )
        fields["comment"] = {"comments": newest}


async def _fetch_all(
    client: SourceClient, path: str, key: str, enough: Callable[[list[dict[str, Any]]], bool] = lambda _: False
) -> list[dict[str, Any]]:
    """Read all entries of a list that is paged by ``startAt``."""
    found: list[dict[str, Any]] = []
    for _ in range(_MAX_PAGES):
        mark = "&" if "?" in path else "?"
        try:
            body = (await client.get(f"{path}{mark}startAt={len(found)}&maxResults={_PAGE_SIZE}")).body
        except SourceNotFound:  # the ticket was deleted meanwhile
            return found
        page = body.get(key) if isinstance(body, dict) else None
        if not isinstance(page, list) or not page:
            return found
        found += [entry for entry in page if isinstance(entry, dict)]
        if body.get("isLast") is True or len(found) >= _total_count(body) or enough(page):
            return found
    return found


def _total_count(part: Any) -> int:
    total = part.get("total") if isinstance(part, dict) else None
    return total if isinstance(total, int) else 0


def _issue_id(issue: dict[str, Any]) -> str:
    return str(issue.get("id") or issue.get("key"))


class JiraWatcher:
    """Watches Jira for one account.

    The cursor has two times: ``since``, where the next poll starts, and ``next``, the newest change of the last poll,
    which becomes ``since`` after the next one. So each period is read by two polls at different times, and a ticket
    that moved from one page to another during the first is found by the second.

    Jira refuses a search that names a project which does not exist or may not be browsed. Such a project is left out,
    with the time from which it was not read (``left_out`` in the cursor), and is read from there when it can be again.
    """

    name = JIRA

    def __init__(self, services: Services, section: JiraSection) -> None:
        self._clock = services.clock
        self._section = section
        self._client = connect_jira(section, services.clock)
        self._hints = Hints(services.home, JIRA)
        self._account: JiraAccount | None = None
        self._since = 0.0
        self._failed: dict[str, int] = {}
        self._left_out: tuple[str, ...] = ()
        self._checked_at = 0.0  # when the projects that are left out were checked
        # The ids of events that are in the queue already. Each change is read by many polls, and making its event is
        # most of the work. Cleared once a day, so that events still listed then are renewed in the seen index.
        self._emitted: set[str] = set()
        self._parsed: list[str] = []
        self._day = 0.0

    @property
    def interval(self) -> float:
        return self._section.interval_seconds

    def urgent(self) -> bool:
        """Return whether a webhook left a hint."""
        return self._hints.any()

    def problems(self) -> Mapping[str, str]:
        """Return the projects that cannot be read."""
        return {
            key: f"jira: the project {key} does not exist, or the account may not browse it: see jira.projects"
            for key in self._left_out
        }

    async def close(self) -> None:
        await self._client.close()

    async def fetch(self, cursor: Mapping[str, Any]) -> AsyncIterator[FetchedBatch]:
        """Read all tickets updated since the cursor, minus an overlap: the search index lags behind."""
        if self._account is None:
            mine = str((await fetch_account(self._client))["accountId"])
            self._account = JiraAccount(mine, frozenset({mine, *self._section.own_accounts}))
        baseline = float(cursor.get("baseline") or self._clock() - self._section.lookback_hours * 3600)
        since, before = float(cursor.get("since") or baseline), float(cursor.get("next") or baseline)
        stored = {**cursor, "baseline": baseline, "since": since, "next": before}
        left_out = {key: at for key, at in (cursor.get("left_out") or {}).items() if key in self._section.projects}
        hints, newest = list(self._hints.read()), before
        for key in await self._returned_projects(left_out):
            async for issues in self._search([key], left_out[key], baseline):
                yield FetchedBatch(issues, stored)
            del left_out[key]
        async for issues in self._search_readable(left_out, since, baseline):
            newest = max([newest, *(parse_epoch((issue.get("fields") or {}).get("updated")) for issue in issues)])
            yield FetchedBatch(issues, stored)
        self._left_out = tuple(left_out)
        memory = {"baseline": baseline, "since": before, "next": newest}
        yield FetchedBatch([], memory | ({"left_out": left_out} if left_out else {}), hints)

    async def _search_readable(
        self, left_out: dict[str, float], since: float, baseline: float
    ) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield the tickets of all projects that can be read, and add the others to ``left_out``."""
        keys = [key for key in self._section.projects if key not in left_out]
        if left_out and not keys:
            return
        try:
            async for issues in self._search(keys, since, baseline):
                yield issues
        except SourceUnauthorized:
            raise
        except SourceRefused:
            gone = [key for key in keys if not await project_exists(self._client, key)]
            if not gone or len(gone) == len(self._section.projects):
                raise
            left_out |= dict.fromkeys(gone, since)
            self._checked_at = self._clock()
            async for issues in self._search_readable(left_out, since, baseline):
                yield issues

    async def _search(self, keys: list[str], since: float, baseline: float) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield the tickets of projects that were updated since then, minus an overlap, with their whole history."""
        start = max(since - self._section.overlap_minutes * 60, baseline)
        self._since = max(start - _LATE_CHANGE_SECONDS, baseline)
        async for issues in search_issues(self._client, jql_since(self._section, start, keys)):
            for issue in issues:
                await self._complete(issue)
            yield issues

    async def _returned_projects(self, left_out: Mapping[str, float]) -> list[str]:
        """Return the projects that were left out and can be read again. They are checked every few minutes."""
        if not left_out or abs(self._clock() - self._checked_at) < _PROJECT_CHECK_SECONDS:
            return []
        self._checked_at = self._clock()
        return [key for key in left_out if await project_exists(self._client, key)]

    async def _complete(self, issue: dict[str, Any]) -> None:
        """Read the rest of a ticket. A ticket that can never be read must not block all others for ever."""
        key = str(issue.get("key"))
        try:
            await complete_issue(self._client, issue, self._since)
        except (CircuitOpen, SourceUnauthorized):
            raise
        except (SourceUnavailable, SourceRefused) as error:
            self._failed[key] = self._failed.get(key, 0) + 1
            if self._failed[key] < _MAX_READ_ATTEMPTS:
                raise
            log.warning("jira: the full history of %s cannot be read; continuing without it: %s", key, error)
        else:
            self._failed.pop(key, None)

    def parse(self, batch: FetchedBatch) -> list[Event]:
        assert self._account is not None
        if abs(self._clock() - self._day) > _DAY_SECONDS:
            self._emitted.clear()
            self._day = self._clock()
        found: list[Event] = []
        for issue in batch.items:
            try:
                found += extract_jira_events(
                    issue,
                    self._account,
                    self._since,
                    url=self._section.url,
                    repos=self._section.repos,
                    ignored_fields=frozenset(self._section.ignore_fields),
                    emitted=self._emitted,
                )
            except (ValidationError, AttributeError, TypeError, ValueError) as error:
                log.warning("jira: skipping %s, which makes no sense: %s", issue.get("key"), error)
        self._parsed = [event.id for event in found]
        return [event for event in found if not self._section.ignores(event.type)]

    async def post_emit(self, batch: FetchedBatch) -> None:
        """Remove the hints. Nothing is sent to Jira."""
        self._emitted.update(self._parsed)
        self._parsed = []
        for name in batch.done:
            self._hints.remove(name)
