"""``kingdom run``, as a person calls it in a repository of theirs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_clis import installed
from tests.support.command import Background, Terminal, kingdom, kingdom_tty
from tests.support.model_servers import MessagesServer, Say, Use
from tests.support.repositories import Remote, plain_git
from tests.support.workshop import NO_NETWORK

TEXT = "Add a --json flag to {{ ls }}"
STEPS: list[dict[str, Any]] = [
    {"say": "I look at ls.py."},
    {"write": {"path": "ls.py", "text": "json\n"}},
    {"usage": {"input": 1200, "output": 80, "cost_usd": 0.25}},
    {"result": {"summary": "done"}},
]


class Shop:
    """A repository of a person, who stands in its folder and has no home of Kingdom."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.remote = Remote(folder / "shop")
        self.remote.commit({"ls.py": "ls\n"})
        self.data = folder / "data"
        (folder / "user").mkdir()
        monkeypatch.delenv("KINGDOM_HOME", raising=False)
        monkeypatch.setenv("XDG_DATA_HOME", str(self.data))
        monkeypatch.setenv("HOME", str(folder / "user"))
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        monkeypatch.chdir(self.remote.folder)

    def run(self, *words: str, steps: list[dict[str, Any]] = STEPS, code: int = 0) -> str:
        done = kingdom("run", *words, *self.scripted(steps))
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def scripted(
        self, steps: list[dict[str, Any]] | dict[str, Any] = STEPS, name: str = "script.json"
    ) -> tuple[str, ...]:
        script = self.folder / name
        script.write_text(json.dumps(steps))
        return "--engine", "scripted", "--option", f"script={script}"

    def kingdom(self, *words: str, code: int = 0) -> str:
        done = kingdom(*words)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def show(self, name: str) -> Any:
        return json.loads(self.kingdom("workflow", "show", name, "--json"))


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(tmp_path, monkeypatch)


def test_one_command_from_a_request_to_a_diff(shop: Shop) -> None:
    said = shop.run(TEXT)
    assert "scripted works on shop from main (workflow add-a-json-flag-to-ls)" in said
    assert "without" not in said, "everything is committed"
    assert "I look at ls.py.\n→ Write ls.py" in said
    assert "modified  +1 -1" in said
    assert "COMPLETED (1 file changed, +1 -1, $0.25, 1,280 tokens)" in said
    assert (shop.remote.folder / "ls.py").read_text() == "ls\n", "the person's own files are not touched"
    (task,) = shop.show("add-a-json-flag-to-ls")["works"][0]["tasks"]
    assert task["status"] == "COMPLETED"

    # what the last lines say works
    see, _, bring, more = (line.split(maxsplit=2)[2] for line in said.splitlines()[-4:])
    assert see == "kingdom workflow diff add-a-json-flag-to-ls --base"
    assert "+json" in shop.kingdom(*see.split()[1:])
    assert "1 commit on the branch kingdom/add-a-json-flag-to-ls in " in shop.kingdom(*bring.split()[1:])
    assert plain_git(shop.remote.folder, "show", "kingdom/add-a-json-flag-to-ls:ls.py") == "json"
    assert "land it" not in said, "there is no remote"
    assert more == "kingdom workflow follow-up add-a-json-flag-to-ls TEXT"

    # and again: the repository is registered once, the second workflow has a name of its own
    assert "workflow add-a-json-flag-to-ls-2" in shop.run(TEXT, "--no-watch")
    assert len(json.loads(shop.kingdom("git", "ls", "--json"))["repositories"]) == 1


def test_it_starts_from_what_is_checked_out_and_says_what_is_not_committed(shop: Shop) -> None:
    plain_git(shop.remote.folder, "switch", "--quiet", "--create", "feature")
    shop.remote.commit({"feature.py": "new\n"})
    (shop.remote.folder / "ls.py").write_text("half done\n")
    (shop.remote.folder / "note.txt").write_text("a note\n")
    below = shop.remote.folder / "docs"
    below.mkdir()
    said = shop.run("Look", "--repo", str(below))
    assert "works on shop from feature" in said
    assert "without 1 changed file (ls.py) and 1 untracked file (note.txt): commit first what it needs" in said
    tree = Path(shop.show("look")["repositories"][0]["path"])
    assert (tree / "feature.py").exists()
    assert not (tree / "note.txt").exists()
    assert (shop.remote.folder / "ls.py").read_text() == "half done\n"


