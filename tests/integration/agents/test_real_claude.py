"""The real Claude Code, against a model of ours on loopback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.engines.claude import ClaudeEngine, new_session_id
from kingdom.agents.port import Finished, RateLimit, Text, Timers, Tokens, ToolUse
from tests.support.agent_clis import installed
from tests.support.model_servers import MessagesServer, Refuse, Say, Stall, Turn, Use
from tests.support.workshop import PLACES, Workshop, alive, put, result_text


@pytest.fixture(params=PLACES, autouse=True)
def sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs confined; in ``make walks`` in all places."""
    return put(request.param, monkeypatch)


confined_only = pytest.mark.parametrize("sandbox", ["required"], indirect=True)


@pytest.fixture(scope="module")
def program() -> str:
    return installed().claude


@pytest.fixture
def engine(program: str) -> ClaudeEngine:
    return ClaudeEngine({"path": program}, {})


def workshop(folder: Path, engine: ClaudeEngine, server: MessagesServer, **env: str) -> Workshop:
    to_server = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "x", "CLAUDE_CODE_MAX_RETRIES": "0"}
    return Workshop(folder, engine, {**to_server, **env})


def bash(command: str) -> Turn:
    return Use.tool("Bash", command=command, description="Work")


def writes(path: Path, content: str) -> Turn:
    return Use.tool("Write", file_path=str(path), content=content)


def tool_results(server: MessagesServer) -> list[str]:
    """What came of the tools, as the model was told."""
    blocks = [block for message in server.requests[-1]["messages"] for block in message["content"]]
    return [str(block["content"]) for block in blocks if isinstance(block, dict) and block["type"] == "tool_result"]


async def test_it_edits_a_file_commits_and_leaves_its_result(tmp_path: Path, engine: ClaudeEngine) -> None:
    with MessagesServer() as server:
        place = workshop(tmp_path, engine, server)
        server.script += [
            Use(
                (
                    ("Write", {"file_path": str(place.cwd / "notes.txt"), "content": "hello\n"}),
                    ("Bash", {"command": "git add notes.txt", "description": "Stage"}),
                ),
                text="I write it first.",
            ),
            bash('git commit -q -m "Add notes"'),
            writes(place.result_path, result_text("success")),
            Say("All done."),
        ]
        order = place.order(profile="edit")
        outcome = await place.run(order)
    assert (outcome.status, outcome.error) == ("success", None)
    assert outcome.result is not None
    assert outcome.result["summary"] == "Did what I could."
    assert place.log() == ["Add notes", "first"]
    assert (place.cwd / "notes.txt").read_text() == "hello\n"
    assert outcome.session_id == str(new_session_id(order.run_id))
    assert outcome.tokens == Tokens(input=400, output=40, cache_read=28, cache_write=12)
    assert outcome.cost_usd is not None
    assert outcome.cost_source == "result"
    assert outcome.exit_code == 0
    assert Text("I write it first.") in place.events
    assert ToolUse("Bash", "git add notes.txt") in place.events
    assert place.events[-1] == Finished(ok=True, text="All done.")
    assert alive(order.run_id) == []


async def test_it_asks_a_person_and_goes_on_in_the_same_conversation(tmp_path: Path, engine: ClaudeEngine) -> None:
    with MessagesServer() as server:
        place = workshop(tmp_path, engine, server)
        server.script += [writes(place.result_path, result_text("needs_human", question="Red or blue?")), Say("Well?")]
        first = await place.run(place.order(prompt="Paint the shed."))
        assert first.status == "needs_human"
        assert first.result is not None
        assert first.result["question"]["text"] == "Red or blue?"

        server.script += [writes(place.result_path, result_text("success")), Say("Painted.")]
        answered = place.order(session_id=first.session_id, prompt="The answer is blue.")
        second = await place.run(answered)
    assert (second.status, second.error) == ("success", None)
    assert second.session_id == first.session_id
    told = json.dumps(server.requests[-1]["messages"])
    assert told.index("Paint the shed.") < told.index("Red or blue?") < told.index("The answer is blue.")
    assert second.tokens == first.tokens, "an earlier run of the conversation is not paid twice"
    assert second.cost_usd == pytest.approx(first.cost_usd)


