"""A general killed with -9 at every point of a task's life, one after the other: the next one finishes it, once."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.cancellations import cancel_requests, request_cancel
from tests.support.fake_agents import FakeAgents
from tests.support.forking import fate
from tests.support.general_victim import HELD_SECONDS, HUB_FILE, SCRIPTS, main, posted_for, told_off
from tests.support.generals import Post
from tests.support.github_server import github_of_a_court, hub_settings
from tests.support.repositories import plain_git

TASK = "task-20260921-001"
pytestmark = [pytest.mark.walk, pytest.mark.timeout(300)]


def killed(root: Path, story: str, when: int) -> bool:
    """Play a story in a process that is killed at one point; False when it ended before it came to that."""
    ended = fate(main, str(root), story, when)
    assert ended in (0, -signal.SIGKILL)
    return ended != 0


async def walk(tmp_path: Path, story: str, tasks: list[dict[str, Any]], fewest: int) -> AsyncIterator[Post]:
    """Play a story killed at each of its points; gives the post with its general dead. Ends with the unharmed story."""
    for when in range(1, 500):
        root = tmp_path / f"at-{when}"
        async with posted_for(story, root) as post:
            for number, fields in enumerate(tasks, 1):
                await post.task(number, **fields)
            if story == "cancel":
                request_cancel(post.home, "gen-test", TASK, "cancelled by ann")
        was_killed = killed(root, story, when)
        async with posted_for(story, root) as post:
            post.agents = FakeAgents(root / "agents", SCRIPTS[story])
            yield post
        shutil.rmtree(root)
        if not was_killed:
            print(f"killed at {when - 1} points")
            assert when > fewest, "the walk was too short to mean anything"
            return
    pytest.fail("the story never ends")


def result_bytes(post: Post, number: int = 1) -> bytes | None:
    path = post.home.result(f"task-20260921-{number:03d}")
    return path.read_bytes() if path.exists() else None


async def go_on(post: Post, story: str) -> None:
    general = post.general()
    await general.start()
    await post.work(general, lambda: told_off(post, story))
    await general.stop()


async def test_a_task_that_fails_once_and_then_succeeds(tmp_path: Path) -> None:
    async for post in walk(tmp_path, "retry", [{}], fewest=30):
        before = result_bytes(post)
        await go_on(post, "retry")
        assert isinstance(post.agents, FakeAgents)
        after = result_bytes(post)
        assert after is not None
        assert before in (None, after), "a result is written once"
        assert len(post.agents.runs_of(TASK)) == 2
        assert post.agents.overlaps() == ""
        assert b'"status": "success"' in after
        assert b'"retry_count": 1' in after
        learned = (post.home.general_memory("gen-test") / "learned.md").read_text()
        assert learned.count("It works the second time.") == 1
        assert list(post.home.role("gen-test").glob("campaigns/*")) == []
        kinds = [kind for kind, _ in post.told()]
        assert "task.completed" in kinds


async def test_a_task_that_is_cancelled(tmp_path: Path) -> None:
    async for post in walk(tmp_path, "cancel", [{}], fewest=20):
        before = result_bytes(post)
        await go_on(post, "cancel")
        assert isinstance(post.agents, FakeAgents)
        after = result_bytes(post)
        assert after is not None
        assert before in (None, after)
        assert b'"status": "cancelled"' in after
        assert b'"error": "cancelled by ann"' in after
        assert len(post.agents.runs_of(TASK)) <= 1
        assert cancel_requests(post.home, "gen-test") == {}


async def test_a_task_that_is_parked(tmp_path: Path) -> None:
    async for post in walk(tmp_path, "park", [{}], fewest=20):
        await go_on(post, "park")
        assert isinstance(post.agents, FakeAgents)
        assert result_bytes(post) is None
        assert post.agents.overlaps() == ""
        assert len(post.agents.runs_of(TASK)) <= 2
        record = await post.bus.find(TASK)
        assert record is not None
        assert (record.status, record.error_code) == ("PENDING", "RATE_LIMITED")


async def test_commits_that_wait_while_their_remote_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.court.general.landing.OUTAGE_SECONDS", HELD_SECONDS)
    with github_of_a_court(tmp_path / "github", monkeypatch, "acme/app") as github:
        (tmp_path / HUB_FILE).write_text(json.dumps(hub_settings(github)))
        github.fail_next = [502]
        async for post in walk(tmp_path, "land", [{"repo": "acme/app", "payload": {"title": "Faster"}}], fewest=10):
            await go_on(post, "land")
            assert isinstance(post.agents, FakeAgents)
            assert len(post.agents.runs_of(TASK)) == 1, "the work is done once"
            (pull,) = github.pulls["acme/app"]
            assert json.loads(result_bytes(post) or b"{}")["links"] == [pull["html_url"]]
            assert [kind for kind, _ in post.told()].count("task.completed") == 1
            plain_git(github.bare("acme/app"), "branch", "-D", pull["head"]["ref"])
            github.pulls.clear()
            github.fail_next = [502]
