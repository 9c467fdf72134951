"""People are told once of a source that the sentinel cannot read, and once when it can be read again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.models import Message, timestamp
from kingdom.court.queues import put_documents
from tests.support.chamberlains import Watched


@pytest.fixture
async def court(tmp_path: Path) -> AsyncIterator[Watched]:
    watched = Watched(tmp_path)
    async with watched.open():
        yield watched


def hears(court: Watched, **sources: Any) -> None:
    """The sentinel writes its heartbeat."""
    path = court.home.heartbeat("sentinel")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"ts": timestamp(court.now), "pid": 1, "sources": sources}))


async def test_a_part_that_cannot_be_read_is_told_once_and_its_end_once(court: Watched) -> None:
    problem = {"single sign-on of acme": "github: the organization acme withholds its repositories"}
    for _ in range(3):
        hears(court, github={"polls": 1, "problems": problem})
        await court.tick(30)
        await court.restart()
    assert court.alerts() == [("source:github:single sign-on of acme", "unread")]
    assert "organization acme" in court.messages()[0]["content"]
    for _ in range(2):
        hears(court, github={"polls": 2})
        await court.tick(30)
    assert court.alerts()[1:] == [("source:github:single sign-on of acme", "over")]
    assert court.messages()[-1]["content"] == "github: single sign-on of acme can be read again"


async def test_a_refused_token_is_told_at_once_and_an_outage_after_a_quarter_of_an_hour(court: Watched) -> None:
    since = timestamp(court.now)
    refused = {"problem": "github: 401", "failing_since": since, "refused": True}
    outage = {"problem": "jira: 502", "failing_since": since, "refused": False}
    hears(court, github=refused, jira=outage)
    await court.tick(30)
    assert court.alerts() == [("source:github", "unread")]
    hears(court, github=refused, jira=outage)
    await court.tick(900)
    assert court.alerts() == [("source:github", "unread"), ("source:jira", "unread")]


async def test_a_restarted_source_can_be_read_again_only_once_it_was_read(court: Watched) -> None:
    since = timestamp(court.now)
    part = {"acme/site": "github: 404"}
    hears(court, github={"problem": "github: 401", "failing_since": since, "refused": True, "problems": part})
    await court.tick(30)
    told = court.alerts()
    assert told == [("source:github", "unread"), ("source:github:acme/site", "unread")]
    hears(court, github={"polls": 0, "unknown": True})
    await court.tick(30)
    assert court.alerts() == told
    hears(court, github={"polls": 1})
    await court.tick(30)
    assert court.alerts()[2:] == [("source:github", "over"), ("source:github:acme/site", "over")]


async def test_messages_that_cannot_be_sent_are_an_alert_of_the_status(court: Watched) -> None:
    path = court.home.heartbeat("envoy")
    path.parent.mkdir(parents=True, exist_ok=True)
    since, problem = timestamp(court.now), "Slack refuses chat.postMessage: token_revoked"

    async def says(seconds: float, **fields: Any) -> None:
        path.write_text(json.dumps({"ts": timestamp(court.now), "pid": 1, **fields}))
        await court.tick(seconds)

    await says(300, sent=3, problem=problem, failing_since=since)
    await says(60, sent=3, problem=problem, failing_since=since)
    assert court.alerts() == [], "nothing waits: it is a dead letter"
    waits = Message(id="msg-20260207-900", type="report", content="hello", created_at=timestamp(court.now))  # type: ignore[arg-type]
    await put_documents(court.services.bus, [waits])
    since = timestamp(court.now)
    await says(60, sent=3, problem=problem, failing_since=since)
    assert court.alerts() == [], "an outage of a minute needs nobody"
    await says(300, sent=3, problem=problem, failing_since=since)
    assert court.alerts() == [("messages", "unsent")]
    assert any(problem in one["content"] for one in court.messages())
    await says(30, sent=0)
    assert court.alerts() == [("messages", "unsent")], "a restart mends nothing"
    await says(30, sent=1)
    assert court.alerts() == [("messages", "unsent"), ("messages", "over")]


@pytest.mark.parametrize(
    "nonsense", ["[]", '{"sources": 3}', '{"sources": {"github": 1, "jira": {"problems": 2}}}', "{"]
)
async def test_a_heartbeat_that_makes_no_sense_is_no_alert(court: Watched, nonsense: str) -> None:
    path = court.home.heartbeat("sentinel")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(nonsense)
    await court.tick(30)
    assert court.alerts() == []
