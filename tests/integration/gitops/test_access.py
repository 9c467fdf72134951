"""A repository is tried before it is used."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.gitops import CredentialRule, Credentials, GitRunner, RemoteAccess, RepositoryRefused
from kingdom.gitops.access import check_repository
from tests.support.git_server import GitServer, trusted
from tests.support.repositories import Remote

TOKEN = "token-of-the-tests-8c2f"
LFS = "*.psd filter=lfs diff=lfs merge=lfs -text\n# *.txt filter=lfs\n*.md text\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with GitServer(tmp_path / "server") as server, trusted(server):
        server.grant(TOKEN, "ada")
        yield server


def runner(server: GitServer, **environ: str) -> GitRunner:
    rules = {server.host: CredentialRule("env", "APP_TOKEN")}
    return GitRunner(access=RemoteAccess(Credentials(rules, environ={"PATH": os.environ["PATH"], **environ})))


async def test_a_repository_that_can_be_read_is_accepted(server: GitServer) -> None:
    server.create("acme/app", {"a.txt": "a\n", ".gitattributes": "*.md text\n"})
    await check_repository(runner(server, APP_TOKEN=TOKEN), f"{server.url}/acme/app")


@pytest.mark.parametrize(
    ("environ", "path", "reason"),
    [
        ({}, "acme/app", "asks for a token and there is none: set the variable APP_TOKEN"),
        ({"APP_TOKEN": "old"}, "acme/app", "refused the variable APP_TOKEN: it has expired, or has no right"),
        ({"APP_TOKEN": TOKEN}, "acme/ap", "check the URL; if it is right, the variable APP_TOKEN has no right to see"),
    ],
)
async def test_one_that_cannot_be_read_is_refused_with_the_reason(
    server: GitServer, environ: dict[str, str], path: str, reason: str
) -> None:
    server.create("acme/app")
    with pytest.raises(RepositoryRefused, match=re.escape(reason)):
        await check_repository(runner(server, **environ), f"{server.url}/{path}")


async def test_a_host_that_is_away_is_said_to_be(tmp_path: Path) -> None:
    with GitServer(tmp_path / "server") as server:
        url = f"{server.url}/acme/app"
    with pytest.raises(RepositoryRefused, match=r"cannot be reached: check its name.*git: unable to access"):
        await check_repository(GitRunner(), url)


@pytest.mark.parametrize("place", ["remote", "local"])
@pytest.mark.parametrize("folder", ["", "art/"])
async def test_files_in_lfs_are_refused(server: GitServer, tmp_path: Path, place: str, folder: str) -> None:
    files = {f"{folder}.gitattributes": LFS, f"{folder}a.psd": "version https://git-lfs.github.com/spec/v1\n"}
    server.create("acme/app", files)
    url = f"{server.url}/acme/app" if place == "remote" else str(server.folder / "seeds" / "acme/app")
    with pytest.raises(RepositoryRefused, match=r"has files in Git LFS \(\*\.psd\), which are not supported"):
        await check_repository(runner(server, APP_TOKEN=TOKEN), url, allow_local=True)


@pytest.mark.parametrize("place", ["remote", "local", "bare"])
async def test_submodules_are_refused(server: GitServer, tmp_path: Path, place: str) -> None:
    bare = server.create("acme/app")
    seed = Remote.__new__(Remote)
    seed.folder = server.folder / "seeds" / "acme/app"
    tip = seed.git("rev-parse", "HEAD")
    seed.git("update-index", "--add", "--cacheinfo", f"160000,{tip},vendor/lib")
    seed.git("commit", "--quiet", "--message", "Add a submodule")
    seed.git("push", "--quiet", str(bare), "HEAD:main")
    url = {"remote": f"{server.url}/acme/app", "local": str(seed.folder), "bare": f"file://{bare}"}[place]
    with pytest.raises(RepositoryRefused, match=r"has submodules \(vendor/lib\), which are not supported"):
        await check_repository(runner(server, APP_TOKEN=TOKEN), url, allow_local=True)


async def test_an_empty_repository_is_accepted(server: GitServer, tmp_path: Path) -> None:
    empty = Remote(tmp_path / "empty")
    await check_repository(GitRunner(), empty.url, allow_local=True)
    (server.folder / "acme").mkdir()
    empty.git("clone", "--quiet", "--bare", empty.url, str(server.folder / "acme/app.git"))
    await check_repository(runner(server, APP_TOKEN=TOKEN), f"{server.url}/acme/app")


async def test_a_try_leaves_nothing_behind(server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    server.create("acme/app")
    await check_repository(runner(server, APP_TOKEN=TOKEN), f"{server.url}/acme/app")
    assert list(scratch.iterdir()) == []
