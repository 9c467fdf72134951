"""From a finished workflow to a merged pull request, as a person does it, with a GitHub that keeps state."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.bus import RetryPolicy
from kingdom.cli.app import run
from tests.support.command import Background
from tests.support.git_server import trusted
from tests.support.github_server import GitHubServer
from tests.support.repositories import plain_git

TOKEN = "t0ken-of-the-robot"
PLAN = """
name: add json
description: Add a --json flag to ls
repositories: [app]
{land}
engine: {{name: scripted, options: {{script: {script}}}}}
works:
  - name: look
    tasks: [{{query: Look around}}]
  - name: build
    tasks: [{{name: write, query: Write it, report: [What, How checked]}}]
"""
SCRIPT: dict[str, Any] = {
    "look/task-1": [{"say": "It is in `ls.py`."}, {"result": {"summary": "looked"}}],
    "build/write": [
        {"usage": {"input": 10, "output": 5, "cost_usd": 0.25}},
        {"write": {"path": "ls.py", "text": "json\n"}},
        {"result": {"summary": "Add the flag `--json` to ls"}},
    ],
    "build/write/report": [{"say": "## What\n\nls takes --json.\n\n## How checked\n\nRan the tests.\n"}],
    "more/task-1": [{"write": {"path": "more.py", "text": "more\n"}}, {"result": {"summary": "Document the flag"}}],
}


# An agent that writes, and merges when it is asked to.
MERGER = """\
import json, os, pathlib, subprocess, sys
asked = pathlib.Path(sys.argv[1]).read_text()
if "git merge" in asked:
    commit = asked.partition("git merge ")[2].partition("`")[0]
    subprocess.run(["git", "merge", "--quiet", commit], check=False, capture_output=True)
    pathlib.Path("ls.py").write_text("json\\nanother\\n")
    subprocess.run(["git", "add", "ls.py"], check=True)
    subprocess.run(["git", "commit", "--quiet", "--no-edit"], check=True)
else:
    pathlib.Path("ls.py").write_text("json\\n")
