"""A court whose envoy is in a Slack of our own: people mention the app there, and read what it posts."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kingdom.court.home import MARKER
from kingdom.court.init_home import SHIPPED_GENERALS_DIR
from kingdom.court.loop import Services
from tests.support.cli_courts import GENERAL, Cli, CliCourt
from tests.support.fake_slack import ANN, APP_TOKEN, BEN, BOT, BOT_TOKEN, CHANNEL, FakeSlack
from tests.support.github_server import GitHubServer, hub_settings


class SlackCourt(CliCourt):
    """The shipped general for Slack with everything but its name and engine; king, general and envoy run here."""

    def __init__(
        self, root: Path, cli: Cli, github: GitHubServer, patch: pytest.MonkeyPatch, package: str | None = "gen-slack"
    ) -> None:
        kept: dict[str, Any] = {"subscribes": ["test.happened"]}
        if package is not None:
            folder = SHIPPED_GENERALS_DIR / package
            shipped = yaml.safe_load((folder / "manifest.yaml").read_text())
            kept = {key: shipped[key] for key in shipped.keys() - {"name", "engine", "description"}}
        super().__init__(root, cli, patch, **{**kept, "timeout_seconds": 60})
        if package is not None:
            for file in ("prompt.md", "instructions.md"):
                shutil.copy(folder / file, self.home.general(GENERAL) / file)
        marker = self.home.root / MARKER
        system = json.loads(marker.read_text()) | hub_settings(github) | {"channel": "#kingdom"}
        marker.write_text(json.dumps(system))
        self.slack = FakeSlack(time.time)
        patch.setenv("SLACK_BOT_TOKEN", BOT_TOKEN)
        patch.setenv("SLACK_APP_TOKEN", APP_TOKEN)

    def watch(self, *repos: str) -> None:
        """Name repositories that the court works with."""
        section = {"enabled": False, "notifications": False, "repos": list(repos)}
        (self.home.config / "sentinel.yaml").write_text(json.dumps({"github": section}))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Services]:
        async with self.slack.serve():
            slack = {"users": [ANN, BEN], "posts_per_second": 20, "api_url": self.slack.url}
            (self.home.config / "envoy.yaml").write_text(json.dumps({"slack": slack}))
            async with super().running() as services:
                self.start("envoy")
                await self.slack.until(lambda: self.slack.sockets)
                yield services

    async def say(self, text: str, *, mention: bool = True, **where: Any) -> str:
        """Have a person post something; return its time stamp when the envoy has it."""
        event = self.slack.posted(f"<@{BOT}> {text}" if mention else text, **where)
        await self.slack.delivered(self.slack.envelope(event))
        return str(event["ts"])

    async def replied(self, thread_ts: str, count: int = 1, channel: str = CHANNEL) -> list[str]:
        """Wait until so many posts of ours are in a thread; return their texts."""
        found: list[str] = await self.until(
            lambda: texts if len(texts := self.slack.texts(channel, thread_ts)) >= count else None,
            f"{count} replies in the thread {thread_ts}; there are {self.slack.texts(channel, thread_ts)}",
        )
        return found
