"""The generals that come along, done by the real Claude Code and the real Codex: what each leaves for people."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kingdom.base.files import write_json
from kingdom.court.commands import inject_event
from kingdom.court.init_home import SHIPPED_GENERALS_DIR
from kingdom.court.models import timestamp
from tests.support.cli_courts import EVENT, GENERAL, Cli, CliCourt, talking
from tests.support.model_servers import Say, Turn
from tests.support.repositories import plain_git

DISCOUNT = "def discount(price):\n    return price * 0.9\n"
CHANGED = "def discount(price, vouchers):\n    for _ in vouchers:\n        price *= 0.9\n    return price\n"
REVIEW = "REQUEST CHANGES: a cart without vouchers is sold at the full price.\nNot looked at: the mails."
FINDING = {"path": "cart.py", "line": 2, "body": "blocker: an empty list of vouchers gives no discount at all."}
TEST = "from cart import discount\nassert discount(100, []) == 100\nassert discount(100, ['a']) == 90\n"
BRIEFING = """\
Waiting for you
- Nothing.
Done
- The change of the door was reviewed, and it is fine.
Numbers: 1 task finished, none failed."""


@pytest.fixture(params=["claude", pytest.param("codex", marks=pytest.mark.walk)])
def cli(request: pytest.FixtureRequest) -> Iterator[Cli]:
    with talking(request.param) as found:
        yield found


def shipped_court(name: str, root: Path, cli: Cli, patch: pytest.MonkeyPatch, **more: Any) -> CliCourt:
    """A court with a shipped general as it is, but for its name and its engine."""
    package = SHIPPED_GENERALS_DIR / name
    manifest = yaml.safe_load((package / "manifest.yaml").read_text())
    engine = manifest.pop("engine")
    options = engine["options"] if isinstance(engine, dict) and cli.engine == "claude" else {}
    manifest["engine"] = {"name": cli.engine, "model": "scripted-model", "options": options}
    manifest |= {"name": GENERAL, "timeout_seconds": 60, **more}
    court = CliCourt(root, cli, patch, **manifest)
    for file in ("prompt.md", "instructions.md"):
        shutil.copy(package / file, court.home.general(GENERAL) / file)
    return court


def propose(court: CliCourt) -> tuple[str, str]:
    """Make pull request 7 of the shop; returns its base and its head."""
    remote = court.remote
    base = remote.commit({"cart.py": DISCOUNT}, "Give a discount")
    remote.git("checkout", "--quiet", "-b", "theirs")
    head = remote.commit({"cart.py": CHANGED}, "Discounts by voucher")
    remote.git("update-ref", "refs/pull/7/head", head)
    remote.git("checkout", "--quiet", "main")
    return base, head


def said(court: CliCourt) -> str:
    """What people were told at the end."""
    return "\n".join(one["content"] for one in court.documents("messages/pending"))


async def test_the_reviewer_leaves_comments_on_lines_of_the_change(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    court = shipped_court("gen-pr", tmp_path, cli, monkeypatch)
    base, head = propose(court)
    looks = [cli.runs(f"git diff {base}...{head}"), cli.runs(f"git show {head}:cart.py")]
    wrong = court.leaves("success", summary=REVIEW, comments=[{**FINDING, "line": 99}])
    right = court.leaves("success", summary=REVIEW, comments=[FINDING])
    cli.server.script += [*looks, wrong, Say("Reviewed."), right, Say("Corrected.")]
    async with court.running():
        court.drop("github.pr.review_requested", number=7, title="Vouchers", base="main")
        (event,) = await court.until(lambda: court.documents("events/completed"), "the event completed")
    (result,) = court.results()
    assert (event["status"], result["status"], result["error"]) == ("completed", "success", None)
    assert result["retry_count"] == 1, "a comment beside the diff is not believed"
    told = cli.told()
    assert "cart.py:99: no line that the diff of the pull request shows" in told
    assert "+    for _ in vouchers:" in json.dumps(cli.server.requests), "the first saw the real diff"
    assert [(one["name"], one["ok"]) for one in result["evidence"]] == [("summary", True), ("comments", True)]
    message = said(court)
    assert "REQUEST CHANGES: a cart without vouchers is sold at the full price." in message
    assert "cart.py:2" in message
    assert "blocker: an empty list of vouchers gives no discount at all." in message
    assert plain_git(court.remote.folder, "rev-parse", "main") == base, "it changes nothing"


@pytest.mark.walk
async def test_a_reviewer_without_a_verdict_is_not_believed(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    court = shipped_court("gen-pr", tmp_path, cli, monkeypatch, retries=0)
    propose(court)
    cli.server.script += [court.leaves("success", summary="Looks good to me."), Say("Reviewed.")]
    async with court.running():
        court.drop("github.pr.opened", number=7, title="Vouchers", base="main")
        (event,) = await court.until(lambda: court.documents("events/completed"), "the event completed")
    (result,) = court.results()
    assert (event["status"], result["status"]) == ("failed", "failed")
    wanted = "claimed success, but summary: it begins with none of APPROVE, COMMENT, REQUEST CHANGES"
    assert result["error"] == wanted


@pytest.mark.walk
async def test_the_tester_leaves_commits_whose_tests_fail_without_the_change(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    court = shipped_court(
        "gen-test", tmp_path, cli, monkeypatch, evidence=["commit", {"command": ["python3", "test_cart.py"]}]
    )
    _, head = propose(court)

    def write() -> Turn:
        (place,) = (court.home.work(GENERAL) / "worktrees" / GENERAL).iterdir()
        return cli.writes(place / "test_cart.py", TEST)

    run = cli.runs("python3 test_cart.py && echo it-$((40+2))")
    commit = cli.runs("git add test_cart.py && git commit -q -m 'Cover carts without vouchers'")
    summary = "Vouchers: test_cart.py, seen failing without the change (a TypeError); it passes with it."
    leaves = court.leaves("success", summary=summary)
    cli.server.script += [write, run, cli.runs(f"git merge --no-edit {head}"), run, commit, leaves, Say("Done.")]
    async with court.running():
        court.drop("github.pr.mentioned", number=7, title="Vouchers", base="main", text="@bot please add tests")
        await court.until(lambda: court.documents("events/completed"), "the event completed")
        (task,) = await court.until(lambda: court.documents("tasks/completed"), "the task completed")
    (result,) = court.results()
    assert (result["status"], result["error"]) == ("success", None)
    told = cli.told()
    assert told.index("TypeError") < told.index("it-42"), "it fails without the change, and passes with it"
    place = court.home.work(GENERAL) / "worktrees" / GENERAL / task["id"]
    branch = f"kingdom/{GENERAL}/{task['id']}"
    assert plain_git(place, "log", "-1", "--format=%s", branch) == "Cover carts without vouchers"
    assert head in plain_git(place, "rev-list", branch).split()
    assert [(one["name"], one["ok"]) for one in result["evidence"]] == [
        ("commit", True),
        ("command python3 test_cart.py", True),
    ]
    assert "seen failing without the change" in said(court)


async def test_the_briefing_is_a_message_about_what_the_court_did(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    court = shipped_court("gen-briefing", tmp_path, cli, monkeypatch)
    now = timestamp(time.time())
    done = {"task_id": "task-20260207-001", "general": "gen-pr", "status": "success", "summary": "Reviewed the door."}
    court.home.results.mkdir(parents=True, exist_ok=True)
    write_json(court.home.result(done["task_id"]), {**done, "started_at": now, "ended_at": now})
    cli.server.script += [court.leaves("success", summary=BRIEFING), Say("Written.")]
    async with court.running() as services:
        await inject_event(services, {"id": EVENT, "type": "briefing.daily", "source": "test", "payload": {}})
        await court.until(lambda: court.documents("events/completed"), "the briefing completed")
    _, result = court.results()
    assert (result["status"], result["error"], result["summary"]) == ("success", None, BRIEFING)
    assert result["evidence"] == [{"name": "summary", "ok": True, "detail": f"{len(BRIEFING)} characters"}]
    assert "Reviewed the door." in cli.told(), "it has the records of the court"
    message = next(one["content"] for one in court.documents("messages/pending") if "Numbers:" in one["content"])
    assert BRIEFING in message.replace("\n  ", "\n")
