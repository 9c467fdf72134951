"""Parameters, bodies and documents that the court's routes share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar

from fastapi import Path, Query
from pydantic import ConfigDict, Field, RootModel, StringConstraints

from kingdom.web.envelope import ApiModel, Ok, Page
from kingdom.web.views.documents import DocumentPage, DocumentSummary

# What the routes of the court have in common: ids, filters, pages, and who asks.


WEB_SOURCE: Final = "web"
"""Where events come from that people make here."""
S = TypeVar("S", bound=DocumentSummary)

# What kingdom.court.home.check_name lets through, so that the OpenAPI document says it, too.
_NAME_PATTERN: Final = r"^[A-Za-z0-9_:@+][A-Za-z0-9._:@+\-]*$"
TaskIdPath: TypeAlias = Annotated[
    str, Path(alias="taskId", max_length=200, pattern=_NAME_PATTERN, examples=["task-20260207-001"])
]
EventIdPath: TypeAlias = Annotated[
    str, Path(alias="eventId", max_length=200, pattern=_NAME_PATTERN, examples=["evt-github-12345"])
]
MessageIdPath: TypeAlias = Annotated[
    str, Path(alias="messageId", max_length=200, pattern=_NAME_PATTERN, examples=["msg-20260207-001"])
]
StreamName: TypeAlias = Annotated[str, Path(max_length=100, pattern=_NAME_PATTERN, examples=["tasks"])]
BusName: TypeAlias = Annotated[str, Path(max_length=60, pattern=r"^[a-z]+$", examples=["court"])]

WordQuery: TypeAlias = Annotated[str | None, Query(min_length=1, max_length=200)]
TypeQuery: TypeAlias = Annotated[str | None, Query(alias="type", min_length=1, max_length=200)]
SinceQuery: TypeAlias = Annotated[
    datetime | None, Query(description="Made then or later. A time without a zone is UTC.")
]
UntilQuery: TypeAlias = Annotated[datetime | None, Query(description="Made before then.")]
SearchQuery: TypeAlias = Annotated[
    str | None, Query(min_length=1, max_length=10_000, description="Words that all occur somewhere, in any case.")
]
TextField: TypeAlias = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=10_000)]
UserField: TypeAlias = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]


class CountedPage(Page[S], Generic[S]):
    """One page of a list, and how many there are on all pages."""

    total: int


class RequestedBy(ApiModel):
    """Who asks for something."""

    user: UserField = Field(default=WEB_SOURCE, description="Shown in the story of the task.", examples=["ann"])


class CommandAccepted(ApiModel):
    """What was asked for is durable, and done when the king comes to it: at once, or when the court is up."""

    event_id: str = Field(examples=["evt-web-cancel-task-20260207-001-1770465600"])
    task_id: str = Field(examples=["task-20260207-001"])


def counted_page(listing: DocumentPage[S]) -> Ok[CountedPage[S]]:
    """Wrap one page of documents."""
    return Ok(data=CountedPage(items=listing.items, next_cursor=listing.next_cursor, total=listing.total))


# The documents of the court, each given as it lies in its file, with an example for the OpenAPI document.


def _with_example(example: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [example]})


class CourtEventDocument(RootModel[dict[str, Any]]):
    """One event."""

    model_config = _with_example(
        {
            "id": "evt-github-12345",
            "type": "github.pr.review_requested",
            "source": "github",
            "repo": "acme/shop",
            "payload": {"pr_number": 7, "title": "Discounts"},
            "priority": "normal",
            "created_at": "2026-02-07T12:00:00Z",
            "status": "completed",
        }
    )


class MessageDocument(RootModel[dict[str, Any]]):
    """One message."""

    model_config = _with_example(
        {
            "id": "msg-20260207-001",
            "type": "notification",
            "channel": "",
            "urgency": "normal",
            "content": "gen-pr finished acme/shop#7",
            "context": {"task_id": "task-20260207-001"},
            "created_at": "2026-02-07T12:05:00Z",
            "status": "sent",
        }
    )


class StatsDocument(RootModel[dict[str, Any]]):
    """How much was done."""

    model_config = _with_example(
        {
            "generated_at": "2026-02-07T12:00:00Z",
            "hours": {"2026-02-07T11": {"events": 3, "created": 2, "completed": 2, "failed": 0}},
            "days": {"2026-02-07": {"events": 9, "created": 7, "completed": 6, "failed": 1, "generals": {}}},
            "failures_in_a_row": {"gen-pr": 0},
            "undispatched_events": 0,
            "unreadable_lines": 0,
        }
    )


class ReportDocument(RootModel[dict[str, Any]]):
    """The report of a day."""

    model_config = _with_example(
        {
            "type": "daily_report",
            "date": "2026-02-07",
            "tasks": {"created": 7, "completed": 6, "failed": 1, "needs_human": 0},
            "soldiers": {"spawned": 8, "timeout": 0},
            "avg_duration_seconds": {"gen-pr": 240},
            "cost": {"usd": "2.50", "tokens": 120000},
        }
    )
