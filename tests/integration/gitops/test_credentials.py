"""Private repositories over https: the token reaches its host, and nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.gitops import Clones, GitLocation, GitRunner, RemoteAccess, RemoteFailed, Worktrees
from kingdom.gitops.credentials import CredentialRule, Credentials
from kingdom.gitops.names import check_url
from tests.support.git_server import GitServer, trusted

TOKEN = "token-of-the-tests-5f1d0e"
OTHER_TOKEN = "token-of-somebody-else-77"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with GitServer(tmp_path / "server") as server, trusted(server):
        server.grant(TOKEN, "ada")
        server.create("acme/app")
        yield server


def clones_with(folder: Path, server: GitServer, environ: dict[str, str], **rule: str) -> Clones:
    credentials = Credentials(
        {server.host: CredentialRule(**({"source": "env", "variable": "APP_TOKEN"} | rule))},  # type: ignore[arg-type]
        environ={"PATH": os.environ["PATH"], **environ},
    )
    return Clones(GitRunner(access=RemoteAccess(credentials)), folder)


async def test_a_private_repository_is_cloned_and_fetched_with_a_token(server: GitServer, tmp_path: Path) -> None:
    clones = clones_with(tmp_path / "data", server, {"APP_TOKEN": TOKEN})
    url = f"{server.url}/acme/app"
    made = await clones.ensure(url)
    newer = server.commit("acme/app", {"more.txt": "more\n"})
    await clones.ensure(url)
    assert await made.clone.commit_of("refs/remotes/origin/main") == newer
    assert {request.user for request in server.requests if request.user} == {"x-access-token"}


async def test_a_branch_is_pushed_with_a_token(server: GitServer, tmp_path: Path) -> None:
    clones = clones_with(tmp_path / "data", server, {"APP_TOKEN": TOKEN})
    clone = (await clones.ensure(f"{server.url}/acme/app")).clone
    place = GitLocation(clone.control, remote=clone.url)
    await clones.git.run_remote(place, "push", "origin", "refs/remotes/origin/main:refs/heads/new")
    refs = server.refs("acme/app")
    assert refs["new"] == refs["main"]

    server.protect("acme/app", "main")
    with pytest.raises(RemoteFailed, match="Protected branch"):
        await clones.git.run_remote(place, "push", "origin", ":refs/heads/main")


async def test_the_token_is_in_no_file_and_in_no_argument_list(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    seen: set[str] = set()
    answer = server.decide

    def decide_and_look(name: str, password: str | None, *, write: bool) -> int:
        seen.update(_command_lines())  # while git waits for this answer
        return answer(name, password, write=write)

    monkeypatch.setattr(server, "decide", decide_and_look)
    clones = clones_with(tmp_path / "data", server, {"APP_TOKEN": TOKEN})
    clone = (await clones.ensure(f"{server.url}/acme/app")).clone
    tree = await Worktrees(clones, tmp_path / "data").create(clone, "wf-1", "app")
    assert (tree.path / "README.md").exists()
    with pytest.raises(RemoteFailed):
        await clones.fetch_ref(clone, "refs/pull/1/head", "refs/kingdom/pulls/1/head")

    assert TOKEN in server.passwords()
    assert any("git-remote-https" in line or "remote-https" in line for line in seen)
    assert not [line for line in seen if TOKEN in line]
    assert _files_with(TOKEN, home, tmp_path / "data") == []


async def test_the_command_line_of_the_helper_has_no_token(tmp_path: Path) -> None:
    from kingdom.gitops.credentials import Credential, credential_environment

    given = credential_environment("git.example.com", Credential("ada", TOKEN))
    assert [name for name, value in given.items() if TOKEN in value] == ["KINGDOM_GIT_PASSWORD"]


async def test_a_redirect_to_another_host_does_not_get_the_token(server: GitServer, tmp_path: Path) -> None:
    with GitServer(tmp_path / "elsewhere", name="localhost") as other, trusted(server, other):
        other.create("acme/app")
        server.redirects["acme/app"] = f"{other.url}/acme/app"
        clones = clones_with(tmp_path / "data", server, {"APP_TOKEN": TOKEN})
        with pytest.raises(RemoteFailed) as caught:
            await clones.ensure(f"{server.url}/acme/app")
    assert caught.value.reason == "no-credential"
    assert other.requests
    assert other.passwords() == set()


async def test_a_redirect_after_the_token_was_sent_does_not_take_it_along(server: GitServer, tmp_path: Path) -> None:
    with GitServer(tmp_path / "elsewhere", name="localhost") as other, trusted(server, other):
        other.create("acme/app", public=True)
        server.redirects["acme/app"] = f"{other.url}/acme/app"
        server.redirects_ask = True
        with pytest.raises(RemoteFailed):  # git follows such a redirect for one request only
            await clones_with(tmp_path / "data", server, {"APP_TOKEN": TOKEN}).ensure(f"{server.url}/acme/app")
    assert TOKEN in server.passwords()
    assert other.requests
    assert other.passwords() == set()


async def test_a_public_repository_is_read_without_the_token(server: GitServer, tmp_path: Path) -> None:
    server.public.add("acme/app")
    await clones_with(tmp_path / "data", server, {"APP_TOKEN": TOKEN}).ensure(f"{server.url}/acme/app")
    assert server.passwords() == set()


@pytest.mark.parametrize(
    ("environ", "path", "reason", "advice"),
    [
        ({}, "acme/app", "no-credential", "asks for a token and there is none: set the variable APP_TOKEN"),
        ({"APP_TOKEN": "wrong"}, "acme/app", "denied", "refused the variable APP_TOKEN: it has expired"),
        ({"APP_TOKEN": OTHER_TOKEN}, "acme/app", "missing", "the variable APP_TOKEN has no right to see"),
        ({"APP_TOKEN": TOKEN}, "acme/nothing", "missing", "check the URL"),
        ({"APP_TOKEN": "a\nb"}, "acme/app", "no-credential", "the variable APP_TOKEN holds more than one line"),
    ],
)
async def test_a_refusal_says_what_is_missing(
    server: GitServer, tmp_path: Path, environ: dict[str, str], path: str, reason: str, advice: str
) -> None:
    server.grant(OTHER_TOKEN, "bob", acme__else=True)
    clones = clones_with(tmp_path / "data", server, environ)
    with pytest.raises(RemoteFailed, match=re.escape(advice)) as caught:
        await clones.ensure(f"{server.url}/{path}")
    assert caught.value.reason == reason
    assert TOKEN not in str(caught.value)


async def test_a_push_without_the_right_is_denied(server: GitServer, tmp_path: Path) -> None:
    server.grant(OTHER_TOKEN, "bob", acme__app=False)
    clones = clones_with(tmp_path / "data", server, {"APP_TOKEN": OTHER_TOKEN})
    clone = (await clones.ensure(f"{server.url}/acme/app")).clone
    place = GitLocation(clone.control, remote=clone.url)
    with pytest.raises(RemoteFailed) as caught:
        await clones.git.run_remote(place, "push", "origin", "refs/remotes/origin/main:refs/heads/new")
    assert caught.value.reason == "denied"


async def test_a_host_that_is_away_is_unreachable(tmp_path: Path) -> None:
    with GitServer(tmp_path / "server") as server:
        url = f"{server.url}/acme/app"
    remote = check_url(url)
    with pytest.raises(RemoteFailed, match="cannot be reached") as caught:
        await GitRunner().run_remote(GitLocation(tmp_path, remote=remote), "ls-remote", url)
    assert caught.value.reason == "unreachable"


async def test_a_certificate_that_is_not_trusted_is_told(tmp_path: Path) -> None:
    with GitServer(tmp_path / "server") as server:
        url = f"{server.url}/acme/app"
        with pytest.raises(RemoteFailed, match="GIT_SSL_CAINFO") as caught:
            await GitRunner().run_remote(GitLocation(tmp_path, remote=check_url(url)), "ls-remote", url)
    assert caught.value.reason == "untrusted"


async def test_the_users_own_helper_is_asked_when_configured(server: GitServer, tmp_path: Path) -> None:
    stored = tmp_path / "user"
    stored.mkdir()
    (stored / ".gitconfig").write_text("[credential]\n\thelper = store\n")
    (stored / ".git-credentials").write_text(f"https://ada:{TOKEN}@{server.host}\n")
    clones = clones_with(tmp_path / "data", server, {"HOME": str(stored)}, source="helper")
    await clones.ensure(f"{server.url}/acme/app")
    assert {request.user for request in server.requests if request.user} == {"ada"}

    (stored / ".git-credentials").unlink()
    with pytest.raises(RemoteFailed, match="your git credential helper has none for"):
        await clones.ensure(f"{server.url}/acme/app")


async def test_gh_is_asked_when_configured(server: GitServer, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    gh = programs / "gh"
    gh.write_text(f'#!/bin/sh\ntest "$*" = "auth token --hostname {server.host}" && echo {TOKEN}\n')
    gh.chmod(0o755)
    environ = {"PATH": f"{programs}:{os.environ['PATH']}"}
    await clones_with(tmp_path / "data", server, environ, source="gh").ensure(f"{server.url}/acme/app")
    gh.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(RemoteFailed, match="gh auth login --hostname"):
        await clones_with(tmp_path / "other", server, environ, source="gh").ensure(f"{server.url}/acme/app")


def _command_lines() -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue
    return found


def _files_with(text: str, *folders: Path) -> list[Path]:
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert files
    return [path for path in files if text.encode() in path.read_bytes()]
