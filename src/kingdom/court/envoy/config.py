"""``config/envoy.yaml``: where people are told things, and who may answer."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field, StringConstraints, field_validator

from kingdom.court.config.section import EnvName, Section
from kingdom.court.errors import InvalidConfig
from kingdom.yamlfile import YamlProblem, load_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.court.home import Home

FILE: Final = "envoy.yaml"
UserId = Annotated[str, StringConstraints(pattern=r"^([UW][A-Z0-9]{2,30}|\*)$")]


class SlackSection(Section):
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


class EnvoyConfig(Section):
    """The whole file."""

    console: bool | None = None
    """Whether messages are also told on the console; left out: only when Slack is not used."""
    slack: SlackSection = Field(default_factory=SlackSection)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The two tokens of a Slack app."""

    bot: str = field(repr=False)
    app: str = field(repr=False)


def load_envoy(home: Home) -> EnvoyConfig:
    """Read ``config/envoy.yaml``. Raises :class:`InvalidConfig` with every problem, its file and its line."""
    path = home.config / FILE
    try:
        return load_yaml(path, EnvoyConfig) if path.exists() else EnvoyConfig()
    except YamlProblem as error:
        raise InvalidConfig(str(error)) from None


def slack_tokens(config: SlackSection, environment: Mapping[str, str] = os.environ) -> Tokens | None:
    """The tokens, when Slack is to be used. Raises :class:`InvalidConfig` when it should be, but one is missing."""
    if config.enabled is False:
        return None
    names = (config.bot_token_env, config.app_token_env)
    found = [environment.get(name, "").strip() for name in names]
    missing = [name for name, token in zip(names, found, strict=True) if not token]
    if missing and config.enabled:
        raise InvalidConfig(
            f"{FILE}: Slack needs two tokens, but the environment has no {' and no '.join(missing)}: "
            "kingdom connect slack tells where they come from; slack.enabled: false does without"
        )
    return None if missing else Tokens(*found)