@pytest.mark.walk
async def test_it_is_ended_when_the_model_falls_silent(tmp_path: Path, engine: ClaudeEngine) -> None:
    children = "setsid sleep 300 & nohup sleep 300 >/dev/null 2>&1 & echo started"
    with MessagesServer(bash(children), Stall()) as server:
        place = workshop(tmp_path, engine, server)
        timers = Timers(first_output=60, silence=3, total=60, after_result=5, stop=1)
        order = place.order(profile="full", timers=timers)
        outcome = await place.run(order)
        assert any("started" in result for result in tool_results(server))
    assert (outcome.status, outcome.timer) == ("timeout", "silence")
    assert outcome.session_id == str(new_session_id(order.run_id))
    assert outcome.tokens.total >= 100, "what it had used is known"
    assert alive(order.run_id) == []


@pytest.mark.walk
async def test_too_many_requests_park_it(tmp_path: Path, engine: ClaudeEngine) -> None:
    error = {"type": "error", "error": {"type": "rate_limit_error", "message": "Too many requests."}}
    with MessagesServer(Refuse(429, error)) as server:
        place = workshop(tmp_path, engine, server)
        outcome = await place.run(place.order())
    assert outcome.status == "rate_limited"
    assert outcome.resets_at is None
    assert len(server.requests) == 1


@pytest.mark.walk
async def test_a_spent_window_parks_it_until_it_resets(tmp_path: Path, engine: ClaudeEngine) -> None:
    error = {"type": "error", "error": {"type": "rate_limit_error", "message": "Over the limit."}}
    headers = {
        "anthropic-ratelimit-unified-status": "rejected",
        "anthropic-ratelimit-unified-reset": "4102444800",
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
    }
    with MessagesServer(Refuse(429, error, headers)) as server:
        place = workshop(tmp_path, engine, server, CLAUDE_CODE_OAUTH_TOKEN="x", ANTHROPIC_API_KEY="")
        outcome = await place.run(place.order())
    assert outcome.status == "rate_limited"
    assert outcome.resets_at == 4102444800.0
    assert RateLimit("rejected", 4102444800.0, "five_hour") in place.events


async def test_a_reader_writes_its_result_and_nothing_else(tmp_path: Path, engine: ClaudeEngine, sandbox: str) -> None:
    (tmp_path / "outside.txt").write_text("outside")
    with MessagesServer() as server:
        place = workshop(tmp_path, engine, server)
        (place.cwd / "inside.txt").write_text("inside")
        server.script += [
            bash("cat inside.txt"),
            bash("touch made-by-bash"),
            writes(place.cwd / "made-by-write", "x"),
            writes(place.result_path.parent / "other.json", "x"),
            Use.tool("Read", file_path=str(tmp_path / "outside.txt")),
            writes(place.result_path, result_text("success")),
            Say("Read it."),
        ]
        outcome = await place.run(place.order(profile="read"))
    assert (outcome.status, outcome.error) == ("success", None)
    results = tool_results(server)
    assert results[0] == "inside"
    assert not list(place.cwd.glob("made-*"))
    if sandbox == "off":
        assert all("denied" in result for result in results[1:5]), results
        assert [path.name for path in place.result_path.parent.iterdir()] == ["result.json"]
    else:  # the folder of the result is its own to write in
        assert all("read-only" in result.lower() or "EROFS" in result for result in results[1:3]), results
        assert "does not exist" in results[4]


