"""``kingdom connect``: check what the court hears with, and say what to mend."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.connect_slack import slack
from kingdom.cli.home import HomeOption, errors_told, find_home

if TYPE_CHECKING:
    from kingdom.court.sentinel.checking import Finding

app = typer.Typer(help="Check the tokens of GitHub, Jira and Slack, and what they can see.")
_SIGNS: Final = {"ok": "ok", "warning": "warning", "error": "ERROR"}


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    """Check the tokens of GitHub, Jira and Slack, and what they can see."""
    output.help_when_alone(context)


@app.command()
def github(home: HomeOption = None, json: Json = False) -> None:
    """Check the GitHub token: whose it is, its scopes, notifications, and each repository that is watched."""
    from kingdom.court.sentinel.checking import check_github
    from kingdom.court.sentinel.config import GitHubSection, load_sentinel

    found = find_home(home)
    with errors_told():
        section = load_sentinel(found).github
    missing = None if section else "there is no github section in config/sentinel.yaml yet: nothing is watched"
    tell("github", lambda clock: check_github(section or GitHubSection(), clock), missing, as_json=json)


@app.command()
def jira(home: HomeOption = None, json: Json = False) -> None:
    """Check the Jira token: whose it is, and which tickets it can see."""
    from kingdom.court.sentinel.checking import check_jira
    from kingdom.court.sentinel.config import load_sentinel

    found = find_home(home)
    with errors_told():
        section = load_sentinel(found).jira
    if section is None:
        raise output.Failure(
            "NOT_CONFIGURED", "there is no jira section in config/sentinel.yaml: remove the # before it and set its url"
        )
    tell("jira", lambda clock: check_jira(section, clock), None, as_json=json)


app.command()(slack)


def tell(
    source: str,
    check: Callable[[Callable[[], float]], Awaitable[list[Finding]]],
    missing: str | None,
    *,
    as_json: bool,
) -> None:
    """Run the checks of a source and tell what they found; ``missing`` says what the configuration lacks."""
    import asyncio
    import time

    from kingdom.court.sentinel.checking import Finding

    async def run() -> list[Finding]:
        return await check(time.time)

    findings = asyncio.run(run())
    if missing is not None:
        findings.append(Finding("warning", missing, f"remove the # before {source}: there"))
    if as_json:
        output.emit({"source": source, "findings": [finding._asdict() for finding in findings]})
    else:
        for finding in findings:
            output.say(f"{_SIGNS[finding.level]:<8} {finding.text}")
            if finding.fix:
                output.say(f"{'':<8} → {finding.fix}")
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(output.FAILED)
