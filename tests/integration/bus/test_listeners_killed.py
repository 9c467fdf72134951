"""Real sentinels and envoys, killed with -9 at any instant while people work: each act is one event, each message one
post, counted where people see them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import time
from collections import Counter
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
from tests.chaos.day import TOKENS
from tests.support.fake_github import FakeGitHub
from tests.support.fake_jira import FakeJira
from tests.support.fake_slack import ANN, APP_TOKEN, BOT_TOKEN, CHANNEL, DIRECT, FakeSlack
from tests.support.forking import forked
from tests.support.listener_process import live

KILLS = 16
ENVIRONMENT = {**TOKENS, "SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN, "NO_PROXY": "127.0.0.1"}
_SOONEST, _LATEST = 0.0, 0.6  # seconds from the first sign of a process to its death


class Siege:
    """People at work in GitHub, Jira and Slack, and processes that listen to them."""

    def __init__(self, services: Services, slack: FakeSlack, github: FakeGitHub, jira: FakeJira, seed: int) -> None:
        self.services, self.home = services, services.home
        self.slack, self.github, self.jira = slack, github, jira
        self.random = random.Random(seed)
        self.expected: set[str] = set()
        self.messages: list[str] = []
        self._undelivered: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)

    @contextlib.asynccontextmanager
    async def process(self, name: str) -> AsyncIterator[None]:
        """A listener from its first sign of life to its death by -9."""
        beat = self.home.heartbeat(name)
        beat.unlink(missing_ok=True)
        asked = self.asked(name)
        process = forked(live, name, str(self.home.root), ENVIRONMENT, daemon=True)
        try:
            await until(lambda: self.asked(name) > asked or beat.exists())
            yield
        finally:
            process.kill()
            await asyncio.to_thread(process.join, 30)

    def asked(self, name: str) -> int:
        """How often a listener has asked for something."""
        return len(self.github.requests) + len(self.jira.requests) if name == "sentinel" else len(self.slack.calls)

    async def work(self) -> None:
        """What people do, without end, and Slack's deliveries until each is acknowledged."""
        while True:
            await self._act()
            if self.slack.sockets:
                acknowledged = set(self.slack.acks)
                self._undelivered = [one for one in self._undelivered if one["envelope_id"] not in acknowledged]
                for envelope in self._undelivered:
                    with contextlib.suppress(ConnectionError):
                        await self.slack.deliver(envelope)
            await asyncio.sleep(0.03)

    async def _act(self) -> None:
        number, kind = next(self._numbers), self.random.choice(("github", "jira", "slack", "message"))
        subject = number % 7 + 1
        if kind == "github":
            self.expected.add(f"evt-github-900000-{subject}-comment-{self.github.comment(subject)}")
        elif kind == "jira":
            key = f"SHOP-{subject}"
            self.expected.add(f"evt-jira-{self.jira.id_of(key)}-change-{self.jira.change(key)}")
        elif kind == "slack":
            event = self.slack.posted(f"request {number}", channel=DIRECT)
            self.expected.add(f"evt-slack-{DIRECT}-{event['ts']}")
            self._undelivered.append(self.slack.envelope(event))
        else:
            self.messages.append(f"msg-20260207-{number:03d}")
            message = Message(
                id=self.messages[-1],
                type="thread_start",
                content=f"message {number}",
                context={"task_id": f"task-20260207-{number:03d}", "event_id": f"evt-x-{number}"},
                created_at=timestamp(time.time()),  # type: ignore[arg-type]
            )
            await put_documents(self.services.bus, [message])

    async def settle(self) -> None:
        """Until what was said and done is known everywhere."""
        for envelope in self._undelivered:
            if envelope["envelope_id"] not in self.slack.acks:
                await self.slack.delivered(envelope)
        await until(lambda: self.expected <= self.found())
        await until(lambda: len(list((self.home.queue / "messages" / "sent").glob("*.json"))) == len(self.messages))

    def found(self) -> set[str]:
        """The events there are."""
        return {path.stem for path in (self.home.queue / "events").glob("*/*.json")}

    def told(self) -> Counter[str]:
        """How often each message was posted, by what Slack has."""
        return Counter(self.slack.intents())


async def until(condition: Callable[[], Any]) -> None:
    """Wait for what a process does."""
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
async def siege(tmp_path: Path) -> AsyncIterator[Siege]:
    home = Home(tmp_path)
    home.config.mkdir()
    (home.root / MARKER).write_text("name: test\n")
    github, jira = FakeGitHub(time.time), FakeJira(time.time)
    github.poll_interval = 1
    github.tells_time = True
    seed = int(os.environ.get("CHAOS_SEED") or random.randrange(1_000_000))
    print(f"seed {seed}")
    async with FakeSlack(time.time).serve() as slack, github, jira, open_services(home) as services:
        section = {"api_url": slack.url, "channel": CHANNEL, "users": [ANN], "posts_per_second": 20.0}
        (home.config / "envoy.yaml").write_text(yaml.safe_dump({"slack": section}))
        watched = {
            "github": {"url": github.url, "interval_seconds": 1.0},
            "jira": {"url": jira.url, "email": "b@acme.example", "interval_seconds": 1.0},
        }
        (home.config / "sentinel.yaml").write_text(yaml.safe_dump(watched))
        siege = Siege(services, slack, github, jira, seed)
        for number in range(1, 8):
            github.open(number)
            jira.create(f"SHOP-{number}")
            siege.expected |= {f"evt-github-900000-{number}-opened", f"evt-jira-{jira.id_of(f'SHOP-{number}')}-created"}
        yield siege


@pytest.mark.walk
@pytest.mark.timeout(300)
async def test_nothing_is_lost_or_doubled_however_often_the_listeners_are_killed(siege: Siege) -> None:
    people = asyncio.create_task(siege.work())
    for number in range(KILLS):
        async with siege.process("sentinel" if number % 2 else "envoy"):
            await asyncio.sleep(siege.random.uniform(_SOONEST, _LATEST))  # the instant is the point of it
    async with siege.process("sentinel"), siege.process("envoy"):
        await until(lambda: siege.found() and siege.slack.sockets)
        acts = len(siege.expected)
        await until(lambda: len(siege.expected) > acts + 5)  # with both at work
        people.cancel()
        await asyncio.gather(people, return_exceptions=True)
        await siege.settle()
    assert siege.found() == siege.expected
    assert siege.told() == Counter(siege.messages)
    assert acts > KILLS, "hardly anything happened: the listeners were killed while they had nothing to do"
