"""The pull request of a landed workflow: its checks, reviews and comments, read from a GitHub that keeps state."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.git_server import trusted
from tests.support.github_server import GitHubServer
from tests.support.landed import GITHUB_TOKEN, SAID, land_in_store, use_token
from tests.support.web import Web, web_app
from tests.support.web_work import Desk, data, error


class Place(NamedTuple):
    web: Web
    github: GitHubServer
    path: str


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    with GitHubServer(tmp_path / "github") as github, trusted(github):
        use_token(github, tmp_path / "home", monkeypatch)
        async with web_app(tmp_path / "home", court=False) as web:
            workflow = await land_in_store(web.context, Desk(web), github)
            yield Place(web, github, f"/api/workflows/{workflow}/pull-requests")


async def test_checks_reviews_and_comments_are_read_newest_first(place: Place) -> None:
    (pull,) = data(await place.web.client.get(place.path))["items"]
    assert (pull["name"], pull["number"], pull["state"], pull["error"]) == ("app", 1, "open", None)
    assert [(one["name"], one["state"]) for one in pull["checks"]] == [
        ("tests", "failed"), ("lint", "passed"), ("docs", "running"),
    ]  # fmt: skip
    told = [(one["author"], one["verdict"], one["path"], one["line"]) for one in pull["comments"]]
    assert told == [
        ("cem", None, None, None),
        ("ben", "changes_requested", None, None),
        ("ben", None, "ls.py", 3),
    ]  # a review without words says nothing
    assert pull["comments"][0]["body"] == "<script>alert(1)</script> nice"
    calls = len(place.github.calls)
    assert data(await place.web.client.get(place.path))["items"] == [pull]
    assert len(place.github.calls) == calls, "it is read again after half a minute"


async def test_what_cannot_be_read_says_why(place: Place) -> None:
    place.github.tokens.pop(GITHUB_TOKEN)
    (pull,) = data(await place.web.client.get(place.path))["items"]
    assert (pull["state"], pull["checks"], pull["comments"]) == (None, [], [])
    assert "is not accepted" in pull["error"]


async def test_checks_that_the_token_may_not_read_are_left_out(place: Place) -> None:
    del place.github.said[next(path for path in SAID if path.endswith("check-runs"))]
    (pull,) = data(await place.web.client.get(place.path))["items"]
    assert (pull["state"], pull["checks"], len(pull["comments"])) == ("open", [], 3)


async def test_a_workflow_that_does_not_exist_is_not_found(place: Place) -> None:
    error(await place.web.client.get("/api/workflows/wf-none/pull-requests"), 404, "WFL_NOT_FOUND")
