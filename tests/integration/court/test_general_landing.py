"""A general whose manifest says so lands what its soldiers commit, as pull requests on a GitHub that keeps state."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.port import Order, Outcome
from kingdom.court.cancellations import request_cancel
from kingdom.court.commands import InvalidTaskState
from kingdom.court.general.landing import land_again
from kingdom.court.loop import Services
from kingdom.court.problems import CourtProblem, failure_journal, recent_failures
from tests.support.fake_agents import FakeAgents
from tests.support.generals import Post, posted
from tests.support.github_server import TOKEN, GitHubServer, github_of_a_court
from tests.support.repositories import plain_git

TICKET = {"ticket_key": "APP-7", "title": "Make ls faster"}


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubServer]:
    with github_of_a_court(tmp_path / "github", monkeypatch, "acme/app") as server:
        yield server


@pytest.fixture
async def post(tmp_path: Path, github: GitHubServer) -> AsyncIterator[Post]:
    async with posted(tmp_path / "court", land={"how": "pull-request", "draft": True}, evidence=["commit"]) as post:
        post.base_url = github.url
        post.system = {"git": {"credentials": {github.host: {"env": "HUB_TOKEN"}}}}
        fake(post).script = commits("ls.py")
        yield post


def fake(post: Post) -> FakeAgents:
    assert isinstance(post.agents, FakeAgents)
    return post.agents


def commits(*names: str) -> Callable[[Order, int], Outcome]:
    """A soldier that commits files."""

    def work(order: Order, number: int) -> Outcome:
        for name in names:
            (order.cwd / name).write_text(f"{order.run_id}\n")
            plain_git(order.cwd, "add", name)
            plain_git(order.cwd, "commit", "--quiet", "--message", f"Change {name}")
        return Outcome(
            "success", {"status": "success", "summary": "It is fast now.", "links": ["https://ci.example/1"]}
        )

    return work


def problems(post: Post) -> list[CourtProblem]:
    """What ``kingdom status`` and the inbox show of tasks."""
    journal = failure_journal(post.home.journal)
    try:
        return recent_failures(post.home, journal, post.now)
    finally:
        journal.close()


async def finish(post: Post, **payload: Any) -> dict[str, Any]:
    task = await post.task(repo="acme/app", payload={**TICKET, **payload})
    (result,) = await post.finish(task)
    return dict(result)


async def test_a_ticket_ends_in_a_pull_request(post: Post, github: GitHubServer) -> None:
    result = await finish(post)
    (pull,) = github.pulls["acme/app"]
    assert (result["status"], result["links"]) == ("success", [pull["html_url"], "https://ci.example/1"])
    assert (pull["title"], pull["head"]["ref"], pull["base"]["ref"]) == (
        "APP-7: Make ls faster",
        "kingdom/APP-7",
        "main",
    )
    assert pull["draft"] is True
    assert "It is fast now." in pull["body"]
    assert "for APP-7" in pull["body"]
    log = plain_git(github.bare("acme/app"), "log", "--format=%s", "main..kingdom/APP-7")
    assert log == "Change ls.py"
    assert TOKEN not in str(fake(post).orders)


async def test_a_second_task_on_the_ticket_does_not_overwrite_the_first(post: Post, github: GitHubServer) -> None:
    await finish(post)
    before = github.refs("acme/app")
    fake(post).script = commits("cp.py")
    task = await post.task(2, repo="acme/app", payload=TICKET)
    await post.finish(task)
    after = github.refs("acme/app")
    assert after.keys() - before.keys() == {"kingdom/APP-7-2"}
    assert [pull["head"]["ref"] for pull in github.pulls["acme/app"]] == ["kingdom/APP-7", "kingdom/APP-7-2"]


@pytest.mark.parametrize(("statuses", "count"), [([502], 1), ([403], 0)])
async def test_an_outage_passes_and_a_refusal_is_said_without_undoing_the_success(
    post: Post, github: GitHubServer, statuses: list[int], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kingdom.court.general.landing.OUTAGE_SECONDS", (0.0, 0.0, 0.0))
    github.fail_next = statuses
    result = await finish(post)
    assert result["status"] == "success"
    assert len(github.pulls.get("acme/app", [])) == count
    assert ("but was not landed: no pull request may be made in acme/app" in result["summary"]) == (count == 0)


async def test_what_waits_for_its_remote_for_hours_takes_up_no_place(post: Post, github: GitHubServer) -> None:
    first, second = [await post.task(number, repo="acme/app", payload=TICKET) for number in (1, 2)]
    away, back = asyncio.Event(), asyncio.Event()

    async def nap(seconds: float) -> None:
        post.naps.append(seconds)
        if seconds == 300.0:
            away.set()
            await back.wait()

    github.fail_next = [502] * 6
    general = post.general(sleep=nap)
    await general.start()
    await post.work(general, away.is_set)
    (waits,) = general.report()["held"].items()
    assert post.naps == [1.0, 4.0, 15.0, 60.0, 120.0, 300.0]
    assert waits[0] == first.id
    assert waits[1]["reason"].startswith("the work is done, and is landed when the remote is back: acme/app at ")
    await post.work(general, lambda: post.state(second) == "completed")
    assert post.manifest.concurrency == 1, "and the second is done beside the first"
    assert post.state(first) == "in_progress", "it still has the lease, so nobody does it again"
    with pytest.raises(InvalidTaskState, match="has not ended: if its general lands anything, it does so by itself"):
        await land_again(Services(post.home, post.bus, post.journal), first.id)
    back.set()
    await post.work(general, lambda: post.state(first) == "completed")
    assert general.report()["held"] == {}
    await general.stop()
    (link, *_), pulls = post.result(first)["links"], github.pulls["acme/app"]
    assert len(pulls) == 2
    assert link == pulls[1]["html_url"]


async def test_what_waits_for_its_remote_can_be_cancelled(post: Post, github: GitHubServer) -> None:
    task = await post.task(repo="acme/app", payload=TICKET)
    away = asyncio.Event()

    async def nap(seconds: float) -> None:
        away.set()
        await asyncio.Event().wait()

    github.fail_next = [502]
    general = post.general(sleep=nap)
    await general.start()
    await post.work(general, away.is_set)
    request_cancel(post.home, "gen-test", task.id, "not needed any more")
    await post.work(general, lambda: post.state(task) == "completed")
    await general.stop()
    assert (post.result(task)["status"], post.result(task)["error"]) == ("cancelled", "not needed any more")
    assert "acme/app" not in github.pulls


async def test_what_was_refused_is_landed_later(
    post: Post, github: GitHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kingdom.court.general.landing.OUTAGE_SECONDS", ())
    github.fail_next = [403]
    result = await finish(post)
    task_id = result["task_id"]
    assert f"Land it later with: kingdom task land {task_id}" in result["summary"]
    assert [(problem.what, problem.why) for problem in problems(post)] == [
        (task_id, f"not landed: {result['not_landed']}: kingdom task land {task_id}")
    ]
    (post.home.config / "system.yaml").write_text(json.dumps(post.system | {"repos": {"base_url": github.url}}))
    package = {**post.manifest.model_dump(mode="json", exclude_defaults=True), "subscribes": ["test.happened"]}
    (post.folder / "manifest.yaml").write_text(json.dumps(package))
    services = Services(post.home, post.bus, post.journal)
    landed = await land_again(services, result["task_id"])
    (pull,) = github.pulls["acme/app"]
    assert (landed.branch, landed.commits, landed.url) == ("kingdom/APP-7", 1, pull["html_url"])
    kept = json.loads(post.home.result(result["task_id"]).read_text())
    assert (kept["links"], kept["branch"]) == ([pull["html_url"], "https://ci.example/1"], "kingdom/APP-7")
    assert await land_again(services, result["task_id"]) == landed, "the same request"
    assert kept["summary"] == "It is fast now.", "it is landed now"
    assert pull["body"].startswith("It is fast now.\n\n---\n"), (
        "people of the repository read what was done, and no more"
    )
    assert problems(post) == []


async def test_nothing_is_landed_of_a_task_that_failed(post: Post, github: GitHubServer) -> None:
    fake(post).script = lambda order, number: Outcome("failed", error="no")
    failed = await finish(post)
    assert failed["status"] == "failed"
    services = Services(post.home, post.bus, post.journal)
    with pytest.raises(InvalidTaskState, match="has not ended with success: only what succeeded can be landed"):
        await land_again(services, failed["task_id"])
    assert github.refs("acme/app").keys() == {"main"}


# ── reviews ───────────────────────────────────────────────────────────────────────────────────────────────────────

SECOND = {"id": "evt-test-2", "repo": "acme/app"}
LATER = "2026-09-21T15:00:00Z"
REVIEW: dict[str, Any] = {
    "status": "success",
    "summary": "REQUEST CHANGES: ls forgets hidden files.",
    "comments": [{"path": "ls.py", "line": 1, "body": "major: hidden files are left out."}],
}


@pytest.fixture
async def reviewer(tmp_path: Path, github: GitHubServer) -> AsyncIterator[Post]:
    """A general that reviews pull request 7 of the application, which adds a file."""
    head = github.commit("acme/app", {"ls.py": "print('fast')\n"}, branch="theirs")
    plain_git(github.bare("acme/app"), "update-ref", "refs/pull/7/head", head)
    async with posted(tmp_path / "court", land="review", evidence=["comments"], retries=0) as post:
        post.base_url = github.url
        post.system = {"git": {"credentials": {github.host: {"env": "HUB_TOKEN"}}}}
        fake(post).script = lambda order, number: Outcome("success", dict(REVIEW))
        yield post


async def review(post: Post, number: int = 1, **fields: Any) -> dict[str, Any]:
    given = {"type": "github.pr.opened", "payload": {"number": 7, "base": "main"}, **fields}
    (result,) = await post.finish(await post.task(number, repo="acme/app", **given))
    return dict(result)


async def test_a_review_is_posted_with_comments_on_its_lines_and_approves_nothing(
    reviewer: Post, github: GitHubServer
) -> None:
    result = await review(reviewer)
    (posted_review,) = github.reviews["acme/app", 7]
    assert (result["status"], result["links"]) == ("success", [posted_review["html_url"]])
    assert posted_review["event"] == "COMMENT"
    assert posted_review["body"].startswith("REQUEST CHANGES: ls forgets hidden files.")
    (comment,) = REVIEW["comments"]
    marked = f"{comment['body']}\n\n<!-- kingdom {result['task_id']} -->"
    assert posted_review["comments"] == [{**comment, "body": marked, "side": "RIGHT"}]
    assert TOKEN not in str(fake(reviewer).orders)


async def test_a_review_whose_answer_was_lost_is_not_posted_twice(
    reviewer: Post, github: GitHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kingdom.court.general.review.OUTAGE_SECONDS", (0.0,))
    answer = github.answer

    def lose_the_first(method: str, path: str, token: str | None, body: dict[str, Any]) -> tuple[int, Any]:
        found = answer(method, path, token, body)
        lost = method == "POST" and sum(call[0] == "POST" for call in github.calls) == 1
        return (502, {"message": "lost"}) if lost else found

    monkeypatch.setattr(github, "answer", lose_the_first)
    result = await review(reviewer)
    assert [one["html_url"] for one in github.reviews["acme/app", 7]] == result["links"]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"type": "github.pr.review_requested"}, "skipped"),
        ({"type": "github.pr.updated", "event": {**SECOND, "created_at": LATER}}, "skipped"),
        ({"type": "github.pr.mentioned", "payload": {"number": 7, "comment": {"body": "And hidden ones?"}}}, "success"),
        (
            {
                "type": "github.pr.review_requested",
                "event": {"id": "evt-test-2", "repo": "acme/app", "created_at": LATER},
            },
            "success",
        ),
    ],
)
async def test_a_commit_is_reviewed_once_for_those_who_asked_before(
    reviewer: Post, github: GitHubServer, fields: dict[str, Any], status: str
) -> None:
    reviewer.now += 60
    await review(reviewer)
    result = await review(reviewer, 2, **fields)
    assert result["status"] == status
    assert len(github.reviews["acme/app", 7]) == (2 if status == "success" else 1)
    if status == "skipped":
        head = plain_git(github.bare("acme/app"), "rev-parse", "refs/pull/7/head")
        reason = f"task-20260921-001 has reviewed commit {head:.12}"
        assert result["summary"] in (reason, f"{reason}, since this was asked for")
        assert ("acme/app", 7) not in github.comments


async def test_new_commits_are_reviewed_whenever_it_was_asked(reviewer: Post, github: GitHubServer) -> None:
    reviewer.now += 60
    await review(reviewer)
    head = github.commit("acme/app", {"ls.py": "print('faster')\n"}, branch="theirs")
    plain_git(github.bare("acme/app"), "update-ref", "refs/pull/7/head", head)
    assert (await review(reviewer, 2, type="github.pr.updated"))["status"] == "success"
    assert len(github.reviews["acme/app", 7]) == 2


async def test_a_review_that_may_not_be_posted_is_still_told_to_people(reviewer: Post, github: GitHubServer) -> None:
    github.refuse.append("/reviews")
    result = await review(reviewer)
    assert (result["status"], result["links"]) == ("success", [])
    assert "`ls.py:1`: major: hidden files are left out." in result["summary"]
    assert "The review was not posted: no pull request may be made in acme/app" in result["summary"]
