"""What streams, events and workers may be called.

Ids become file names, keys and parts of paths, so the rule is one and strict on every transport: the characters
``A-Z a-z 0-9 . _ : @ + -``, no leading dot, at most 200 bytes. Streams follow the same rule at 100 bytes.
"""

from __future__ import annotations

import re

from kingdom.bus.errors import InvalidName

is_name = re.compile(r"[A-Za-z0-9_:@+\-][A-Za-z0-9._:@+\-]*\Z").match
_FIRST_BAD = re.compile(r"[^A-Za-z0-9._:@+\-]").search

MAX_ID_BYTES = 200
MAX_STREAM_BYTES = 100
_MOST_STREAMS = 1000
_streams: set[str] = set()  # names found good: a program has few, and uses them all the time


def check_event_id(value: str) -> str:
    """Return ``value`` when it may be an event id; raise :class:`InvalidName` that says why not."""
    return _check("event id", value, MAX_ID_BYTES)


def check_stream(value: str) -> str:
    """Return ``value`` when it may be a stream name; raise :class:`InvalidName` that says why not."""
    if value.__class__ is str and value in _streams:
        return value
    _check("stream name", value, MAX_STREAM_BYTES)
    if len(_streams) < _MOST_STREAMS:
        _streams.add(value)
    return value


def check_worker(value: str) -> str:
    """Return ``value`` when it may be a worker's name; raise :class:`InvalidName` that says why not."""
    return _check("worker name", value, MAX_ID_BYTES)


def _check(what: str, value: str, limit: int) -> str:
    if isinstance(value, str) and len(value) <= limit and is_name(value):
        return value
    shown = value if isinstance(value, str) and len(value) <= 60 else repr(value)[:60] + "…"
    rule = "use A-Z a-z 0-9 . _ : @ + - and do not start with a dot"
    if not isinstance(value, str):
        reason = f"it must be a string, not {type(value).__name__}"
    elif not value:
        reason = "it is empty"
    elif len(value.encode("utf-8", "replace")) > limit:
        reason = f"it is longer than {limit} bytes"
    elif value.startswith("."):
        reason = "it starts with a dot"
    elif bad := _FIRST_BAD(value):
        reason = f"{bad.group()!r} at position {bad.start()} is not allowed"
    else:
        reason = "it is not allowed"
    raise InvalidName(f"{what} {shown!r}: {reason}; {rule}")
