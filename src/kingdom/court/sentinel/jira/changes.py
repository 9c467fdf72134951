"""From a ticket to what was done to it: each entry of its history, each comment, and its making, once."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Any, Final, NamedTuple

from kingdom.court.models import Event, timestamp
from kingdom.court.sentinel.jira.adf import mentions_in, text_of
from kingdom.court.sentinel.kinds import priority_of
from kingdom.court.sentinel.texts import event_id, instant, plain

SOURCE: Final = "jira"
_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*-\d+\Z")


class Account(NamedTuple):
    """Whose ears these are."""

    account_id: str
    own: frozenset[str]
    """Accounts whose acts are no events."""


class Change(NamedTuple):
    """Something that was done to a ticket."""

    what: str
    name: str
    author: dict[str, Any]
    at: float
    details: dict[str, Any]


def events_of(
    issue: dict[str, Any],
    account: Account,
    since: float,
    *,
    url: str,
    repos: dict[str, str],
    ignored_fields: frozenset[str] = frozenset(),
    told: Container[str] = (),
) -> list[Event]:
    """What was done to a ticket since then by others than ourselves, in order; without events that were ``told``."""
    key = issue.get("key")
    if not isinstance(key, str) or not _KEY.match(key):
        return []
    found = [*_made(issue, account), *_changed(issue, account, ignored_fields), *_commented(issue, account)]
    wanted = [
        change
        for change in found
        if change.at >= since
        and change.author.get("accountId") not in account.own
        and event_id(SOURCE, key, change.name) not in told
    ]
    if not wanted:
        return []
    described, repo = _described(issue, key, url), repos.get(key.rpartition("-")[0].upper())
    return [_event(key, described, repo, change) for change in sorted(wanted, key=lambda change: change.at)]


def _made(issue: dict[str, Any], account: Account) -> Iterator[Change]:
    fields = _fields(issue)
    at = instant(fields.get("created"))
    creator = _person(fields.get("creator")) or _person(fields.get("reporter"))
    # Who it was made for stands nowhere in its history; whoever it was given to later does.
    given_later = any(item.get("field") == "assignee" for entry in _histories(issue) for item in _items(entry))
    mine = _person(fields.get("assignee")).get("accountId") == account.account_id and not given_later
    if at:
        yield Change("assigned" if mine else "created", "created", creator, at, {})


def _changed(issue: dict[str, Any], account: Account, ignored: frozenset[str]) -> Iterator[Change]:
    for entry in _histories(issue):
        items = [item for item in _items(entry) if item.get("field") not in ignored]
        if not items or not entry.get("id"):
            continue
        to_me = any(item.get("field") == "assignee" and item.get("to") == account.account_id for item in items)
        details = {"changes": [_told(item) for item in items]}
        at = instant(entry.get("created"))
        what = "assigned" if to_me else "updated"
        yield Change(what, f"change-{entry['id']}", _person(entry.get("author")), at, details)


def _commented(issue: dict[str, Any], account: Account) -> Iterator[Change]:
    holder = _fields(issue).get("comment")
    comments = holder.get("comments") if isinstance(holder, dict) else None
    for comment in comments if isinstance(comments, list) else []:
        if not isinstance(comment, dict) or not comment.get("id"):
            continue
        body, author = comment.get("body"), _person(comment.get("author"))
        mentioned = account.account_id in mentions_in(body)
        told = {"id": comment["id"], "author": _name(author), "body": text_of(body), "at": comment.get("created")}
        at = instant(comment.get("created"))
        yield Change(
            "mentioned" if mentioned else "commented", f"comment-{comment['id']}", author, at, {"comment": told}
        )


def _event(key: str, described: dict[str, Any], repo: str | None, change: Change) -> Event:
    kind = f"jira.ticket.{change.what}"
    payload = {**described, "action": change.what, "author": _name(change.author), **change.details}
    payload["author_id"] = change.author.get("accountId")
    return Event(
        id=event_id(SOURCE, key, change.name),
        type=kind,
        source=SOURCE,
        repo=repo,
        payload=payload,
        priority=priority_of(kind),
        created_at=timestamp(change.at),  # type: ignore[arg-type]  # read from its text
    )


def _described(issue: dict[str, Any], key: str, url: str) -> dict[str, Any]:
    fields = _fields(issue)
    told = {
        "key": key,
        "title": plain(fields.get("summary"), 1000),
        "description": text_of(fields.get("description")),
        "status": _named(fields.get("status")),
        "issue_type": _named(fields.get("issuetype")),
        "ticket_priority": _named(fields.get("priority")),
        "assignee": _name(_person(fields.get("assignee"))),
        "reporter": _name(_person(fields.get("reporter"))),
        "reporter_id": plain(_person(fields.get("reporter")).get("accountId"), 200) or None,
        "labels": [label for label in fields.get("labels") or [] if isinstance(label, str)],
        "updated": fields.get("updated"),
        "url": f"{url}/browse/{key}",
    }
    return {name: value for name, value in told.items() if value is not None}


def _told(item: dict[str, Any]) -> dict[str, Any]:
    return {
        "field": plain(item.get("field"), 200),
        "from": plain(item.get("fromString"), 20_000) or None,
        "to": plain(item.get("toString"), 20_000) or None,
    }


def _fields(issue: dict[str, Any]) -> dict[str, Any]:
    found = issue.get("fields")
    return found if isinstance(found, dict) else {}


def _histories(issue: dict[str, Any]) -> list[dict[str, Any]]:
    changelog = issue.get("changelog")
    found = changelog.get("histories") if isinstance(changelog, dict) else None
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _items(entry: dict[str, Any]) -> list[dict[str, Any]]:
    found = entry.get("items")
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _person(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _name(person: dict[str, Any]) -> str | None:
    found = person.get("displayName") or person.get("accountId")
    return plain(found, 200) or None


def _named(value: Any) -> str | None:
    return plain(value.get("name"), 200) or None if isinstance(value, dict) else None
