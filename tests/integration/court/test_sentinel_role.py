"""The role: watches what its configuration says, each source on its own, and costs nothing when that is nothing."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kingdom.court.bootstrap import make_role
from kingdom.court.init_home import create_home
from kingdom.court.loop import run_role
from kingdom.court.sentinel import Sentinel
from kingdom.court.sentinel.config import LocalSection
from tests.support.fake_github import FakeGitHub
from tests.support.fake_jira import FakeJira
from tests.support.sentinels import Post
from tests.support.serving import listening


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "a-token")
    monkeypatch.setenv("JIRA_API_TOKEN", "a-token")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[Post]:
    async with Post(tmp_path).open() as opened:
        yield opened


@pytest.fixture
async def sentinel(post: Post) -> AsyncIterator[Sentinel]:
    role = Sentinel(post.services())
    yield role
    await role.stop()


async def look(post: Post, sentinel: Sentinel, seconds: float = 61.0) -> None:
    await sentinel.tick()
    await sentinel.idle()
    post.clock.now += seconds


async def test_a_new_home_has_a_sentinel_that_watches_nothing(tmp_path: Path) -> None:
    await create_home(tmp_path / "court")
    async with Post(tmp_path / "court").open() as post:
        role = make_role("sentinel", post.services())
        assert await role.tick() is None
        assert role.report() == {"sources": {}}
        assert role.interval == 60.0
        await role.stop()
        assert (post.home.config / "sentinel.yaml").is_file()


async def test_github_and_jira_and_the_drop_folder_are_watched_together(post: Post, sentinel: Sentinel) -> None:
    async with FakeGitHub(post.clock) as github, FakeJira(post.clock) as jira:
        post.configure(
            github={"url": github.url}, jira={"url": jira.url, "email": "bot@acme.example"}, local={"folder": "in"}
        )
        github.open(1)
        jira.create("SHOP-1")
        (post.home.root / "in").mkdir()
        (post.home.root / "in" / "a.json").write_text('{"type": "ci.failed", "payload": {"job": 5}}')
        await look(post, sentinel)
        assert sorted(event["type"] for event in post.events()) == [
            "ci.failed",
            "github.pr.opened",
            "jira.ticket.created",
        ]
        sources = sentinel.report()["sources"]
        assert {name: source["events"] for name, source in sources.items()} == {"github": 1, "jira": 1, "local": 1}
        assert sentinel.report()["seen"] == 3
        await sentinel.stop()


async def test_a_source_that_hangs_delays_nobody(post: Post, sentinel: Sentinel) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        asked.set()
        await answer.wait()

    async with listening(hang) as jira, FakeGitHub(post.clock) as github:
        post.configure(
            github={"url": github.url}, jira={"url": f"http://127.0.0.1:{jira.port}", "email": "bot@acme.example"}
        )
        github.open(1)
        await sentinel.tick()
        await asyncio.wait_for(asked.wait(), 30)
        while not post.events():
            await asyncio.sleep(0)
        await sentinel.tick()
        assert sentinel.report()["sources"]["jira"]["polls"] == 1
        await sentinel.stop()  # and it can be stopped while it hangs
        answer.set()


async def test_a_missing_token_is_told_and_taken_up_when_it_is_there(
    post: Post, sentinel: Sentinel, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeGitHub(post.clock) as github:
        github.open(1)
        monkeypatch.delenv("GITHUB_TOKEN")
        post.configure(github={"url": github.url})
        await look(post, sentinel)
        (problem,) = sentinel.report()["problems"]
        assert problem == (
            "github: the environment variable GITHUB_TOKEN is not set: kingdom connect github says how; then restart "
            "the court"
        )
        told = sentinel.report()["sources"]["github"]
        assert (told["problem"], told["refused"]) == (problem, True), "people are alerted at once"
        monkeypatch.setenv("GITHUB_TOKEN", "a-token")
        await look(post, sentinel)
        assert "problems" not in sentinel.report()
        assert post.types() == ["pr.opened"]
        await sentinel.stop()


async def test_a_change_of_the_configuration_is_taken_up_and_a_mistake_told(post: Post, sentinel: Sentinel) -> None:
    async with FakeGitHub(post.clock) as github:
        post.configure(github={"url": github.url})
        await look(post, sentinel)
        asked = len(github.requests)
        post.configure(github={"url": github.url, "bogus": 1})
        await look(post, sentinel)
        assert "unknown key 'github.bogus'" in sentinel.report()["problems"][0]
        assert len(github.requests) > asked  # what held before goes on
        post.configure(github={"url": github.url, "enabled": False})
        await look(post, sentinel)
        asked = len(github.requests)
        await look(post, sentinel)
        assert len(github.requests) == asked
        assert sentinel.report() == {"sources": {}}


async def test_each_new_event_is_a_line_of_the_log_once(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kingdom.court.sentinel")
    drop(post, "a.json", json.dumps({"type": "ci.failed", "id": "evt-ci-1", "payload": {}}))
    for _ in range(2):
        async with post.watch("local", LocalSection()) as watch:
            await watch.poll()
        drop(post, "b.json", json.dumps({"type": "ci.failed", "id": "evt-ci-1", "payload": {}}))
    assert [line for line in caplog.messages if line.startswith("[EVENT]")] == ["[EVENT] Emitted: evt-ci-1"]


async def test_a_file_in_the_drop_folder_wakes_the_role(post: Post) -> None:
    post.configure(local={"interval_seconds": 3600})
    inbox, stop = post.home.root / "inbox", asyncio.Event()
    running = asyncio.create_task(run_role(Sentinel(post.services()), post.services(), stop))
    while not post.home.heartbeat("sentinel").exists():
        await asyncio.sleep(0.01)
    (inbox / ".half").write_text(json.dumps({"type": "ci.failed", "payload": {}}))
    (inbox / ".half").rename(inbox / "run 5.json")
    async with asyncio.timeout(30):
        while not post.events() or list(inbox.iterdir()):
            await asyncio.sleep(0.01)
        stop.set()
        await running
    event = post.events()[0]
    assert (event["type"], event["source"]) == ("ci.failed", "local")
    assert event["id"].startswith("evt-local-run_5-")


def drop(post: Post, name: str, content: str, at: float = 1_770_000_000.0) -> Path:
    path = post.home.root / "inbox" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    os.utime(path, (at, at))
    return path


async def test_the_same_name_and_content_dropped_again_is_another_event(post: Post, sentinel: Sentinel) -> None:
    post.configure(local={})
    for number in range(3):
        drop(post, "deploy.json", '{"type": "ops.deploy"}', 1_770_000_000.0 + number)
        await look(post, sentinel)
    assert len(post.events()) == 3


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"type": "No"}', '{"type": "a.b", "id": "evt-x-../../y"}', "\0"])
async def test_what_is_no_event_is_put_aside_with_its_reason_once_it_cannot_be_half_a_file(
    post: Post, sentinel: Sentinel, content: str
) -> None:
    post.configure(local={})
    path = drop(post, "bad.json", content)
    drop(post, "good.json", '{"type": "a.b"}')
    await look(post, sentinel, 0.5)
    assert path.exists()  # it may still be written
    for _ in range(4):
        await look(post, sentinel, 3.0)
    assert sorted(entry.name for entry in (path.parent / "invalid").iterdir()) == ["bad.json", "bad.json.reason"]
    assert (path.parent / "invalid" / "bad.json.reason").read_text().strip()
    assert [event["type"] for event in post.events()] == ["a.b"]
    assert post.home.root.joinpath("queue/events/invalid").is_dir()


async def test_a_broken_state_file_is_put_aside_and_nothing_is_told_twice(post: Post, sentinel: Sentinel) -> None:
    async with FakeGitHub(post.clock) as github:
        github.open(1)
        post.configure(github={"url": github.url})
        await look(post, sentinel)
        await sentinel.stop()
        state = post.home.role("sentinel") / "github.json"
        state.write_text("{half")
        other = Sentinel(post.services())
        await look(post, other)
        await other.stop()
        assert state.with_suffix(".broken").read_text() == "{half"
        assert json.loads(state.read_text())["cursor"]["baseline"]
        assert post.types() == ["pr.opened"]


async def test_looks_that_find_nothing_write_nothing(post: Post, sentinel: Sentinel) -> None:
    async with FakeGitHub(post.clock) as github, FakeJira(post.clock) as jira:
        post.configure(github={"url": github.url}, jira={"url": jira.url, "email": "b@acme.example"})
        github.open(1)
        jira.create("SHOP-1")
        for _ in range(4):
            await look(post, sentinel)
        written = {path: path.stat().st_mtime_ns for path in post.home.role("sentinel").glob("*.json")}
        assert len(written) == 2
        for _ in range(5):
            await look(post, sentinel)
        assert {path: path.stat().st_mtime_ns for path in post.home.role("sentinel").glob("*.json")} == written
        await sentinel.stop()
