"""A real envoy, killed with -9 while it talks to a Slack of our own: nothing is said or heard twice, or lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kingdom.court.bootstrap import open_services
from kingdom.court.home import MARKER, Home
from kingdom.court.loop import Services
from kingdom.court.models import Message, timestamp
from kingdom.court.queues import put_documents
from tests.support.command import Background
from tests.support.fake_slack import ANN, APP_TOKEN, BOT_TOKEN, CHANNEL, DIRECT, FakeSlack


class Stage:
    """A home whose envoy is a process."""

    def __init__(self, services: Services, slack: FakeSlack) -> None:
        self.services = services
        self.home = services.home
        self.slack = slack

    @contextlib.contextmanager
    def envoy(self) -> Any:
        """The process; it is killed in the end, whatever it does."""
        tokens = {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN, "NO_PROXY": "127.0.0.1"}
        process = Background(self.home.root / "envoy.txt", "role", "envoy", "--home", str(self.home.root), **tokens)
        try:
            yield process
        finally:
            process.kill()
            process.wait(30)

    async def tell(self, number: int) -> None:
        """Put a message into the queue."""
        message = Message(
            id=f"msg-20260207-{number:03d}",
            type="thread_start",
            content=f"message {number}",
            context={"task_id": f"task-20260207-{number:03d}", "event_id": f"evt-github-{number}"},
            created_at=timestamp(time.time()),  # type: ignore[arg-type]
        )
        await put_documents(self.services.bus, [message])

    def ids(self, queue: str) -> list[str]:
        """The documents in one state of a queue."""
        return sorted(path.stem for path in (self.home.queue / queue).glob("*.json"))

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait for what the process does to the disk."""
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.02)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    home = Home(tmp_path)
    home.config.mkdir()
    (home.root / MARKER).write_text("name: test\n")
    async with FakeSlack(time.time).serve() as slack, open_services(home) as services:
        section = {"api_url": slack.url, "channel": CHANNEL, "users": [ANN]}
        (home.config / "envoy.yaml").write_text(yaml.safe_dump({"console": True, "slack": section}))
        yield Stage(services, slack)


async def test_killed_when_slack_has_the_post_but_the_envoy_does_not_know(stage: Stage) -> None:
    stage.slack.fail("chat.postMessage", "silent")
    await stage.tell(1)
    with stage.envoy():
        await stage.until(lambda: stage.slack.posts)
    await stage.tell(2)
    with stage.envoy():
        await stage.until(lambda: len(stage.ids("messages/sent")) == 2)
    assert stage.slack.texts() == ["message 1", "message 2"]
    mappings = json.loads((stage.home.role("envoy") / "thread-mappings.json").read_text())
    assert {task: entry["thread_ts"] for task, entry in mappings.items()} == {
        f"task-20260207-{number:03d}": stage.slack.posts[number - 1]["ts"] for number in (1, 2)
    }
    said = (stage.home.logs / "console.log").read_text()
    assert (said.count("    message 1\n"), said.count("    message 2\n")) == (1, 1)


async def test_killed_while_it_is_spoken_to(stage: Stage) -> None:
    events = [stage.slack.posted(f"request {number}", channel=DIRECT) for number in range(2)]
    envelopes = [stage.slack.envelope(event) for event in events]
    for number, envelope in enumerate(envelopes):
        opened = stage.slack.opened
        with stage.envoy():
            await stage.slack.until(lambda opened=opened: stage.slack.opened > opened and stage.slack.sockets)
            await stage.slack.deliver(envelope)
            if number == 1:  # killed after the acknowledgement; else before it, or about then
                await stage.slack.until(lambda envelope=envelope: envelope["envelope_id"] in stage.slack.acks)
        await stage.slack.until(lambda: not stage.slack.sockets)
    missing = [envelope for envelope in envelopes if envelope["envelope_id"] not in stage.slack.acks]
    with stage.envoy():
        await stage.slack.until(lambda: stage.slack.sockets)
        for envelope in missing:
            await stage.slack.delivered({**envelope, "retry_attempt": 1, "retry_reason": "timeout"})
        await stage.until(lambda: len(stage.ids("events/pending")) == 2)
        await stage.until(lambda: not list((stage.home.role("envoy") / "inbox").glob("[!.]*.json")))
    assert stage.ids("events/pending") == sorted(f"evt-slack-{DIRECT}-{event['ts']}" for event in events)
