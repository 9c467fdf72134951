"""Parameters, bodies and documents that the court's routes share."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Final, Generic, Literal, TypeAlias, TypeVar

from fastapi import Path, Query
from pydantic import BeforeValidator, ConfigDict, Field, RootModel, StringConstraints

from kingdom.court.models import EventStatus, MessageStatus, TaskStatus
from kingdom.web.envelope import ApiModel, Ok, Page
from kingdom.web.views.documents import DocumentPage, DocumentSummary
from kingdom.web.views.events import WEB_SOURCE as WEB_SOURCE

S = TypeVar("S", bound=DocumentSummary)
_is_date_time = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:").match

# The same names that kingdom.court.home.check_name accepts; stated here for the OpenAPI document.
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

EventStatusQuery: TypeAlias = Literal[EventStatus, "discarded", "invalid"] | None
TaskStatusQuery: TypeAlias = Literal[TaskStatus, "answered", "invalid"] | None
MessageStatusQuery: TypeAlias = Literal[MessageStatus, "invalid"] | None
WordQuery: TypeAlias = Annotated[str | None, Query(min_length=1, max_length=200)]
TypeQuery: TypeAlias = Annotated[str | None, Query(alias="type", min_length=1, max_length=200)]


def _date_time(value: Any) -> Any:
    """Refuse a number, which would be read as seconds since 1970, and a date without a time."""
    if isinstance(value, str) and not _is_date_time(value):
        raise ValueError("give a date and a time, such as 2026-02-07T12:00:00Z")
    return value


Moment: TypeAlias = Annotated[datetime, BeforeValidator(_date_time)]
SinceQuery: TypeAlias = Annotated[
    Moment | None, Query(description="Created at or after this time. Without a time zone: UTC.")
]
UntilQuery: TypeAlias = Annotated[Moment | None, Query(description="Created before this time.")]
SearchQuery: TypeAlias = Annotated[
    str | None,
    Query(min_length=1, max_length=10_000, description="All of these words must occur, in any field; case is ignored."),
]
TextField: TypeAlias = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=10_000)]
UserField: TypeAlias = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]


SignedBy: Final[Any] = Field(
    default=None,
    description=(
        "Who asks, shown in the history. Only with the home's own token; otherwise it is the name of your token."
    ),
    examples=["ann"],
)


TaskSortQuery: TypeAlias = Annotated[
    Literal["newest", "oldest", "status", "type", "general", "priority"],
    Query(description="The order; within equal fields, the newest first. A cursor belongs to its order."),
]
EventSortQuery: TypeAlias = Annotated[
    Literal["newest", "oldest", "status", "type", "source", "priority"],
    Query(description="The order; within equal fields, the newest first. A cursor belongs to its order."),
]
MessageSortQuery: TypeAlias = Annotated[
    Literal["newest", "oldest", "status", "type"],
    Query(description="The order; within equal fields, the newest first. A cursor belongs to its order."),
]


class CountedPage(Page[S], Generic[S]):
    """One page of a list, with the total number of items."""

    total: int


class RequestedBy(ApiModel):
    """The user who requests a command."""

    user: UserField | None = SignedBy


class CancelRequested(RequestedBy):
    """Who cancels a task, and why."""

    reason: str | None = Field(
        default=None,
        max_length=2000,
        description="The reason. It is also posted on the issue, pull request or ticket.",
        examples=["We do it next week."],
    )


class CommandAccepted(ApiModel):
    """A command that was stored durably. The king executes it at once, or when the court is started."""

    event_id: str = Field(examples=["evt-web-cancel-task-20260207-001-1770465600"])
    task_id: str = Field(examples=["task-20260207-001"])


def counted_page(listing: DocumentPage[S]) -> Ok[CountedPage[S]]:
    return Ok(data=CountedPage(items=listing.items, next_cursor=listing.next_cursor, total=listing.total))


# ── Documents as stored, with examples for the OpenAPI document ──


def _with_example(example: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [example]})


class CourtEventDocument(RootModel[dict[str, Any]]):
    """An event document."""

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
    """A message document."""

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
    """Statistics of the court."""

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
    """A daily report."""

    model_config = _with_example(
        {
            "type": "daily_report",
            "date": "2026-02-07",
            "tasks": {"created": 7, "completed": 5, "failed": 1, "cancelled": 1, "needs_human": 0},
            "soldiers": {"spawned": 8, "timeout": 0},
            "avg_duration_seconds": {"gen-pr": 240},
            "cost": {"usd": "2.50", "tokens": 120000},
        }
    )
