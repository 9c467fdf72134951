"""What is read from Jira Cloud."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.sentinel.config import secret
from kingdom.court.sentinel.errors import Missing, Unavailable
from kingdom.court.sentinel.http import Client
from kingdom.court.sentinel.texts import instant

if TYPE_CHECKING:
    from kingdom.court.sentinel.config import JiraSection

SEARCH: Final = "/rest/api/3/search/jql"
FIELDS: Final = [
    *("summary", "description", "status", "issuetype", "priority", "assignee", "reporter", "creator", "labels"),
    *("project", "created", "updated", "comment"),
]
_PAGE: Final = 100
_MAX_PAGES: Final = 200
log = logging.getLogger("kingdom.court.sentinel")


def connect(section: JiraSection, clock: Callable[[], float]) -> Client:
    """A client with the account's token; InvalidConfig when it is not there."""
    token = secret(section.token_env, "jira")
    email = section.email or secret(section.email_env, "jira (or give the address as jira.email)")
    basic = base64.b64encode(f"{email}:{token}".encode()).decode()
    headers = {"Authorization": f"Basic {basic}", "Accept": "application/json"}
    return Client("jira", section.url, headers, clock, hint=" (kingdom connect jira checks the token)")


async def own_account(client: Client) -> dict[str, Any]:
    """Whose token it is."""
    found = (await client.get("/rest/api/3/myself")).body
    if not isinstance(found, dict) or not isinstance(found.get("accountId"), str):
        raise Unavailable("jira: /myself names no account")
    return found


def jql_since(section: JiraSection, since: float) -> str:
    """The question for all tickets that changed since.

    The time is in milliseconds of the epoch: written as a date it would be read in the account's time zone, to the
    minute, and be wrong twice a year.
    """
    wanted = []
    if section.projects:
        wanted.append("project in ({})".format(", ".join(f'"{key}"' for key in section.projects)))
    if section.jql:
        wanted.append(f"({section.jql})")
    if not wanted:
        wanted.append("(assignee = currentUser() OR watcher = currentUser())")
    return f"{' AND '.join(wanted)} AND updated >= {int(since * 1000)} ORDER BY updated ASC"


async def search(client: Client, jql: str) -> AsyncIterator[list[dict[str, Any]]]:
    """All tickets of a question, page by page. An empty page is not the last one; one without a token is."""
    token: str | None = None
    been: set[str] = set()
    for _ in range(_MAX_PAGES):
        request = {"jql": jql, "fields": FIELDS, "expand": "changelog", "maxResults": _PAGE}
        body = (await client.post(SEARCH, request | ({"nextPageToken": token} if token else {}))).body
        if not isinstance(body, dict) or not isinstance(body.get("issues"), list):
            raise Unavailable("jira: the answer to a search has no issues")
        yield [issue for issue in body["issues"] if isinstance(issue, dict)]
        token = body.get("nextPageToken")
        if not isinstance(token, str) or not token or body.get("isLast") is True:
            return
        if token in been:
            log.warning("jira: the same page came twice; going on from there at the next look")
            return
        been.add(token)


async def complete(client: Client, issue: dict[str, Any], since: float) -> None:
    """Read what a search leaves out of a ticket with a long history: older changes, and comments, since then."""
    changelog = issue.get("changelog")
    histories = changelog.get("histories") if isinstance(changelog, dict) else None
    if not isinstance(histories, list) or _total(changelog) > len(histories):
        issue["changelog"] = {"histories": await _all(client, f"/rest/api/3/issue/{_id(issue)}/changelog", "values")}
    fields = issue.get("fields") or {}
    comments = fields.get("comment")
    found = comments.get("comments") if isinstance(comments, dict) else None
    if not isinstance(found, list) or _total(comments) > len(found):
        path = f"/rest/api/3/issue/{_id(issue)}/comment?orderBy=-created"
        newest = await _all(client, path, "comments", enough=lambda page: instant(page[-1].get("created")) < since)
        fields["comment"] = {"comments": newest}


async def _all(
    client: Client, path: str, key: str, enough: Callable[[list[dict[str, Any]]], bool] = lambda _: False
) -> list[dict[str, Any]]:
    """All entries of a list that is read by their number."""
    found: list[dict[str, Any]] = []
    for _ in range(_MAX_PAGES):
        mark = "&" if "?" in path else "?"
        try:
            body = (await client.get(f"{path}{mark}startAt={len(found)}&maxResults={_PAGE}")).body
        except Missing:  # the ticket was deleted meanwhile
            return found
        page = body.get(key) if isinstance(body, dict) else None
        if not isinstance(page, list) or not page:
            return found
        found += [entry for entry in page if isinstance(entry, dict)]
        if body.get("isLast") is True or len(found) >= _total(body) or enough(page):
            return found
    return found


def _total(part: Any) -> int:
    total = part.get("total") if isinstance(part, dict) else None
    return total if isinstance(total, int) else 0


def _id(issue: dict[str, Any]) -> str:
    return str(issue.get("id") or issue.get("key"))
