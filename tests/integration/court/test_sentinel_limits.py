"""Rate limits, redirects and links, each by GitHub's documented rules and each with its own sentence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.sentinel.config import GitHubSection
from kingdom.court.sentinel.watcher import SourcePoller
from tests.support.fake_github import REPO, FakeGitHub
from tests.support.fake_http import Request, Response
from tests.support.sentinels import Post

SECONDARY = {
    "message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
    "documentation_url": "https://docs.example/rest/rate-limits-for-the-rest-api#about-secondary-rate-limits",
}
ABUSE = {"message": "You have triggered an abuse detection mechanism. Please wait a few minutes."}


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "a-token")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[Post]:
    async with Post(tmp_path).open() as opened:
        yield opened


@pytest.fixture
async def github(post: Post) -> AsyncIterator[FakeGitHub]:
    async with FakeGitHub(post.clock) as server:
        yield server


async def pass_time(post: Post, watch: SourcePoller) -> None:
    post.clock.now += max(watch.wait(), 61.0)
    await watch.poll()


async def test_when_the_quota_ends_with_a_good_answer_no_request_is_made_until_it_is_renewed(
    post: Post, github: FakeGitHub
) -> None:
    github.open(1)
    reset = str(int(post.clock.now) + 1500)
    github.fail("GET /notifications", 200, body=[], X_RateLimit_Remaining="0", X_RateLimit_Reset=reset)
    async with post.watch("github", GitHubSection(url=github.url)) as watch:
        await watch.poll()
        asked = len(github.requests)
        assert watch.wait() == 1500
        assert (
            "the quota of requests is used up (rate limit): no requests for another 1500 s" in watch.report()["problem"]
        )
        post.clock.now += 1499
        await watch.poll()
        assert len(github.requests) == asked
        await pass_time(post, watch)
    assert post.types() == ["pr.opened"]


@pytest.mark.parametrize("status", [403, 429])
async def test_a_request_over_the_quota_waits_for_its_renewal(post: Post, github: FakeGitHub, status: int) -> None:
    github.open(1)
    reset = str(int(post.clock.now) + 900)
    message = {"message": "API rate limit exceeded for user ID 1."}
    github.fail("/pulls/1", status, body=message, X_RateLimit_Remaining="0", X_RateLimit_Reset=reset)
    async with post.watch("github", GitHubSection(url=github.url)) as watch:
        await watch.poll()
        assert watch.wait() == 900
        assert "the quota of requests is used up" in watch.report()["problem"]
        await pass_time(post, watch)
    assert post.types() == ["pr.opened"]


@pytest.mark.parametrize("body", [SECONDARY, ABUSE])
async def test_a_secondary_limit_without_a_time_is_waited_for_longer_each_time(
    post: Post, github: FakeGitHub, body: dict[str, str]
) -> None:
    github.open(1)
    github.fail("GET /notifications", 403, times=3, body=body)
    waits = []
    async with post.watch("github", GitHubSection(url=github.url)) as watch:
        await watch.poll()
        for _ in range(3):
            waits.append(watch.wait())
            assert "too many requests in a short time (secondary rate limit)" in watch.report()["problem"]
            await pass_time(post, watch)
    assert waits == [60, 120, 240]
    assert post.types() == ["pr.opened"], "the events were not spent on it"


async def test_a_secondary_limit_on_a_subject_is_no_refusal_of_that_subject(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    github.fail("/pulls/1", 403, body=ABUSE)
    async with post.watch("github", GitHubSection(url=github.url)) as watch:
        await watch.poll()
        assert watch.wait() == 60
        await pass_time(post, watch)
    assert post.types() == ["pr.opened"]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_are_followed_with_the_same_method_and_parameters(
    post: Post, github: FakeGitHub, status: int
) -> None:
    answer = github.answer

    def redirecting(request: Request) -> Response:
        if request.path.startswith("/moved"):
            moved = Request(request.method, request.path[6:], request.query, request.headers, request.body)
            return answer(moved)
        query = "&".join(f"{name}={value}" for name, value in request.query.items())
        return Response(None, status, {"Location": f"/moved{request.path}{f'?{query}' if query else ''}"})

    github.answer = redirecting  # type: ignore[method-assign]
    github.open(1)
    async with post.watch("github", GitHubSection(url=github.url, repos=[REPO])) as watch:
        await watch.poll()
        assert "problem" not in watch.report(), watch.report()
    assert post.types() == ["pr.opened"]
    assert github.marked == list(github.threads)
    assert all(request.headers["authorization"] == "Bearer a-token" for request in github.requests)


async def test_redirects_in_a_circle_end_with_a_sentence(post: Post, github: FakeGitHub) -> None:
    github.fail("GET /notifications", 307, times=100, Location="/notifications")
    async with post.watch("github", GitHubSection(url=github.url)) as watch:
        await watch.poll()
        assert "/notifications redirects more than 3 times" in watch.report()["problem"]


@pytest.mark.parametrize("how", ["links", "redirects"])
async def test_another_host_gets_no_token_and_the_sentence_says_what_to_correct(
    post: Post, github: FakeGitHub, how: str
) -> None:
    """A GitHub Enterprise server that is reached under an alias names itself in its links."""
    async with FakeGitHub(post.clock) as itself:
        where = f"{itself.url}/notifications?page=2"
        fault: dict[str, Any] = {"Link": f'<{where}>; rel="next"'} if how == "links" else {"Location": where}
        github.fail("GET /notifications", 200 if how == "links" else 307, body=[], **fault)
        async with post.watch("github", GitHubSection(url=github.url)) as watch:
            await watch.poll()
            problem = watch.report()["problem"]
            assert f"{github.url} {how} to another host" in problem
            assert f"set github.url to {itself.url}" in problem
            assert "token may not read" not in problem
            assert watch.report()["refused"] is True, "people are alerted at once"
        assert itself.requests == []


async def test_the_same_host_in_other_words_is_the_same_host(post: Post, github: FakeGitHub) -> None:
    github.notifications_per_page = 2
    for number in range(1, 5):
        github.open(number)
    port = github.url.rpartition(":")[2]
    github.url = f"http://LOCALHOST:{port}"
    async with post.watch("github", GitHubSection(url=f"http://localhost:{port}")) as watch:
        await watch.poll()
        assert "problem" not in watch.report(), watch.report()
    assert len(post.types()) == 4


async def test_a_server_below_a_path_is_read_and_names_its_address_with_the_path(
    post: Post, github: FakeGitHub
) -> None:
    answer = github.answer

    def enterprise(request: Request) -> Response:
        below = request.path.removeprefix("/api/v3")
        return answer(Request(request.method, below, request.query, request.headers, request.body))

    github.answer = enterprise  # type: ignore[method-assign]
    github.open(1)
    base = f"{github.url}/api/v3"
    async with post.watch("github", GitHubSection(url=base)) as watch:
        await watch.poll()
        assert "problem" not in watch.report(), watch.report()
        post.clock.now += 61
        github.fail("/notifications", 200, body=[], Link='<https://ghe.acme.example/api/v3/notifications>; rel="next"')
        await watch.poll()
        assert "set github.url to https://ghe.acme.example/api/v3" in watch.report()["problem"]
    assert post.types() == ["pr.opened"]
    assert all(request.path.startswith("/api/v3/") for request in github.requests)


async def test_marking_as_read_is_tried_again_after_a_passing_refusal(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    github.fail("PATCH", 403, body={"message": "Forbidden"})
    async with post.watch("github", GitHubSection(url=github.url, full_read_every=1)) as watch:
        await watch.poll()
        for _ in range(3):
            post.clock.now += 1900
            await watch.poll()
    assert github.marked == list(github.threads)


async def test_a_refused_token_is_tried_again_by_a_new_process_at_once(post: Post, github: FakeGitHub) -> None:
    """A person who sets another token restarts the court, and should not have to wait."""
    github.open(1)
    github.fail("GET", 401)
    async with post.watch("github", GitHubSection(url=github.url)) as watch:
        assert watch.report()["unknown"] is True
        await watch.poll()
        assert watch.wait() == 300
        assert "restart the court to use a new one" in watch.report()["problem"]
        assert "unknown" not in watch.report()
    async with post.watch("github", GitHubSection(url=github.url)) as watch:
        assert watch.wait() == 0
        await watch.poll()
        assert "problem" not in watch.report()
    assert post.types() == ["pr.opened"]
    github.fail("GET", 403, Retry_After="120")
    async with post.watch("github", GitHubSection(url=github.url)) as watch:
        await watch.poll()
    async with post.watch("github", GitHubSection(url=github.url)) as watch:
        assert watch.wait() > 0, "a limit holds over a restart"
