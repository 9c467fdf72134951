"""What an event is about."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kingdom.court.models import Event, subject_of


@pytest.mark.parametrize(
    ("repo", "payload", "subject"),
    [
        ("Acme/Web", {"pr_number": 12}, "acme/web#12"),
        ("acme/web", {"number": "12"}, "acme/web#12"),
        ("acme/web", {"pull_request": {"number": 12}}, "acme/web#12"),
        ("acme/web", {"issue": {"number": 12}}, "acme/web#12"),
        (None, {"repo": "acme/web", "issue_number": 12}, "acme/web#12"),
        (None, {"repository": {"full_name": "acme/web"}, "issue_number": 12}, "acme/web#12"),
        (None, {"ticket_key": "qp-123"}, "QP-123"),
        ("acme/web", {"key": "QP-123", "number": 7}, "QP-123"),
        (None, {"subject": "anything at all", "number": 7}, "anything at all"),
        (None, {"pr_number": 12}, None),
        ("acme/web", {"pr_number": 0}, None),
        ("acme/web", {"pr_number": True}, None),
        ("acme/web", {"pr_number": "../../x"}, None),
        ("acme/web", {"title": "fix"}, None),
        (None, {"ticket_key": "-x"}, None),
        (None, {"subject": "x" * 1000}, None),
    ],
)
def test_events_about_one_thing_share_its_name(repo: str | None, payload: dict[str, Any], subject: str | None) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    event = Event(id="evt-x-1", type="x.y", source="x", created_at=moment, repo=repo, payload=payload)
    assert subject_of(event) == subject
    assert subject_of(event.document()) == subject


def test_a_payload_that_is_no_object_has_no_subject() -> None:
    assert subject_of({"payload": ["pr_number", 3]}) is None
    assert subject_of({}) is None
