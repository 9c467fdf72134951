"""``kingdom connect``: check the tokens of GitHub, Jira and Slack."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kingdom.cli import output
from kingdom.cli.options import home_option, json_option
from kingdom.cli.parsing import command, group
from kingdom.cli.session import errors_reported, find_home

if TYPE_CHECKING:
    from kingdom.court.home import Home
    from kingdom.court.sentinel.checks import Finding

_SLACK_STEPS: Final = """\
1. At https://api.slack.com/apps: Create New App, From a manifest, and paste the JSON below.
2. Install it into the workspace; OAuth & Permissions shows the bot token (xoxb-…): {bot}.
3. Basic Information, App-Level Tokens: create one with connections:write (xapp-…): {app}.
4. Put both into the environment of the court, /invite the app into a channel,
   set slack.channel and slack.users in config/envoy.yaml, and run kingdom connect slack again.
"""
_LEVEL_LABELS: Final = {"ok": "ok", "warning": "warning", "error": "ERROR"}


@command()
@home_option
@click.option("--manifest", is_flag=True, help="Only print the app manifest.")
@json_option
def slack(home: Path | None, manifest: bool, json: bool) -> None:
    """Check the Slack tokens.

    Checks their scopes, the channel, and who may answer. Without tokens, prints how to create the app.
    """
    from kingdom.court.config import load_system
    from kingdom.court.envoy.config import app_manifest, load_envoy, slack_tokens

    found = find_home(home)
    with errors_reported():
        config, system = load_envoy(found).slack, load_system(found)
    if manifest:
        output.print_json(app_manifest(system.name))
        return
    tokens = slack_tokens(config.model_copy(update={"enabled": None}))
    if tokens is None:
        _check_env_file(found, config.bot_token_env, config.app_token_env)
        names = f"{config.bot_token_env} and {config.app_token_env}"
        if not json:
            output.say(_SLACK_STEPS.format(bot=config.bot_token_env, app=config.app_token_env))
            output.print_json(app_manifest(system.name))
        raise output.CommandError("NOT_CONFIGURED", f"set {names} in the environment: at least one is missing")
    from kingdom.court.envoy.slack.checks import check_slack
    from kingdom.court.packages.installed import load_generals
    from kingdom.court.request_threads import untaken_requests

    untaken = untaken_requests(general.manifest for general in load_generals(found).by_name.values())
    run_checks("slack", lambda clock: check_slack(config, system, tokens, clock, untaken), None, as_json=json)


def _check_env_file(home: Home, *variables: str) -> None:
    from kingdom.court.environment import unread_env_file

    if (hint := unread_env_file(home, *variables)) is not None:
        raise output.CommandError("NOT_CONFIGURED", hint)


@group("connect")
def app() -> None:
    """Check the tokens of GitHub, Jira and Slack.

    Shows what each token is allowed to see.
    """


@app.command()
@home_option
@json_option
def github(home: Path | None, json: bool) -> None:
    """Check the GitHub token.

    Checks its owner, its scopes, notifications, and each watched repository.
    """
    from kingdom.court.sentinel.checks import check_github
    from kingdom.court.sentinel.config import GitHubSection, load_sentinel

    found = find_home(home)
    with errors_reported():
        section = load_sentinel(found).github
    _check_env_file(found, (section or GitHubSection()).token_env)
    missing = None if section else "config/sentinel.yaml has no github section: nothing is watched"
    run_checks("github", lambda clock: check_github(section or GitHubSection(), clock), missing, as_json=json)


@app.command()
@home_option
@json_option
def jira(home: Path | None, json: bool) -> None:
    """Check the Jira token: its owner and visible tickets."""
    from kingdom.court.sentinel.checks import check_jira
    from kingdom.court.sentinel.config import load_sentinel

    found = find_home(home)
    with errors_reported():
        section = load_sentinel(found).jira
    if section is None:
        raise output.CommandError(
            "NOT_CONFIGURED", "config/sentinel.yaml has no jira section: uncomment it and set its url"
        )
    _check_env_file(found, section.token_env, *([] if section.email else [section.email_env]))
    run_checks("jira", lambda clock: check_jira(section, clock), None, as_json=json)


app.add_command(slack)


def run_checks(
    source: str,
    check: Callable[[Callable[[], float]], Awaitable[list[Finding]]],
    missing: str | None,
    *,
    as_json: bool,
) -> None:
    """Run the checks of a source and print the findings; ``missing`` says what the configuration lacks."""
    import asyncio
    import time

    from kingdom.court.sentinel.checks import Finding

    async def run() -> list[Finding]:
        return await check(time.time)

    findings = asyncio.run(run())
    if missing is not None:
        findings.append(Finding("warning", missing, f"uncomment {source}: there"))
    if as_json:
        output.print_json({"source": source, "findings": [finding._asdict() for finding in findings]})
    else:
        for finding in findings:
            output.say(f"{_LEVEL_LABELS[finding.level]:<8} {finding.text}")
            if finding.fix:
                output.say(f"{'':<8} → {finding.fix}")
    if any(finding.level == "error" for finding in findings):
        raise click.exceptions.Exit(output.FAILED)
