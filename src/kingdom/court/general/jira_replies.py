"""Comment on a Jira ticket, with the account by which the sentinel reads it."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.models import timestamp
from kingdom.court.sentinel.config import load_sentinel
from kingdom.court.sentinel.events import parse_epoch
from kingdom.court.sentinel.jira_events import adf_text
from kingdom.court.sentinel.jira_watcher import connect_jira

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kingdom.court.home import Home

_LATEST: Final = 100
_URL: Final = re.compile(r"https?://[^\s<>\"'`]*[^\s<>\"'`.,;:!?)\]]")


async def comment_on_ticket(home: Home, key: str, text: str, mark: str) -> str | None:
    """Comment on a ticket, once: ``mark`` is part of the text and finds it again. Return when, None without Jira.

    Raises :class:`~kingdom.court.errors.CourtError`, also when a token is missing.
    """
    section = load_sentinel(home).jira
    if section is None:
        return None
    client = connect_jira(section, time.time)
    path = f"/rest/api/3/issue/{key}/comment"
    try:
        known = (await client.get(path, {"orderBy": "-created", "maxResults": _LATEST, "startAt": 0})).body
        comments = known.get("comments") if isinstance(known, dict) else None
        for comment in comments if isinstance(comments, list) else []:
            if isinstance(comment, dict) and mark in adf_text(comment.get("body")):
                return _time_of(comment)
        return _time_of((await client.post(path, {"body": adf_document(text)})).body)
    finally:
        await client.close()


def adf_document(text: str) -> dict[str, Any]:
    """Return a text as a document in the Atlassian Document Format: paragraphs, line breaks and links."""
    blocks = [block for block in text.split("\n\n") if block.strip()]
    paragraphs = [{"type": "paragraph", "content": list(_paragraph(block.strip("\n")))} for block in blocks]
    return {"type": "doc", "version": 1, "content": paragraphs}


def _paragraph(block: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(block.split("\n")):
        if number:
            yield {"type": "hardBreak"}
        end = 0
        for found in _URL.finditer(line):
            if found.start() > end:
                yield {"type": "text", "text": line[end : found.start()]}
            yield {"type": "text", "text": found[0], "marks": [{"type": "link", "attrs": {"href": found[0]}}]}
            end = found.end()
        if end < len(line):
            yield {"type": "text", "text": line[end:]}


def _time_of(comment: Any) -> str | None:
    at = parse_epoch(comment.get("created")) if isinstance(comment, dict) else 0.0
    return timestamp(at) if at else None
