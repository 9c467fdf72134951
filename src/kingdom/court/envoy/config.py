"""The envoy's configuration (`config/envoy.yaml`) and the manifest of its Slack app."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field, StringConstraints, field_validator

from kingdom.base.forms import form
from kingdom.base.yamlfile import YamlProblem, load_yaml
from kingdom.court.config_parts import ConfigSection, EnvName
from kingdom.court.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.court.home import Home


ENVOY_FILE: Final = "envoy.yaml"
UserId = Annotated[
    str,
    StringConstraints(pattern=form(r"^([UW][A-Z0-9]{2,30}|\*)$", "the id of a Slack user, such as U012AB3CD, or *")),
]
BOT_SCOPES: Final = {
    "app_mentions:read": "receive mentions",
    "channels:history": "read replies in threads, and find its own posts",
    "channels:read": "find channels by name",
    "chat:write": "post messages",
    "groups:history": "read replies in private channels",
    "groups:read": "find private channels by name",
    "im:history": "read direct messages",
    "im:read": "list direct messages",
    "im:write": "send direct messages",
    "reactions:write": "show the progress of a task",
    "users:read": "show the names of users",
}
"""The scopes that the bot token needs, and what each is needed for."""
OPTIONAL_SCOPES: Final = frozenset({"groups:history", "groups:read", "im:read", "reactions:write", "users:read"})
"""Scopes that the envoy can do without."""
BOT_EVENTS: Final = ("app_mention", "message.channels", "message.groups", "message.im")


class SlackSection(ConfigSection):
    """Slack."""

    enabled: bool | None = None
    """Whether Slack is used. Default: if both tokens are in the environment."""
    bot_token_env: EnvName = "SLACK_BOT_TOKEN"  # noqa: S105 - a name
    """The environment variable that holds the bot token (xoxb-…)."""
    app_token_env: EnvName = "SLACK_APP_TOKEN"  # noqa: S105 - a name
    """The environment variable that holds the app-level token (xapp-…)."""
    channel: str = ""
    """The channel of messages that name none. Default: the channel of system.yaml."""
    users: list[UserId] = Field(default_factory=list)
    """The ids of the users who may give tasks and answer questions; "*" means everybody in the workspace. Rules of
    trust.yaml take precedence; users named in neither are ignored."""
    reactions: bool = True
    """Whether reactions on a message show the progress of its task."""
    posts_per_second: float = Field(default=1.0, gt=0, le=20)
    """The maximum rate of posts in one channel."""
    coalesce_seconds: float = Field(default=60.0, ge=0, le=3600)
    """An update within this time after another one in its thread is added to that post; 0 turns this off."""
    api_url: str = "https://slack.com/api/"
    """The address of Slack's Web API."""

    @field_validator("api_url")
    @classmethod
    def _a_url(cls, url: str) -> str:
        if not url.startswith(("https://", "http://127.0.0.1", "http://localhost")):
            raise ValueError("must begin with https://, because tokens are sent there")
        return url


class EnvoyConfig(ConfigSection):
    """The whole file."""

    console: bool | None = None
    """Whether messages are also written to the console. Default: only if Slack is not used."""
    slack: SlackSection = Field(default_factory=SlackSection)


@dataclass(frozen=True, slots=True)
class SlackTokens:
    """The two tokens of a Slack app."""

    bot: str = field(repr=False)
    app: str = field(repr=False)


def load_envoy(home: Home) -> EnvoyConfig:
    """Read ``config/envoy.yaml``. Raises :class:`InvalidConfig` that lists every problem with its file and line."""
    path = home.config / ENVOY_FILE
    try:
        return load_yaml(path, EnvoyConfig) if path.exists() else EnvoyConfig()
    except YamlProblem as error:
        raise InvalidConfig(str(error)) from None


def slack_tokens(config: SlackSection, environment: Mapping[str, str] = os.environ) -> SlackTokens | None:
    """Return the tokens if Slack is used. Raises :class:`InvalidConfig` if it is enabled and a token is missing."""
    if config.enabled is False:
        return None
    names = (config.bot_token_env, config.app_token_env)
    found = [environment.get(name, "").strip() for name in names]
    missing = [name for name, token in zip(names, found, strict=True) if not token]
    if missing and config.enabled:
        raise InvalidConfig(
            f"{ENVOY_FILE}: Slack is enabled, but not set in the environment: {', '.join(missing)}. "
            "Run kingdom connect slack to see how to get the tokens, or set slack.enabled: false"
        )
    return None if missing else SlackTokens(*found)


def app_manifest(name: str) -> dict[str, Any]:
    """Return the app manifest, to be pasted at api.slack.com ("Create New App, From a manifest")."""
    return {
        "display_information": {
            "name": name[:35],
            "description": "AI teammates: follow their work, and answer their questions",
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
