"""``kingdom connect slack``: check the tokens and what they can see; print the app to make."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.home import HomeOption, errors_told, find_home

_STEPS: Final = """\
1. At https://api.slack.com/apps: Create New App, From a manifest, and paste the JSON below.
2. Install it into the workspace; OAuth & Permissions shows the bot token (xoxb-…): {bot}.
3. Basic Information, App-Level Tokens: make one with connections:write (xapp-…): {app}.
4. Put both into the environment of the court, /invite the app into a channel,
   set slack.channel and slack.users in config/envoy.yaml, and run kingdom connect slack again.
"""


def slack(
    home: HomeOption = None,
    manifest: Annotated[bool, typer.Option("--manifest", help="Only print the app manifest to paste.")] = False,
    json: Json = False,
) -> None:
    """Check the Slack tokens: what they may do, the channel, and who may answer. Without tokens: how to get them."""
    from kingdom.cli.connect import tell
    from kingdom.court.config.system import load_system
    from kingdom.court.envoy.config import load_envoy, slack_tokens
    from kingdom.court.envoy.slack.manifest import app_manifest

    found = find_home(home)
    with errors_told():
        config, system = load_envoy(found).slack, load_system(found)
    if manifest:
        output.emit(app_manifest(system.name))
        return
    tokens = slack_tokens(config.model_copy(update={"enabled": None}))
    if tokens is None:
        names = f"{config.bot_token_env} and {config.app_token_env}"
        if not json:
            output.say(_STEPS.format(bot=config.bot_token_env, app=config.app_token_env))
            output.emit(app_manifest(system.name))
        raise output.Failure("NOT_CONFIGURED", f"the environment does not have both {names}")
    try:
        from kingdom.court.envoy.slack.checking import check_slack
    except ModuleNotFoundError as error:
        raise output.Failure(
            "NOT_INSTALLED", f"the package {error.name} is not installed: pip install slack-sdk aiohttp"
        ) from None
    tell("slack", lambda clock: check_slack(config, system, tokens, clock), None, as_json=json)
