"""A general works on private repositories, with the token and under the name that the court's settings give."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

from kingdom.court.bootstrap import make_role
from kingdom.court.config import SystemConfig
from kingdom.court.doctor import check_git_hosts
from kingdom.court.general import General
from kingdom.court.general.context import GeneralContext
from kingdom.court.loop import Services
from tests.support.fake_agents import FakeAgents
from tests.support.generals import Post, posted
from tests.support.git_server import GitServer, trusted
from tests.support.repositories import plain_git

TOKEN = "token-of-a-court-90be"
SOLDIER = """
import json, os, pathlib, subprocess
subprocess.run(["git", "commit", "--quiet", "--allow-empty", "--message", "Mine"], check=True)
assert not [name for name, value in os.environ.items() if "token-of-a-court" in value]
pathlib.Path(os.environ["KINGDOM_RESULT_PATH"]).write_text(json.dumps({"status": "success", "summary": "Done"}))
"""


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


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (None, "asks for a token and there is none: set the variable SHOP_TOKEN"),
        ("an-old-one", "refused the variable SHOP_TOKEN: it has expired"),
    ],
)
async def test_no_event_is_spent_on_a_token_that_is_missing_or_has_expired(
    post: Post, monkeypatch: pytest.MonkeyPatch, token: str | None, reason: str
) -> None:
    if token is not None:
        monkeypatch.setenv("SHOP_TOKEN", token)
    held: list[str] = []

    def mended(context: GeneralContext, resets_at: float | None) -> float:
        """Somebody sets the token while the task waits, and the time of the next look has come."""
        progress = context.progress_store.load(task.id)
        assert progress is not None
        held.append(progress.held or "")
        monkeypatch.setenv("SHOP_TOKEN", TOKEN)
        return 0.0

    monkeypatch.setattr("kingdom.court.general.general.parking_seconds", mended)
    task = await post.task(repo="acme/shop")
    (result,) = await post.finish(task)
    assert (result["status"], result["retry_count"]) == ("success", 0)
    (record,) = held
    assert reason in record


async def test_a_repository_that_is_not_there_fails_the_task(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", TOKEN)
    (result,) = await post.finish(await post.task(repo="acme/nothing"))
    assert result["status"] == "failed"
    assert "check the URL; if it is right, the variable SHOP_TOKEN has no right to see this repository" in str(result)


async def test_a_soldier_is_told_what_is_not_checked_out(
    post: Post, server: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", TOKEN)
    server.commit("acme/shop", {"art/.gitattributes": "*.psd filter=lfs diff=lfs merge=lfs -text\n"})
    await post.finish(await post.task(repo="acme/shop"))
    assert isinstance(post.agents, FakeAgents)
    said = "# What is not checked out\n\nFiles in Git LFS are pointers, not the files: *.psd. Do not change them."
    assert said in post.agents.orders[0].prompt


@pytest.mark.parametrize("author", ["Builder <builder@example.com>", None])
async def test_a_soldier_commits_on_a_fresh_machine(
    post: Post, server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, author: str | None
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", TOKEN)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))  # without git settings
    (tmp_path / "soldier.py").write_text(SOLDIER)
    engine = {"name": "command", "options": {"argv": [sys.executable, str(tmp_path / "soldier.py")]}}
    manifest = {"name": "gen-test", "description": "For tests.", "engine": engine}
    (post.folder / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    git = {**post.system["git"], **({"author": author} if author else {})}
    system = post.home.root / "config" / "system.yaml"
    system.write_text(yaml.safe_dump({"git": git, "repos": {"base_url": server.url}}))

    general = make_role("gen-test", Services(post.home, post.bus, post.journal, lambda: post.now))
    assert isinstance(general, General)
    (result,) = await post.finish(await post.task(repo="acme/shop"), general=general)
    assert result["status"] == "success", result
    (tree,) = post.home.work("gen-test").glob("worktrees/gen-test/*")
    by = plain_git(tree, "log", "-1", "--format=%an <%ae> %s")
    assert by == f"{author or 'Kingdom <kingdom@localhost>'} Mine"


async def test_doctor_says_which_host_has_a_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without gh
    monkeypatch.setenv("LAB_TOKEN", TOKEN)
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    monkeypatch.delenv("GH_TOKEN", raising=False)
    credentials = {"lab.example": {"env": "LAB_TOKEN"}, "work.example": {"env": "WORK_TOKEN"}, "open.example": "none"}
    found = await check_git_hosts(SystemConfig.model_validate({"git": {"credentials": credentials}}))
    assert {check.name: (check.level, check.message, check.hint) for check in found} == {
        "git host github.com": (
            "ok",
            "it has no token, so only public repositories can be used (set GITHUB_TOKEN, or log in with gh auth login)",
            "",
        ),
        "git host lab.example": ("ok", "its token comes from the variable LAB_TOKEN", ""),
        "git host work.example": ("warning", "it has no token", "set the variable WORK_TOKEN"),
        "git host open.example": (
            "ok",
            "it has no token, so only public repositories can be used (git.credentials says none for open.example)",
            "",
        ),
    }
    (check,) = await check_git_hosts(SystemConfig(), ["gen-pr", "gen-issue"])
    assert (check.level, check.message, check.hint) == (
        "warning",
        "it has no token: what gen-issue and gen-pr did cannot be brought there",
        "set GITHUB_TOKEN, or log in with gh auth login",
    )
