"""``config/sentinel.yaml``: which sources are watched, and how. A source without a section is not watched.

Tokens never stand in the file: it names the environment variables that hold them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from kingdom.base.yamlfile import YamlProblem, load_yaml
from kingdom.court.config import ConfigSection, EnvName
from kingdom.court.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.court.home import Home

SENTINEL_FILE: Final = "sentinel.yaml"
HOOK_NAME_PATTERN: Final = r"^[a-z0-9_]{1,60}$"
_LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "::1")
_ORDER_BY: Final = re.compile(r"\border\s+by\b", re.IGNORECASE)


def _safe_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError(f"{url!r:.100} is not a URL: write it as https://host")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK_HOSTS:
        raise ValueError("the token would travel in the clear: use https")
    if parts.password is not None or parts.username is not None:
        raise ValueError("a password does not belong in a file: name the environment variable that holds the token")
    return url.rstrip("/")


def _reject_order_by(jql: str) -> str:
    if _ORDER_BY.search(jql):
        raise ValueError("leave ORDER BY out: tickets are read in the order in which they changed")
    return jql


def _reject_reserved_name(name: str) -> str:
    if name in ("github", "jira"):
        raise ValueError(f"{name} has a section of its own: webhooks.{name}")
    return name


Url = Annotated[str, AfterValidator(_safe_url)]
RepoName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.\-]+/[A-Za-z0-9_.\-]+$", max_length=200)]
RepoPattern = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.\-*?]+/[A-Za-z0-9_.\-*?]+$", max_length=200)]
ProjectKey = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]+$", max_length=50)]
HookName = Annotated[str, StringConstraints(pattern=HOOK_NAME_PATTERN), AfterValidator(_reject_reserved_name)]
TypePattern = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)*(\.\*)?$", max_length=200)]


class SourceSection(ConfigSection):
    """What all sources that are asked over the network share."""

    enabled: bool = True
    interval_seconds: float = Field(default=60.0, ge=1, le=86400)
    """Seconds between two looks. A source may ask for more."""
    lookback_hours: float = Field(default=1.0, ge=0, le=24 * 30)
    """How far back the very first look goes."""
    ignore: list[TypePattern] = Field(default_factory=list)
    """Types of events that are left out."""


class GitHubSection(SourceSection):
    """GitHub, or a GitHub Enterprise server."""

    url: Url = "https://api.github.com"
    token_env: EnvName = "GITHUB_TOKEN"  # noqa: S105 - the name of a variable
    login: str | None = Field(default=None, min_length=1, max_length=100)
    """Whose ears these are. None: the owner of the token."""
    notifications: bool = True
    """Read the account's notifications. Only classic tokens may."""
    repos: list[RepoName] = Field(default_factory=list)
    """Repositories whose issues and pull requests are read, whoever they concern. Any token may."""
    only_repos: list[RepoPattern] = Field(default_factory=list)
    """Notifications of other repositories are left alone."""
    exclude_repos: list[RepoPattern] = Field(default_factory=list)
    teams: list[str] = Field(default_factory=list)
    """Teams (``org/team``) for which a review request or a mention counts as one for this account."""
    own_accounts: list[str] = Field(default_factory=list)
    """Further accounts that act for us: what they do is no event."""
    for_anyone: bool = False
    """Review requests and assignments to other people are events, too."""
    mark_read: bool = True
    """Mark notifications as read once their events are in the queue."""
    full_read_every: int = Field(default=10, ge=1, le=1000)
    """Every so many looks everything is read, whatever the server says about what has changed."""

    @model_validator(mode="after")
    def _something_to_read(self) -> GitHubSection:
        if self.enabled and not self.notifications and not self.repos:
            raise ValueError("nothing to watch: set notifications: true, or name repositories under repos")
        return self


