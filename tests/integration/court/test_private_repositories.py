"""A general works on private repositories, with the token that the court's settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.fake_agents import FakeAgents
from tests.support.generals import Post, posted
from tests.support.git_server import GitServer, trusted

TOKEN = "token-of-a-court-90be"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with GitServer(tmp_path / "server") as server, trusted(server):
        server.grant(TOKEN, "court")
        server.create("acme/shop")
        yield server


@pytest.fixture
async def post(tmp_path: Path, server: GitServer) -> AsyncIterator[Post]:
    async with posted(tmp_path / "court") as post:
        post.base_url = server.url
        post.system = {"git": {"credentials": {server.host: {"env": "SHOP_TOKEN"}}}}
        yield post


async def test_a_soldier_works_in_a_private_repository(
    post: Post, server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", TOKEN)
    (result,) = await post.finish(await post.task(repo="acme/shop"))
    assert result["status"] == "success"
    assert isinstance(post.agents, FakeAgents)
    order = post.agents.orders[0]
    assert (order.cwd / "README.md").read_text() == "acme/shop\n"
    assert TOKEN in server.passwords()
    assert TOKEN not in str(order)
    files = [path for path in (tmp_path / "court").rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []


async def test_without_the_token_the_task_says_which_variable_to_set(post: Post) -> None:
    (result,) = await post.finish(await post.task(repo="acme/shop"))
    assert result["status"] == "failed"
    assert "asks for a token and there is none: set the variable SHOP_TOKEN" in str(result)
