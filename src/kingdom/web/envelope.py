"""The response envelope, pages and cursors, and the errors of the API."""

from __future__ import annotations

import base64
import binascii
import json
import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Generic, Literal, TypeAlias, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from kingdom.base.forms import problem_text

T = TypeVar("T")


class ApiModel(BaseModel):
    """Base of API models: camelCase field names; unknown fields of a request are rejected."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class Ok(ApiModel, Generic[T]):
    """A successful response."""

    success: Literal[True] = True
    data: T
    timestamp: datetime = Field(default_factory=lambda: datetime.now(UTC))


class Page(ApiModel, Generic[T]):
    """One page of a list. ``nextCursor`` is the cursor of the next page; null: this is the last page."""

    items: list[T]
    next_cursor: str | None = None


class ErrorBody(ApiModel):
    """What is wrong, where, and what to do."""

    code: str = Field(examples=["WFL_NOT_FOUND"])
    message: str
    details: list[Any] = Field(default_factory=list)


class Failed(ApiModel):
    """An error response."""

    success: Literal[False] = False
    error: ErrorBody
    timestamp: datetime = Field(default_factory=lambda: datetime.now(UTC))


class ApiError(Exception):
    """Ends a request with an error response. ``code`` begins with GIT, MCP, TPL, WFL, MOD or SYS."""

    def __init__(self, status: int, code: str, message: str, details: list[Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.details = details or []
        self.headers: dict[str, str] = {}

    def body(self) -> dict[str, Any]:
        """Return the JSON of the response."""
        error = ErrorBody(code=self.code, message=str(self), details=self.details)
        return Failed(error=error).model_dump(mode="json", by_alias=True)


def ok(data: T) -> Ok[T]:
    """Wrap data in a successful response."""
    return Ok(data=data)


def page(items: list[T], next_cursor: str | None = None) -> Ok[Page[T]]:
    """Wrap one page of a list in a successful response."""
    return Ok(data=Page(items=items, next_cursor=next_cursor))


def not_found(prefix: str, what: str, item_id: str) -> ApiError:
    """Return a 404 error: ``not_found("WFL", "workflow", id)``."""
    return ApiError(404, f"{prefix}_NOT_FOUND", f"no {what} {item_id!r:.120}")


# ── Cursors ──


Limit: TypeAlias = Annotated[int, Query(ge=1, le=100, description="Maximum number of items.")]
Cursor: TypeAlias = Annotated[
    str | None, Query(max_length=1000, description="`nextCursor` of the previous page; omit for the first page.")
]
_ID_PATTERN: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


def cursor_of(position: Any) -> str:
    """Encode a position (any JSON value) as an opaque cursor."""
    text = json.dumps(position, separators=(",", ":"), ensure_ascii=True)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def cursor_position(cursor: str | None) -> Any:
    """Decode a cursor; None is the first page. Raises :class:`ApiError` if it is invalid."""
    if cursor is None:
        return None
    try:
        return json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise invalid_cursor() from error


def cursor_id(cursor: str | None) -> str | None:
    """Decode a cursor that is an id."""
    position = cursor_position(cursor)
    if position is not None and not (isinstance(position, str) and _ID_PATTERN.fullmatch(position)):
        raise invalid_cursor()
    return position


def invalid_cursor() -> ApiError:
    """Return the error for a cursor that is invalid or of another list."""
    return ApiError(422, "SYS_CURSOR", "invalid cursor: start again without it")


M = TypeVar("M", bound=BaseModel)


def parse_body(model: type[M], **values: Any) -> M:
    """Validate ``values`` as a request body. Raises :class:`ApiError` with one line per error."""
    try:
        return model(**values)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, one['loc']))}: {problem_text(one)}" for one in error.errors()]
        raise ApiError(422, "SYS_INVALID", "\n".join(wrong), list(wrong)) from error
