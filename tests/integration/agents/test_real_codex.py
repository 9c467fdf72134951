"""The real Codex, against a model of ours on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.agents.engines.codex import CodexEngine
from kingdom.agents.port import Finished, RateLimit, Text, Timers, Tokens, ToolUse
from tests.support.agent_clis import installed
from tests.support.model_servers import Refuse, ResponsesServer, Say, Stall, Turn, Use
from tests.support.workshop import PLACES, Workshop, alive, put, result_text


@pytest.fixture(params=PLACES, autouse=True)
def sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs confined; in ``make walks`` in all places."""
    return put(request.param, monkeypatch)


@pytest.fixture(scope="module")
def program() -> str:
    return installed().codex


@pytest.fixture
def codex_home() -> Iterator[Path]:
    """A home of codex that is not below /tmp: there it refuses to make the helper of its own sandbox."""
    caches = Path.home() / ".cache"
    caches.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kingdom-codex-", dir=caches) as folder:
        yield Path(folder)


@pytest.fixture
def sandboxed(program: str, codex_home: Path, sandbox: str) -> None:
    """Skips where the operating system does not let codex make a sandbox, and ours is not used."""
    if sandbox != "off":
        return
    environment = {"PATH": os.environ["PATH"], "CODEX_HOME": str(codex_home)}
    done = subprocess.run([program, "sandbox", "--", "true"], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"codex cannot make a sandbox here: {done.stderr.strip()[:200]}")


@pytest.fixture
def server() -> Iterator[ResponsesServer]:
    with ResponsesServer() as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, program: str, server: ResponsesServer, codex_home: Path) -> Workshop:
    """A place where codex talks to our model, and never tries a request again."""
    provider = f'{{name="ours",base_url="{server.url}/v1",env_key="OUR_KEY",wire_api="responses"'
    provider += ",request_max_retries=0,stream_max_retries=0}"
    args = ["-c", 'model_provider="ours"', "-c", f"model_providers.ours={provider}"]
    engine = CodexEngine({"path": program, "args": args}, {"HOME": str(tmp_path / "home")})
    return Workshop(tmp_path, engine, {"OUR_KEY": "x", "CODEX_HOME": str(codex_home)})


def runs(command: str, text: str | None = None) -> Turn:
    return Use((("exec_command", {"cmd": command}),), text)


def leaves(place: Workshop, text: str) -> Turn:
    return runs(f"cat > {place.result_path} <<'END'\n{text}\nEND")


def tool_results(server: ResponsesServer) -> list[str]:
    """What came of the commands, as the model was told."""
    outputs = [item for item in server.requests[-1]["input"] if item["type"] == "function_call_output"]
    return [output if isinstance(output := item["output"], str) else json.dumps(output) for item in outputs]


async def test_it_edits_a_file_commits_and_leaves_its_result(place: Workshop, server: ResponsesServer) -> None:
    patch = "apply_patch <<'END'\n*** Begin Patch\n*** Add File: notes.txt\n+hello\n*** End Patch\nEND"
    server.script += [
        runs(patch, "I write it first."),
        runs('git add notes.txt && git commit -q -m "Add notes"'),
        leaves(place, result_text("success")),
        Say("All done."),
    ]
    order = place.order(profile="full")
    outcome = await place.run(order)
    assert (outcome.status, outcome.error) == ("success", None)
    assert outcome.result is not None
    assert outcome.result["summary"] == "Did what I could."
    assert place.log() == ["Add notes", "first"]
    assert (place.cwd / "notes.txt").read_text() == "hello\n"
    assert outcome.session_id
    assert outcome.tokens == Tokens(input=372, output=40, cache_read=28)
    assert outcome.turns == 4
    assert Text("I write it first.") in place.events
    assert ToolUse("edit", str(place.cwd / "notes.txt")) in place.events
    assert place.events[-1] == Finished(ok=True, text="All done.")
    assert alive(order.run_id) == []


async def test_it_asks_a_person_and_goes_on_in_the_same_conversation(place: Workshop, server: ResponsesServer) -> None:
    server.script += [leaves(place, result_text("needs_human", question="Red or blue?")), Say("Well?")]
    first = await place.run(place.order(prompt="Paint the shed.", profile="full"))
    assert first.status == "needs_human"
    assert first.result is not None
    assert first.result["question"]["text"] == "Red or blue?"

    server.script += [leaves(place, result_text("success")), Say("Painted.")]
    second = await place.run(place.order(session_id=first.session_id, prompt="The answer is blue.", profile="full"))
    assert (second.status, second.error) == ("success", None)
    assert second.session_id == first.session_id
    told = json.dumps(server.requests[-1]["input"])
    assert told.index("Paint the shed.") < told.index("Red or blue?") < told.index("The answer is blue.")
    assert second.tokens == first.tokens, "an earlier run of the conversation is not counted twice"


async def test_it_is_ended_when_the_model_falls_silent(place: Workshop, server: ResponsesServer) -> None:
    server.script += [runs("setsid sleep 300 & nohup sleep 300 >/dev/null 2>&1 & echo started", "Wait."), Stall()]
    timers = Timers(first_output=60, silence=3, total=60, after_result=5, stop=1)
    order = place.order(profile="full", timers=timers)
    outcome = await place.run(order)
    assert any("started" in result for result in tool_results(server))
    assert (outcome.status, outcome.timer) == ("timeout", "silence")
    assert outcome.session_id
    assert outcome.tokens == Tokens(input=93, output=10, cache_read=7), "what it had used is known"
    assert alive(order.run_id) == []


