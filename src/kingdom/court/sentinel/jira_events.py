"""Turns a Jira issue into events: one per history entry and comment, and one for its creation."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from typing import Any, Final, NamedTuple

from kingdom.court.models import Event, timestamp
from kingdom.court.sentinel.events import clean_text, default_priority, make_event_id, parse_epoch

_MAX_DEPTH: Final = 60
_BLOCKS: Final = {"paragraph", "heading", "codeBlock", "blockquote", "panel", "rule", "tableRow", "taskItem"}
_TEXT_ATTRIBUTES: Final = {  # nodes whose text is an attribute
    "mention": "text",
    "emoji": "shortName",
    "inlineCard": "url",
    "blockCard": "url",
    "embedCard": "url",
    "status": "text",
    "date": "timestamp",
    "media": "alt",
}
JIRA: Final = "jira"
_ISSUE_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*-\d+\Z")


def adf_text(document: Any) -> str:
    """Return an Atlassian Document Format document as plain text; text unchanged; "" for anything else."""
    if isinstance(document, str):
        return clean_text(document)
    return clean_text("".join(_node_texts(document, 0, "")).strip("\n"))


def adf_mentions(document: Any, depth: int = 0) -> Iterator[str]:
    """Yield the ids of the accounts that a document mentions."""
    if not isinstance(document, dict) or depth > _MAX_DEPTH:
        return
    attributes = document.get("attrs")
    if document.get("type") == "mention" and isinstance(attributes, dict) and isinstance(attributes.get("id"), str):
        yield attributes["id"]
    for node in _content(document):
        yield from adf_mentions(node, depth + 1)


def _node_texts(node: Any, depth: int, lead: str) -> Iterator[str]:
    if not isinstance(node, dict) or depth > _MAX_DEPTH:
        return
    kind = node.get("type")
    if kind == "text" and isinstance(node.get("text"), str):
        yield _text_with_link(node)
    elif kind == "hardBreak":
        yield "\n"
    elif kind in _TEXT_ATTRIBUTES:
        attributes = node.get("attrs")
        yield str((attributes if isinstance(attributes, dict) else {}).get(_TEXT_ATTRIBUTES[kind]) or "")
    elif kind in ("bulletList", "orderedList"):
        for number, item in enumerate(_content(node), 1):
            mark = "- " if kind == "bulletList" else f"{number}. "
            yield f"{lead}{mark}"
            yield "".join(_node_texts(item, depth + 1, lead + "  ")).lstrip(" ")
    elif kind in ("tableCell", "tableHeader"):
        yield "".join(_child_texts(node, depth, lead)).strip("\n") + " | "
    else:
        yield from _child_texts(node, depth, lead)
    if kind in _BLOCKS:
        yield "\n"


def _child_texts(node: dict[str, Any], depth: int, lead: str) -> Iterator[str]:
    for child in _content(node):
        yield from _node_texts(child, depth + 1, lead)


def _text_with_link(node: dict[str, Any]) -> str:
    """Return the text, followed by the target of its link if that differs."""
    text = str(node["text"])
    for mark in node.get("marks") or []:
        if isinstance(mark, dict) and mark.get("type") == "link" and isinstance(mark.get("attrs"), dict):
            href = mark["attrs"].get("href")
            if isinstance(href, str) and href != text:
                return f"{text} ({href})"
    return text


def _content(node: dict[str, Any]) -> list[Any]:
    found = node.get("content")
    return found if isinstance(found, list) else []


class JiraAccount(NamedTuple):
    """The account that the sentinel listens for."""

    account_id: str
    own: frozenset[str]
    """Accounts whose actions do not become events."""


class JiraChange(NamedTuple):
    """Something that somebody did to a ticket."""

    what: str
    name: str
    author: dict[str, Any]
    at: float
    details: dict[str, Any]


def extract_jira_events(
    issue: dict[str, Any],
    account: JiraAccount,
    since: float,
    *,
    url: str,
    repos: dict[str, str],
    ignored_fields: frozenset[str] = frozenset(),
    emitted: Container[str] = (),
) -> list[Event]:
    """Return the events of what others did to a ticket since then, in order, without those in ``emitted``."""
    key = issue.get("key")
    if not isinstance(key, str) or not _ISSUE_KEY.match(key):
        return []
    # The id of a ticket stays the same when the ticket is moved to another project; its key does not.
    identity = str(issue.get("id") or key)
    found = [*_creation(issue, account), *_field_changes(issue, account, ignored_fields), *_comments(issue, account)]
    wanted = [
        change
        for change in found
        if change.at >= since
        and change.author.get("accountId") not in account.own
        and make_event_id(JIRA, identity, change.name) not in emitted
    ]
    if not wanted:
        return []
    described, repo = (
        {"issue_id": identity, **_issue_fields(issue, key, url)},
        repos.get(key.rpartition("-")[0].upper()),
    )
    return [_make_event(identity, described, repo, change) for change in sorted(wanted, key=lambda change: change.at)]


def _creation(issue: dict[str, Any], account: JiraAccount) -> Iterator[JiraChange]:
    fields = _fields_of(issue)
    at = parse_epoch(fields.get("created"))
    creator = _person(fields.get("creator")) or _person(fields.get("reporter"))
    # The history does not contain the first assignee, only later changes.
    reassigned = any(item.get("field") == "assignee" for entry in _histories(issue) for item in _items(entry))
    mine = _person(fields.get("assignee")).get("accountId") == account.account_id and not reassigned
    if at:
        yield JiraChange("assigned" if mine else "created", "created", creator, at, {})


def _field_changes(issue: dict[str, Any], account: JiraAccount, ignored: frozenset[str]) -> Iterator[JiraChange]:
    for entry in _histories(issue):
        items = [item for item in _items(entry) if item.get("field") not in ignored]
        if not items or not entry.get("id"):
            continue
        details = {"changes": [_changed_field(item) for item in items]}
        at = parse_epoch(entry.get("created"))
        what = _change_name(items, account)
        yield JiraChange(what, f"change-{entry['id']}", _person(entry.get("author")), at, details)


def _change_name(items: Iterable[dict[str, Any]], account: JiraAccount) -> str:
    """Return what people would call a change of fields. Who closes a ticket may unassign it at once, too."""
    assignees = [item for item in items if item.get("field") == "assignee"]
    if any(item.get("to") == account.account_id for item in assignees):
        return "assigned"
    if any(item.get("field") == "resolution" and item.get("to") for item in items):
        return "closed"
    return "unassigned" if any(item.get("from") == account.account_id for item in assignees) else "updated"


def _comments(issue: dict[str, Any], account: JiraAccount) -> Iterator[JiraChange]:
    holder = _fields_of(issue).get("comment")
    comments = holder.get("comments") if isinstance(holder, dict) else None
    for comment in comments if isinstance(comments, list) else []:
        if not isinstance(comment, dict) or not comment.get("id"):
            continue
        body, author = comment.get("body"), _person(comment.get("author"))
        mentioned = account.account_id in adf_mentions(body)
        described = {"id": comment["id"], "author": _name(author), "body": adf_text(body), "at": comment.get("created")}
        at = parse_epoch(comment.get("created"))
        yield JiraChange(
            "mentioned" if mentioned else "commented", f"comment-{comment['id']}", author, at, {"comment": described}
        )


def _make_event(identity: str, described: dict[str, Any], repo: str | None, change: JiraChange) -> Event:
    kind = f"jira.ticket.{change.what}"
    payload = {**described, "action": change.what, "author": _name(change.author), **change.details}
    payload["author_id"] = change.author.get("accountId")
    return Event(
        id=make_event_id(JIRA, identity, change.name),
        type=kind,
        source=JIRA,
        repo=repo,
        payload=payload,
        priority=default_priority(kind),
        created_at=timestamp(change.at),  # type: ignore[arg-type]  # read from its text
    )


def _issue_fields(issue: dict[str, Any], key: str, url: str) -> dict[str, Any]:
    fields = _fields_of(issue)
    described = {
        "key": key,
        "title": clean_text(fields.get("summary"), 1000),
        "description": adf_text(fields.get("description")),
        "status": _name_field(fields.get("status")),
        "issue_type": _name_field(fields.get("issuetype")),
        "ticket_priority": _name_field(fields.get("priority")),
        "assignee": _name(_person(fields.get("assignee"))),
        "reporter": _name(_person(fields.get("reporter"))),
        "reporter_id": clean_text(_person(fields.get("reporter")).get("accountId"), 200) or None,
        "labels": [label for label in fields.get("labels") or [] if isinstance(label, str)],
        "updated": fields.get("updated"),
        "url": f"{url}/browse/{key}",
    }
    return {name: value for name, value in described.items() if value is not None}


def _changed_field(item: dict[str, Any]) -> dict[str, Any]:
    return {
        "field": clean_text(item.get("field"), 200),
        "from": clean_text(item.get("fromString"), 20_000) or None,
        "to": clean_text(item.get("toString"), 20_000) or None,
    }


def _fields_of(issue: dict[str, Any]) -> dict[str, Any]:
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
    return clean_text(found, 200) or None


def _name_field(value: Any) -> str | None:
    return clean_text(value.get("name"), 200) or None if isinstance(value, dict) else None
