"""The checks of ``kingdom connect slack``: do the tokens work, what may they do, and what can they see?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from kingdom.court.envoy.config import BOT_SCOPES, OPTIONAL_SCOPES
from kingdom.court.envoy.port import TryLater
from kingdom.court.envoy.slack.api import SlackApi, SlackError, SlackRefused
from kingdom.court.envoy.slack.context import find_channel
from kingdom.court.request_threads import SHIPPED_GENERAL, untaken_warning
from kingdom.court.sentinel.checks import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kingdom.court.config import SystemConfig
    from kingdom.court.envoy.config import SlackSection, SlackTokens

_APPS_URL: Final = "https://api.slack.com/apps"


async def check_slack(
    config: SlackSection,
    system: SystemConfig,
    tokens: SlackTokens,
    clock: Callable[[], float],
    untaken: Sequence[str] = (),
) -> list[Finding]:
    """Try what the envoy does, without posting anything. ``untaken`` are types of events that no general takes."""
    kinds = _check_token_prefixes(config, tokens)
    if kinds:
        return kinds
    api = SlackApi(tokens, config.api_url, clock)
    try:
        findings = await _check_account(api, config)
        if not any(found.level == "error" for found in findings):
            findings.append(await _check_socket(api, config))
            findings.append(await _check_channel(api, config.channel or system.channel))
            findings += await _check_users(api, config)
            findings += _check_requests(untaken)
    except (SlackError, TryLater) as error:
        return [Finding("error", str(error), f"check the address {config.api_url} and this machine's network")]
    finally:
        await api.close()
    if config.enabled is False:
        findings.append(Finding("warning", "Slack is not used: slack.enabled is false in config/envoy.yaml"))
    return findings


def _check_token_prefixes(config: SlackSection, tokens: SlackTokens) -> list[Finding]:
    """Check the prefixes of the tokens, because the two are easily swapped."""
    found = []
    for name, token, begin, where in (
        (config.bot_token_env, tokens.bot, "xoxb-", "OAuth & Permissions, Bot User OAuth Token"),
        (config.app_token_env, tokens.app, "xapp-", "Basic Information, App-Level Tokens, with connections:write"),
    ):
        if not token.startswith(begin):
            found.append(Finding("error", f"{name} does not begin with {begin}", f"copy it from {_APPS_URL}: {where}"))
    return found


async def _check_account(api: SlackApi, config: SlackSection) -> list[Finding]:
    try:
        answer = await api.call("auth.test")
    except SlackRefused as error:
        return [
            Finding(
                "error",
                f"{config.bot_token_env} is not accepted: {error.error}",
                f"reinstall the app at {_APPS_URL}",
            )
        ]
    findings = [Finding("ok", f"the bot {answer.get('user')} in the workspace {answer.get('team')}")]
    lacking = [scope for scope in BOT_SCOPES if api.scopes and scope not in api.scopes]
    for scope in lacking:
        level: Literal["warning", "error"] = "warning" if scope in OPTIONAL_SCOPES else "error"
        fix = f"add it at {_APPS_URL}: OAuth & Permissions, and install the app again"
        findings.append(Finding(level, f"the app lacks the scope {scope}, needed to {BOT_SCOPES[scope]}", fix))
    if api.scopes and not lacking:
        findings.append(Finding("ok", "the app has all the scopes it needs"))
    return findings


async def _check_socket(api: SlackApi, config: SlackSection) -> Finding:
    try:
        await api.call("apps.connections.open")
    except SlackRefused as error:
        fix = f"enable Socket Mode at {_APPS_URL}, and create an app-level token with connections:write there"
        return Finding("error", f"{config.app_token_env} cannot open a connection: {error.error}", fix)
    return Finding("ok", "Socket Mode is enabled, and the app-level token can open a connection")


async def _check_channel(api: SlackApi, name: str) -> Finding:
    if not name:
        return Finding("error", "no channel is configured", "set slack.channel in config/envoy.yaml")
    try:
        channel = await find_channel(api, name)
        info = (await api.call("conversations.info", channel=channel)).get("channel") or {}
    except SlackError as error:
        return Finding("error", f"channel {name}: {error}", "invite the app there: /invite @kingdom")
    if not (info.get("is_member") or info.get("is_im")):
        return Finding("error", f"the app is not in {name}", "invite it there: /invite @kingdom")
    return Finding("ok", f"messages go to {name} ({channel}), where the app is a member")


def _check_requests(untaken: Sequence[str]) -> list[Finding]:
    if not untaken:
        return []
    return [Finding("warning", untaken_warning(untaken), f"kingdom general install {SHIPPED_GENERAL}")]


async def _check_users(api: SlackApi, config: SlackSection) -> list[Finding]:
    if not config.users:
        fix = "add user ids to slack.users in config/envoy.yaml (in Slack: profile, ⋮, Copy member ID)"
        text = "slack.users is empty: only people named in config/trust.yaml may give tasks and answer"
        return [Finding("warning", text, fix)]
    if "*" in config.users:
        text = "everybody in the workspace may give tasks and answer"
        return [Finding("warning", text, "list the ids of those who should in slack.users")]
    findings = []
    for user in config.users:
        try:
            name = ((await api.call("users.info", user=user)).get("user") or {}).get("name")
        except SlackRefused as error:
            if error.error == "missing_scope":
                text = f"{len(config.users)} users may give tasks and answer; their names cannot be shown"
                return [Finding("ok", text)]
            findings.append(Finding("error", f"user {user}: {error.error}", "correct or remove the id in slack.users"))
        else:
            findings.append(Finding("ok", f"{name} ({user}) may give tasks and answer"))
    return findings
