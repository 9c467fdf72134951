"""The shipped gen-jira with the real Claude Code and the real Codex: a ticket ends in a pull request."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kingdom.court.home import MARKER
from kingdom.court.init_home import SHIPPED_GENERALS_DIR
from tests.support.cli_courts import GENERAL, Cli, CliCourt, talking
from tests.support.git_server import trusted
from tests.support.github_server import GitHubServer
from tests.support.model_servers import Say
from tests.support.repositories import plain_git

TOKEN = "t0ken-of-the-court"
PACKAGE = SHIPPED_GENERALS_DIR / "gen-jira"


@pytest.fixture(params=["claude", pytest.param("codex", marks=pytest.mark.walk)])
def cli(request: pytest.FixtureRequest) -> Iterator[Cli]:
    with talking(request.param) as found:
        yield found


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubServer]:
    with GitHubServer(tmp_path / "github") as server, trusted(server):
        server.create("acme/shop", {"ls.py": "print('ls')\n"})
        server.grant(TOKEN, "court")
        monkeypatch.setenv("SHOP_TOKEN", TOKEN)
        yield server


@pytest.fixture
def court(tmp_path: Path, cli: Cli, github: GitHubServer, monkeypatch: pytest.MonkeyPatch) -> CliCourt:
    """A court whose general has everything of the package but the name and the engine."""
    shipped = yaml.safe_load((PACKAGE / "manifest.yaml").read_text())
    kept = {name: shipped[name] for name in ("needs_repo", "subscribes", "evidence", "land", "retries")}
    made = CliCourt(tmp_path, cli, monkeypatch, **kept)
    for name in ("prompt.md", "instructions.md"):
        shutil.copy(PACKAGE / name, made.home.general(GENERAL) / name)
    system = json.loads((made.home.root / MARKER).read_text())
    system |= {"repos": {"base_url": github.url}, "git": {"credentials": {github.host: {"env": "SHOP_TOKEN"}}}}
    (made.home.root / MARKER).write_text(json.dumps(system))
    return made


async def test_a_ticket_ends_in_a_pull_request(court: CliCourt, github: GitHubServer) -> None:
    summary = "ls takes --json now. Tested with pytest."
    court.cli.server.script += [
        court.cli.runs("echo 'json = True' >> ls.py"),
        court.cli.runs("git add ls.py"),
        court.cli.runs("git commit -q -m 'SHOP-7 Add --json to ls'"),
        court.leaves("success", summary=summary),
        Say("Done."),
    ]
    async with court.running():
        court.drop("jira.ticket.assigned", repo="acme/shop", ticket_key="SHOP-7", title="Add --json to ls")
        await court.until(lambda: court.documents("events/completed"), "the event completed")
        messages = await court.until(
            lambda: [one for one in court.documents("messages/pending") if "pull/1" in one["content"]], "a message"
        )
    (result,) = court.results()
    (pull,) = github.pulls["acme/shop"]
    assert (result["status"], result["error"], result["links"]) == ("success", None, [pull["html_url"]])
    assert (pull["title"], pull["head"]["ref"]) == ("SHOP-7: Add --json to ls", "kingdom/SHOP-7")
    assert summary in pull["body"]
    assert pull["html_url"] in messages[0]["content"], "people get the link"
    log = plain_git(github.bare("acme/shop"), "log", "--format=%s", "main..kingdom/SHOP-7")
    assert log == "SHOP-7 Add --json to ls"
    told = court.cli.told()
    assert "You implement a ticket" in told
    assert TOKEN not in json.dumps(court.cli.server.requests)
