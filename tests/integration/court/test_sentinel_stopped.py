"""A sentinel that dies between any two things it does: its successor loses nothing and tells nothing twice.

`make walks` tries every point, `make test` some: between reading, publishing, the journal, each entry of the seen
index, the cursor and each notification marked as read; and once more while the successor is finding its way.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.config_parts import ConfigSection
from kingdom.court.queues import EVENTS
from kingdom.court.sentinel import watcher as state_module
from kingdom.court.sentinel.config import GitHubSection, JiraSection, LocalSection
from kingdom.court.sentinel.http import SourceClient
from kingdom.journal import Journal
from tests.support.fake_github import ME, FakeGitHub
from tests.support.fake_jira import FakeJira
from tests.support.sentinels import Post
from tests.support.stopping import StoppableBus, Stopped, Stopper


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_TOKEN", "JIRA_API_TOKEN"):
        monkeypatch.setenv(name, "a-token")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@contextlib.contextmanager
def stoppable(stopper: Stopper) -> Iterator[None]:
    """Make everything a sentinel does to the disk and to GitHub a point to stop at."""
    emit, write, patch, touch, unlink = (
        Journal.emit,
        state_module.write_json,
        SourceClient.patch,
        Path.touch,
        Path.unlink,
    )

    def stoppable_emit(self: Journal, *args: Any) -> None:
        stopper.point("before the journal")
        emit(self, *args)

    def stoppable_write(path: Path, document: Any) -> None:
        stopper.point("before the cursor")
        write(path, document)
        stopper.point("after the cursor")

    async def stoppable_patch(self: SourceClient, path: str) -> Any:
        stopper.point("before marking as read")
        answer = await patch(self, path)
        stopper.point("after marking as read")
        return answer

    def stoppable_touch(self: Path, *args: Any, **options: Any) -> None:
        stopper.point("before the seen index")
        touch(self, *args, **options)

    def stoppable_unlink(self: Path, *args: Any, **options: Any) -> None:
        if self.parent.name == "inbox":
            stopper.point("before removing the file")
        unlink(self, *args, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Journal, "emit", stoppable_emit)
        patched.setattr(state_module, "write_json", stoppable_write)
        patched.setattr(SourceClient, "patch", stoppable_patch)
        patched.setattr(Path, "touch", stoppable_touch)
        patched.setattr(Path, "unlink", stoppable_unlink)
        yield


async def be_the_king(post: Post) -> None:
    """Take up and complete everything, so that only the seen index and what is completed stand against a repetition."""
    while batch := await post.bus.claim(EVENTS, worker="king", limit=100, lease=60):
        await post.bus.settle(done=list(batch))


async def looks(post: Post, name: str, section: ConfigSection, stopper: Stopper, times: int = 3) -> None:
    """Look a few times; whenever the sentinel is stopped, the next one begins with what is on disk."""
    while times:
        with stoppable(stopper):
            async with post.watch(name, section, StoppableBus(post.bus, stopper)) as watch:
                try:
                    while times:
                        await watch.poll()
                        assert "problem" not in watch.report(), watch.report()
                        times -= 1
                        post.clock.now += 61
                except Stopped:
                    post.clock.now += 61
        await be_the_king(post)


def everything(post: Post) -> dict[str, Any]:
    events = post.events()
    assert len({event["id"] for event in events}) == len(events)
    return {
        "events": {event["id"]: event["type"] for event in events},
        "journal": Counter(post.detected()),
        "seen": post.seen(),
    }


async def play_github(stopper: Stopper) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryDirectory() as folder:
        patched.setattr("kingdom.court.sentinel.github_watcher._BATCH_SIZE", 2)  # several batches of few subjects
        async with Post(Path(folder)).open() as post, FakeGitHub(post.clock) as github:
            for number in range(1, 4):
                github.open(number)
            github.comment(2, f"@{ME} look")
            github.notify_of("Release", "v1")
            github.fail("/pulls/3", 403, body={"message": "Resource not accessible"})  # once: it is read again
            await looks(post, "github", GitHubSection(url=github.url), stopper)
            assert not any(thread["unread"] for thread in github.threads.values())
            return everything(post)


async def play_jira(stopper: Stopper) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        async with Post(Path(folder)).open() as post, FakeJira(post.clock) as jira:
            jira.page_size = 2
            for number in range(1, 4):
                jira.create(f"SHOP-{number}")
                jira.change(f"SHOP-{number}")
            await looks(post, "jira", JiraSection(url=jira.url, email="bot@acme.example"), stopper)
            return everything(post)


async def play_local(stopper: Stopper) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        async with Post(Path(folder)).open() as post:
            inbox = post.home.root / "inbox"
            inbox.mkdir()
            for name in "abc":
                (inbox / f"{name}.json").write_text(json.dumps({"type": "ci.failed", "id": f"evt-ci-{name}"}))
            await looks(post, "local", LocalSection(), stopper)
            assert list(inbox.iterdir()) == []
            return everything(post)


PLAYS = {"github": play_github, "jira": play_jira, "local": play_local}


@pytest.mark.parametrize("source", PLAYS)
async def test_wherever_it_dies_its_successor_loses_nothing_and_tells_nothing_twice(source: str, stride: int) -> None:
    play = PLAYS[source]
    undisturbed = Stopper()
    expected = await play(undisturbed)
    assert expected["journal"] == Counter(expected["events"].keys())
    assert expected["seen"] == expected["events"].keys()
    assert len(expected["events"]) >= 3, expected
    for point in range(1, undisturbed.passed + 1, stride):
        for stopper in (Stopper(point), *([Stopper(point, point + 2)] if point % 3 == 1 else [])):
            found = await play(stopper)
            assert found == expected, f"stopped {stopper.trail[point - 1]} ({point})"


async def test_an_event_that_is_long_gone_from_the_queue_is_still_known(tmp_path: Path) -> None:
    async with Post(tmp_path).open() as post, FakeGitHub(post.clock) as github:
        github.open(1)
        section = GitHubSection(url=github.url)
        await looks(post, "github", section, Stopper(), times=1)
        assert len(post.events()) == 1
        for path in (post.home.queue / "events" / "completed").glob("*.json"):
            path.unlink()
        (post.home.role("sentinel") / "github.json").unlink()
        post.clock.now += 1
        github.touch(1)
        await looks(post, "github", section, Stopper(), times=2)
        assert post.events() == []
