"""The shipped gen-issue and gen-jira with the real Claude Code and Codex: to a pull request, and what reviewers say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kingdom.court.home import MARKER
from kingdom.court.init_home import SHIPPED_GENERALS_DIR
from tests.support.cli_courts import GENERAL, Cli, CliCourt, talking
from tests.support.github_server import TOKEN, GitHubServer, github_of_a_court, hub_settings
from tests.support.model_servers import Say
from tests.support.repositories import plain_git

BRANCH = "kingdom/acme-shop-5"


@pytest.fixture(params=["claude", pytest.param("codex", marks=pytest.mark.walk)])
def cli(request: pytest.FixtureRequest) -> Iterator[Cli]:
    with talking(request.param) as found:
        yield found


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubServer]:
    with github_of_a_court(tmp_path / "github", monkeypatch, "acme/shop", {"ls.py": "print('ls')\n"}) as server:
        yield server


def shipped_court(name: str, root: Path, cli: Cli, github: GitHubServer, patch: pytest.MonkeyPatch) -> CliCourt:
    """A court whose general has everything of a package but the name and the engine."""
    package = SHIPPED_GENERALS_DIR / name
    shipped = yaml.safe_load((package / "manifest.yaml").read_text())
    kept = {name: shipped[name] for name in ("needs_repo", "subscribes", "evidence", "land", "retries")}
    made = CliCourt(root, cli, patch, **kept)
    for file in ("prompt.md", "instructions.md"):
        shutil.copy(package / file, made.home.general(GENERAL) / file)
    system = json.loads((made.home.root / MARKER).read_text())
    (made.home.root / MARKER).write_text(json.dumps(system | hub_settings(github)))
    return made


@pytest.fixture
def court(tmp_path: Path, cli: Cli, github: GitHubServer, monkeypatch: pytest.MonkeyPatch) -> CliCourt:
    return shipped_court("gen-issue", tmp_path, cli, github, monkeypatch)


def soldier(court: CliCourt, line: str, subject: str, summary: str) -> None:
    """Have the next soldier add a line to the program, commit it, and report."""
    court.cli.server.script += [
        court.cli.runs(f"echo '{line}' >> ls.py"),
        court.cli.runs("git add ls.py"),
        court.cli.runs(f"git commit -q -m '{subject}'"),
        court.leaves("success", summary=summary),
        Say("Done."),
    ]


@pytest.mark.walk
async def test_a_question_is_asked_on_the_issue_and_answered_there(court: CliCourt, github: GitHubServer) -> None:
    court.cli.server.script += [
        court.leaves("needs_human", question={"text": "Sorted by name or by size?", "choices": ["name", "size"]}),
        Say("I wait."),
    ]
    async with court.running():
        payload: dict[str, Any] = {"number": 5, "title": "Sort the list", "author": "grace"}
        court.drop("github.issue.assigned", repo="acme/shop", **payload)
        await court.until(lambda: github.comments.get(("acme/shop", 5)), "the question on the issue")
        (question,) = github.comments["acme/shop", 5]
        assert question["body"].startswith("I have a question before I go on: Sorted by name or by size?")
        assert "Answer in a comment that mentions this account." in question["body"]
        soldier(court, "sort = name", "Sort by name", "The list is sorted by name.")
        comment = {"author": "grace", "body": "@kingdom-bot by name, please"}
        answer = {**payload, "actor": "grace", "comment": comment}
        court.drop("github.issue.mentioned", "evt-test-2", repo="acme/shop", **answer)
        await court.until(lambda: len(court.documents("events/completed")) == 3, "issue, comment and answer completed")
    (pull,) = github.pulls["acme/shop"]
    assert "The list is sorted by name.\n\nCloses #5.\n" in pull["body"]
    told = court.cli.told()
    assert "You asked a question" in told
    assert "by name, please" in told
    assert [one["status"] for one in court.results()] == ["needs_human", "success"]


async def test_an_issue_ends_in_a_pull_request_and_a_review_comes_back_to_it(
    court: CliCourt, github: GitHubServer
) -> None:
    soldier(court, "json = True", "Add --json to ls", "ls takes --json now.")
    async with court.running():
        payload: dict[str, Any] = {"number": 5, "title": "Add --json to ls", "author": "grace"}
        court.drop("github.issue.assigned", repo="acme/shop", **payload)
        await court.until(lambda: len(court.documents("events/completed")) == 1, "the issue completed")
        (pull,) = github.pulls["acme/shop"]
        assert (pull["title"], pull["head"]["ref"]) == ("Add --json to ls", BRANCH)
        assert "ls takes --json now.\n\nCloses #5.\n" in pull["body"]
        assert "You resolve an issue of acme/shop" in court.cli.told()

        soldier(court, "dump = True", "Call it --dump", "It is --dump now, as you asked.")
        about = {"number": 1, "title": pull["title"], "url": pull["html_url"], "state": "open", "author": "ann"}
        review = {"review_state": "changes_requested", "comment": {"author": "ann", "body": "Please call it --dump."}}
        court.drop("github.pr.reviewed", "evt-test-2", repo="acme/shop", **about, **review)
        await court.until(lambda: len(court.documents("events/completed")) == 2, "the review completed")

        theirs = {"number": 9, "url": f"{github.url}/acme/shop/pull/9", "state": "open", "author": "ann"}
        court.drop("github.pr.reviewed", "evt-test-3", repo="acme/shop", **theirs, **review)
        await court.until(lambda: len(court.documents("events/completed")) == 3, "the other review discarded")
    first, second = court.results()
    assert [first["status"], second["status"]] == ["success", "success"], second["error"]
    assert second["session_id"] == first["session_id"], "it is the same conversation"
    assert github.pulls["acme/shop"] == [pull]
    log = plain_git(github.bare("acme/shop"), "log", "--format=%s", f"main..{BRANCH}").splitlines()
    assert log == ["Call it --dump", "Add --json to ls"]
    (comment,) = github.comments["acme/shop", 1]
    assert comment["body"].startswith("It is --dump now, as you asked.")
    told = court.cli.told()
    assert "ls takes --json now." in told, "the agent knows what it did"
    assert "Pull request 1 is your own work" in told
    assert "Please call it --dump." in told
    assert "You asked a question" not in told
    assert TOKEN not in json.dumps(court.cli.server.requests)


@pytest.mark.walk
async def test_a_ticket_ends_in_a_pull_request(
    tmp_path: Path, cli: Cli, github: GitHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    court = shipped_court("gen-jira", tmp_path, cli, github, monkeypatch)
    summary = "ls takes --json now. Tested with pytest."
    soldier(court, "json = True", "SHOP-7 Add --json to ls", summary)
    async with court.running():
        court.drop("jira.ticket.assigned", repo="acme/shop", ticket_key="SHOP-7", title="Add --json to ls")
        await court.until(lambda: court.documents("events/completed"), "the event completed")
        messages = await court.until(
            lambda: [one for one in court.documents("messages/pending") if "pull/1" in one["content"]], "a message"
        )
    (result,) = court.results()
    (pull,) = github.pulls["acme/shop"]
    assert (result["status"], result["error"], result["links"]) == ("success", None, [pull["html_url"]])
    assert (pull["title"], pull["head"]["ref"]) == ("SHOP-7: Add --json to ls", "kingdom/SHOP-7")
    assert summary in pull["body"]
    assert pull["html_url"] in messages[0]["content"], "people get the link"
    log = plain_git(github.bare("acme/shop"), "log", "--format=%s", "main..kingdom/SHOP-7")
    assert log == "SHOP-7 Add --json to ls"
    told = court.cli.told()
    assert "You implement a ticket" in told
    assert TOKEN not in json.dumps(court.cli.server.requests)
