"""What the token may not read for a while is not lost: it is read afterwards, and others are read meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.sentinel.config import GitHubSection
from kingdom.court.sentinel.watcher import SourcePoller
from tests.support.fake_github import ME, REPO, FakeGitHub
from tests.support.sentinels import Post

OTHER = "globex/api"


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "a-token")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[Post]:
    async with Post(tmp_path).open() as opened:
        yield opened


@pytest.fixture
async def github(post: Post) -> AsyncIterator[FakeGitHub]:
    async with FakeGitHub(post.clock) as server:
        server.repo_id(OTHER)
        yield server


def section(github: FakeGitHub, **more: Any) -> GitHubSection:
    return GitHubSection(url=github.url, **more)


async def polls(post: Post, watch: SourcePoller, times: int = 1, seconds: float = 61.0) -> None:
    for _ in range(times):
        await watch.poll()
        post.clock.now += seconds


def numbers(post: Post) -> list[tuple[str, int]]:
    return sorted((event["repo"], event["payload"]["number"]) for event in post.events())


@pytest.mark.parametrize("status", [403, 404, 451, 200])
async def test_a_subject_that_cannot_be_read_for_two_hours_is_told_afterwards(
    post: Post, github: FakeGitHub, status: int
) -> None:
    async with post.watch("github", section(github)) as watch:
        await polls(post, watch)
        github.open(1)
        github.open(2)
        github.fail("/pulls/1", status, times=10_000, body={"message": "Must have admin rights"})
        if status == 200:
            github.faults[-1].response.body = [1]  # type: ignore[union-attr]  # nonsense
        await polls(post, watch, 60)
        assert numbers(post) == [(REPO, 2)]
    async with post.watch("github", section(github)) as watch:  # another process
        await polls(post, watch, 60)
        github.faults.clear()
        asked = github.asked("GET /repos/acme/shop/pulls/1")
        assert asked < 20, "the pauses grow"
        await polls(post, watch, 60)
    assert numbers(post) == [(REPO, 1), (REPO, 2)]


async def test_a_notification_is_marked_as_read_only_when_its_subject_was_read(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    (thread,) = github.threads
    github.fail("/issues/1/timeline", 404, times=10_000)
    async with post.watch("github", section(github, full_read_every=2)) as watch:
        await polls(post, watch, 30)
        assert github.marked == []
        github.faults.clear()
        await polls(post, watch, 60)
    assert github.marked == [thread]
    assert numbers(post) == [(REPO, 1)]


async def test_a_deleted_subject_is_left_out_and_its_notification_marked_as_read(
    post: Post, github: FakeGitHub
) -> None:
    github.open(1, pr=False)
    github.fail("/issues/1", 410, times=10_000, body={"message": "This issue was deleted"})
    async with post.watch("github", section(github)) as watch:
        await polls(post, watch, 5)
    assert github.marked == list(github.threads)
    assert github.asked("/issues/1") == 1


async def test_what_happens_while_a_subject_cannot_be_read_is_told_in_full(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    async with post.watch("github", section(github)) as watch:
        await polls(post, watch)
        github.fail("/pulls/1", 403, times=10_000, body={"message": "no"})
        comments = []
        for _ in range(5):
            comments.append(github.comment(1))
            await polls(post, watch, 20)
        github.faults.clear()
        await polls(post, watch, 70)
    told = [event["payload"]["comment"]["id"] for event in post.events() if "comment" in event["payload"]]
    assert sorted(told) == comments


async def test_comments_at_lines_that_cannot_be_read_now_are_waited_for(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    async with post.watch("github", section(github)) as watch:
        await polls(post, watch)
        github.review(1, "changes_requested", lines=("why?",))
        github.fail("/comments", 404, times=2)
        await polls(post, watch, 5)
    (event,) = [event for event in post.events() if event["type"] == "github.pr.reviewed"]
    assert [line["body"] for line in event["payload"]["line_comments"]] == ["why?"]


async def test_the_author_of_a_commit_that_cannot_be_read_now_is_waited_for(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    async with post.watch("github", section(github)) as watch:
        await polls(post, watch)
        github.push(1, by=ME)
        github.fail("/commits/", 403, times=2, body={"message": "no"})
        await polls(post, watch, 5)
    assert post.types() == ["pr.opened"], "our own commit is no event, even if its author could not be read at first"


async def test_a_lapsed_single_sign_on_is_a_problem_with_the_name_and_nothing_is_lost(
    post: Post, github: FakeGitHub
) -> None:
    github.open(1)
    github.open(1, repo=OTHER)
    async with post.watch("github", section(github)) as watch:
        await polls(post, watch)
        github.lapsed.add("globex")
        for number in range(2, 6):
            github.open(number)
            github.open(number, repo=OTHER)
            github.comment(1, "still there?", repo=OTHER)
            await polls(post, watch, 30)
        problems = watch.report()["problems"]
        assert list(problems) == ["single sign-on of globex"]
        assert "organization globex" in problems["single sign-on of globex"]
        assert "problem" not in watch.report(), "the other organizations are read"
    assert numbers(post) == [*((REPO, number) for number in range(1, 6)), (OTHER, 1)]
    async with post.watch("github", section(github)) as watch:
        await polls(post, watch, 2)
        assert list(watch.report()["problems"]) == ["single sign-on of globex"]
        github.lapsed.clear()
        await polls(post, watch, 60)
        assert "problems" not in watch.report()
    expected = [*((REPO, number) for number in range(1, 6)), *((OTHER, number) for number in range(1, 6))]
    assert numbers(post) == sorted([*expected, *[(OTHER, 1)] * 4])


async def test_a_subject_behind_single_sign_on_names_the_organization_and_where_to_authorize(
    post: Post, github: FakeGitHub
) -> None:
    github.open(1, repo=OTHER)
    refusal = github._sign_on_required("globex")
    github.fail("/pulls/1", 403, times=3, body=refusal.body, **refusal.headers)
    async with post.watch("github", section(github)) as watch:
        await polls(post, watch, 2)
        assert "https://github.example/orgs/globex/sso" in watch.report()["problems"]["single sign-on of globex"]
        await polls(post, watch, 10)
        assert "problems" not in watch.report()
    assert numbers(post) == [(OTHER, 1)]


@pytest.mark.parametrize("status", [403, 404, 500])
async def test_one_repository_that_cannot_be_listed_does_not_stop_the_others(
    post: Post, github: FakeGitHub, status: int
) -> None:
    watched = section(github, notifications=False, repos=[OTHER, REPO])
    async with post.watch("github", watched) as watch:
        await polls(post, watch)
        github.open(1, repo=OTHER)
        github.open(1)
        github.fail("/repos/globex/api", status, times=10_000, body={"message": "no"})
        await polls(post, watch, 3, 1000)
        assert list(watch.report()["problems"]) == [OTHER]
        assert "problem" not in watch.report()
        assert numbers(post) == [(REPO, 1)]
        github.faults.clear()
        await polls(post, watch, 30)
        assert "problems" not in watch.report()
    assert numbers(post) == [(REPO, 1), (OTHER, 1)]


async def test_a_token_without_notifications_still_reads_the_repositories(post: Post, github: FakeGitHub) -> None:
    github.fail("/notifications", 403, times=100, body={"message": "Resource not accessible by personal access token"})
    github.open(1)
    async with post.watch("github", section(github, repos=[REPO])) as watch:
        await polls(post, watch)
        assert "classic tokens" in watch.report()["problems"]["notifications"]
    assert numbers(post) == [(REPO, 1)]


async def test_when_nothing_at_all_can_be_listed_the_source_is_paused(post: Post, github: FakeGitHub) -> None:
    github.fail("/repos/", 404, times=100, body={"message": "Not Found"})
    async with post.watch("github", section(github, notifications=False, repos=[REPO, OTHER])) as watch:
        await watch.poll()
        assert "see github.repos" in watch.report()["problem"]
        assert watch.wait() == 300


async def test_a_repository_behind_single_sign_on_names_the_organization(post: Post, github: FakeGitHub) -> None:
    github.lapsed.add("globex")
    github.open(1)
    async with post.watch("github", section(github, notifications=False, repos=[OTHER, REPO])) as watch:
        await polls(post, watch)
        assert "organization globex" in watch.report()["problems"][OTHER]
    assert numbers(post) == [(REPO, 1)]


async def test_an_issue_that_is_updated_while_the_list_is_paged_makes_no_other_one_unheard(
    post: Post, github: FakeGitHub
) -> None:
    section_of_repo = section(github, notifications=False, repos=[REPO], lookback_hours=200)
    for number in range(1, 251):
        github.open(number, pr=False)
        post.clock.now += 1800

    def comment_between_two_pages(request: Any) -> None:
        if request.path == f"/repos/{REPO}/issues":
            lists.append(request)
            if len(lists) == 2:
                github.comment(5, "meanwhile")

    lists: list[Any] = []
    github.before = comment_between_two_pages
    async with post.watch("github", section_of_repo) as watch:
        await polls(post, watch, 3)
    opened = [event["payload"]["number"] for event in post.events() if event["type"] == "github.issue.opened"]
    assert sorted(opened) == list(range(1, 251))
    assert post.types().count("issue.commented") == 1


async def test_more_issues_of_one_second_than_fit_on_a_page_are_all_heard(post: Post, github: FakeGitHub) -> None:
    for number in range(1, 331):
        github.open(number, pr=False)
    post.clock.now += 5
    for number in range(331, 341):
        github.open(number, pr=False)
    async with post.watch("github", section(github, notifications=False, repos=[REPO])) as watch:
        await polls(post, watch)
        assert "problem" not in watch.report(), watch.report()
    assert sorted(event["payload"]["number"] for event in post.events()) == list(range(1, 341))