class JiraSection(SourceSection):
    """Jira Cloud."""

    url: Url
    email: str | None = Field(default=None, min_length=3, max_length=200)
    """The account the token belongs to ..."""
    email_env: EnvName = "JIRA_EMAIL"
    """... or the variable that holds it."""
    token_env: EnvName = "JIRA_API_TOKEN"  # noqa: S105 - the name of a variable
    projects: list[ProjectKey] = Field(default_factory=list)
    """Whose tickets are watched. None and no jql: those assigned to or watched by this account."""
    jql: Annotated[str, AfterValidator(_reject_order_by)] | None = Field(default=None, min_length=1, max_length=2000)
    """A narrower choice of tickets, without ORDER BY."""
    repos: dict[ProjectKey, RepoName] = Field(default_factory=dict)
    """The repository that tickets of a project are about."""
    own_accounts: list[str] = Field(default_factory=list)
    """Further account ids that act for us: what they do is no event."""
    ignore_fields: list[str] = Field(default_factory=lambda: ["Rank"])
    """Fields whose changes are no news."""
    overlap_minutes: float = Field(default=10.0, ge=1, le=1440)
    """How far every look goes back before the last one: the search index is behind the tickets."""


class LocalSection(ConfigSection):
    """A folder of this machine: a JSON file put into it is an event."""

    enabled: bool = True
    folder: str = Field(default="inbox", min_length=1, max_length=1000)
    """Below the home, unless it begins with /."""
    interval_seconds: float = Field(default=10.0, ge=0.1, le=3600)
    """How often it is looked at where the system does not tell of new files."""


class GitHubWebhook(ConfigSection):
    """What GitHub sends when something happens."""

    secret_env: EnvName = "GITHUB_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
    """The variable that holds the secret it is signed with."""
    login: str | None = Field(default=None, min_length=1, max_length=100)
    """Whose ears these are where GitHub is not watched; where it is, it is looked at instead."""


class JiraWebhook(ConfigSection):
    """What Jira sends when something happens."""

    secret_env: EnvName = "JIRA_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
    """The variable that holds the secret: it signs the request, or stands in its header X-Kingdom-Token."""
    account_id: str | None = Field(default=None, min_length=1, max_length=200)
    """Whose ears these are where Jira is not watched; where it is, it is looked at instead."""


class GenericWebhook(ConfigSection):
    """What any other program sends."""

    token_env: EnvName
    """The variable that holds the token, which stands in the header Authorization (Bearer) or X-Kingdom-Token."""


class WebhooksSection(ConfigSection):
    """What is told over HTTP, at ``/hooks/…`` of the web server. What has no section is refused."""

    github: GitHubWebhook | None = None
    jira: JiraWebhook | None = None
    generic: dict[HookName, GenericWebhook] = Field(default_factory=dict)
    """Others, by their names."""


class SentinelConfig(ConfigSection):
    """The whole file."""

    github: GitHubSection | None = None
    jira: JiraSection | None = None
    local: LocalSection | None = None
    webhooks: WebhooksSection = Field(default_factory=WebhooksSection)


@dataclass(frozen=True, slots=True)
class LoadedSentinelConfig:
    """What came of reading the file."""

    config: SentinelConfig
    problem: str | None = None


class SentinelConfigFile:
    """Reads the file again whenever it changed. A mistake in it is told, and what held before goes on."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._seen: tuple[int, int, int] | None = None
        self._loaded = LoadedSentinelConfig(SentinelConfig())

    def load(self) -> LoadedSentinelConfig:
        """The settings that hold now."""
        seen = _file_signature(self._home)
        if seen != self._seen:
            self._seen = seen
            try:
                self._loaded = LoadedSentinelConfig(load_sentinel(self._home))
            except InvalidConfig as error:
                self._loaded = LoadedSentinelConfig(self._loaded.config, str(error))
        return self._loaded


def load_sentinel(home: Home) -> SentinelConfig:
    """Read ``config/sentinel.yaml``; without it nothing is watched.

    Raises :class:`InvalidConfig` with every problem, its file and its line.
    """
    path = home.config / SENTINEL_FILE
    if not path.exists():
        return SentinelConfig()
    try:
        return load_yaml(path, SentinelConfig)
    except YamlProblem as error:
        raise InvalidConfig(str(error)) from None


def read_secret(variable: str, what: str, environment: Mapping[str, str] | None = None) -> str:
    """The value of an environment variable; :class:`InvalidConfig` when it is not set."""
    value = (os.environ if environment is None else environment).get(variable, "").strip()
    if not value:
        raise InvalidConfig(f"{what}: the environment variable {variable} is not set: put the token into it")
    if not value.isprintable() or not value.isascii():
        raise InvalidConfig(f"{what}: {variable} has characters that no token has: copy it again")
    return value


def _file_signature(home: Home) -> tuple[int, int, int]:
    try:
        found = (home.config / SENTINEL_FILE).stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)
