"""The envoy's configuration (`config/envoy.yaml`) and the manifest of its Slack app."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field, StringConstraints, field_validator

from kingdom.base.yamlfile import YamlProblem, load_yaml
from kingdom.court.config import ConfigSection, EnvName
from kingdom.court.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.court.home import Home


# ``config/envoy.yaml``: where people are told things, and who may answer.


ENVOY_FILE: Final = "envoy.yaml"
UserId = Annotated[str, StringConstraints(pattern=r"^([UW][A-Z0-9]{2,30}|\*)$")]


class SlackSection(ConfigSection):
    """Slack."""

    enabled: bool | None = None
    """Whether Slack is used; left out: when both tokens are in the environment."""
    bot_token_env: EnvName = "SLACK_BOT_TOKEN"  # noqa: S105 - a name
    """The environment variable that holds the bot token (xoxb-…)."""
    app_token_env: EnvName = "SLACK_APP_TOKEN"  # noqa: S105 - a name
    """The environment variable that holds the app-level token (xapp-…)."""
    channel: str = ""
    """Where messages go that name no channel; left out: the channel of system.yaml."""
    users: list[UserId] = Field(default_factory=list)
    """The ids of those who may ask and answer. "*": everybody in the workspace. Rules of trust.yaml come first; who is
    named in neither is not heard."""
    reactions: bool = True
    """Whether a message shows by its reactions how far its task is."""
    posts_per_second: float = Field(default=1.0, gt=0, le=20)
    """How fast it may speak in one channel."""
    coalesce_seconds: float = Field(default=60.0, ge=0, le=3600)
    """An update so soon after another one in a thread is added to that one. 0: never."""
    api_url: str = "https://slack.com/api/"
    """Where the Web API is."""

    @field_validator("api_url")
    @classmethod
    def _a_url(cls, url: str) -> str:
        if not url.startswith(("https://", "http://127.0.0.1", "http://localhost")):
            raise ValueError("must begin with https://: tokens are sent there")
        return url


class EnvoyConfig(ConfigSection):
    """The whole file."""

    console: bool | None = None
    """Whether messages are also told on the console; left out: only when Slack is not used."""
    slack: SlackSection = Field(default_factory=SlackSection)


@dataclass(frozen=True, slots=True)
class SlackTokens:
    """The two tokens of a Slack app."""

    bot: str = field(repr=False)
    app: str = field(repr=False)


def load_envoy(home: Home) -> EnvoyConfig:
    """Read ``config/envoy.yaml``. Raises :class:`InvalidConfig` with every problem, its file and its line."""
    path = home.config / ENVOY_FILE
    try:
        return load_yaml(path, EnvoyConfig) if path.exists() else EnvoyConfig()
    except YamlProblem as error:
        raise InvalidConfig(str(error)) from None


def slack_tokens(config: SlackSection, environment: Mapping[str, str] = os.environ) -> SlackTokens | None:
    """The tokens, when Slack is to be used. Raises :class:`InvalidConfig` when it should be, but one is missing."""
    if config.enabled is False:
        return None
    names = (config.bot_token_env, config.app_token_env)
    found = [environment.get(name, "").strip() for name in names]
    missing = [name for name, token in zip(names, found, strict=True) if not token]
    if missing and config.enabled:
        raise InvalidConfig(
            f"{ENVOY_FILE}: Slack needs two tokens, but the environment has no {' and no '.join(missing)}: "
            "kingdom connect slack tells where they come from; slack.enabled: false does without"
        )
    return None if missing else SlackTokens(*found)


# The Slack app that the envoy needs, as Slack wants it described.


BOT_SCOPES: Final = {
    "app_mentions:read": "hear when it is mentioned",
    "channels:history": "hear replies in threads, and find its own posts again",
    "channels:read": "find channels by their names",
    "chat:write": "say something",
    "groups:history": "the same in private channels",
    "groups:read": "the same in private channels",
    "im:history": "hear direct messages",
    "im:read": "know direct messages",
    "im:write": "write to a person",
    "reactions:write": "show how far a task is",
    "users:read": "show the names of the users on the list",
}
"""What the bot token must be allowed, and what for."""
OPTIONAL_SCOPES: Final = frozenset({"groups:history", "groups:read", "im:read", "reactions:write", "users:read"})
"""What can be done without."""
BOT_EVENTS: Final = ("app_mention", "message.channels", "message.groups", "message.im")


def app_manifest(name: str) -> dict[str, Any]:
    """The manifest to paste at api.slack.com, for a new app "from a manifest"."""
    return {
        "display_information": {
            "name": name[:35],
            "description": "AI teammates: what they do, what they ask, and where to answer",
        },
        "features": {
            "app_home": {
                "home_tab_enabled": False,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": name[:80], "always_online": True},
        },
        "oauth_config": {"scopes": {"bot": list(BOT_SCOPES)}},
        "settings": {
            "event_subscriptions": {"bot_events": list(BOT_EVENTS)},
            "interactivity": {"is_enabled": True},
            "org_deploy_enabled": False,
            "socket_mode_enabled": True,
            "token_rotation_enabled": False,
        },
    }
