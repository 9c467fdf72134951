"""Cursors: where the next page of a list begins, in a form that clients hand back and do not read."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Annotated, Any, Final, TypeAlias

from fastapi import Query

from kingdom.web.envelope import ApiError

Limit: TypeAlias = Annotated[int, Query(ge=1, le=100, description="How many at most.")]
Cursor: TypeAlias = Annotated[
    str | None, Query(max_length=1000, description="`nextCursor` of the page before; none: the first page.")
]
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


def cursor_of(position: Any) -> str:
    """The cursor behind a position: whatever JSON can say."""
    text = json.dumps(position, separators=(",", ":"), ensure_ascii=True)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def position_of(cursor: str | None) -> Any:
    """The position a cursor stands for; None for the first page. Raises :class:`ApiError` for one we did not make."""
    if cursor is None:
        return None
    try:
        return json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise wrong_cursor() from error


def id_position(cursor: str | None) -> str | None:
    """The id behind which a list goes on whose cursors are ids."""
    position = position_of(cursor)
    if position is not None and not (isinstance(position, str) and _ID.fullmatch(position)):
        raise wrong_cursor()
    return position


def wrong_cursor() -> ApiError:
    """What to say of a cursor that we did not make, or not for this list."""
    return ApiError(422, "SYS_CURSOR", "this cursor is not one of ours: begin again without it")