def test_a_commit_that_is_checked_out_is_named_by_its_first_characters(shop: Shop) -> None:
    commit = plain_git(shop.remote.folder, "rev-parse", "HEAD")
    plain_git(shop.remote.folder, "checkout", "--quiet", "--detach")
    assert f"scripted works on shop from the commit {commit[:10]} (workflow look)" in shop.run("Look")


def test_workflows_of_different_repositories_are_told_apart(shop: Shop) -> None:
    shop.run("Look")
    other = shop.folder / "other"
    Remote(other).commit({"a.txt": "a\n"})
    plain = shop.folder / "plan.yaml"
    plain.write_text("name: small\nworks:\n  - {name: look, tasks: [{query: Look}]}\n")
    said = shop.kingdom("workflow", "create", str(plain), "--repo", str(other), code=1)
    adding = f"kingdom git add {other}"
    assert f"the repository {other} is not registered here: {adding} does that first" in said
    shop.kingdom(*adding.split()[1:])
    shop.kingdom("workflow", "create", str(plain), "--repo", str(other))
    shop.kingdom("workflow", "create", str(plain), "--repo", ".")
    listed = [line.split() for line in shop.kingdom("workflow", "ls").splitlines()]
    assert listed[0] == ["workflow", "status", "repository", "created", "id"], "nothing has an issue"
    assert [(line[0], line[2]) for line in listed[1:]] == [("small-2", "shop"), ("small", "other"), ("look", "shop")]
    found = json.loads(shop.kingdom("workflow", "ls", "--json"))["workflows"]
    assert [one["repositories"] for one in found] == [["shop"], ["other"], ["shop"]]


def test_more_is_asked_for_in_the_same_conversation_and_lands_on_the_same_branch(shop: Shop) -> None:
    assert "there is no request in shop to go on with" in shop.kingdom("run", "-c", "More", code=1)
    shop.run(TEXT, "--land", "checkout")
    shop.run("Something else", "--base", "main")
    shop.kingdom("workflow", "cancel", shop.run("Stop here", steps=[{"fail": "no"}], code=1) and "stop-here", "--yes")
    shop.scripted([{"write": {"path": "ls.txt", "text": "plain\n"}}, {"result": {"summary": "plain text, too"}}])

    said = shop.kingdom("run", "--continue", "Write {{ plain }} text, too", "--land", "checkout")
    assert "shop goes on with something-else; Ctrl-C pauses it" in said, "the newest that is not cancelled"
    assert "→ Write ls.txt" in said
    assert "ls.txt  added     +1 -0" in said
    assert "COMPLETED (2 files changed" in said
    assert "on the branch kingdom/something-else in" in said
    assert plain_git(shop.remote.folder, "log", "--format=%s", "main..kingdom/something-else").splitlines() == [
        "plain text, too", "done",
    ]  # fmt: skip

    said = shop.kingdom("workflow", "follow-up", "add-a-json-flag-to-ls", "Write plain text, too")
    assert "COMPLETED" in said
    works = shop.show("add-a-json-flag-to-ls")["works"]
    assert [work["name"] for work in works] == ["run", "write-plain-text-too"]
    assert "is for a new request" in shop.kingdom("run", "-c", "More", "--model", "big", code=2)
    assert "say what to do" in shop.kingdom("workflow", "follow-up", "something-else", " ", code=2)
    said = shop.kingdom("workflow", "follow-up", "something-else", "More", "--work", "none", code=1)
    assert "has no work 'none': run, write-plain-text-too" in said


def test_it_is_live_on_a_terminal(shop: Shop) -> None:
    code, screen = kingdom_tty("run", TEXT, *shop.scripted(), answer="\n")
    assert code == 0, screen
    assert "I look at ls.py." in screen
    assert "$0.25  1,280 tokens" in screen
    assert "COMPLETED (1 file changed" in screen
    assert "Traceback" not in screen