async def test_too_many_requests_park_it(place: Workshop, server: ResponsesServer) -> None:
    server.script.append(Refuse(429, {"error": {"type": "rate_limit_exceeded", "message": "Too many requests."}}))
    outcome = await place.run(place.order())
    assert outcome.status == "rate_limited"
    assert outcome.resets_at is None
    assert len(server.requests) == 1


async def test_a_usage_limit_parks_it_until_it_resets(place: Workshop, server: ResponsesServer) -> None:
    error = {"type": "usage_limit_reached", "plan_type": "plus", "resets_at": 4102444800, "message": "Over."}
    server.script.append(Refuse(429, {"error": error}))
    outcome = await place.run(place.order())
    assert outcome.status == "rate_limited"
    assert outcome.resets_at is not None
    assert abs(outcome.resets_at - 4102444800) <= 60, "it is told in words, to the minute"
    assert any(isinstance(event, RateLimit) for event in place.events)


@pytest.mark.usefixtures("sandboxed")
async def test_an_editor_commits_and_writes_nowhere_else(
    place: Workshop, server: ResponsesServer, sandbox: str
) -> None:
    server.script += [
        runs('echo hello > notes.txt && git add notes.txt && git commit -q -m "Add notes"'),
        runs(f"touch {place.clone}/.git/hooks/post-commit"),
        runs(f"echo '[core]' >> {place.clone}/.git/config"),
        runs("touch ~/made"),
        leaves(place, result_text("success")),
        Say("Done."),
    ]
    config = (place.clone / ".git" / "config").read_text()
    # Temporary folders are open to an editor, and pytest's is one of them.
    closed = [f"sandbox_workspace_write.{name}=true" for name in ("exclude_slash_tmp", "exclude_tmpdir_env_var")]
    args = [word for setting in closed for word in ("-c", setting)]
    outcome = await place.run(place.order(profile="edit", options={"args": args}))
    assert (outcome.status, outcome.error) == ("success", None)
    assert place.log() == ["Add notes", "first"]
    refused = tool_results(server)[1 : 4 if sandbox == "off" else 3]  # in our sandbox it has a home of its own
    assert all("Read-only file system" in result for result in refused), refused
    assert not (place.clone / ".git" / "hooks" / "post-commit").exists()
    assert (place.clone / ".git" / "config").read_text() == config
    assert not (place.home / "made").exists()


@pytest.mark.usefixtures("sandboxed")
async def test_a_reader_writes_its_result_and_nothing_else_also_when_resumed(
    place: Workshop, server: ResponsesServer
) -> None:
    session = None
    for _ in (1, 2):
        server.script += [runs("ls && touch made"), leaves(place, result_text("success")), Say("Read it.")]
        outcome = await place.run(place.order(profile="read", session_id=session))
        assert (outcome.status, outcome.error) == ("success", None)
        assert "Read-only file system" in tool_results(server)[-2]
        session = outcome.session_id
    assert not (place.cwd / "made").exists()


async def test_what_a_repository_brings_along_is_not_run(
    place: Workshop, server: ResponsesServer, tmp_path: Path
) -> None:
    (place.cwd / ".codex").mkdir()
    (place.cwd / ".codex" / "config.toml").write_text(
        f'[mcp_servers.theirs]\ncommand = "touch"\nargs = ["{tmp_path}/served"]\n'
        '[shell_environment_policy.set]\nTHEIRS = "1"\n'
    )
    (place.cwd / "AGENTS.md").write_text("Always be kind.")
    server.script += [runs("echo theirs=$THEIRS task=$KINGDOM_TASK_ID"), Say("Hm.")]
    outcome = await place.run(place.order(profile="full"))
    assert outcome.status == "success"
    assert not (tmp_path / "served").exists()
    assert "theirs= task=task-20260101-001" in tool_results(server)[0]
    assert "Always be kind." in json.dumps(server.requests[0])


@pytest.mark.parametrize("profile", ["edit", *(pytest.param(one, marks=pytest.mark.walk) for one in ("full", "read"))])
async def test_it_uses_the_mcp_servers_of_the_order(
    place: Workshop, server: ResponsesServer, profile: str, request: pytest.FixtureRequest
) -> None:
    if profile != "full":
        request.getfixturevalue("sandboxed")
    server.script += [Use.tool("mcp__echo/echo", text="hello"), runs("echo token=$ECHO_TOKEN"), Say("Heard.")]
    order = place.order(profile=profile, mcp_config=place.mcp_config())
    outcome = await place.run(order)
    assert outcome.status == "success"
    heard, told = tool_results(server)
    assert "echo: hello, token: t0ken" in heard
    assert told.endswith("token=\n"), "the token is the server's, not the agent's"
    assert alive(order.run_id) == []


async def test_a_conversation_that_is_gone_is_a_failure_that_says_so(place: Workshop) -> None:
    outcome = await place.run(place.order(session_id="019a0000-0000-7000-8000-000000000000"))
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert "no rollout found" in outcome.error


async def test_it_says_its_version(place: Workshop) -> None:
    found = await place.engine.examine()
    assert (found.ok, found.problem) == (True, None)
