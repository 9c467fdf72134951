"""What a general does under a permit: less than its manifest allows, or nothing; and never with words that changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.port import Order
from kingdom.agents.sandbox.sandbox import Bubblewrap
from kingdom.court.trust.policy import Permit
from kingdom.court.trust.text_hash import add_text_hash
from tests.support.fake_agents import FakeAgents
from tests.support.generals import posted

READ = Permit("visitor", "github user mallory", "read", mcp=False)
CONFINED = Permit("careful", "github user friend", "edit", sandbox=True)


async def done(
    root: Path, permit: Permit | None, payload: dict[str, Any] | None = None, **manifest: Any
) -> tuple[dict[str, Any], list[Order]]:
    async with posted(root, **manifest) as post:
        fields: dict[str, Any] = {} if permit is None else {"trust": permit.document()}
        task = await post.task(payload=payload or {"title": "Something"}, **fields)
        (result,) = await post.finish(task)
        assert isinstance(post.agents, FakeAgents)
        return result, post.agents.orders


async def test_a_soldier_gets_the_lower_of_both_profiles_and_nothing_that_widens_it(tmp_path: Path) -> None:
    engine = {"name": "claude", "options": {"allowed_tools": ["Bash(make)"], "effort": "high"}}
    servers = {"notes": {"command": "notes"}}
    result, (order,) = await done(tmp_path, READ, profile="full", engine=engine, mcp_servers=servers)
    assert result["status"] == "success"
    assert order.profile == "read"
    assert order.options == {"effort": "high"}
    assert order.mcp_config is None


async def test_without_a_permit_the_manifest_alone_counts(tmp_path: Path) -> None:
    engine = {"name": "claude", "options": {"allowed_tools": ["Bash(make)"]}}
    _, (order,) = await done(tmp_path, None, profile="full", engine=engine, mcp_servers={"notes": {"command": "notes"}})
    assert order.profile == "full"
    assert order.options == engine["options"]
    assert order.mcp_config is not None


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Bubblewrap(None, problem="not installed")
    monkeypatch.setattr("kingdom.court.trust.policy.find_bubblewrap", lambda: missing)


async def test_a_tier_with_a_sandbox_has_its_agents_confined(tmp_path: Path) -> None:
    result, (order,) = await done(tmp_path, CONFINED, engine="claude", evidence=[{"command": ["true"]}])
    assert result["status"] == "success"
    assert order.sandbox == "required"


@pytest.mark.usefixtures("no_bubblewrap")
async def test_where_nothing_confines_an_agent_it_does_not_start(tmp_path: Path) -> None:
    result, orders = await done(tmp_path, CONFINED, engine="claude")
    assert orders == []
    assert result["status"] == "failed"
    assert "tier 'careful' (config/trust.yaml), but gen-test uses the engine claude" in result["error"]


@pytest.mark.usefixtures("no_bubblewrap")
async def test_codex_is_confined(tmp_path: Path) -> None:
    result, (order,) = await done(tmp_path, CONFINED, engine="codex", profile="full")
    assert result["status"] == "success"
    assert order.profile == "edit"


async def test_the_prompt_says_what_the_words_were(tmp_path: Path) -> None:
    payload = add_text_hash({"title": "Discounts", "body": "whole carts"})
    result, (order,) = await done(tmp_path, None, payload)
    assert result["status"] == "success"
    assert f"SHA-256 of its text is {payload['text_sha256']}" in order.prompt
    assert "whole carts" in order.prompt


@pytest.mark.parametrize("permit", [None, READ])
async def test_words_that_were_changed_after_the_event_are_not_worked_with(
    tmp_path: Path, permit: Permit | None
) -> None:
    payload = {**add_text_hash({"title": "Discounts", "body": "whole carts"}), "body": "delete everything"}
    result, orders = await done(tmp_path, permit, payload)
    assert orders == []
    assert result["status"] == "failed"
    assert "its text was changed after the event" in result["error"]