result = {"status": "success", "summary": "Add the flag"}
pathlib.Path(os.environ["KINGDOM_RESULT_PATH"]).write_text(json.dumps(result))
"""


class Desk:
    """A folder with workflows, a repository ``acme/app`` on GitHub, and the command."""

    def __init__(self, folder: Path, github: GitHubServer, capture: pytest.CaptureFixture[str]) -> None:
        self.folder, self.github, self.capture = folder, github, capture
        self.script = folder / "script.json"
        self.script.write_text(json.dumps(SCRIPT))
        settings = folder / "home" / "workflows" / "settings.yaml"
        settings.parent.mkdir(parents=True)
        settings.write_text(
            f"git:\n  author: Robot <robot@example.com>\n  co_authors: [Ada <ada@example.com>]\n"
            f"  credentials:\n    {github.host}: {{env: ROBOT_TOKEN}}\n"
        )

    def run(self, *arguments: str, code: int = 0) -> str:
        self.capture.readouterr()
        ended = run(arguments)
        printed = self.capture.readouterr()
        assert ended == code, printed.out + printed.err
        return printed.out + printed.err

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code))

    def plan(self, land: str = "", works: str = "") -> str:
        path = self.folder / "plan.yaml"
        path.write_text(PLAN.format(script=self.script, land=land) + works)
        return str(path)

    def finished(self, land: str = "") -> str:
        """A workflow that has run to its end; returns its name."""
        self.run("git", "add", f"{self.github.url}/acme/app.git")
        self.run("workflow", "create", self.plan(land), "--issue", "APP-1")
        self.said = self.run("workflow", "start", "add json")
        return "add json"

    def log(self, branch: str, form: str = "%s") -> list[str]:
        return plain_git(self.github.bare("acme/app"), "log", f"--format={form}", f"main..{branch}").splitlines()


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with GitHubServer(tmp_path / "github") as github, trusted(github):
        github.create("acme/app", {"ls.py": "print\n"})
        github.grant(TOKEN, "robot")
        made = Desk(tmp_path, github, capsys)
        monkeypatch.setenv("KINGDOM_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("ROBOT_TOKEN", TOKEN)
        yield made


def test_a_finished_workflow_becomes_a_pull_request_and_more_works_go_to_the_same_one(desk: Desk) -> None:
    name = desk.finished()
    assert f"kingdom workflow land '{name}' pushes it and opens a pull request" in desk.said
    said = desk.run("workflow", "land", name)
    (pull,) = desk.github.pulls["acme/app"]
    assert f"app: 1 commit on kingdom/APP-1-add-json, to be merged into main: {pull['html_url']} (opened)" in said
    assert (pull["title"], pull["base"]["ref"]) == ("APP-1: Add a --json flag to ls", "main")
    assert "ls takes --json." in pull["body"]
    assert "2 works, " in pull["body"]
    assert "$0.25" in pull["body"]
    assert desk.log("kingdom/APP-1-add-json", "%an|%s") == ["Robot|Add the flag --json to ls"]
    assert "Refs: APP-1\nCo-authored-by: Ada <ada@example.com>" in "\n".join(desk.log("kingdom/APP-1-add-json", "%b"))

    assert "(updated)" in desk.run("workflow", "land", name)
    assert desk.json("workflow", "land", name)["repositories"][0]["opened"] is False
    assert len(desk.github.pulls["acme/app"]) == 1

    desk.run(
        "workflow",
        "modify",
        name,
        "--file",
        desk.plan(works="  - {name: more, tasks: [{query: Document it}]}\n"),
        "--yes",
    )
    desk.run("workflow", "resume", name)
    desk.run("workflow", "land", name)
    assert desk.log("kingdom/APP-1-add-json") == ["Document the flag", "Add the flag --json to ls"]
    assert "Document the flag" in desk.github.pulls["acme/app"][0]["body"]
    shown = desk.json("workflow", "show", name)
    assert [one["url"] for one in shown["landings"]] == [pull["html_url"]]
    assert pull["html_url"] in desk.run("workflow", "show", name)
    assert "WorkflowLanded" in desk.run("workflow", "log", name)


@pytest.mark.walk
def test_a_template_that_says_so_lands_by_itself_and_the_link_is_shown(desk: Desk) -> None:
    desk.finished("land: {how: pull-request, squash: all, draft: true, title: 'ls: {{ issue.key }}'}")
    (pull,) = desk.github.pulls["acme/app"]
    assert f"landed on kingdom/APP-1-add-json: {pull['html_url']}" in desk.said
    assert (pull["title"], pull["draft"]) == ("ls: APP-1", True)
    assert desk.log("kingdom/APP-1-add-json") == ["ls: APP-1"]


LAST = "  - {name: last, pause_after: true, tasks: [{name: end, query: Look again}]}\n"


def away_at_the_end(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> str:
    """A workflow that is completed when GitHub is away; returns its name."""
    monkeypatch.setattr("kingdom.workflow.landing.RETRY_SECONDS", ())
    desk.script.write_text(json.dumps({**SCRIPT, "last/end": [{"result": {"summary": "seen"}}]}))
    desk.run("git", "add", f"{desk.github.url}/acme/app.git")
    desk.run("workflow", "create", desk.plan("land: {how: pull-request}", LAST))
    desk.run("workflow", "start", "add json")
    desk.github.__exit__()
    desk.said = desk.run("workflow", "resume", "add json")
    return "add json"


def test_a_host_that_is_away_gets_the_result_from_the_next_engine(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.workflow.usecases.landing._PAUSES", RetryPolicy(base=0.001, cap=0.001))
    name = away_at_the_end(desk, monkeypatch)
    assert "cannot be reached" in desk.said
    now = f"kingdom workflow land '{name}' does it now, kingdom workflow cancel '{name}' gives it up"
    assert now in desk.said
    listed = desk.run("workflow", "ls")
    assert "COMPLETED (not landed, no engine)" in listed
    assert f"not landed yet, it is tried again: {desk.github.host} cannot be reached: check its name" in listed
    assert "no engine runs: kingdom workflow engine lands what waits" in listed
    shown = desk.run("workflow", "show", name)
    assert "an engine tries again at " in shown
    assert now in shown
    with desk.github, Background(None, "workflow", "engine") as engine:
        while "WorkflowLanded" not in (line := engine.stdout.readline()):
            assert line, "it ended"
        assert f" {name} WorkflowLanded" in line, "workflows are named"
        engine.send_signal(signal.SIGINT)
        engine.communicate(timeout=60)
        (pull,) = desk.github.pulls["acme/app"]
        shown = desk.json("workflow", "show", name)
    assert (shown["landAgain"], shown["reason"]) == (None, None)
    assert [one["url"] for one in shown["landings"]] == [pull["html_url"]]


def test_what_waits_for_a_host_is_landed_or_given_up_by_a_person(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    name = away_at_the_end(desk, monkeypatch)
    assert desk.json("workflow", "show", name)["landAgain"]["tries"] == 1
    assert f"is not landed: kingdom workflow land '{name}' lands it after all" in desk.run(
        "workflow", "cancel", name, "--yes"
    )
    shown = desk.json("workflow", "show", name)
    assert (shown["status"], shown["landAgain"]) == ("COMPLETED", None)
    with desk.github:
        assert "(opened)" in desk.run("workflow", "land", name)


@pytest.mark.walk
def test_a_person_who_lands_it_ends_the_wait_for_the_host(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    name = away_at_the_end(desk, monkeypatch)
    with desk.github:
        assert "(opened)" in desk.run("workflow", "land", name)
    shown = desk.json("workflow", "show", name)
    assert (shown["landAgain"], shown["reason"], shown["landings"][0]["error"]) == (None, None, None)


@pytest.mark.walk
def test_a_text_that_a_person_changed_is_left_alone(desk: Desk) -> None:
    name = desk.finished()
    desk.run("workflow", "land", name)
    (pull,) = desk.github.pulls["acme/app"]
    pull["body"] = "I wrote this myself."
    desk.run(
        "workflow",
        "modify",
        name,
        "--file",
        desk.plan(works="  - {name: more, tasks: [{query: Document it}]}\n"),
        "--yes",
    )
    desk.run("workflow", "resume", name)
    desk.run("workflow", "land", name)
    assert desk.github.pulls["acme/app"][0]["body"] == "I wrote this myself."


def test_a_kill_between_the_push_and_the_pull_request_leaves_one_of_each(desk: Desk) -> None:
    name = desk.finished()
    desk.github.fail_next = [502]
    assert "could not take the request now" in desk.run("workflow", "land", name, code=1)
    branch = desk.github.refs("acme/app")["kingdom/APP-1-add-json"]
    assert "could not take the request now" in desk.run("workflow", "show", name)
    desk.run("workflow", "land", name)
    assert desk.github.refs("acme/app")["kingdom/APP-1-add-json"] == branch
    assert len(desk.github.pulls["acme/app"]) == 1
    assert desk.json("workflow", "show", name)["landings"][0]["error"] is None


@pytest.mark.walk
def test_a_branch_of_somebody_else_is_not_touched(desk: Desk) -> None:
    theirs = desk.github.commit("acme/app", {"x": "1"}, branch="kingdom/APP-1-add-json")
    name = desk.finished()
    desk.run("workflow", "land", name)
    refs = desk.github.refs("acme/app")
    assert refs["kingdom/APP-1-add-json"] == theirs
    assert desk.log("kingdom/APP-1-add-json-2") == ["Add the flag --json to ls"]
    refused = desk.run("workflow", "land", name, "--branch", "kingdom/APP-1-add-json", code=1)
    assert "has commits of others" in refused
    assert "update-base" in refused


def test_what_others_pushed_to_it_and_to_the_base_is_brought_in(desk: Desk) -> None:
    name = desk.finished()
    desk.run("workflow", "land", name)
    bare = desk.github.bare("acme/app")
    mine = desk.folder / "mine"
    plain_git(desk.folder, "clone", "--quiet", "--branch", "kingdom/APP-1-add-json", str(bare), str(mine))
    (mine / "review.txt").write_text("fixed in review\n")
    plain_git(mine, "add", "review.txt")
    plain_git(mine, "commit", "--quiet", "-m", "Fix what the review found")
    plain_git(mine, "push", "--quiet")
    desk.github.commit("acme/app", {"news.txt": "1\n"}, "News")
    assert "has commits of others" in desk.run("workflow", "land", name, code=1)
    assert "app: merged" in desk.run("workflow", "update-base", name, "--from", "kingdom/APP-1-add-json")
    assert "app: merged" in desk.run("workflow", "update-base", name)
    assert "app: has everything already" in desk.run("workflow", "update-base", name)
    desk.run("workflow", "land", name)
    log = desk.log("kingdom/APP-1-add-json")
    assert "Fix what the review found" in log
    assert "News" not in log
    desk.github.merge("acme/app", 1)
    assert plain_git(bare, "show", "main:review.txt") == "fixed in review"
    assert plain_git(bare, "show", "main:ls.py") == "json"


def test_conflicts_with_the_base_are_said_with_their_files_and_change_nothing(desk: Desk) -> None:
    name = desk.finished()
    desk.github.commit("acme/app", {"ls.py": "another\n"}, "Another")
    refused = desk.run("workflow", "update-base", name, code=1)
    assert "main cannot be merged, both sides changed ls.py" in refused
    assert "then land again; or have the agent do it with update-base --agent" in refused


def test_conflicts_go_to_the_agent_if_one_wants(desk: Desk) -> None:
    (desk.folder / "merger.py").write_text(MERGER)
    argv = [sys.executable, str(desk.folder / "merger.py"), "{prompt_path}"]
    plan = {
        "name": "flag",
        "repositories": ["app"],
        "engine": {"name": "command", "options": {"argv": argv}},
        "works": [{"name": "build", "tasks": [{"query": "Write it."}]}],
    }
    (desk.folder / "flag.yaml").write_text(json.dumps(plan))
    desk.run("git", "add", f"{desk.github.url}/acme/app.git")
    desk.run("workflow", "create", str(desk.folder / "flag.yaml"))
    desk.run("workflow", "start", "flag")
    desk.github.commit("acme/app", {"ls.py": "another\n"}, "Another")
    added = desk.run("workflow", "update-base", "flag", "--agent")
    assert "kingdom workflow resume flag runs the new work 'merge main'" in added
    desk.run("workflow", "resume", "flag")
    desk.run("workflow", "land", "flag")
    assert "Another" not in desk.log("kingdom/flag"), "it is merged, not landed again"
    desk.github.merge("acme/app", 1)
    assert plain_git(desk.github.bare("acme/app"), "show", "main:ls.py") == "json\nanother"


@pytest.mark.parametrize(
    ("grant", "token", "words"),
    [
        ({"acme__app": False}, TOKEN, "refused the variable ROBOT_TOKEN"),
        pytest.param({}, "wrong", "refused the variable ROBOT_TOKEN", marks=pytest.mark.walk),
        ({}, "", "set the variable ROBOT_TOKEN"),
    ],
)
def test_no_rights_are_said_with_what_to_do(
    desk: Desk, grant: dict[str, bool], token: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = desk.finished()
    if grant:
        desk.github.grant(TOKEN, "robot", **grant)
    monkeypatch.setenv("ROBOT_TOKEN", token)
    assert words in desk.run("workflow", "land", name, code=1)
    assert desk.github.pulls == {}


@pytest.mark.walk
def test_a_protected_branch_is_said_with_what_to_do(desk: Desk) -> None:
    desk.github.protect("acme/app", "release")
    name = desk.finished()
    refused = desk.run("workflow", "land", name, "--branch", "release", code=1)
    assert "the branch release was refused: pre-receive hook declined; GH006: Protected branch" in refused
    assert "choose another name with --branch" in refused


def test_only_pushed_into_a_checkout_or_as_patches(desk: Desk) -> None:
    name = desk.finished()
    mine = desk.folder / "mine"
    plain_git(desk.folder, "clone", "--quiet", str(desk.github.bare("acme/app")), str(mine))
    assert f"1 commit on the branch kingdom/APP-1-add-json in {mine}" in desk.run(
        "workflow", "land", name, "--into", str(mine)
    )
    assert plain_git(mine, "show", "kingdom/APP-1-add-json:ls.py") == "json"
    assert plain_git(mine, "status", "--short") == ""
    series = desk.folder / "series.patch"
    assert f"git am {series}" in desk.run("workflow", "land", name, "--patch", str(series))
    plain_git(mine, "am", "--quiet", str(series))
    assert plain_git(mine, "log", "-1", "--format=%s") == "Add the flag --json to ls"
    assert desk.github.refs("acme/app").keys() == {"main"}
    desk.run("workflow", "land", name, "--push")
    assert desk.github.refs("acme/app").keys() == {"main", "kingdom/APP-1-add-json"}
    assert desk.github.pulls == {}
    assert "use only one of them" in desk.run("workflow", "land", name, "--push", "--into", ".", code=2)


def test_a_folder_that_is_no_checkout_is_not_taken_for_the_one_around_me(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = desk.finished()
    mine = desk.folder / "mine"
    plain_git(desk.folder, "clone", "--quiet", str(desk.github.bare("acme/app")), str(mine))
    monkeypatch.chdir(mine)
    said = desk.run("workflow", "land", name, "--into", "../msitake", code=1)
    assert "there is no folder ../msitake: name one in a git repository" in said
    (desk.folder / "plain").mkdir()
    assert "is not in a git repository" in desk.run("workflow", "land", name, "--into", "../plain", code=1)
    assert plain_git(mine, "branch", "--list", "kingdom/*") == ""


def test_a_checkout_of_mine_lands_at_its_own_remote(desk: Desk) -> None:
    mine = desk.folder / "mine"
    plain_git(desk.folder, "clone", "--quiet", str(desk.github.bare("acme/app")), str(mine))
    plain_git(mine, "remote", "set-url", "origin", f"{desk.github.url}/acme/app.git")
    desk.run("git", "add", str(mine), "--name", "app")
    desk.run("workflow", "create", desk.plan())
    desk.run("workflow", "start", "add json")
    desk.run("workflow", "land", "add json")
    assert desk.log("kingdom/add-json") == ["Add the flag --json to ls"]
    assert len(desk.github.pulls["acme/app"]) == 1


def test_a_checkout_lands_at_the_remote_that_it_has_now(desk: Desk) -> None:
    mine, other = desk.folder / "mine", desk.folder / "other.git"
    plain_git(desk.folder, "clone", "--quiet", str(desk.github.bare("acme/app")), str(mine))
    plain_git(desk.folder, "init", "--quiet", "--bare", str(other))
    plain_git(mine, "remote", "remove", "origin")
    desk.run("git", "add", str(mine), "--name", "app")
    desk.run("workflow", "create", desk.plan())
    desk.run("workflow", "start", "add json")
    assert "it has no pull requests" in desk.run("workflow", "land", "add json", code=1)

    plain_git(mine, "remote", "add", "origin", str(other))
    assert f"at {other}" in desk.run("workflow", "land", "add json", "--push")
    assert plain_git(other, "log", "-1", "--format=%s", "kingdom/add-json") == "Add the flag --json to ls"

    plain_git(mine, "remote", "set-url", "origin", f"{desk.github.url}/acme/app.git")
    assert "/acme/app/pull/1 (opened)" in desk.run("workflow", "land", "add json")
    plain_git(mine, "remote", "set-url", "origin", str(other))
    assert "/acme/app/pull/1 (updated)" in desk.run("workflow", "land", "add json"), "where its pull request is"


def test_nothing_to_land_and_a_workflow_that_never_ran_are_said(desk: Desk) -> None:
    desk.run("git", "add", f"{desk.github.url}/acme/app.git")
    desk.run("workflow", "create", desk.plan())
    assert "its worktrees are not there" in desk.run("workflow", "land", "add json", code=1)
    desk.script.write_text(
        json.dumps({key: [{"result": {}}] for key in SCRIPT} | {"build/write/report": SCRIPT["build/write/report"]})
    )
    desk.run("workflow", "start", "add json")
    assert "has changed nothing that is committed" in desk.run("workflow", "land", "add json", code=1)


def test_the_token_is_in_no_file(desk: Desk) -> None:
    name = desk.finished()
    desk.run("workflow", "land", name)
    found = [
        path for path in (desk.folder / "home").rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()
    ]
    assert found == []
    assert TOKEN not in json.dumps(desk.json("workflow", "show", name)) + os.fspath(desk.folder)
