"""What an event is about: the pull request, issue or ticket. One subject has one active task at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kingdom.court.models import Event

_NUMBERS: Final = ("pr_number", "issue_number", "number")  # in a payload, or in its pull_request or issue
_HOLDERS: Final = ("pull_request", "pr", "issue")
_KEYS: Final = ("ticket_key", "issue_key", "ticket", "key")
_TICKET: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}-\d{1,12}\Z")
_MAX: Final = 200


def subject_of(event: Event | Mapping[str, Any]) -> str | None:
    """The name of an event's subject, the same for all events about it; None when it has none.

    A payload may name it itself in ``subject``. Pull requests and issues of one repository share their numbers, so
    both are ``owner/repo#12``; a ticket is its key.
    """
    document = event.model_dump() if isinstance(event, Event) else event
    payload = document.get("payload")
    if not isinstance(payload, Mapping):
        return None
    named = payload.get("subject")
    if isinstance(named, str) and 0 < len(named) <= _MAX:
        return named
    ticket = next((key for name in _KEYS if isinstance(key := payload.get(name), str) and _TICKET.match(key)), None)
    if ticket is not None:
        return ticket.upper()
    repo, number = document.get("repo") or payload.get("repo"), _number(payload)
    if isinstance(repo, str) and 0 < len(repo) <= _MAX and number is not None:
        return f"{repo.lower()}#{number}"
    return None


def _number(payload: Mapping[str, Any]) -> int | None:
    inside = [found for holder in _HOLDERS if isinstance(found := payload.get(holder), Mapping)]
    for place in (payload, *inside):
        for name in _NUMBERS:
            value = place.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
            if isinstance(value, str) and value.isascii() and value.isdigit() and 0 < len(value) <= 12:
                return int(value)
    return None