def test_the_result_is_landed_as_the_command_or_the_person_says(shop: Shop) -> None:
    assert "on the branch kingdom/add-a-json-flag-to-ls in" in shop.run(TEXT, "--land", "checkout")
    assert plain_git(shop.remote.folder, "log", "-1", "--format=%s", "kingdom/add-a-json-flag-to-ls") == "done"
    code, screen = kingdom_tty("run", TEXT, "--no-watch", *shop.scripted(), answer="checkout\n")
    assert code == 0, screen
    assert "land it as (checkout, none) [none]:" in screen, "there is no remote"
    assert "on the branch kingdom/add-a-json-flag-to-ls-2 in" in screen


def test_a_request_that_is_continued_as_a_workflow_ends_with_commands_that_work(shop: Shop) -> None:
    shop.run("Paint it", steps=[{"ask": {"question": "Red or blue?"}}])
    shop.scripted(ASKING)
    said = shop.kingdom("workflow", "answer", "paint-it", "blue")
    assert "pull request" not in said, "there is no remote"
    assert "--push" not in said
    see, bring = (line for line in said.splitlines() if line.startswith("kingdom workflow ") and " paint-it --" in line)
    see, bring = sorted((see, bring))
    assert see == "kingdom workflow diff paint-it --base shows what changed"
    assert bring == f"kingdom workflow land paint-it --into {shop.remote.folder} makes its branch in your checkout"
    assert "+blue" in shop.kingdom(*see.split()[1:5])
    assert "1 commit on the branch kingdom/paint-it in " in shop.kingdom(*bring.split()[1:6])

    origin = shop.folder / "origin.git"
    plain_git(shop.folder, "init", "--quiet", "--bare", str(origin))
    plain_git(shop.remote.folder, "remote", "add", "origin", str(origin))
    shop.scripted([{"write": {"path": "more.txt", "text": "more\n"}}, {"result": {"summary": "more"}}])
    said = shop.kingdom("workflow", "follow-up", "paint-it", "Paint more")
    assert "kingdom workflow land paint-it --push pushes it\n" in said
    plain_git(shop.remote.folder, "remote", "set-url", "origin", "git@github.com:acme/shop.git")
    said = shop.kingdom("workflow", "follow-up", "paint-it", "Paint still more")
    assert "kingdom workflow land paint-it pushes it and opens a pull request\n" in said


def test_only_those_ways_to_land_are_offered_that_the_remote_has(shop: Shop) -> None:
    origin = shop.folder / "origin.git"
    plain_git(shop.folder, "init", "--quiet", "--bare", str(origin))
    plain_git(shop.remote.folder, "remote", "add", "origin", str(origin))
    code, screen = kingdom_tty("run", TEXT, *shop.scripted(), answer="push\n")
    assert code == 0, screen
    assert "land it as (push, checkout, none) [none]:" in screen
    assert plain_git(origin, "log", "-1", "--format=%s", "kingdom/add-a-json-flag-to-ls") == "done"
    (land,) = (line.split(maxsplit=2)[2] for line in screen.splitlines() if line.startswith("land it  "))
    assert "to be merged into main" in shop.kingdom(*land.split()[1:])

    plain_git(shop.remote.folder, "remote", "set-url", "origin", "git@github.com:acme/shop.git")
    _, screen = kingdom_tty("run", TEXT, *shop.scripted(), answer="none\n")
    assert "land it as (pull-request, push, checkout, none) [none]:" in screen
    assert "kingdom workflow land add-a-json-flag-to-ls-2\r\n" in screen

    plain_git(shop.remote.folder, "remote", "set-url", "origin", "https://ada:secret@example.com/acme/shop.git")
    code, screen = kingdom_tty("run", TEXT, *shop.scripted(), answer="push\n")
    assert code == 1
    assert "COMPLETED (1 file changed" in screen
    assert "a password in a URL would be stored and shown" in screen, "what is wrong with the remote is said"


