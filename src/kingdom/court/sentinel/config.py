"""``config/sentinel.yaml``: which sources are watched, and how. A source without a section is not watched.

The file never contains tokens. It names the environment variables that hold them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from kingdom.base.files import ChangeDetector
from kingdom.base.forms import form
from kingdom.base.yamlfile import YamlProblem, load_yaml
from kingdom.court.config_parts import ConfigSection, EnvName
from kingdom.court.errors import InvalidConfig
from kingdom.court.patterns import type_matches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.court.home import Home

SENTINEL_FILE: Final = "sentinel.yaml"
HOOK_NAME_PATTERN: Final = r"^[a-z0-9_]{1,60}$"
_LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "::1")
_ORDER_BY: Final = re.compile(r"\border\s+by\b", re.IGNORECASE)
RepoName = Annotated[
    str,
    StringConstraints(
        pattern=form(r"^[A-Za-z0-9_.\-]+/[A-Za-z0-9_.\-]+$", "owner/name, such as acme/shop"), max_length=200
    ),
]
RepoPattern = Annotated[
    str,
    StringConstraints(
        pattern=form(r"^[A-Za-z0-9_.\-*?]+/[A-Za-z0-9_.\-*?]+$", "owner/name, also with *, such as acme/*"),
        max_length=200,
    ),
]
ProjectKey = Annotated[
    str,
    StringConstraints(
        pattern=form(r"^[A-Z][A-Z0-9_]+$", "the key of a project in capitals, such as SHOP"), max_length=50
    ),
]
TypePattern = Annotated[
    str,
    StringConstraints(
        pattern=form(r"^[a-z0-9_]+(\.[a-z0-9_]+)*(\.\*)?$", "an event type, also with .*, such as github.pr.*"),
        max_length=200,
    ),
]


def _safe_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError(f"{url!r:.100} is not a URL: write it as https://host")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK_HOSTS:
        raise ValueError("the token would be sent unencrypted: use https")
    if parts.password is not None or parts.username is not None:
        raise ValueError("do not put a password into the URL: name the environment variable that holds the token")
    return url.rstrip("/")


def _reject_order_by(jql: str) -> str:
    if _ORDER_BY.search(jql):
        raise ValueError("remove ORDER BY: tickets are read in the order of their last update")
    return jql


def _reject_reserved_name(name: str) -> str:
    if name in ("github", "jira"):
        raise ValueError(f"{name} is reserved: configure it as webhooks.{name}")
    return name


Url = Annotated[str, AfterValidator(_safe_url)]
HookName = Annotated[
    str,
    StringConstraints(pattern=form(HOOK_NAME_PATTERN, "small letters, digits and _, such as ci")),
    AfterValidator(_reject_reserved_name),
]


class SourceSection(ConfigSection):
    """Settings shared by the sources that are polled over the network."""

    enabled: bool = True
    interval_seconds: float = Field(default=60.0, ge=1, le=86400)
    """Seconds between two polls. The source may ask for more."""
    lookback_hours: float = Field(default=1.0, ge=0, le=24 * 30)
    """How far back the very first poll goes."""
    ignore: list[TypePattern] = Field(default_factory=list)
    """Event types that are not emitted."""

    def ignores(self, event_type: str) -> bool:
        return any(type_matches(pattern, event_type) for pattern in self.ignore)


class GitHubSection(SourceSection):
    """GitHub, or a GitHub Enterprise server."""

    url: Url = "https://api.github.com"
    token_env: EnvName = "GITHUB_TOKEN"  # noqa: S105 - the name of a variable
    login: str | None = Field(default=None, min_length=1, max_length=100)
    """The account to listen for. None: the owner of the token."""
    notifications: bool = True
    """Read the account's notifications. Requires a classic token."""
    repos: list[RepoName] = Field(default_factory=list)
    """Repositories whose issues and pull requests are all read. Works with any token."""
    only_repos: list[RepoPattern] = Field(default_factory=list)
    """If set, notifications of other repositories are ignored."""
    exclude_repos: list[RepoPattern] = Field(default_factory=list)
    teams: list[str] = Field(default_factory=list)
    """Teams (``org/team``) whose review requests and mentions count as ones for this account."""
    own_accounts: list[str] = Field(default_factory=list)
    """Further accounts that act for the court. Their actions do not become events."""
    for_anyone: bool = False
    """Review requests and assignments for other people become events, too."""
    checks: bool = True
    """Read the failed checks of the open pull requests of this account and ``own_accounts``, every five minutes."""
    mark_read: bool = True
    """Mark notifications as read once their events are in the queue."""
    full_read_every: int = Field(default=10, ge=1, le=1000)
    """Every so many polls read everything, regardless of what the server reports as changed."""

    def watches(self, repo: str) -> bool:
        """Return whether events of a repository are wanted."""
        return self.lists(repo) or (self.notifications and self.wants_notifications_of(repo))

    def lists(self, repo: str) -> bool:
        return repo.lower() in (name.lower() for name in self.repos)

    def wants_notifications_of(self, repo: str) -> bool:
        wanted = not self.only_repos or _matches_any(repo, self.only_repos)
        return wanted and not _matches_any(repo, self.exclude_repos)

    @model_validator(mode="after")
    def _something_to_read(self) -> GitHubSection:
        if self.enabled and not self.notifications and not self.repos:
            raise ValueError("nothing to watch: set notifications: true, or list repositories under repos")
        return self


