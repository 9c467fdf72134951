"""``kingdom connect``: whether the tokens work, and what to mend, as a user sees it."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command import kingdom
from tests.support.fake_github import FakeGitHub
from tests.support.fake_jira import FakeJira
from tests.support.kings import Clock


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "system.yaml").write_text("name: test\n")
    return tmp_path


async def connect(home: Path, source: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    named = {"NO_PROXY": "127.0.0.1", "GITHUB_TOKEN": "a-token", "JIRA_API_TOKEN": "a-token", **env}
    return await asyncio.to_thread(kingdom, "connect", source, "--home", str(home), *options, **named)


def configure(home: Path, **sections: Any) -> None:
    (home / "config" / "sentinel.yaml").write_text(yaml.safe_dump(sections))


async def test_a_good_github_token_shows_what_it_can_see(home: Path) -> None:
    async with FakeGitHub(Clock()) as github:
        github.open(1)
        configure(home, github={"url": github.url, "repos": ["acme/shop"]})
        done = await connect(home, "github")
        assert done.returncode == 0, done.stderr
        assert "GITHUB_TOKEN belongs to kingdom-bot" in done.stdout
        assert "scopes notifications, repo" in done.stdout
        assert "1 unread notifications; GitHub allows a request every 60 s" in done.stdout
        assert github.marked == []


async def test_a_token_in_the_env_file_of_the_home_is_told_how_to_be_loaded(home: Path) -> None:
    (home / ".env").write_text("# of the court\nexport GITHUB_TOKEN=ghp_secret\nJIRA_API_TOKEN='x'\n")
    configure(home, github={}, jira={"url": "http://127.0.0.1:1", "email": "bot@acme.example"})
    load = f"set -a; . {home}/.env; set +a"
    for source, name in (("github", "GITHUB_TOKEN"), ("jira", "JIRA_API_TOKEN")):
        done = await connect(home, source, **{name: ""})
        told = f"error: {name} in {home}/.env must be loaded into the shell that starts the court: {load}\n"
        assert (done.returncode, done.stderr) == (1, told)
    doctor = await asyncio.to_thread(
        kingdom, "doctor", "--home", str(home), "--json", GITHUB_TOKEN="", SLACK_BOT_TOKEN=""
    )
    assert f"GITHUB_TOKEN in {home}/.env must be loaded" in doctor.stdout
    assert "ghp_secret" not in doctor.stdout


async def test_a_wrong_token_and_one_of_the_wrong_kind_are_told_apart(home: Path) -> None:
    async with FakeGitHub(Clock()) as github:
        configure(home, github={"url": github.url, "repos": ["acme/none"]})
        github.fail("/user", 401, body={"message": "Bad credentials"})
        done = await connect(home, "github", "--json")
        assert done.returncode == 1
        found = json.loads(done.stdout)["findings"]
        assert [finding["level"] for finding in found] == ["error"]
        assert "not accepted" in found[0]["text"]
        assert "settings/tokens/new" in found[0]["fix"]
        github.scopes = None
        github.fail("/notifications", 403, body={"message": "Resource not accessible by personal access token"})
        github.fail("/repos/acme/none", 404)
        done = await connect(home, "github")
        assert done.returncode == 1
        assert "classic tokens with the scope notifications" in done.stdout
        assert "acme/none: its issues and pull requests cannot be read" in done.stdout


async def test_before_anything_is_configured_it_says_what_to_do(home: Path) -> None:
    done = await connect(home, "github", GITHUB_TOKEN="")
    assert done.returncode == 1
    assert "GITHUB_TOKEN is not set" in done.stdout
    assert "config/sentinel.yaml has no github section" in done.stdout
    done = await connect(home, "jira")
    assert done.returncode == 1
    assert "no jira section" in done.stderr


async def test_a_jira_token_shows_whose_it_is_and_which_tickets_it_sees(home: Path) -> None:
    async with FakeJira(Clock()) as jira:
        configure(home, jira={"url": jira.url, "email": "bot@acme.example", "projects": ["SHOP"]})
        done = await connect(home, "jira")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "the account is Kingdom (time zone UTC)" in done.stdout
        assert "0 tickets changed in the last 7 days" in done.stdout
        assert "may browse them" in done.stdout
        jira.fail("/myself", 401)
        done = await connect(home, "jira")
        assert done.returncode == 1
        assert "JIRA_API_TOKEN is not accepted" in done.stdout


async def test_links_to_another_host_a_new_name_and_limits_are_told_apart(home: Path) -> None:
    clock = Clock()
    async with FakeGitHub(clock) as github:
        for number in range(1, 4):
            github.open(number)
        configure(home, github={"url": github.url, "repos": ["acme/shop"]})
        github.fail("GET /notifications", 200, body=[], Link='<https://ghe.example/notifications?page=2>; rel="next"')
        done = await connect(home, "github")
        assert done.returncode == 1
        assert "set github.url to https://ghe.example" in " ".join(done.stdout.split())
        github.rename("acme/shop", "acme/store")
        done = await connect(home, "github")
        assert "acme/shop is called acme/store now" in done.stdout
        github.lapsed.add("acme")
        done = await connect(home, "github")
        assert done.returncode == 1
        assert "the organization acme withholds" in " ".join(done.stdout.split())
        github.fail("GET /user", 429, Retry_After="30", body={"message": "slow down"})
        done = await connect(home, "github")
        assert done.returncode == 1
        assert "try again in 30 s" in " ".join(done.stdout.split())
