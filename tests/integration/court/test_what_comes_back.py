"""From a ticket to a merged pull request: what reviewers say comes back to the workflow that made it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from kingdom.court.pull_requests import OpenedPullRequests
from tests.support.git_server import trusted
from tests.support.github_server import GitHubServer
from tests.support.repositories import plain_git
from tests.support.workflow_courts import GENERAL, WorkflowCourt

TOKEN = "token-of-the-court"
# It fixes, and does what a reviewer says; each run costs the same.
AGENT = """\
import json, os, pathlib, sys
asked = pathlib.Path(sys.argv[1]).read_text()
asks = "Your work is in the pull request" in asked
pathlib.Path("review.txt" if asks else "fix.txt").write_text("done\\n")
with pathlib.Path(sys.argv[2]).open("a") as file:
    file.write(json.dumps(asked) + "\\n")
summary = "Rename it as asked" if asks else "Fix the parser"
pathlib.Path(os.environ["KINGDOM_RESULT_PATH"]).write_text(json.dumps({"status": "success", "summary": summary}))
"""


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubServer]:
    with GitHubServer(tmp_path / "github") as server, trusted(server):
        server.grant(TOKEN, "court")
        server.create("acme/web")
        monkeypatch.setenv("WEB_TOKEN", TOKEN)
        yield server


@pytest.fixture
def court(tmp_path: Path, github: GitHubServer) -> WorkflowCourt:
    made = WorkflowCourt(tmp_path)
    (tmp_path / "agent.py").write_text(AGENT)
    argv = [sys.executable, str(tmp_path / "agent.py"), "{prompt_path}", str(tmp_path / "asked")]
    fix = {"name": "fix", "engine": {"name": "command", "options": {"argv": argv}}, "tasks": [{"query": "Fix it."}]}
    subscribes = ["jira.ticket.*", "github.pr.commented", "github.pr.reviewed", "github.pr.merged"]
    made.found([fix], subscribes=subscribes, land="pull-request")
    system = {
        "repos": {"base_url": github.url},
        "git": {"credentials": {github.host: {"env": "WEB_TOKEN"}}},
        "sandbox": {"mode": "off"},
    }
    (made.home.config / "system.yaml").write_text(yaml.safe_dump(system))
    return made


def about(pull: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The payload of an event about a pull request, as the sentinel makes it."""
    return {"number": pull["number"], "title": pull["title"], "url": pull["html_url"], **more}


async def test_a_comment_becomes_a_work_of_the_same_workflow_and_a_commit_on_the_same_branch(
    court: WorkflowCourt, github: GitHubServer
) -> None:
    async with court.reigning() as reign:
        ticket = {"ticket_key": "WEB-7", "title": "The parser drops a line"}
        court.drop("evt-jira-1", "jira.ticket.assigned", ticket, "acme/web")
        await reign.until(lambda: court.completed("evt-jira-1"))
        (first,) = court.results()
        (pull,) = github.pulls["acme/web"]
        assert (first["status"], first["links"][0]) == ("success", pull["html_url"])
        assert pull["html_url"] in first["summary"]

        comment: dict[str, Any] = {"author": "ann", "body": "Please call it {{ parse }} instead."}
        court.drop("evt-github-2", "github.pr.commented", about(pull, comment=comment), "acme/web")
        await reign.until(lambda: court.completed("evt-github-2"))
    _, second = court.results()
    assert (second["status"], second["links"][0]) == ("success", pull["html_url"])
    assert second["session_id"] == first["session_id"], "it is the same workflow"
    assert len(await court.workflows()) == 1
    assert len(github.pulls["acme/web"]) == 1
    branch = pull["head"]["ref"]
    log = plain_git(github.bare("acme/web"), "log", "--format=%s", f"main..{branch}").splitlines()
    assert log == ["Rename it as asked", "Fix the parser"]
    asked = court.prompts()
    assert "Please call it {{ parse }} instead." in asked[1]
    assert pull["html_url"] in asked[1]
    github.merge("acme/web", 1)
    assert plain_git(github.bare("acme/web"), "show", "main:review.txt") == "done"
    worktrees = court.home.workflows / "worktrees"
    assert list(worktrees.glob("*/*"))
    async with court.reigning() as reign:
        court.drop("evt-github-4", "github.pr.merged", about(pull), "acme/web")
        await reign.until(lambda: court.completed("evt-github-4"))
    last = court.results()[-1]
    assert (last["status"], last["summary"]) == ("success", f"{pull['html_url']} is done, worktrees released: 1")
    assert not list(worktrees.glob("*/*"))
    assert court.branches() == []
    assert len(court.prompts()) == 2, "no agent was asked"