def test_in_an_empty_repository_the_first_result_is_taken_before_the_second_request(shop: Shop) -> None:
    folder = shop.folder / "new"
    plain_git(shop.folder, "init", "--quiet", "--initial-branch=main", str(folder))
    assert "kingdom/begin in" in shop.run("Begin", "--repo", str(folder), "--land", "checkout")
    said = shop.run("Go on", "--repo", str(folder), code=1)
    assert f"nothing is committed on main yet, but {folder} has the branch kingdom/begin: take it first" in said
    assert "(git merge kingdom/begin), or start from it with --base kingdom/begin" in said
    assert "go-on" not in shop.kingdom("workflow", "ls"), "it is refused before it starts"
    on_top = [{"write": {"path": "more.txt", "text": "more\n"}}, {"result": {"summary": "more"}}]
    assert "COMPLETED (1 file changed" in shop.run(
        "More", "--repo", str(folder), "--base", "kingdom/begin", steps=on_top
    )
    plain_git(folder, "merge", "--quiet", "kingdom/begin")
    assert "works on new from main" in shop.run("Go on", "--repo", str(folder), steps=on_top)


@contextlib.contextmanager
def begun(*words: str) -> Iterator[Background]:
    """The command in the background, killed in the end if it still runs."""
    process = Background(None, *words)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def interrupted(process: Background, after: str) -> str:
    """What a process says after Ctrl-C, which it gets when it has said something."""
    line_with(process, after)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    return said


def line_with(process: Background, words: str) -> str:
    while words not in (line := process.stdout.readline()):
        assert line, "it ended"
    return line


HALF: list[dict[str, Any]] = [{"write": {"path": "half.txt", "text": "half\n"}}, {"say": "I begin."}, {"wait": 600}]


def test_ctrl_c_pauses_and_says_how_to_go_on(shop: Shop) -> None:
    with begun("run", TEXT, *shop.scripted(HALF)) as process:
        said = interrupted(process, "I begin.")
    assert process.returncode == 130
    assert "paused: kingdom workflow resume add-a-json-flag-to-ls continues where it stopped" in said
    assert "kingdom workflow follow-up add-a-json-flag-to-ls TEXT continues with what you say" in said
    shop.scripted()
    (shop.remote.folder / "note.txt").write_text("not committed\n")
    said = shop.kingdom("run", "-c", "Only the flag, please")
    assert "COMPLETED" in said
    assert "I begin." not in said, "what was shown before the pause is not shown again"
    assert "it starts from the last commit" not in said, "it goes on with its own branch"
    (work,) = shop.show("add-a-json-flag-to-ls")["works"]
    assert work["tasks"][0]["attempt"] == 2, "the same task went on"


def test_after_a_kill_it_goes_on_with_what_one_says(shop: Shop) -> None:
    with begun("run", TEXT, *shop.scripted(HALF)) as process:
        line_with(process, "I begin.")
    assert process.returncode == -signal.SIGKILL
    assert shop.show("add-a-json-flag-to-ls")["status"] == "RUNNING"
    shop.scripted()
    said = shop.kingdom("run", "-c", "Only the flag, please")
    assert "it was interrupted: its agent is stopped now, and goes on with what you say" in said
    assert "COMPLETED (2 files changed" in said
    (work,) = shop.show("add-a-json-flag-to-ls")["works"]
    assert work["tasks"][0]["attempt"] == 2


def test_ctrl_c_only_stops_watching_where_an_engine_runs(shop: Shop) -> None:
    shop.run("Begin")
    with begun("workflow", "engine") as engine:
        line_with(engine, "the engine runs")
        with begun("run", TEXT, *shop.scripted(HALF)) as process:
            assert "Ctrl-C only stops watching" in line_with(process, "works on shop")
            said = interrupted(process, "I begin.")
        assert process.returncode == 130
        assert "it goes on: kingdom workflow watch add-a-json-flag-to-ls shows it" in said
        assert shop.show("add-a-json-flag-to-ls")["status"] == "RUNNING"
        shop.kingdom("workflow", "pause", "add-a-json-flag-to-ls")


