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

# The one form of every answer: ``success, data, timestamp``, or ``success: false`` with an ``error``.


T = TypeVar("T")


class ApiModel(BaseModel):
    """What goes over the wire: camelCase names; unknown fields of a request are refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class Ok(ApiModel, Generic[T]):
    """An answer to a request that was carried out."""

    success: Literal[True] = True
    data: T
    timestamp: datetime = Field(default_factory=lambda: datetime.now(UTC))


class Page(ApiModel, Generic[T]):
    """One page of a list. ``nextCursor`` gets the next one; null: this was the last."""

    items: list[T]
    next_cursor: str | None = None


class ErrorBody(ApiModel):
    """What was wrong, where, and what to do."""

    code: str = Field(examples=["WFL_NOT_FOUND"])
    message: str
    details: list[Any] = Field(default_factory=list)


class Failed(ApiModel):
    """An answer to a request that was refused or failed."""

    success: Literal[False] = False
    error: ErrorBody
    timestamp: datetime = Field(default_factory=lambda: datetime.now(UTC))


class ApiError(Exception):
    """Ends a request with an error of ours. ``code`` begins with GIT, MCP, TPL, WFL, MOD or SYS."""

    def __init__(self, status: int, code: str, message: str, details: list[Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.details = details or []
        self.headers: dict[str, str] = {}

    def body(self) -> dict[str, Any]:
        """The JSON of the answer."""
        error = ErrorBody(code=self.code, message=str(self), details=self.details)
        return Failed(error=error).model_dump(mode="json", by_alias=True)


def ok(data: T) -> Ok[T]:
    """Wrap what was asked for."""
    return Ok(data=data)


def page(items: list[T], next_cursor: str | None = None) -> Ok[Page[T]]:
    """Wrap one page of a list."""
    return Ok(data=Page(items=items, next_cursor=next_cursor))


def not_found(prefix: str, what: str, item_id: str) -> ApiError:
    """There is no such thing: ``not_found("WFL", "workflow", id)``."""
    return ApiError(404, f"{prefix}_NOT_FOUND", f"there is no {what} {item_id!r:.120}")


# Cursors: where the next page of a list begins, in a form that clients hand back and do not read.


Limit: TypeAlias = Annotated[int, Query(ge=1, le=100, description="How many at most.")]
Cursor: TypeAlias = Annotated[
    str | None, Query(max_length=1000, description="`nextCursor` of the page before; none: the first page.")
]
_ID_PATTERN: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


def cursor_of(position: Any) -> str:
    """The cursor behind a position: whatever JSON can say."""
    text = json.dumps(position, separators=(",", ":"), ensure_ascii=True)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def cursor_position(cursor: str | None) -> Any:
    """The position a cursor stands for; None for the first page. Raises :class:`ApiError` for one we did not make."""
    if cursor is None:
        return None
    try:
        return json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise invalid_cursor() from error


def cursor_id(cursor: str | None) -> str | None:
    """The id behind which a list goes on whose cursors are ids."""
    position = cursor_position(cursor)
    if position is not None and not (isinstance(position, str) and _ID_PATTERN.fullmatch(position)):
        raise invalid_cursor()
    return position


def invalid_cursor() -> ApiError:
    """What to say of a cursor that we did not make, or not for this list."""
    return ApiError(422, "SYS_CURSOR", "this cursor is not one of ours: begin again without it")


# What a visitor filled in, or an agent gave, as the body of a request: mistakes in it are told like any refusal.


M = TypeVar("M", bound=BaseModel)


def parse_body(model: type[M], **values: Any) -> M:
    """The body; raises :class:`ApiError` with a line for each mistake."""
    try:
        return model(**values)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise ApiError(422, "SYS_INVALID", "\n".join(wrong), list(wrong)) from error
