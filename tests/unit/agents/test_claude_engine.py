"""How Claude Code is started."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.engine import Launch
from kingdom.agents.engines.claude import ClaudeEngine, new_session_id
from kingdom.agents.errors import EngineNotInstalled, InvalidOrder
from tests.support.orders import make_order


def program(folder: Path, name: str = "claude", says: str = "2.1.325 (Claude Code)", code: int = 0) -> Path:
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
    path.chmod(0o755)
    return path


def launch(folder: Path, settings: dict[str, Any] | None = None, **changes: Any) -> Launch:
    path = program(folder)
    engine = ClaudeEngine(settings, {"PATH": f"{path.parent}:/usr/bin:/bin", "ANTHROPIC_API_KEY": "k", "OTHER": "o"})
    return engine.launch(make_order(folder, "claude", **changes))


def values(argv: tuple[str, ...], flag: str) -> list[str]:
    """What follows a flag, up to the next one."""
    rest = list(argv[argv.index(flag) + 1 :])
    return rest[: next((at for at, word in enumerate(rest) if word.startswith("--")), len(rest))]


def test_a_new_conversation_has_an_id_that_follows_from_the_run(tmp_path: Path) -> None:
    made = launch(tmp_path, run_id="soldier-1")
    assert values(made.argv, "--session-id") == [str(new_session_id("soldier-1"))]
    assert uuid.UUID(values(made.argv, "--session-id")[0]) != new_session_id("soldier-2")
    assert "--resume" not in made.argv
    assert made.argv[1:5] == ("-p", "--output-format", "stream-json", "--verbose")
    assert made.stdin == b"Write hello into notes.txt."


def test_a_conversation_is_resumed_by_its_id(tmp_path: Path) -> None:
    made = launch(tmp_path, session_id="11111111-1111-4111-8111-111111111111")
    assert values(made.argv, "--resume") == ["11111111-1111-4111-8111-111111111111"]
    assert "--session-id" not in made.argv


@pytest.mark.parametrize("session", ["--dangerously-skip-permissions", "-x", "../x", "", "a b", "a\n"])
def test_a_session_id_is_never_a_flag(tmp_path: Path, session: str) -> None:
    with pytest.raises(InvalidOrder, match="session id"):
        launch(tmp_path, session_id=session)


def test_settings_of_a_repository_do_not_apply(tmp_path: Path) -> None:
    made = launch(tmp_path)
    assert values(made.argv, "--setting-sources") == ["user"]
    assert "--strict-mcp-config" in made.argv


def test_repositories_below_its_folder_are_named(tmp_path: Path) -> None:
    assert "--add-dir" not in launch(tmp_path).argv
    made = launch(tmp_path, folders=(tmp_path / "app", tmp_path / "lib"))
    assert values(made.argv, "--add-dir") == [str(tmp_path / "app"), str(tmp_path / "lib")]


def test_profiles_become_permissions(tmp_path: Path) -> None:
    result = (tmp_path / "result" / "result.json").resolve()
    read = launch(tmp_path, profile="read")
    assert values(read.argv, "--permission-mode") == ["dontAsk"]
    assert values(read.argv, "--allowedTools") == [f"Edit(/{result})", f"Read(/{result})"]
    edit = launch(tmp_path, profile="edit")
    assert values(edit.argv, "--permission-mode") == ["acceptEdits"]
    assert "Bash(git commit:*)" in values(edit.argv, "--allowedTools")
    full = launch(tmp_path, profile="full")
    assert values(full.argv, "--permission-mode") == ["bypassPermissions"]
    assert "--allowedTools" not in full.argv
    assert (full.env.get("IS_SANDBOX") == "1") == (os.geteuid() == 0)
    assert "IS_SANDBOX" not in edit.env


def test_rules_arguments_and_the_model_come_from_the_order_and_the_configuration(tmp_path: Path) -> None:
    settings = {"args": ["--effort", "low"], "model": "haiku"}
    made = launch(tmp_path, settings, options={"allowed_tools": ["Bash(make test)"], "args": ["--max-turns", "9"]})
    assert values(made.argv, "--allowedTools")[-1] == "Bash(make test)"
    assert values(made.argv, "--effort") == ["low"]
    assert values(made.argv, "--max-turns") == ["9"]
    assert values(made.argv, "--model") == ["haiku"]
    assert values(launch(tmp_path, settings, model="opus").argv, "--model") == ["opus"]


@pytest.mark.parametrize("wrong", ["Bash", [1], {"a": 1}, ["a\0b"]])
def test_options_of_the_wrong_kind_are_refused(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(InvalidOrder, match="allowed_tools of engine claude must be a list of strings"):
        launch(tmp_path, options={"allowed_tools": wrong})


def test_mcp_servers_are_given_and_allowed(tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"tickets": {"command": "tickets"}}}))
    made = launch(tmp_path, mcp_config=config)
    assert values(made.argv, "--mcp-config") == [str(config)]
    assert "mcp__tickets" in values(made.argv, "--allowedTools")


@pytest.mark.parametrize(
    "text", ["", "[]", '{"mcpServers": 1}', '{"mcpServers": {"a b": {"command": "x"}}}', '{"mcpServers": {"a": {}}}']
)
def test_a_broken_mcp_configuration_is_named(tmp_path: Path, text: str) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(text)
    with pytest.raises(InvalidOrder, match=r"mcp\.json"):
        launch(tmp_path, mcp_config=config)


def test_it_gets_its_own_keys_and_what_the_configuration_names(tmp_path: Path) -> None:
    plain = launch(tmp_path)
    assert plain.env["ANTHROPIC_API_KEY"] == "k"
    assert "OTHER" not in plain.env
    assert launch(tmp_path, {"env": ["OTHER", "NOT_SET"]}).env["OTHER"] == "o"
    assert launch(tmp_path, {"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}}).env["ANTHROPIC_BASE_URL"]
    assert launch(tmp_path, env={"ANTHROPIC_API_KEY": "mine"}).env["ANTHROPIC_API_KEY"] == "mine"


def test_files_named_in_a_prompt_are_not_attached(tmp_path: Path) -> None:
    assert launch(tmp_path).env["CLAUDE_CODE_DISABLE_FILE_MENTIONS"] == "1"


def test_a_prompt_that_begins_with_a_slash_is_no_command(tmp_path: Path) -> None:
    assert launch(tmp_path, prompt="/clear").stdin == b"\n/clear"


def test_the_instructions_of_the_folder_are_given(tmp_path: Path) -> None:
    assert "--append-system-prompt" not in launch(tmp_path).argv
    (tmp_path / "repo" / "CLAUDE.md").write_text("Be kind.\n")
    assert values(launch(tmp_path).argv, "--append-system-prompt") == ["Be kind."]


def test_a_link_or_a_pipe_in_the_place_of_instructions_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    make_order(tmp_path, "claude")
    (tmp_path / "repo" / "CLAUDE.md").symlink_to(tmp_path / "secret")
    assert "--append-system-prompt" not in launch(tmp_path).argv
    (tmp_path / "repo" / "CLAUDE.md").unlink()
    os.mkfifo(tmp_path / "repo" / "CLAUDE.md")
    assert "--append-system-prompt" not in launch(tmp_path).argv


def test_instructions_of_any_size_and_bytes_make_an_argument(tmp_path: Path) -> None:
    make_order(tmp_path, "claude")
    (tmp_path / "repo" / "CLAUDE.md").write_bytes(b"a\0\xff" + "é".encode() * 1_000_000)
    [given] = values(launch(tmp_path).argv, "--append-system-prompt")
    assert given.startswith("aé")
    assert len(given.encode()) <= 100_000


def test_a_program_that_is_not_there_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    order = make_order(tmp_path, "claude")
    with pytest.raises(EngineNotInstalled, match=r"npm install -g @anthropic-ai/claude-code.*engines\.claude\.path"):
        ClaudeEngine(environ={"PATH": str(tmp_path)}).launch(order)
    with pytest.raises(EngineNotInstalled, match=r"/no/such is not a program \(set by engines\.claude\.path"):
        ClaudeEngine({"path": "/no/such"}, environ={"PATH": str(tmp_path)}).launch(order)


@pytest.mark.parametrize("settings", [{"env": [1]}, {"env": {"A": 1}}, {"args": "--x"}, {"args": [None]}])
def test_settings_of_the_wrong_kind_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidOrder, match=r"engines\.claude\.(env|args)"):
        ClaudeEngine(settings)


async def test_it_is_examined_by_its_version(tmp_path: Path) -> None:
    path = program(tmp_path)
    found = await ClaudeEngine({"path": str(path)}).examine()
    assert (found.ok, found.path, found.version, found.problem) == (True, str(path), "2.1.325", None)


async def test_an_old_version_is_usable_and_said_to_be_old(tmp_path: Path) -> None:
    path = program(tmp_path, says="2.1.9 (Claude Code)")
    found = await ClaudeEngine({"path": str(path)}).examine()
    assert found.ok
    assert found.problem is not None
    assert "update it" in found.problem


async def test_a_program_that_fails_or_is_missing_has_a_problem(tmp_path: Path) -> None:
    failing = await ClaudeEngine({"path": str(program(tmp_path, says="no licence", code=3))}).examine()
    assert not failing.ok
    assert failing.problem is not None
    assert "failed (3) and said: no licence" in failing.problem
    missing = await ClaudeEngine(environ={"PATH": "/nonexistent"}).examine()
    assert not missing.ok
    assert missing.problem is not None
    assert "engines.claude.path" in missing.problem


async def test_a_program_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.agents.engines.programs._VERSION_SECONDS", 0.2)
    path = program(tmp_path)
    pids = tmp_path / "pids"
    path.write_text(f"#!/bin/sh\nsleep 100 &\necho $$ $! > {pids}\nwait\n")
    found = await ClaudeEngine({"path": str(path)}).examine()
    assert not found.ok
    assert found.problem is not None
    assert "printed nothing" in found.problem
    if pids.exists():  # on a very busy machine it was ended before it could write
        shell = int(pids.read_text().split()[0])
        with pytest.raises(ProcessLookupError):
            os.kill(shell, 0)
