"""What may become a ref, a path or an argument of git.

Ids of workflows, worktrees and checkpoints become parts of refs and of paths, so the rule is strict: ``A-Z a-z 0-9 . _
+ -``, starting with a letter, a digit or ``_``, at most 100 characters, no ``..``, no ``.`` or ``.lock`` at the end.
Names of branches come from people and may be anything that git itself allows, but never an option.
"""

from __future__ import annotations

import re
from typing import Final

from kingdom.gitops.errors import InvalidInput

_MAX_ID: Final = 100
_MAX_REF: Final = 250
_is_id = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+\-]*\Z").match
_is_hash = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z").match
_bad_in_ref = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//").search


def check_id(what: str, value: str) -> str:
    """Return ``value`` when it may name a workflow, a worktree or a checkpoint; raise :class:`InvalidInput` if not."""
    if not isinstance(value, str) or not _is_id(value):
        reason = "use A-Z a-z 0-9 . _ + - and start with a letter, a digit or _"
    elif len(value) > _MAX_ID:
        reason = f"it is longer than {_MAX_ID} characters"
    elif ".." in value or value.endswith((".", ".lock")):
        reason = 'no "..", and no "." or ".lock" at the end'
    else:
        return value
    raise InvalidInput(f"{what} {_shown(value)}: {reason}")


def check_ref(what: str, value: str) -> str:
    """Return ``value`` when it may be the name of a branch, a tag or a ref; raise :class:`InvalidInput` if not.

    This is the rule of ``git check-ref-format`` plus: no leading dash, and at most 250 bytes.
    """
    if not isinstance(value, str) or not value:
        reason = "it is empty or not a string"
    elif value.startswith("-"):
        reason = "it starts with a dash and would be read as an option"
    elif len(value.encode("utf-8", "replace")) > _MAX_REF:
        reason = f"it is longer than {_MAX_REF} bytes"
    elif bad := _bad_in_ref(value):
        reason = f"{bad.group()!r} is not allowed in a ref"
    elif value.startswith("/") or value.endswith(("/", ".")) or value == "@":
        reason = "it must not start with a slash nor end with a slash or a dot"
    elif any(part.startswith(".") or part.endswith(".lock") for part in value.split("/")):
        reason = "no part of it may start with a dot or end with .lock"
    elif not _encodable(value):
        reason = "it cannot be written as UTF-8"
    else:
        return value
    raise InvalidInput(f"{what} {_shown(value)}: {reason}")


def is_hash(value: str) -> bool:
    """Whether ``value`` is a full object name (SHA-1 or SHA-256)."""
    return isinstance(value, str) and _is_hash(value) is not None


def check_hash(what: str, value: str) -> str:
    """Return ``value`` when it is a full object name; raise :class:`InvalidInput` if not."""
    if not is_hash(value):
        raise InvalidInput(f"{what} {_shown(value)}: a full commit hash of 40 or 64 hexadecimal digits is needed")
    return value


def check_line(what: str, value: str) -> str:
    """Return ``value`` when it fits on one line (a name, an e-mail address, a trailer)."""
    if not isinstance(value, str) or not value.strip() or any(c in value for c in "\n\r\x00<>"):
        raise InvalidInput(f"{what} {_shown(value)}: one line of text without < and > is needed")
    return value


def _encodable(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
