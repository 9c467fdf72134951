"""The words of an event are those of the moment it happened: a hash in it says which they were.

Titles, descriptions and comments can be edited after somebody who is trusted has looked at them and asked for
something. So what an agent is given is what stood there when the event was made, never what stands there now; and it
is told the hash, so that it can say when what it reads later is something else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

TEXT_HASH_FIELD: Final = "text_sha256"
_TEXT_FIELDS: Final = ("title", "body", "description", "text")


def text_hash(payload: Mapping[str, Any]) -> str | None:
    """The SHA-256 of the words in a payload: title, body, description, text, the comment and those at lines.

    It is that of the JSON array of them, in this order, without blanks. None when there are no words in it.
    """
    comments = payload.get("line_comments")
    holders = [payload.get("comment"), *(comments if isinstance(comments, list) else [])]
    words = [payload.get(name) for name in _TEXT_FIELDS]
    words += [holder.get("body") for holder in holders if isinstance(holder, Mapping)]
    found = [word for word in words if isinstance(word, str)]
    if not found:
        return None
    canonical = json.dumps(found, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def add_text_hash(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The payload with the hash of its words, whatever it said of them before."""
    words = text_hash(payload)
    plain = {name: value for name, value in payload.items() if name != TEXT_HASH_FIELD}
    return plain if words is None else {**plain, TEXT_HASH_FIELD: words}


def text_hash_problem(payload: Mapping[str, Any]) -> str | None:
    """What is wrong with a payload whose words are not those of its hash; None when they are, or it has none."""
    said = payload.get(TEXT_HASH_FIELD)
    if said is None:
        return None
    found = text_hash(payload)
    if found == said:
        return None
    return f"its words were changed after the event: {TEXT_HASH_FIELD} is {said!s:.80}, but they have {found}"
