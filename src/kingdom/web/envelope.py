"""The one form of every answer: ``success, data, timestamp``, or ``success: false`` with an ``error``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

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
