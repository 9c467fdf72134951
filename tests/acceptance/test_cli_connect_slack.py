"""``kingdom connect slack``: whether the tokens work, what to mend, and the app to make."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command import kingdom
from tests.support.fake_slack import ANN, APP_TOKEN, BEN, BOT_TOKEN, CHANNEL, FakeSlack


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "system.yaml").write_text("name: test\n")
    return tmp_path


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with FakeSlack(time.time).serve() as served:
        yield served


async def connect(home: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    named = {"NO_PROXY": "127.0.0.1", "SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN, **env}
    return await asyncio.to_thread(kingdom, "connect", "slack", "--home", str(home), *options, **named)


def configure(home: Path, slack: FakeSlack, **more: Any) -> None:
    section = {"api_url": slack.url, "channel": "#kingdom", "users": [ANN, BEN], **more}
    (home / "config" / "envoy.yaml").write_text(yaml.safe_dump({"slack": section}))


async def findings(home: Path, **env: str) -> list[dict[str, str]]:
    done = await connect(home, "--json", **env)
    found: list[dict[str, str]] = json.loads(done.stdout)["findings"]
    assert done.returncode == any(finding["level"] == "error" for finding in found)
    return found


async def test_tokens_in_the_env_file_of_the_home_are_told_how_to_be_loaded(home: Path) -> None:
    (home / ".env").write_text("SLACK_BOT_TOKEN=xoxb-1\nSLACK_APP_TOKEN=xapp-1\n")
    done = await connect(home, SLACK_BOT_TOKEN="", SLACK_APP_TOKEN="")
    assert done.returncode == 1
    assert done.stdout == "", "not how to create an app: it is there already"
    assert f"error: SLACK_BOT_TOKEN and SLACK_APP_TOKEN in {home}/.env must be loaded" in done.stderr


async def test_good_tokens_show_the_workspace_the_channel_and_the_users_and_say_nothing(
    home: Path, slack: FakeSlack
) -> None:
    configure(home, slack)
    done = await connect(home)
    assert done.returncode == 0, done.stdout + done.stderr
    for expected in ("the bot kingdom in the workspace court", f"#kingdom ({CHANNEL})", f"ann ({ANN})", f"ben ({BEN})"):
        assert expected in done.stdout
    assert (slack.posts, slack.whispers, slack.opened) == ([], [], 0)


async def test_requests_that_no_general_takes_are_a_warning(home: Path, slack: FakeSlack) -> None:
    configure(home, slack)

    def told(found: list[dict[str, str]]) -> list[tuple[str, str]]:
        return [(one["text"], one["fix"]) for one in found if one["text"].startswith("no general takes")]

    ((text, fix),) = told(await findings(home))
    assert "no general takes slack.mention.received and slack.dm.received" in text
    checked = await asyncio.to_thread(
        kingdom, "doctor", "--home", str(home), SLACK_BOT_TOKEN=BOT_TOKEN, SLACK_APP_TOKEN=APP_TOKEN
    )
    assert "no general takes slack.mention.received and slack.dm.received" in checked.stdout
    install = ["general", "install", *fix.split()[-1:], "--home", str(home)]
    assert (await asyncio.to_thread(kingdom, *install)).returncode == 0
    assert told(await findings(home)) == []
    checked = await asyncio.to_thread(kingdom, "doctor", "--home", str(home), SLACK_BOT_TOKEN="", SLACK_APP_TOKEN="")
    assert "gen-slack takes requests from Slack, and it is not used" in checked.stdout


async def test_each_thing_that_is_wrong_is_told_with_what_to_do(home: Path, slack: FakeSlack) -> None:
    configure(home, slack, users=["U0NOBODY"])
    slack.scopes = slack.scopes.replace("chat:write,", "").replace("reactions:write,", "")
    levels = {finding["text"].split(",")[0]: finding["level"] for finding in await findings(home)}
    assert levels["the app lacks the scope chat:write"] == "error"
    assert levels["the app lacks the scope reactions:write"] == "warning"
    slack.scopes += ",chat:write"
    slack.members.clear()
    slack.fail("apps.connections.open", "refuse", error="not_allowed_token_type")
    texts = [finding["text"] for finding in await findings(home) if finding["level"] == "error"]
    assert texts == [
        "SLACK_APP_TOKEN cannot open a connection: not_allowed_token_type",
        "the app is not in #kingdom",
        "user U0NOBODY: user_not_found",
    ]


async def test_tokens_in_each_others_place_are_told_before_they_are_sent_anywhere(home: Path, slack: FakeSlack) -> None:
    configure(home, slack)
    found = await findings(home, SLACK_BOT_TOKEN=APP_TOKEN, SLACK_APP_TOKEN=BOT_TOKEN)
    assert [finding["text"] for finding in found] == [
        "SLACK_BOT_TOKEN does not begin with xoxb-",
        "SLACK_APP_TOKEN does not begin with xapp-",
    ]
    assert slack.calls == []


async def test_a_token_that_slack_does_not_know_and_a_slack_that_is_not_there(home: Path, slack: FakeSlack) -> None:
    configure(home, slack)
    found = await findings(home, SLACK_BOT_TOKEN="xoxb-old")
    assert [finding["text"] for finding in found] == ["SLACK_BOT_TOKEN is not accepted: invalid_auth"]
    configure(home, slack, api_url="http://127.0.0.1:9/api/")
    (only,) = await findings(home)
    assert "cannot be reached" in only["text"]


async def test_without_tokens_it_tells_how_to_get_them_and_prints_the_app(home: Path) -> None:
    done = await connect(home, SLACK_APP_TOKEN="")
    assert done.returncode == 1
    assert "SLACK_BOT_TOKEN and SLACK_APP_TOKEN" in done.stderr
    assert "From a manifest" in done.stdout
    manifest = json.loads((await connect(home, "--manifest")).stdout)
    assert manifest["settings"]["socket_mode_enabled"] is True
    assert "app_mention" in manifest["settings"]["event_subscriptions"]["bot_events"]
    assert "chat:write" in manifest["oauth_config"]["scopes"]["bot"]
    assert manifest["display_information"]["name"] == "test"
