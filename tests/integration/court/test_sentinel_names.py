"""Ids of events hang on what never changes: a renamed repository or a moved ticket tells nothing twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.models import Event
from kingdom.court.sentinel.config import GitHubSection, JiraSection
from kingdom.court.sentinel.events import SeenIndex
from kingdom.court.sentinel.watcher import SourcePoller, write_hint
from tests.support.fake_github import REPO, FakeGitHub
from tests.support.fake_jira import FakeJira
from tests.support.sentinels import Post

RENAMED = "acme/store"


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_TOKEN", "JIRA_API_TOKEN"):
        monkeypatch.setenv(name, "a-token")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[Post]:
    async with Post(tmp_path).open() as opened:
        yield opened


@pytest.fixture
async def github(post: Post) -> AsyncIterator[FakeGitHub]:
    async with FakeGitHub(post.clock) as server:
        yield server


@pytest.fixture
async def jira(post: Post) -> AsyncIterator[FakeJira]:
    async with FakeJira(post.clock) as server:
        yield server


async def polls(post: Post, watch: SourcePoller, times: int = 1) -> None:
    for _ in range(times):
        await watch.poll()
        assert "problem" not in watch.report(), watch.report()
        post.clock.now += 61.0


@pytest.mark.parametrize(
    "watched",
    [
        pytest.param({}, id="notifications"),
        pytest.param({"notifications": False, "repos": [REPO]}, id="the old name in repos"),
        pytest.param({"repos": [REPO]}, id="notifications and the old name in repos"),
        pytest.param({"repos": [REPO, RENAMED]}, id="both names in repos"),
    ],
)
async def test_a_renamed_repository_tells_nothing_twice_and_nothing_is_missed(
    post: Post, github: FakeGitHub, watched: dict[str, Any]
) -> None:
    github.open(1)
    github.open(2, pr=False)
    section = GitHubSection(url=github.url, full_read_every=3, **watched)
    async with post.watch("github", section) as watch:
        await polls(post, watch)
        first = github.comment(2)
        await polls(post, watch)
        github.rename(REPO, RENAMED)
        await polls(post, watch, 4)
    async with post.watch("github", section) as watch:
        second = github.comment(2, repo=RENAMED)
        github.push(1, repo=RENAMED)
        github.open(3, pr=False, repo=RENAMED)
        await polls(post, watch, 6)
    assert sorted(post.types()) == sorted(
        ["pr.opened", "issue.opened", "issue.opened", "issue.commented", "issue.commented", "pr.updated"]
    )
    assert {f"evt-github-900000-2-comment-{comment}" for comment in (first, second)} <= {e["id"] for e in post.events()}
    assert {event["repo"] for event in post.events() if event["payload"]["number"] == 3} == {RENAMED}
    assert {event["payload"]["repo_id"] for event in post.events()} == {900_000}


async def test_another_repository_that_takes_the_old_name_is_another_one(post: Post, github: FakeGitHub) -> None:
    github.open(1, pr=False)
    section = GitHubSection(url=github.url, notifications=False, repos=[REPO], full_read_every=1)
    async with post.watch("github", section) as watch:
        await polls(post, watch)
        github.rename(REPO, RENAMED)
        await polls(post, watch)
        github.open(1, pr=False)
        await polls(post, watch, 3)
    assert post.types() == ["issue.opened", "issue.opened"]
    assert len({event["payload"]["repo_id"] for event in post.events()}) == 2


async def test_a_repository_that_is_added_later_starts_at_the_time_of_its_adding(
    post: Post, github: FakeGitHub
) -> None:
    async with post.watch("github", GitHubSection(url=github.url)) as watch:
        await polls(post, watch)
    github.repo_id("globex/api")
    for number in range(1, 4):
        github.open(number, pr=False, repo="globex/api")
        github.threads.clear()
        post.clock.now += 40 * 86400
    github.open(4, pr=False, repo="globex/api")
    github.threads.clear()
    async with post.watch("github", GitHubSection(url=github.url, repos=["globex/api"])) as watch:
        await polls(post, watch, 3)
    assert [event["payload"]["number"] for event in post.events()] == [4]


async def test_a_hint_and_a_list_under_different_names_are_one_subject(post: Post, github: FakeGitHub) -> None:
    github.open(1, pr=False)
    github.rename(REPO, RENAMED)
    write_hint(post.home, "github", "d-1", {"repo": REPO, "number": 1, "is_pr": False})
    async with post.watch("github", GitHubSection(url=github.url)) as watch:
        await polls(post, watch, 2)
    assert post.types() == ["issue.opened"]
    assert github.asked("/issues/1/timeline") == 1


async def test_a_moved_ticket_is_the_same_ticket(post: Post, jira: FakeJira) -> None:
    jira.create("SHOP-1")
    section = JiraSection(url=jira.url, email="bot@acme.example", projects=["SHOP", "OPS"], ignore_fields=["Key"])
    async with post.watch("jira", section) as watch:
        comment = jira.comment("SHOP-1")
        await polls(post, watch)
        identity = jira.id_of("SHOP-1")
        jira.move("SHOP-1", "OPS-7")
        await polls(post, watch, 3)
    async with post.watch("jira", section) as watch:
        await polls(post, watch, 3)
    assert [event["id"] for event in post.events()] == [
        f"evt-jira-{identity}-comment-{comment}",
        f"evt-jira-{identity}-created",
    ]


def former(event: dict[str, Any]) -> str:
    """The id that an event had before."""
    payload = event["payload"]
    if event["source"] == "jira":
        return str(event["id"]).replace(f"evt-jira-{payload['issue_id']}-", f"evt-jira-{payload['key']}-")
    return str(event["id"]).replace(f"evt-github-{payload['repo_id']}-", "evt-github-acme.shop-")


async def test_a_court_that_was_upgraded_tells_nothing_again_that_it_told_under_former_ids(
    post: Post, github: FakeGitHub, jira: FakeJira
) -> None:
    github.open(1)
    github.open(2, pr=False)
    github.comment(2)
    jira.create("SHOP-1")
    jira.change("SHOP-1")
    sections = {
        "github": GitHubSection(url=github.url, repos=[REPO]),
        "jira": JiraSection(url=jira.url, email="bot@acme.example"),
    }
    for name, section in sections.items():
        async with post.watch(name, section) as watch:
            await polls(post, watch)
    told = post.events()
    assert len(told) == 5
    ids = {event["id"] for event in told}
    # As the version before it would have left it: former ids in the seen index, names in the cursors.
    folder = post.home.role("sentinel")
    for path in [*(folder / "seen").iterdir(), *(post.home.queue / "events").glob("*/*.json")]:
        path.unlink()
    SeenIndex(folder / "seen").add([former(event) for event in told], post.clock.now)
    for state in ("github.json", "jira.json"):
        (folder / state).write_text((folder / state).read_text().replace("900000", REPO))
    github.touch(1)  # so that they are read again
    github.touch(2)
    for name, section in sections.items():
        async with post.watch(name, section) as watch:
            await polls(post, watch, 12)
    assert post.events() == []
    assert ids <= post.seen(), "from now on they are known under their new ids"
    github.comment(1)
    jira.comment("SHOP-1")
    for name, section in sections.items():
        async with post.watch(name, section) as watch:
            await polls(post, watch, 3)
    assert post.types() == ["pr.commented", "ticket.commented"]


def test_events_of_other_sources_have_no_former_id() -> None:
    from kingdom.court.sentinel.events import former_id

    for source in ("github", "jira", "local"):
        event = Event(id=f"evt-{source}-1", type="x.y", source=source, payload={}, created_at="2026-02-07T10:00:00Z")  # type: ignore[arg-type]
        assert former_id(event) is None