async def test_a_mention_on_the_ticket_goes_on_with_its_workflow_until_that_is_merged(
    court: WorkflowCourt, github: GitHubServer
) -> None:
    ticket = {"ticket_key": "WEB-7", "title": "The parser drops a line"}
    mention = {**ticket, "comment": {"author": "ann", "body": "Call it parse."}}
    async with court.reigning() as reign:
        court.drop("evt-jira-1", "jira.ticket.assigned", ticket, "acme/web")
        court.drop("evt-jira-2", "jira.ticket.mentioned", mention, "acme/web")
        await reign.until(lambda: court.completed("evt-jira-2"))
        court.drop("evt-jira-3", "jira.ticket.assigned", ticket, "acme/web")  # as old as the first
        await reign.until(lambda: court.completed("evt-jira-3"))
        (pull,) = github.pulls["acme/web"]
        assert len(await court.workflows()) == 1
        log = plain_git(github.bare("acme/web"), "log", "--format=%s", f"main..{pull['head']['ref']}").splitlines()
        assert log == ["Rename it as asked", "Fix the parser"]
        assert "Call it parse." in court.prompts()[1]

        github.merge("acme/web", 1)
        court.drop("evt-jira-4", "jira.ticket.mentioned", mention, "acme/web")
        await reign.until(lambda: court.completed("evt-jira-4"))
    results = court.results()
    assert [one["status"] for one in results] == ["success", "success", "skipped", "success"]
    assert results[2]["summary"].endswith(f"has done it, in {pull['html_url']}, since this was asked for")
    assert "Your work is in the pull request" not in court.prompts()[2]
    assert len(await court.workflows()) == 2


async def test_a_comment_on_a_pull_request_of_somebody_else_is_a_task_of_its_own(
    court: WorkflowCourt, github: GitHubServer
) -> None:
    async with court.reigning() as reign:
        theirs = {"number": 9, "title": "Theirs", "html_url": f"{github.url}/acme/web/pull/9"}
        court.drop("evt-github-3", "github.pr.commented", about(theirs), "acme/web")
        await reign.until(lambda: court.completed("evt-github-3"))
    (result,) = court.results()
    assert result["status"] == "success", result
    assert "Your work is in the pull request" not in court.prompts()[0]


async def test_with_own_a_pull_request_of_somebody_else_is_left_alone(
    court: WorkflowCourt, github: GitHubServer
) -> None:
    path = court.home.general(GENERAL) / "manifest.yaml"
    manifest = yaml.safe_load(path.read_text())
    manifest["subscribes"] = ["jira.ticket.assigned", {"type": "github.pr.*", "own": True}]
    path.write_text(yaml.safe_dump(manifest))
    async with court.reigning() as reign:
        court.drop("evt-jira-1", "jira.ticket.assigned", {"ticket_key": "WEB-7", "title": "A line is lost"}, "acme/web")
        await reign.until(lambda: court.completed("evt-jira-1"))
        (pull,) = github.pulls["acme/web"]
        theirs = {"number": 9, "title": "Theirs", "html_url": f"{github.url}/acme/web/pull/9"}
        court.drop("evt-github-2", "github.pr.commented", about(theirs), "acme/web")
        await reign.until(lambda: court.completed("evt-github-2"))
        court.drop("evt-github-3", "github.pr.commented", about(pull, comment={"body": "Rename it."}), "acme/web")
        await reign.until(lambda: court.completed("evt-github-3"))
        known = OpenedPullRequests(court.home).find(pull["html_url"])
        assert known is not None
        OpenedPullRequests(court.home).record(replace(known, checks=3))
        for event_id in ("evt-github-5", "evt-github-6"):
            court.drop(event_id, "github.pr.check_failed", about(pull, check={"name": "tests"}), "acme/web")
            await reign.until(lambda event_id=event_id: court.completed(event_id))  # type: ignore[misc]
        github.merge("acme/web", 1)
        court.drop("evt-github-4", "github.pr.merged", about(pull, state="merged"), "acme/web")
        await reign.until(lambda: court.completed("evt-github-4"))
    results = court.results()
    assert [one["status"] for one in results] == ["success", "success", "failed", "skipped", "success"]
    assert "the checks have failed again, after 3 tasks about them in a row" in str(results[2]["error"])
    assert len(court.prompts()) == 2, "no agent was asked again"
    summaries = [one["summary"] for one in results]
    assert summaries[-1] == f"{pull['html_url']} is done, worktrees released: 1"
    assert len(await court.workflows()) == 1