def _matches_any(repo: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(repo.lower(), pattern.lower()) for pattern in patterns)


class JiraSection(SourceSection):
    """Jira Cloud."""

    url: Url
    email: str | None = Field(default=None, min_length=3, max_length=200)
    """The email address of the token's account."""
    email_env: EnvName = "JIRA_EMAIL"
    """The variable that holds the email address, if ``email`` is not set."""
    token_env: EnvName = "JIRA_API_TOKEN"  # noqa: S105 - the name of a variable
    projects: list[ProjectKey] = Field(default_factory=list)
    """The watched projects. If empty and without jql: the tickets that the account is assigned to or watches."""
    jql: Annotated[str, AfterValidator(_reject_order_by)] | None = Field(default=None, min_length=1, max_length=2000)
    """A further restriction of the tickets, without ORDER BY."""
    repos: dict[ProjectKey, RepoName] = Field(default_factory=dict)
    """The repository of each project's tickets."""
    own_accounts: list[str] = Field(default_factory=list)
    """Further account ids that act for the court. Their actions do not become events."""
    ignore_fields: list[str] = Field(default_factory=lambda: ["Rank"])
    """Fields whose changes do not become events."""
    overlap_minutes: float = Field(default=10.0, ge=1, le=1440)
    """How far each poll reaches back before the last one: the search index lags behind the tickets."""


class LocalSection(ConfigSection):
    """A local folder: each JSON file put into it becomes an event."""

    enabled: bool = True
    folder: str = Field(default="inbox", min_length=1, max_length=1000)
    """A path below the home, or an absolute path."""
    interval_seconds: float = Field(default=10.0, ge=0.1, le=3600)
    """Seconds between two checks of the folder, where the system does not report new files."""


class GitHubWebhook(ConfigSection):
    """Webhooks of GitHub."""

    secret_env: EnvName = "GITHUB_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
    """The variable that holds the secret of the signatures."""
    login: str | None = Field(default=None, min_length=1, max_length=100)
    """The account to listen for, if GitHub is not polled. If it is polled, a webhook only triggers a poll."""


class JiraWebhook(ConfigSection):
    """Webhooks of Jira."""

    secret_env: EnvName = "JIRA_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
    """The variable that holds the secret. It signs the request, or is sent as the header X-Kingdom-Token."""
    account_id: str | None = Field(default=None, min_length=1, max_length=200)
    """The account to listen for, if Jira is not polled. If it is polled, a webhook only triggers a poll."""


class GenericWebhook(ConfigSection):
    """Webhooks of any other program."""

    token_env: EnvName
    """The variable that holds the token. It is sent in the header Authorization (Bearer) or X-Kingdom-Token."""


class WebhooksSection(ConfigSection):
    """Webhooks, received at ``/hooks/…`` of the web server. A webhook without a section is refused."""

    github: GitHubWebhook | None = None
    jira: JiraWebhook | None = None
    generic: dict[HookName, GenericWebhook] = Field(default_factory=dict)
    """Other webhooks, by name."""


class SentinelConfig(ConfigSection):
    """The whole file."""

    github: GitHubSection | None = None
    jira: JiraSection | None = None
    local: LocalSection | None = None
    webhooks: WebhooksSection = Field(default_factory=WebhooksSection)


@dataclass(frozen=True, slots=True)
class LoadedSentinelConfig:
    """The configuration, and the problem of the last read if there was one."""

    config: SentinelConfig
    problem: str | None = None


class SentinelConfigFile:
    """Reads the file again when it changes. If the new version is invalid, the old configuration stays in force."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._changes = ChangeDetector(home.config / SENTINEL_FILE)
        self._loaded = LoadedSentinelConfig(SentinelConfig())

    def load(self) -> LoadedSentinelConfig:
        if self._changes.changed():
            try:
                self._loaded = LoadedSentinelConfig(load_sentinel(self._home))
            except InvalidConfig as error:
                self._loaded = LoadedSentinelConfig(self._loaded.config, str(error))
        return self._loaded


def load_sentinel(home: Home) -> SentinelConfig:
    """Read ``config/sentinel.yaml``; without the file nothing is watched.

    Raises :class:`InvalidConfig` that lists every problem with its file and line.
    """
    path = home.config / SENTINEL_FILE
    if not path.exists():
        return SentinelConfig()
    try:
        return load_yaml(path, SentinelConfig)
    except YamlProblem as error:
        raise InvalidConfig(str(error)) from None


def read_secret(variable: str, what: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the value of an environment variable. Raises :class:`InvalidConfig` if it is not set."""
    value = (os.environ if environment is None else environment).get(variable, "").strip()
    if not value:
        raise InvalidConfig(f"{what}: the environment variable {variable} is not set")
    if not value.isprintable() or not value.isascii():
        raise InvalidConfig(f"{what}: {variable} contains characters that no token has: copy the token again")
    return value