def test_the_first_of_two_terminals_shows_its_result_before_it_waits_for_the_other(shop: Shop) -> None:
    with begun("run", TEXT, "--land", "checkout", *shop.scripted(HALF)) as first:
        line_with(first, "I begin.")
        with begun("run", "Wait for long", *shop.scripted(HALF, "long.json")) as second:
            line_with(second, "I begin.")
            shop.kingdom("workflow", "pause", "add-a-json-flag-to-ls")
            line_with(first, "PAUSED (1 file changed")
            line_with(first, "kingdom workflow resume add-a-json-flag-to-ls continues")
            line_with(first, "this engine also runs wait-for-long: Ctrl-C ends the wait and leaves it to the next")
            shop.scripted()
            assert "WorkflowCompleted" in shop.kingdom("workflow", "resume", "add-a-json-flag-to-ls")
            first.send_signal(signal.SIGINT)
            rest, _ = first.communicate(timeout=60)
            assert first.returncode == 0
            assert "PAUSED" not in rest, "the result is shown again only if there is a new one"
            assert "COMPLETED (2 files changed" in rest
            assert "1 commit on the branch kingdom/add-a-json-flag-to-ls in" in rest
            line_with(second, "this process is the engine now")
            assert shop.show("wait-for-long")["status"] == "RUNNING"


def test_each_of_two_terminals_is_asked_as_soon_as_its_own_request_rests(shop: Shop) -> None:
    with Terminal("run", "Paint it", *shop.scripted(ASKING, "asking.json")) as first:
        first.see("answer (Enter: later): ")
        with Terminal("run", "Wait for long", *shop.scripted(HALF, "long.json")) as second:
            assert "Ctrl-C only stops watching" in second.see("I begin."), "the first serves both"
            first.type("blue\n")
            assert "COMPLETED (1 file changed, +1 -0" in first.see("land it as (checkout, none) [none]: ")
            first.type("by mail\n")
            assert "'by mail' is not one of checkout, none" in first.see("[none]: ")
            first.type("checkout\n")
            assert "on the branch kingdom/paint-it in" in first.see("this engine also runs wait-for-long: Ctrl-C")
            with Terminal("run", "Paint more", *shop.scripted(ASKING, "asking.json")) as third:
                assert "Ctrl-C only stops watching" in third.see("answer (Enter: later): ")
                third.type("\x03")
                assert "kingdom workflow answer paint-more TEXT" in third.see("answers the question")
                assert third.wait() == 0
            first.type("\x03")
            assert first.wait() == 0
            second.see("this process is the engine now")
            second.see("running 0 s")
            second.type("\x03")
            second.see("paused: kingdom workflow resume wait-for-long")
            assert second.wait() == 130


def test_ctrl_c_at_a_prompt_leaves_the_result_as_it_is(shop: Shop) -> None:
    with Terminal("run", "Paint it", *shop.scripted(ASKING)) as terminal:
        terminal.see("answer (Enter: later): ")
        terminal.type("\x03")
        assert "PAUSED: work run asks: Red or blue?" in terminal.see("kingdom workflow answer paint-it TEXT")
        assert terminal.wait() == 0
    with Terminal("run", "Write it", *shop.scripted()) as terminal:
        terminal.see("land it as (checkout, none) [none]: ")
        terminal.type("\x03")
        assert terminal.wait() == 0
    assert "Traceback" not in terminal.screen
    assert shop.show("write-it")["landings"] == []


