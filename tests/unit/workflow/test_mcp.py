"""The MCP servers of a Work: merged over the levels, references looked up late and stored nowhere."""

from __future__ import annotations

import json
import stat
from contextlib import nullcontext
from pathlib import Path

import pytest

from kingdom.workflow.adapters.environment import (
    McpInvalid,
    McpServerConfigs,
    WorkMcpFiles,
    merge_servers,
    resolve_servers,
)
from kingdom.workflow.domain.resources import McpServer, McpServerRef

DOCS = McpServer("mcp-1", "docs", command=("docs", "--stdio"), env={"LANG": "en", "TOKEN": "${DOCS_TOKEN}"})
WEB = McpServer("mcp-2", "web search", url="https://example.org/${TENANT}", env={"Authorization": "Bearer ${WEB_KEY}"})
REGISTERED = {server.id: server for server in (DOCS, WEB)}


def docs(**env: str) -> McpServerRef:
    return McpServerRef("mcp-1", env)


def test_what_a_later_level_sets_counts() -> None:
    template, workflow, work = [docs(LANG="ko", A="1")], [docs(A="2", B="2")], [docs(B="3")]
    assert merge_servers(REGISTERED, template, workflow, work) == {
        "docs": {
            "command": "docs",
            "args": ["--stdio"],
            "env": {"LANG": "ko", "TOKEN": "${DOCS_TOKEN}", "A": "2", "B": "3"},
        }
    }


def test_servers_of_all_levels_are_there_once() -> None:
    merged = merge_servers(REGISTERED, [docs()], [McpServerRef("mcp-2")], [docs()])
    assert list(merged) == ["docs", "web-search"]
    assert merged["web-search"] == {
        "type": "http",
        "url": "https://example.org/${TENANT}",
        "headers": {"Authorization": "Bearer ${WEB_KEY}"},
    }


def test_without_references_there_are_no_servers() -> None:
    assert merge_servers(REGISTERED) == {}


@pytest.mark.parametrize(
    ("registered", "refs", "why"),
    [
        ({}, ["mcp-1"], "mcp-1 is not registered"),
        ({"mcp-1": McpServer("mcp-1", "docs")}, ["mcp-1"], "neither a command nor a URL"),
        (
            {"a": McpServer("a", "x y", command=("x",)), "b": McpServer("b", "x+y", command=("x",))},
            ["a", "b"],
            "needs a name that no other has",
        ),
    ],
)
def test_servers_that_cannot_be_given_are_refused(registered: dict[str, McpServer], refs: list[str], why: str) -> None:
    with pytest.raises(McpInvalid, match=why):
        merge_servers(registered, [McpServerRef(ref) for ref in refs])


def test_references_are_looked_up_in_the_environment() -> None:
    merged = merge_servers(REGISTERED, [docs(BOTH="${A}-${B}", PLAIN="$A {B}"), McpServerRef("mcp-2")])
    environ = {"DOCS_TOKEN": "t0ken", "A": "1", "B": "${A}", "TENANT": "us", "WEB_KEY": "k"}
    resolved = resolve_servers(merged, environ)
    assert resolved["docs"]["env"]["TOKEN"] == "t0ken"
    assert resolved["docs"]["env"]["BOTH"] == "1-${A}", "a value is not looked at again"
    assert resolved["docs"]["env"]["PLAIN"] == "$A {B}"
    assert resolved["web-search"]["url"] == "https://example.org/us"
    assert resolved["web-search"]["headers"] == {"Authorization": "Bearer k"}


@pytest.mark.parametrize(("value", "why"), [("${GONE}", "needs the variable GONE"), ("${a-b}", "a reference is")])
def test_a_reference_that_leads_nowhere_is_an_error(value: str, why: str, tmp_path: Path) -> None:
    servers = merge_servers({"mcp-1": McpServer("mcp-1", "docs", command=("docs",))}, [docs(X=value)])
    files = WorkMcpFiles(tmp_path / "mcp", {})
    with pytest.raises(McpInvalid, match=why):
        files.check(servers)
    with pytest.raises(McpInvalid, match=why):
        files.write("run-1", servers)
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize(
    ("command", "there"),
    [("sh", True), ("/bin/sh", True), ("./from-the-repository", True), ("no-such-program", False), ("/no/such", False)],
)
def test_a_program_that_is_not_there_is_told_before_the_work_begins(command: str, there: bool, tmp_path: Path) -> None:
    files = WorkMcpFiles(tmp_path, {"PATH": "/usr/bin:/bin"})
    servers: McpServerConfigs = {"docs": {"command": command, "args": [], "env": {}}}
    refused = pytest.raises(McpInvalid, match=f"docs cannot start: there is no program '{command}'")
    with nullcontext() if there else refused:
        files.check(servers)


def test_the_file_of_a_run_is_ours_alone_and_goes_with_it(tmp_path: Path) -> None:
    servers: McpServerConfigs = {"docs": {"command": "docs", "args": [], "env": {"TOKEN": "${T}"}}}
    files = WorkMcpFiles(tmp_path / "mcp", {"T": "t0ken"})
    path = files.write("run-1", servers)
    assert path is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert json.loads(path.read_text())["mcpServers"]["docs"]["env"] == {"TOKEN": "t0ken"}
    assert servers["docs"]["env"] == {"TOKEN": "${T}"}
    files.remove("run-1")
    files.remove("run-1")
    assert list(path.parent.iterdir()) == []


def test_a_run_without_servers_has_no_file(tmp_path: Path) -> None:
    assert WorkMcpFiles(tmp_path / "mcp", {}).write("run-1", {}) is None
    assert not (tmp_path / "mcp").exists()


def test_what_a_killed_process_left_is_swept_away(tmp_path: Path) -> None:
    files = WorkMcpFiles(tmp_path / "mcp", {})
    files.sweep([])
    kept, *_ = [files.write(run, {"docs": {"command": "docs"}}) for run in ("run-1", "run-2", "run-3")]
    files.sweep(["run-1"])
    assert list((tmp_path / "mcp").iterdir()) == [kept]
