"""A hash of the text in an event, so that later edits are found.

Titles, descriptions and comments can be edited after a trusted person has read them and asked for something. An agent
therefore gets the text as it was when the event happened, never the current text. It also gets the hash, so that it can
report when the text at the source differs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

TEXT_HASH_FIELD: Final = "text_sha256"
_TEXT_FIELDS: Final = ("title", "body", "description", "text")


def text_hash(payload: Mapping[str, Any]) -> str | None:
    """Return the SHA-256 of the text in a payload: title, body, description, text, the comment and line comments.

    The input is the compact JSON array of these texts, in this order. None when there is no text.
    """
    comments = payload.get("line_comments")
    holders = [payload.get("comment"), *(comments if isinstance(comments, list) else [])]
    values = [payload.get(name) for name in _TEXT_FIELDS]
    values += [holder.get("body") for holder in holders if isinstance(holder, Mapping)]
    texts = [value for value in values if isinstance(value, str)]
    if not texts:
        return None
    canonical = json.dumps(texts, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def add_text_hash(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload with the hash of its text. A hash that it brings along is replaced."""
    found = text_hash(payload)
    plain = {name: value for name, value in payload.items() if name != TEXT_HASH_FIELD}
    return plain if found is None else {**plain, TEXT_HASH_FIELD: found}


def text_hash_problem(payload: Mapping[str, Any]) -> str | None:
    """Say how the text of a payload differs from its hash; None when it does not, or there is no hash."""
    stated = payload.get(TEXT_HASH_FIELD)
    if stated is None:
        return None
    found = text_hash(payload)
    if found == stated:
        return None
    return f"its text was changed after the event: {TEXT_HASH_FIELD} is {stated!s:.80}, but the text has {found}"
