"""The plans in ``examples/workflows`` do what they say: the real Claude Code, confined, and a scripted model."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_clis import installed
from tests.support.command import kingdom
from tests.support.model_servers import MessagesServer, Say, Turn, Use
from tests.support.repositories import Remote, plain_git
from tests.support.workshop import NO_NETWORK

EXAMPLES = Path(__file__).parents[2] / "examples" / "workflows"


class Desk:
    """A repository ``app`` with a test that fails, and the command."""

    def __init__(self, folder: Path, server: MessagesServer) -> None:
        self.server = server
        self.remote = Remote(folder / "app")
        self.remote.commit({"login.sh": "exit 1\n", "test.sh": "sh login.sh\n"})

    def run(self, *words: str) -> str:
        done = kingdom(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def show(self, name: str) -> Any:
        return json.loads(self.run("workflow", "show", name, "--json"))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    program = Path(installed().claude)
    for name in ("home", "user"):
        (tmp_path / name).mkdir()
    with MessagesServer() as server:
        for name, value in {
            **NO_NETWORK,
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "x",
            "CLAUDE_CODE_MAX_RETRIES": "0",
            "KINGDOM_HOME": str(tmp_path / "home"),
            "KINGDOM_SANDBOX": "required",
            "HOME": str(tmp_path / "user"),
            "PATH": f"{program.parent}:{os.environ['PATH']}",
        }.items():
            monkeypatch.setenv(name, value)
        yield Desk(tmp_path, server)


def bash(command: str) -> Turn:
    return Use.tool("Bash", command=command, description="Work")


def report(*headings: str) -> Say:
    return Say("".join(f"## {heading}\n\nAs it is.\n\n" for heading in headings))


@pytest.mark.walk
def test_an_issue_is_planned_agreed_to_fixed_and_reviewed(desk: Desk) -> None:
    desk.run("git", "add", desk.remote.url, "--name", "app")
    desk.run(
        *("workflow", "create", str(EXAMPLES / "fix-issue.yaml"), "--repo", "app", "--issue", "APP-142"),
        *("--var", "issue.title=Login fails after a restart"),
    )
    desk.server.script += [
        *(bash("sh test.sh; echo ended with $?"), Say("login.sh ends with 1.")),
        *(Say("A plan."), report("Cause", "Change", "Tests", "Risks")),
    ]
    desk.run("workflow", "start", "fix-issue")
    waiting = desk.show("fix-issue")
    assert (waiting["status"], waiting["reason"]) == ("PAUSED", "review after plan")
    assert "ended with 1" in json.dumps(desk.server.requests), "the agent could run the test"
    assert "Login fails after a restart" in json.dumps(desk.server.requests[0]["messages"])

    desk.server.script += [
        *(bash("echo 'exit 0' > login.sh"), Say("Changed.")),
        *(bash("sh test.sh && echo all pass"), Say("They pass.")),
        *(Say("It was the exit code."), report("What was wrong", "What changed", "How it was tested")),
        *(bash("git log --oneline"), Say("Fine."), report("Findings", "What was mended")),
    ]
    desk.run("workflow", "resume", "fix-issue")
    done = desk.show("fix-issue")
    assert (done["status"], [work["status"] for work in done["works"]]) == ("COMPLETED", ["COMPLETED"] * 3)
    assert "all pass" in json.dumps(desk.server.requests)
    (tree,) = done["repositories"]
    assert plain_git(Path(tree["path"]), "show", "HEAD:login.sh") == "exit 0"
    assert desk.server.script == [], "every turn was used"


@pytest.mark.walk
def test_a_library_is_raised_in_code_and_documents_at_once_and_put_together(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two works run at the same time, so the model answers by what it is asked."""
    desk.remote.commit({"requirements.txt": "pydantic==2.11\n", "docs.md": "pydantic 2.11\n"})
    answers: dict[str, list[Turn]] = {
        "in every file that pins it": [bash("echo pydantic==2.12 > requirements.txt"), Say("Raised.")],
        "List what breaks": [Say("Nothing.")],
        "Mend the code for pydantic": [bash("echo mended > code.py"), Say("Mended.")],
        "Run the tests, and go on": [Say("They pass.")],
        "Bring the examples and the documentation": [bash("echo 'pydantic 2.12' > docs.md"), Say("Brought.")],
        "Both sides are merged": [bash("cat code.py docs.md"), Say("They go together.")],
        "Sum up the upgrade": [Say("Summed up.")],
    }
    headings = {
        "List what breaks": report("What breaks", "Release notes", "Order of work"),
        "Sum up the upgrade": report("What changed", "What to look at", "What is left to do"),
    }
    lock, heard = threading.Lock(), desk.server.requests

    def take(request: dict[str, Any]) -> tuple[int, Turn]:
        with lock:
            heard.append(request)
            return len(heard), by_question(request, answers, headings)

    monkeypatch.setattr(desk.server, "take", take)
    desk.run("git", "add", desk.remote.url, "--name", "shop")
    desk.run(
        *("workflow", "create", str(EXAMPLES / "upgrade-library.yaml"), "--repo", "shop"),
        *("--var", "library=pydantic", "--var", "version=2.12"),
    )
    desk.run("workflow", "start", "upgrade-library")
    done = desk.show("upgrade-library")
    assert (done["status"], done["reason"]) == ("PAUSED", "review after together")
    (tree,) = [one for one in done["repositories"] if one["workId"] is None]
    files = {name: plain_git(Path(tree["path"]), "show", f"HEAD:{name}") for name in ("requirements.txt", "docs.md")}
    assert files == {"requirements.txt": "pydantic==2.12", "docs.md": "pydantic 2.12"}
    assert plain_git(Path(tree["path"]), "show", "HEAD:code.py") == "mended"
    assert "They go together." in json.dumps(done)


def by_question(request: dict[str, Any], answers: dict[str, list[Turn]], headings: dict[str, Say]) -> Turn:
    """The next turn for the last question of a conversation; the report when that is asked for."""
    texts = [json.dumps(message["content"]) for message in request["messages"] if message["role"] == "user"]
    asked = [(at, key) for at, text in enumerate(texts) for key in answers if key in text]
    at, key = asked[-1]
    if any("Write the report" in text for text in texts[at + 1 :]):
        return headings[key]
    return answers[key].pop(0)