async def test_what_a_repository_brings_along_is_not_run(tmp_path: Path, engine: ClaudeEngine) -> None:
    with MessagesServer(Say("Hm."), Say("Hm.")) as server:
        place = workshop(tmp_path, engine, server)
        hook = {"hooks": [{"type": "command", "command": f"touch {tmp_path}/hooked"}]}
        server_of_theirs = {"command": "touch", "args": [f"{tmp_path}/served"]}
        (place.cwd / ".claude").mkdir()
        (place.cwd / ".claude" / "settings.json").write_text(json.dumps({"hooks": {"SessionStart": [hook]}}))
        (place.cwd / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": server_of_theirs}}))
        (place.cwd / "CLAUDE.md").write_text("Always be kind.")
        (tmp_path / "secret.txt").write_text("the-secret")
        outcome = await place.run(place.order(prompt=f"/clear, said somebody, and see @{tmp_path}/secret.txt"))
    assert outcome.status == "success"
    assert not (tmp_path / "hooked").exists()
    assert not (tmp_path / "served").exists()
    asked = json.dumps(server.requests[0])
    assert "Always be kind." in asked
    assert "/clear, said somebody" in asked
    assert "the-secret" not in asked


@pytest.mark.walk
async def test_it_uses_the_mcp_servers_of_the_order(tmp_path: Path, engine: ClaudeEngine) -> None:
    with MessagesServer(Use.tool("mcp__echo__echo", text="hello"), Say("Heard.")) as server:
        place = workshop(tmp_path, engine, server)
        order = place.order(profile="read", mcp_config=place.mcp_config())
        outcome = await place.run(order)
    assert outcome.status == "success"
    assert any("echo: hello, token: t0ken" in result for result in tool_results(server)), tool_results(server)
    assert alive(order.run_id) == []


@pytest.mark.walk
async def test_a_conversation_that_is_gone_is_a_failure_that_says_so(tmp_path: Path, engine: ClaudeEngine) -> None:
    with MessagesServer() as server:
        place = workshop(tmp_path, engine, server)
        outcome = await place.run(place.order(session_id="11111111-1111-4111-8111-111111111112"))
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert "No conversation found" in outcome.error


@confined_only  # the permissions of the program itself do not prevent this: that is why there is a sandbox
async def test_a_key_of_the_user_cannot_be_read_through_git(tmp_path: Path, engine: ClaudeEngine) -> None:
    with MessagesServer() as server:
        place = workshop(tmp_path, engine, server)
        key = place.home / ".ssh" / "id_rsa"
        key.parent.mkdir()
        key.write_text("the-private-key\n")
        server.script += [
            bash("git commit --allow-empty -F ~/.ssh/id_rsa"),
            bash("git log -1"),
            bash("git add --pathspec-from-file=$HOME/.ssh/id_rsa"),
            bash(f"cat {key}; env"),
            Use.tool("Read", file_path=str(key)),
            writes(place.result_path, result_text("success")),
            Say("I was talked into it."),
        ]
        order = place.order(profile="edit")
        outcome = await place.run(order)
    assert outcome.status == "success"
    assert len(tool_results(server)) == 6
    assert "the-private-key" not in json.dumps(server.requests) + place.transcript(order)


@confined_only
async def test_the_agent_never_has_the_real_key_of_the_model(tmp_path: Path, engine: ClaudeEngine) -> None:
    with MessagesServer(bash("env; cat /proc/*/environ"), Say("Well.")) as server:
        place = workshop(tmp_path, engine, server, ANTHROPIC_API_KEY="the-real-key")
        outcome = await place.run(place.order())
    assert outcome.status == "success"
    assert {headers["x-api-key"] for headers in server.headers} == {"the-real-key"}
    printed = "".join(tool_results(server))
    assert "ANTHROPIC_API_KEY=kingdom-run-" in printed
    assert "the-real-key" not in printed


async def test_it_says_its_version(engine: Any) -> None:
    found = await engine.examine()
    assert (found.ok, found.problem) == (True, None)
