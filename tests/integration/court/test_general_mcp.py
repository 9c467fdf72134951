"""MCP servers of a general: its soldiers get them in a file that only we can read, and only while they work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.errors import EngineNotInstalled
from kingdom.agents.port import OnEvent, Order, Outcome
from tests.support.fake_agents import FakeAgents, FakeRun, success
from tests.support.generals import Post, posted

SERVERS = {
    "docs": {"command": "docs-server", "args": ["--read-only"], "env": ["DOCS_TOKEN"]},
    "tickets": {"url": "https://tickets.example/mcp", "headers": {"Authorization": "TICKETS_AUTH"}},
    "open": {"url": "http://127.0.0.1:9/mcp"},
}
SECRETS = {"DOCS_TOKEN": "d0cs", "TICKETS_AUTH": "Bearer t1ckets"}


def files(post: Post) -> list[Path]:
    return sorted((post.home.role("gen-test") / "mcp").glob("*"))


def fake(post: Post) -> FakeAgents:
    assert isinstance(post.agents, FakeAgents)
    return post.agents


async def test_they_are_in_a_file_of_the_run_and_gone_after_it(tmp_path: Path) -> None:
    seen: list[tuple[int, dict[str, Any]]] = []

    def look(order: Order, number: int) -> Outcome:
        assert order.mcp_config is not None
        seen.append((order.mcp_config.stat().st_mode & 0o777, json.loads(order.mcp_config.read_text())))
        return success() if number == 2 else Outcome("failed", error="again, please")

    async with posted(tmp_path, mcp_servers=SERVERS) as post:
        fake(post).script = look
        (result,) = await post.finish(await post.task(), general=post.general(environment=SECRETS))
        assert result["status"] == "success", result["error"]
        assert files(post) == []
        first, second = fake(post).orders
        assert first.mcp_config != second.mcp_config
        assert "d0cs" not in str(first.env), "soldiers are not given what their servers are"
    assert seen[0] == seen[1]
    mode, document = seen[0]
    assert mode == 0o600
    assert document == {
        "mcpServers": {
            "docs": {"command": "docs-server", "args": ["--read-only"], "env": {"DOCS_TOKEN": "d0cs"}},
            "tickets": {
                "type": "http",
                "url": "https://tickets.example/mcp",
                "headers": {"Authorization": "Bearer t1ckets"},
            },
            "open": {"type": "http", "url": "http://127.0.0.1:9/mcp"},
        }
    }


async def test_without_servers_there_is_no_file(tmp_path: Path) -> None:
    async with posted(tmp_path) as post:
        await post.finish(await post.task())
        assert fake(post).orders[0].mcp_config is None
        assert not (post.home.role("gen-test") / "mcp").exists()


@pytest.mark.parametrize("missing", list(SECRETS))
async def test_a_variable_that_is_missing_is_said_in_the_result(tmp_path: Path, missing: str) -> None:
    known = {name: value for name, value in SECRETS.items() if name != missing}
    async with posted(tmp_path, mcp_servers=SERVERS) as post:
        (result,) = await post.finish(await post.task(), general=post.general(environment=known))
        assert result["status"] == "failed"
        assert f"needs the variable {missing}" in result["error"]
        assert (fake(post).orders, files(post)) == ([], [])


async def test_a_soldier_that_does_not_start_leaves_no_file(tmp_path: Path) -> None:
    class Missing(FakeAgents):
        async def start(self, order: Order, on_event: OnEvent | None = None) -> FakeRun:
            self.orders.append(order)
            raise EngineNotInstalled("nowhere")

    async with posted(tmp_path, mcp_servers=SERVERS) as post:
        post.agents = Missing(tmp_path / "agents")
        task, general = await post.task(), post.general(environment=SECRETS)
        await general.start()
        await post.work(general, lambda: post.state(task) == "pending")
        await general.stop()
        assert len(fake(post).orders) == 1
        assert files(post) == []


async def test_the_file_outlives_the_general_as_its_soldier_does(tmp_path: Path) -> None:
    async with posted(tmp_path, mcp_servers=SERVERS) as post:
        fake(post).gate.clear()
        task = await post.task()
        general = post.general(environment=SECRETS)
        await general.start()
        await post.work(general, lambda: len(fake(post).orders) == 1)
        await general.stop()
        stray = post.home.role("gen-test") / "mcp" / "soldier-1-1.json"
        stray.write_text("of one that was killed together with its general")
        second = post.general(environment=SECRETS)
        await second.start()
        assert files(post) == [fake(post).orders[0].mcp_config]
        fake(post).gate.set()
        await post.work(second, lambda: post.state(task) == "completed")
        await second.stop()
        assert files(post) == []