@pytest.mark.walk
def test_the_same_holds_on_postgresql(shop: Shop, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINGDOM_WORKFLOW_STORE", postgres_url)
    assert "COMPLETED (1 file changed, +1 -1" in shop.run(TEXT)
    assert "workflow add-a-json-flag-to-ls-2" in shop.run(TEXT)
    assert "+json" in shop.kingdom("workflow", "diff", "add-a-json-flag-to-ls-2", "--base")
    shop.kingdom("workflow", "rm", "add-a-json-flag-to-ls", "--yes")
    assert not (shop.data / "kingdom" / "workflows" / "workflows.db").exists()


def test_a_failure_and_a_question_are_told_with_the_next_step(shop: Shop) -> None:
    said = shop.run("Break it", steps=[{"fail": "no disk"}], code=1)
    assert "failed: " in said
    assert "no disk" in said
    assert "kingdom workflow resume break-it --retry" in said
    said = shop.run("Paint it", steps=[{"ask": {"question": "Red or blue?"}}])
    assert "PAUSED: work run asks: Red or blue?" in said
    assert "kingdom workflow answer paint-it TEXT" in said
    said = shop.run("Only look", steps=[{"say": "All is well."}, {"result": {"summary": "fine"}}])
    assert "All is well." in said
    assert "COMPLETED (nothing changed" in said


ASKING: dict[str, Any] = {
    "steps": [{"ask": {"question": "Red or blue?", "choices": ["red", "blue"]}}],
    "on_resume": [{"write": {"path": "colour.txt", "text": "blue\n"}}, {"result": {"summary": "painted"}}],
}


def test_a_question_is_asked_on_the_terminal_and_the_answer_goes_on(shop: Shop) -> None:
    code, screen = kingdom_tty("run", "Paint it", *shop.scripted(ASKING), answer="blue\ncheckout\n")
    assert code == 0, screen
    assert "the agent asks: Red or blue?" in screen
    assert "choices: red, blue" in screen
    assert "COMPLETED (1 file changed, +1 -0" in screen
    assert "on the branch kingdom/paint-it in" in screen, "the request ends as any other"

    code, screen = kingdom_tty("run", "Paint it", *shop.scripted(ASKING), answer="\n")
    assert code == 0, screen
    assert "kingdom workflow answer paint-it-2 TEXT" in screen, "later"
    said = shop.kingdom("run", "-c", "blue")
    assert "shop goes on with paint-it-2, with your answer" in said
    assert "COMPLETED (1 file changed, +1 -0" in said


def test_programs_get_json_lines(shop: Shop) -> None:
    lines = [json.loads(line) for line in shop.run(TEXT, "--json").splitlines()]
    result = lines[-1]
    assert result["kind"] == "result"
    assert (result["status"], result["files"], result["costUsd"]) == ("COMPLETED", ["ls.py"], 0.25)
    assert {line["kind"] for line in lines} == {"event", "said", "status", "result"}


def test_what_is_missing_is_said_before_anything_is_created(shop: Shop, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    assert "is not in a git repository: go into one" in shop.run("Look", "--repo", str(nowhere), code=1)
    assert "there is no folder" in shop.run("Look", "--repo", "./none", code=1)
    assert "say what to do" in shop.run("  ", code=2)
    said = shop.kingdom("run", "Look", code=1)
    assert "no agent is installed: install Claude Code (npm install -g @anthropic-ai/claude-code)" in said
    said = shop.kingdom("run", "Look", "--engine", "claude", code=1)
    assert "there is no program claude on the PATH: install it" in said
    assert "there is no engine 'gpt'" in shop.kingdom("run", "Look", "--engine", "gpt", code=1)
    assert "is not NAME=VALUE" in shop.kingdom("run", "Look", "--option", "x", code=2)
    assert not (shop.data / "kingdom" / "workflows").exists()


def test_the_real_claude_code_does_it(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Path(installed().claude)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with MessagesServer() as server:
        for name, value in {
            **NO_NETWORK,
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "x",
            "CLAUDE_CODE_MAX_RETRIES": "0",
        }.items():
            monkeypatch.setenv(name, value)
        server.script += [
            Use((("Bash", {"command": "git status --short", "description": "Look"}),), text="I look first."),
            Use((("Write", {"file_path": "notes.txt", "content": "from Claude\n"}),)),
            Say("notes.txt is written."),
        ]
        said = shop.kingdom("run", TEXT, "--model", "scripted-model")
    assert "claude works on shop from main" in said
    assert "I look first.\n→ Bash git status --short" in said
    assert "notes.txt is written." in said
    assert "COMPLETED (1 file changed, +1 -0, $" in said
    told = json.dumps(server.requests[-1]["messages"])
    assert TEXT in told
