"""The documents of the court, each given as it lies in its file, with an example for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, RootModel


def _shown_as(example: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [example]})


class EventDocument(RootModel[dict[str, Any]]):
    """One event."""

    model_config = _shown_as(
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

    model_config = _shown_as(
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

    model_config = _shown_as(
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

    model_config = _shown_as(
        {
            "type": "daily_report",
            "date": "2026-02-07",
            "tasks": {"created": 7, "completed": 6, "failed": 1, "needs_human": 0},
            "soldiers": {"spawned": 8, "timeout": 0},
            "avg_duration_seconds": {"gen-pr": 240},
            "cost": {"usd": "2.50", "tokens": 120000},
        }
    )
