"""How Codex is started."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kingdom.agents.engine import Launch
from kingdom.agents.engines.codex import CodexEngine, to_toml
from kingdom.agents.errors import EngineNotInstalled, InvalidOrder
from tests.support.hostile_lines import any_pace
from tests.support.orders import make_order
from tests.support.repositories import plain_git


def engine(folder: Path, settings: dict[str, Any] | None = None, **environ: str) -> CodexEngine:
    path = folder / "bin" / "codex"
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\necho codex-cli 0.166.0\n")
    path.chmod(0o755)
    return CodexEngine(settings, {"PATH": f"{path.parent}:/usr/bin:/bin", "HOME": str(folder), **environ})


def launch(folder: Path, settings: dict[str, Any] | None = None, **changes: Any) -> Launch:
    return engine(folder, settings, OPENAI_API_KEY="k").launch(make_order(folder, "codex", **changes))


def configured(argv: tuple[str, ...]) -> dict[str, Any]:
    """What the ``-c`` arguments say, read as TOML."""
    pairs = [argv[at + 1].partition("=") for at, word in enumerate(argv) if word == "-c"]
    return {key: tomllib.loads(f"value = {value}")["value"] for key, _, value in pairs}


def worktree(folder: Path) -> Path:
    clone = folder / "clone"
    clone.mkdir()
    plain_git(clone, "init", "--quiet", "--initial-branch=main")
    plain_git(clone, "commit", "--quiet", "--allow-empty", "-m", "first")
    plain_git(clone, "worktree", "add", "--quiet", "-b", "work", str(folder / "repo"))
    return folder / "repo"


def added(argv: tuple[str, ...]) -> list[str]:
    return [argv[at + 1] for at, word in enumerate(argv) if word == "--add-dir"]


def test_a_new_conversation_reads_its_prompt_from_standard_input(tmp_path: Path) -> None:
    made = launch(tmp_path, model="gpt-x")
    assert made.argv[1:4] == ("exec", "--json", "--skip-git-repo-check")
    assert made.argv[-1] == "-"
    assert made.argv[made.argv.index("-m") + 1] == "gpt-x"
    assert made.stdin == b"Write hello into notes.txt."
    assert "resume" not in made.argv


def test_every_flag_stands_before_resume(tmp_path: Path) -> None:
    made = launch(tmp_path, {"args": ["--enable", "x"]}, session_id="01a1dd9e-f12f", options={"args": ["--ephemeral"]})
    assert made.argv[-3:] == ("resume", "01a1dd9e-f12f", "-")
    assert {"-s", "--enable", "--ephemeral"} <= set(made.argv[: made.argv.index("resume")])


@pytest.mark.parametrize("session", ["--last", "-x", "../x", ""])
def test_a_session_id_is_never_a_flag(tmp_path: Path, session: str) -> None:
    with pytest.raises(InvalidOrder, match="session id"):
        launch(tmp_path, session_id=session)


def test_profiles_become_sandboxes(tmp_path: Path) -> None:
    results = str(tmp_path / "result")
    full = launch(tmp_path, profile="full")
    assert full.argv[full.argv.index("-s") + 1] == "danger-full-access"
    edit = launch(tmp_path, profile="edit")
    assert edit.argv[edit.argv.index("-s") + 1] == "workspace-write"
    assert added(edit.argv) == [results]
    read = launch(tmp_path, profile="read")
    assert "-s" not in read.argv
    assert configured(read.argv)["default_permissions"] == "kingdom"
    assert configured(read.argv)["permissions.kingdom"] == {"filesystem": {":root": "read", results: "write"}}


def test_a_worktree_may_be_committed_but_its_clone_not_configured(tmp_path: Path) -> None:
    cwd = worktree(tmp_path)
    writable = added(launch(tmp_path, cwd=cwd).argv)
    assert writable[1:] == [
        str(tmp_path / "clone" / ".git" / place) for place in ("worktrees/repo", "objects", "refs", "logs")
    ]


def test_a_pointer_an_agent_has_changed_opens_nothing(tmp_path: Path) -> None:
    cwd = worktree(tmp_path)
    other = tmp_path / "other" / "worktrees" / "x"
    other.mkdir(parents=True)
    for place in (other, tmp_path, Path("/etc"), Path("relative")):
        (cwd / ".git").write_text(f"gitdir: {place}\n")
        assert added(launch(tmp_path, cwd=cwd).argv) == [str(tmp_path / "result")]
    (other / "gitdir").write_text(str(tmp_path / "elsewhere" / ".git"))
    (cwd / ".git").write_text(f"gitdir: {other}\n")
    assert added(launch(tmp_path, cwd=cwd).argv) == [str(tmp_path / "result")]
    (cwd / ".git").write_bytes(b"\xff\0")
    assert added(launch(tmp_path, cwd=cwd).argv) == [str(tmp_path / "result")]


def test_the_configuration_of_a_repository_does_not_apply(tmp_path: Path) -> None:
    odd = tmp_path / 'a "quoted" = name'
    made = launch(tmp_path, cwd=odd)
    assert configured(made.argv)["projects"] == {str(odd): {"trust_level": "untrusted"}}


def test_the_instructions_of_the_folder_are_given(tmp_path: Path) -> None:
    assert "developer_instructions" not in configured(launch(tmp_path).argv)
    (tmp_path / "repo" / "AGENTS.md").write_text('Be "kind".\nAlways.')
    assert configured(launch(tmp_path).argv)["developer_instructions"] == 'Be "kind".\nAlways.'


def test_its_key_is_kept_from_the_commands_it_runs(tmp_path: Path) -> None:
    made = launch(tmp_path)
    assert made.env["OPENAI_API_KEY"] == "k"
    assert "OPENAI_API_KEY" in configured(made.argv)["shell_environment_policy.exclude"]


def test_mcp_servers_are_given_without_their_secrets_in_the_arguments(tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    servers = {
        "tickets": {"command": "tickets", "args": ["--all"], "env": {"TICKETS_TOKEN": "s3cret"}},
        "wiki": {"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer s3cret"}},
    }
    config.write_text(json.dumps({"mcpServers": servers}))
    made = launch(tmp_path, mcp_config=config)
    told = configured(made.argv)
    assert told["mcp_servers.tickets"] == {
        "command": "tickets",
        "args": ["--all"],
        "env_vars": ["TICKETS_TOKEN"],
        "default_tools_approval_mode": "approve",
    }
    assert told["mcp_servers.wiki"] == {
        "url": "http://127.0.0.1:1/mcp",
        "env_http_headers": {"Authorization": "KINGDOM_MCP_WIKI_0"},
        "default_tools_approval_mode": "approve",
    }
    assert not any("s3cret" in word for word in made.argv)
    assert made.env["TICKETS_TOKEN"] == "s3cret"
    assert made.env["KINGDOM_MCP_WIKI_0"] == "Bearer s3cret"
    assert {"TICKETS_TOKEN", "KINGDOM_MCP_WIKI_0"} <= set(told["shell_environment_policy.exclude"])


def test_two_mcp_servers_cannot_share_a_name_for_different_values(tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    servers = {name: {"command": name, "env": {"TOKEN": name}} for name in ("a", "b")}
    config.write_text(json.dumps({"mcpServers": servers}))
    with pytest.raises(InvalidOrder, match="TOKEN must be one text"):
        launch(tmp_path, mcp_config=config)


def test_a_program_that_is_not_there_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    order = make_order(tmp_path, "codex")
    with pytest.raises(EngineNotInstalled, match=r"npm install -g @openai/codex.*engines\.codex\.path"):
        CodexEngine(environ={"PATH": str(tmp_path)}).launch(order)


async def test_it_is_examined_by_its_version(tmp_path: Path) -> None:
    found = await engine(tmp_path).examine()
    assert (found.ok, found.version, found.problem) == (True, "0.166.0", None)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@any_pace
@given(VALUES)
def test_every_value_is_read_back_from_its_toml(value: Any) -> None:
    made = to_toml(value)
    assert "\n" not in made
    assert tomllib.loads(f"value = {made}")["value"] == value
