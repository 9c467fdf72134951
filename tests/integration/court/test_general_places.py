"""Where soldiers work: real git repositories, real worktrees, and evidence of what was done there."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.port import Order, Outcome
from kingdom.court.general.reports import remove_old_workplaces
from kingdom.court.models import EvidenceCheck
from tests.support.fake_agents import FakeAgents, success
from tests.support.generals import NOW, Post, posted
from tests.support.repositories import Remote, plain_git


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    remote = Remote(tmp_path / "hub" / "acme" / "shop")
    remote.commit({"README.md": "A shop.\n"})
    return remote


def at(remote: Remote, post: Post) -> Post:
    post.base_url = str(remote.folder.parents[1])
    return post


@pytest.fixture
async def post(tmp_path: Path, remote: Remote) -> AsyncIterator[Post]:
    async with posted(tmp_path) as post:
        yield at(remote, post)


def fake(post: Post) -> FakeAgents:
    assert isinstance(post.agents, FakeAgents)
    return post.agents


def committing(files: dict[str, str], *, message: str = "Work") -> Callable[[Order, int], Outcome]:
    """A soldier that commits everything it finds, as careless ones do."""

    def script(order: Order, number: int) -> Outcome:
        for name, text in files.items():
            (order.cwd / name).write_text(text)
        plain_git(order.cwd, "add", "--all")
        plain_git(order.cwd, "commit", "--quiet", "--allow-empty", "--message", message)
        return success()

    return script


async def test_a_worktree_of_the_tasks_own(post: Post, remote: Remote) -> None:
    (post.folder / "instructions.md").write_text("Be kind.")
    fake(post).script = committing({"new.txt": "new\n"})
    task = await post.task(repo="acme/shop")
    (result,) = await post.finish(task)
    (order,) = fake(post).orders
    assert result["status"] == "success", result["error"]
    assert result["repo"] == "acme/shop"
    assert order.cwd == post.home.work("gen-test") / "worktrees" / "gen-test" / task.id
    assert (order.cwd / "README.md").read_text() == "A shop.\n"
    assert (order.cwd / "CLAUDE.md").read_text() == (order.cwd / "AGENTS.md").read_text() == "Be kind."
    described = json.loads((order.cwd / ".kingdom-task.json").read_text())
    assert described["task_id"] == task.id
    assert described["result_path"] == str(post.home.handover(task.id))
    assert plain_git(order.cwd, "branch", "--show-current") == f"kingdom/gen-test/{task.id}"
    assert plain_git(order.cwd, "show", "--name-only", "--format=", "HEAD") == "new.txt", "nothing of ours is committed"
    assert plain_git(order.cwd, "status", "--porcelain") == ""


async def test_instructions_of_the_repository_are_left_alone(post: Post, remote: Remote) -> None:
    remote.commit({"AGENTS.md": "Theirs.\n"})
    (post.folder / "instructions.md").write_text("Be kind.")
    await post.finish(await post.task(repo="acme/shop"))
    (order,) = fake(post).orders
    assert (order.cwd / "AGENTS.md").read_text() == "Theirs.\n"
    assert not (order.cwd / "CLAUDE.md").exists()
    assert order.prompt.startswith("Be kind.\n")


async def test_a_repository_with_our_control_file_is_refused(post: Post, remote: Remote) -> None:
    remote.commit({".kingdom-task.json": '{"result_path": "/tmp/elsewhere"}'})
    (result,) = await post.finish(await post.task(repo="acme/shop"))
    assert result["status"] == "failed"
    assert ".kingdom-task.json" in result["error"]
    assert fake(post).orders == []


async def test_links_in_the_place_of_our_files_are_replaced_not_followed(post: Post, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("untouched")

    def script(order: Order, number: int) -> Outcome:
        if number == 1:
            for name in (".kingdom-task.json", "CLAUDE.md"):
                (order.cwd / name).unlink()
                (order.cwd / name).symlink_to(precious)
            return Outcome("failed", error="again, please")
        return success()

    (post.folder / "instructions.md").write_text("Be kind.")
    fake(post).script = script
    (result,) = await post.finish(await post.task(repo="acme/shop"))
    assert result["status"] == "success"
    assert precious.read_text() == "untouched"
    assert not (fake(post).orders[1].cwd / "CLAUDE.md").is_symlink()


async def test_a_place_that_became_a_link_is_made_anew(post: Post, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def script(order: Order, number: int) -> Outcome:
        if number == 1:
            order.cwd.rename(tmp_path / "moved")
            order.cwd.symlink_to(elsewhere)
            return Outcome("failed", error="again, please")
        return success()

    fake(post).script = script
    for number, repo in ((1, "acme/shop"), (2, None)):
        (result,) = await post.finish(await post.task(number, repo=repo))
        assert result["status"] == "success"
        assert not fake(post).orders[-1].cwd.is_symlink()
        (tmp_path / "moved").rename(tmp_path / f"moved-{number}")
    assert list(elsewhere.iterdir()) == []


async def test_without_a_repository_a_plain_folder(post: Post) -> None:
    task = await post.task()
    await post.finish(task)
    assert fake(post).orders[0].cwd == post.home.work("gen-test") / "tasks" / task.id


async def test_the_default_repository(tmp_path: Path, remote: Remote) -> None:
    async with posted(tmp_path, default_repo=f"file://{remote.folder}") as post:
        await post.finish(await post.task())
        assert (fake(post).orders[0].cwd / "README.md").is_file()


async def test_a_general_that_wants_no_checkout_gets_none(tmp_path: Path, remote: Remote) -> None:
    async with posted(tmp_path, fetch_repo=False) as post:
        await post.finish(await post.task(repo="acme/shop"))
        assert list(fake(post).orders[0].cwd.iterdir()) == [fake(post).orders[0].cwd / ".kingdom-task.json"]


@pytest.mark.parametrize(
    "repo",
    ["-x/y", "--upload-pack=x", "../../x", "..", "a/..", "./b", "a/b/c", "a b/c", "a/b\n", "/etc", "file:///etc",
     "https://evil.example/a/b", "ext::sh -c id/x", "a/$(id)", "a/\u202eb", "a/b?x=1", "a/-b", "x" * 5000 + "/y"],
)  # fmt: skip
async def test_a_hostile_repository_name_is_refused(post: Post, repo: str) -> None:
    (result,) = await post.finish(await post.task(repo=repo))
    assert result["status"] == "failed"
    assert "owner/name is needed" in result["error"]
    assert fake(post).orders == []
    assert not post.home.clones.exists()


async def test_a_repository_that_cannot_be_cloned_is_tried_again_and_then_said(post: Post) -> None:
    (result,) = await post.finish(await post.task(repo="acme/missing"))
    assert result["status"] == "failed"
    assert "acme/missing could not be fetched" in result["error"]
    assert len(post.naps) == 2
    assert fake(post).orders == []


async def test_a_resume_finds_its_worktree_though_it_was_deleted(post: Post, remote: Remote) -> None:
    asked = Outcome("needs_human", result={"status": "needs_human", "question": "Which?"}, session_id="s-1")

    def asking(order: Order, number: int) -> Outcome:
        committing({"half.txt": "half\n"})(order, number)
        return asked

    fake(post).script = asking
    task = await post.task(repo="acme/shop")
    await post.finish(task)
    place = fake(post).orders[0].cwd
    place.rename(place.with_name("gone"))
    fake(post).script = committing({"rest.txt": "rest\n"})
    resume = await post.task(
        2, type="resume", payload={"original_task_id": task.id, "question": "Which?", "answer": "A"}
    )
    (result,) = await post.finish(resume)
    order = fake(post).orders[1]
    assert result["status"] == "success", result["error"]
    assert (order.cwd, order.session_id) == (place, "s-1")
    assert plain_git(place, "log", "--format=%s", "-2").splitlines() == ["Work", "Work"]
    assert (place / "half.txt").exists()


@pytest.mark.parametrize("original", [None, 7, "", "../../etc", "-x", "task-20260921-001/../x"])
async def test_a_resume_of_nonsense_is_refused(post: Post, original: Any) -> None:
    (result,) = await post.finish(await post.task(type="resume", payload={"original_task_id": original}))
    assert result["status"] == "failed"
    assert "resume" in result["error"]
    assert fake(post).orders == []


async def test_old_places_go_and_what_was_not_committed_is_kept(post: Post, remote: Remote) -> None:
    def script(order: Order, number: int) -> Outcome:
        if order.task_id.endswith(("001", "002")):
            (order.cwd / "draft.txt").write_text("not committed")
        return success()

    fake(post).script = script
    tasks = [await post.task(number, repo=repo) for number, repo in ((1, "acme/shop"), (2, None), (3, "acme/shop"))]
    await post.finish(*tasks)
    places = [order.cwd for order in sorted(fake(post).orders, key=lambda order: order.task_id)]
    for place in places[:2]:
        os.utime(place / ".kingdom-task.json", (NOW - 15 * 86400, NOW - 15 * 86400))
    os.utime(places[2] / ".kingdom-task.json", (NOW, NOW))
    general = post.general()
    await general.start()
    await post.work(general, lambda: not places[0].exists() and not places[1].exists())
    await general.stop()
    assert places[2].is_dir()
    clone = next(post.home.clones.glob("*/repo/.git"))
    rescued = plain_git(clone, "for-each-ref", "--format=%(refname)", "refs/kingdom/")
    assert plain_git(clone, "ls-tree", "--name-only", rescued).splitlines() == ["README.md", "draft.txt"]
    assert plain_git(clone, "rev-parse", f"refs/heads/kingdom/gen-test/{tasks[0].id}")


@pytest.mark.parametrize(
    ("text", "stays"),
    [("retention: {workspace_days: 30}", True), ("retention: {workspace_days: 3}", False), ("x: [", True)],
)
async def test_places_are_kept_as_long_as_the_chamberlain_s_file_says(post: Post, text: str, stays: bool) -> None:
    await post.finish(await post.task(repo=None))
    (order,) = fake(post).orders
    os.utime(order.cwd / ".kingdom-task.json", (NOW - 5 * 86400, NOW - 5 * 86400))
    (post.home.config / "chamberlain.yaml").write_text(text)
    general = post.general()
    if stays:
        assert await remove_old_workplaces(general._context, list) == []
    else:
        assert await remove_old_workplaces(general._context, list) == [order.cwd.name]
    assert order.cwd.is_dir() == stays


async def test_the_place_of_a_task_under_way_stays_however_old_it_is(post: Post) -> None:
    fake(post).gate.clear()
    task = await post.task(repo="acme/shop")
    general = post.general()
    await general.start()
    await post.work(general, lambda: len(fake(post).orders) == 1)
    (order,) = fake(post).orders
    os.utime(order.cwd / ".kingdom-task.json", (0, 0))
    post.uptime += 7200
    await general.tick()
    await asyncio.sleep(0)
    fake(post).gate.set()
    await post.work(general, lambda: post.state(task) == "completed")
    await general.stop()
    assert order.cwd.is_dir()


# ── evidence ──────────────────────────────────────────────────────────────────────────────────────────────────────


def checks(result: dict[str, Any]) -> dict[str, EvidenceCheck]:
    return {check["name"]: EvidenceCheck.model_validate(check) for check in result["evidence"]}


async def judged(
    tmp_path: Path, remote: Remote, evidence: list[Any], script: Any, repo: str | None = "acme/shop"
) -> Any:
    async with posted(tmp_path, evidence=evidence, retries=0) as post:
        fake(at(remote, post)).script = script
        (result,) = await post.finish(await post.task(repo=repo))
        return result


async def test_a_commit_is_evidence(tmp_path: Path, remote: Remote) -> None:
    result = await judged(tmp_path, remote, ["commit"], committing({"new.txt": "x"}))
    assert result["status"] == "success"
    assert checks(result)["commit"].ok


@pytest.mark.parametrize(
    ("script", "repo", "words"),
    [
        (lambda order, number: success(), "acme/shop", "there is no commit on the branch kingdom/gen-test/"),
        (committing({}), "acme/shop", "change nothing"),
        (lambda order, number: success(), None, "no repository"),
    ],
)
async def test_a_claimed_success_without_a_commit_is_a_failure(
    tmp_path: Path, remote: Remote, script: Any, repo: str | None, words: str
) -> None:
    result = await judged(tmp_path, remote, ["commit"], script, repo)
    assert result["status"] == "failed"
    assert result["error"].startswith("claimed success, but commit: ")
    assert words in result["error"]


async def test_missing_evidence_is_told_to_the_next_soldier(tmp_path: Path, remote: Remote) -> None:
    def script(order: Order, number: int) -> Outcome:
        return success() if number == 1 else committing({"new.txt": "x"})(order, number)

    async with posted(tmp_path, evidence=["commit"]) as post:
        fake(at(remote, post)).script = script
        (result,) = await post.finish(await post.task(repo="acme/shop"))
        assert result["status"] == "success"
        assert "claimed success, but commit" in fake(post).orders[1].prompt


async def test_files_are_evidence_when_they_lie_inside(tmp_path: Path, remote: Remote) -> None:
    def script(order: Order, number: int) -> Outcome:
        (order.cwd / "report.md").write_text("done")
        (order.cwd / "inner").symlink_to("report.md")
        (order.cwd / "outer").symlink_to("/etc/passwd")
        (order.cwd / "folder").mkdir()
        (order.cwd / "loop").symlink_to("loop")
        return success()

    names = ["report.md", "inner", "outer", "folder", "loop", "missing"]
    result = await judged(tmp_path, remote, [{"file": name} for name in names], script)
    found = checks(result)
    assert [found[f"file {name}"].ok for name in names] == [True, True, False, False, False, False]
    assert found["file outer"].detail == "it leads out of the worktree"


async def test_commands_are_evidence_when_they_end_with_0(tmp_path: Path, remote: Remote) -> None:
    commands = [
        ["test", "-f", "README.md"],
        ["sh", "-c", "echo broken >&2; exit 3"],
        ["no-such-program"],
        ["sh", "-c", "sleep 60 & sleep 60"],
        ["sh", "-c", 'test -z "$SECRET"'],
    ]
    evidence = [
        {"command": command, "timeout_seconds": 0.5 if "sleep 60" in command[-1] else 30.0} for command in commands
    ]
    result = await judged(tmp_path, remote, evidence, lambda order, number: success())
    oks = [check["ok"] for check in result["evidence"]]
    details = [check["detail"] for check in result["evidence"]]
    assert oks == [True, False, False, False, True]
    assert details[1] == "it ended with 3: broken"
    assert "cannot be run" in details[2]
    assert details[3] == "it did not end within 0.5 s"


async def test_evidence_of_a_soldier_that_was_taken_over(tmp_path: Path, remote: Remote) -> None:
    async with posted(tmp_path, evidence=["commit"]) as post:
        fake(at(remote, post)).script = committing({"new.txt": "x"})
        fake(post).gate.clear()
        task = await post.task(repo="acme/shop")
        general = post.general()
        await general.start()
        await post.work(general, lambda: len(fake(post).orders) == 1)
        await general.stop()
        fake(post).gate.set()
        (result,) = await post.finish(task)
        assert result["status"] == "success", result["error"]
        assert len(fake(post).orders) == 1


@pytest.mark.parametrize("payload", [{"repo": "acme/shop"}, {"repository": {"full_name": "acme/shop"}}])
async def test_a_repository_in_the_payload_is_found(post: Post, payload: dict[str, Any]) -> None:
    (result,) = await post.finish(await post.task(payload=payload))
    (order,) = fake(post).orders
    assert (order.cwd / "README.md").read_text() == "A shop.\n"
    assert result["repo"] == "acme/shop"


async def test_a_general_that_needs_a_repository_refuses_a_task_without_one(post: Post) -> None:
    post.manifest = post.manifest.model_copy(update={"needs_repo": True})
    (result,) = await post.finish(await post.task())
    assert result["status"] == "failed"
    assert "needs a repository, and the event names none" in result["error"]
    assert fake(post).orders == []


async def test_a_git_host_that_is_away_holds_the_task_and_one_without_the_repository_does_not(post: Post) -> None:
    post.base_url = "https://127.0.0.1:9"
    task = await post.task(repo="acme/shop")
    general = post.general()
    await general.start()
    await post.work(general, lambda: bool(general.report()["held"]))
    await general.stop()
    assert "cannot be reached now" in general.report()["held"][task.id]["reason"]
    assert post.state(task) == "pending"
    assert fake(post).orders == []
