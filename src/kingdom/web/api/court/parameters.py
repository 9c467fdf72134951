"""What the routes of the court have in common: ids, filters, pages, and who asks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Generic, TypeAlias, TypeVar

from fastapi import Path, Query
from pydantic import Field, StringConstraints

from kingdom.web.envelope import ApiModel, Ok, Page
from kingdom.web.views.documents import Listing, Summary

SOURCE: Final = "web"
"""Where events come from that people make here."""
S = TypeVar("S", bound=Summary)

# What kingdom.court.home.checked lets through, so that the OpenAPI document says it, too.
_NAME: Final = r"^[A-Za-z0-9_:@+][A-Za-z0-9._:@+\-]*$"
TaskId: TypeAlias = Annotated[str, Path(alias="taskId", max_length=200, pattern=_NAME, examples=["task-20260207-001"])]
EventIdPath: TypeAlias = Annotated[
    str, Path(alias="eventId", max_length=200, pattern=_NAME, examples=["evt-github-12345"])
]
MessageIdPath: TypeAlias = Annotated[
    str, Path(alias="messageId", max_length=200, pattern=_NAME, examples=["msg-20260207-001"])
]
StreamName: TypeAlias = Annotated[str, Path(max_length=100, pattern=_NAME, examples=["tasks"])]
BusName: TypeAlias = Annotated[str, Path(max_length=60, pattern=r"^[a-z]+$", examples=["court"])]

Word: TypeAlias = Annotated[str | None, Query(min_length=1, max_length=200)]
Type: TypeAlias = Annotated[str | None, Query(alias="type", min_length=1, max_length=200)]
Since: TypeAlias = Annotated[datetime | None, Query(description="Made then or later. A time without a zone is UTC.")]
Until: TypeAlias = Annotated[datetime | None, Query(description="Made before then.")]
Search: TypeAlias = Annotated[
    str | None, Query(min_length=1, max_length=10_000, description="Words that all occur somewhere, in any case.")
]
Text: TypeAlias = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=10_000)]
User: TypeAlias = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]


class Counted(Page[S], Generic[S]):
    """One page of a list, and how many there are on all pages."""

    total: int


class Asked(ApiModel):
    """Who asks for something."""

    user: User = Field(default=SOURCE, description="Shown in the story of the task.", examples=["ann"])


class Passed(ApiModel):
    """What was asked for is durable, and done when the king comes to it: at once, or when the court is up."""

    event_id: str = Field(examples=["evt-web-cancel-task-20260207-001-1770465600"])
    task_id: str = Field(examples=["task-20260207-001"])


def counted(listing: Listing[S]) -> Ok[Counted[S]]:
    """Wrap one page of documents."""
    return Ok(data=Counted(items=listing.items, next_cursor=listing.next_cursor, total=listing.total))
