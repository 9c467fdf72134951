"""A private repository on a real git server over https, from ``kingdom git add`` to a finished branch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.cli.app import run
from tests.support.command import kingdom
from tests.support.git_server import GitServer, trusted
from tests.support.repositories import plain_git

TOKEN = "token-of-the-acceptance-tests-31a7"
TEMPLATE = """
name: small
engine: {{name: scripted, options: {{script: {script}}}}}
works:
  - name: build
    tasks:
      - {{name: write, query: Write it}}
"""
STEPS = [{"write": {"path": "new.txt", "text": "new"}}, {"result": {"summary": "written"}}]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with GitServer(tmp_path / "server") as server, trusted(server):
        server.grant(TOKEN, "ada")
        server.create("acme/app")
        yield server


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("KINGDOM_HOME", str(home))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("APP_TOKEN", raising=False)
    return home


def settings(home: Path, text: str) -> None:
    (home / "workflows").mkdir(exist_ok=True)
    (home / "workflows" / "settings.yaml").write_text(text)


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    ended = run(words)
    printed = capsys.readouterr()
    assert ended == code, printed.out + printed.err
    return printed.out + printed.err


def test_a_workflow_works_on_a_private_repository_and_the_token_stays_nowhere(
    server: GitServer, home: Path, tmp_path: Path
) -> None:
    settings(
        home,
        f"git:\n  author: Builder <builder@example.com>\n  co_authors: [Ada <ada@example.com>]\n"
        f"  credentials: {{'{server.host}': {{env: APP_TOKEN}}}}\n",
    )
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"build/write": STEPS}))
    template = tmp_path / "small.yaml"
    template.write_text(TEMPLATE.format(script=script))
    printed = ""
    for words in (
        ("git", "add", f"{server.url}/acme/app"),
        ("workflow", "create", str(template), "--repo", "app"),
        ("workflow", "start", "small"),
    ):
        done = kingdom(*words, APP_TOKEN=TOKEN)
        printed += done.stdout + done.stderr
        assert done.returncode == 0, printed
    shown = json.loads(kingdom("workflow", "show", "small", "--json").stdout)
    assert shown["status"] == "COMPLETED"

    tree = Path(shown["repositories"][0]["path"])
    author, committer, message = plain_git(tree, "log", "-1", "--format=%an <%ae>%x00%cn <%ce>%x00%B").split("\0")
    assert (author, committer) == ("Builder <builder@example.com>", "Builder <builder@example.com>")
    assert message.strip().endswith("Co-authored-by: Ada <ada@example.com>")

    assert TOKEN in server.passwords()
    assert TOKEN not in printed
    files = [path for path in home.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 20
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []


def test_agents_commit_under_the_configured_name_too(server: GitServer, home: Path, tmp_path: Path) -> None:
    settings(home, "git: {author: Builder <builder@example.com>}\n")
    script = "echo x > x.txt && git add x.txt && git commit -q -m Mine"
    template = tmp_path / "own.yaml"
    engine = json.dumps({"name": "command", "options": {"argv": ["sh", "-c", script]}})
    work = json.dumps({"name": "build", "tasks": [{"name": "write", "query": "Write it"}]})
    template.write_text(f"name: own\nengine: {engine}\nworks: [{work}]\n")
    for words in (
        ("git", "add", str(server.folder / "seeds/acme/app")),
        ("workflow", "create", str(template), "--repo", "app"),
        ("workflow", "start", "own"),
    ):
        done = kingdom(*words)
        assert done.returncode == 0, done.stdout + done.stderr
    tree = Path(json.loads(kingdom("workflow", "show", "own", "--json").stdout)["repositories"][0]["path"])
    commits = plain_git(tree, "log", "--format=%an <%ae>: %s", "--author=Builder").splitlines()
    assert "Builder <builder@example.com>: Mine" in commits


def test_git_add_says_what_is_missing(
    server: GitServer, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{server.url}/acme/app"
    unnamed = said(capsys, "git", "add", url, code=1)
    assert f"{server.host} asks for a token and there is none" in unnamed
    assert f"name where its token is in git.credentials, such as {server.host}: {{env: MY_TOKEN}}" in unnamed
    assert "--no-check registers it all the same" in unnamed

    settings(home, f"git: {{credentials: {{'{server.host}': {{env: APP_TOKEN}}}}}}\n")
    assert "set the variable APP_TOKEN" in said(capsys, "git", "add", url, code=1)
    monkeypatch.setenv("APP_TOKEN", "an-old-one")
    refused = said(capsys, "git", "add", url, code=1)
    assert "refused the variable APP_TOKEN" in refused
    assert "an-old-one" not in refused
    monkeypatch.setenv("APP_TOKEN", TOKEN)
    assert "check the URL" in said(capsys, "git", "add", f"{server.url}/acme/nothing", code=1)
    assert "no repositories" in said(capsys, "git", "ls")
    assert "app is registered" in said(capsys, "git", "add", url)
    assert "lib is registered" in said(capsys, "git", "add", f"{server.url}/acme/lib", "--no-check")


def test_settings_that_are_wrong_are_told_with_their_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings(home, "git:\n  credentials:\n    github.com: token\n")
    assert "settings.yaml:3: git.credentials.github.com: must be 'gh', 'helper' or 'none', not 'token'" in said(
        capsys, "git", "add", "https://github.com/acme/app", code=1
    )


def test_submodules_and_lfs_are_refused_unless_one_insists(
    server: GitServer, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.create("acme/art", {".gitattributes": "*.psd filter=lfs diff=lfs merge=lfs -text\n"}, public=True)
    refused = said(capsys, "git", "add", f"{server.url}/acme/art", code=1)
    assert "has files in Git LFS (*.psd), which are not supported" in refused
    assert "art is registered" in said(capsys, "git", "add", f"{server.url}/acme/art", "--no-check")
