"""``config/trust.yaml``: rules that put people into tiers, and what a tier may use.

Without the file, or without a rule in it, everybody whose events are heard may use everything: what a general's
manifest allows is the only limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints, ValidationInfo, field_validator, model_validator

from kingdom.agents.port import Profile
from kingdom.base.yamlfile import YamlProblem, load_yaml
from kingdom.court.config import ConfigSection
from kingdom.court.errors import InvalidConfig

if TYPE_CHECKING:
    from kingdom.court.home import Home

TRUST_FILE: Final = "trust.yaml"
REFUSE: Final = "refuse"
TRUSTED: Final = "trusted"

Association = Literal[
    "OWNER", "MEMBER", "COLLABORATOR", "CONTRIBUTOR", "FIRST_TIME_CONTRIBUTOR", "FIRST_TIMER", "MANNEQUIN", "NONE"
]
SourceName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$", max_length=100)]
TierName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_\-]*$", max_length=60)]
GeneralPattern = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_\-*?]+$", max_length=60)]
RepoPattern = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.\-*?]+/[A-Za-z0-9_.\-*?]+$", max_length=200)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


def _not_reserved(name: str) -> str:
    if name == REFUSE:
        raise ValueError(f"{REFUSE!r} is the word for no tier at all: choose another name")
    return name


def _known_tier(tier: str, info: ValidationInfo) -> str:
    """``load_trust`` has the names of the tiers noted in the context, so that a mistake is told with its line."""
    known = (info.context or {}).get("tiers")
    if known is not None and tier not in (*known, TRUSTED, REFUSE):
        raise ValueError(f"no tier {tier!r:.60}: there are {', '.join((*known, TRUSTED, REFUSE))}")
    return tier


TierChoice = Annotated[TierName, AfterValidator(_known_tier)]


class Tier(ConfigSection):
    """What somebody may use. Nothing here gives a general more than its manifest does."""

    generals: list[GeneralPattern] | None = None
    """The generals that may be used (``*`` and ``?`` as in a shell). None: all."""
    profile: Profile = "full"
    """What agents may do at most: ``read``, ``edit`` or ``full``."""
    sandbox: bool = False
    """Only agents that the operating system confines: Codex in the profiles read and edit, and ``sandboxed``."""
    mcp: bool = True
    """Whether agents get the MCP servers of the manifest."""


class TrustRule(ConfigSection):
    """Puts people into a tier. All that it names must hold; of a list, one."""

    source: SourceName | None = None
    """Where an event comes from: ``github``, ``jira``, ``slack``, ``webhook_ci`` … None: anywhere outside."""
    users: list[Name] = Field(default_factory=list)
    """Who caused it: GitHub logins, Slack member ids, Jira account ids. Case does not matter."""
    associations: list[Association] = Field(default_factory=list)
    """What GitHub says they are to the repository. Needs ``repos``: everybody owns some repository."""
    repos: list[RepoPattern] = Field(default_factory=list)
    """In these repositories (``acme/*``)."""
    channels: list[Name] = Field(default_factory=list)
    """In these Slack channels, by their ids."""
    tier: TierChoice
    """The tier they are in, ``trusted`` (no limits), or ``refuse``."""

    @model_validator(mode="after")
    def _in_repositories(self) -> TrustRule:
        if self.associations and not self.repos:
            raise ValueError("associations need repos (as [acme/*]): anybody is the OWNER of some repository")
        return self


class TrustConfig(ConfigSection):
    """The whole file."""

    tiers: dict[Annotated[TierName, AfterValidator(_not_reserved)], Tier] = Field(default_factory=dict)
    """What each tier may use, by its name. ``trusted`` is always there, without limits."""
    rules: list[TrustRule] = Field(default_factory=list)
    """Who is in which tier. The first rule that fits decides."""
    default: TierChoice | None = None
    """The tier of everybody else. None: ``refuse`` when there are rules, else ``trusted``."""
    sandboxed: list[Name] = Field(default_factory=list)
    """Engines that you run in a sandbox of your own, by a wrapper in system.yaml or in a container."""

    @field_validator("tiers", mode="before")
    @classmethod
    def _note_names(cls, tiers: Any, info: ValidationInfo) -> Any:
        """Before they are checked: a mistake in a tier is no mistake of the rules that name it."""
        if info.context is not None and isinstance(tiers, dict):
            info.context["tiers"] = [str(name) for name in tiers if name != TRUSTED]
        return tiers

    @property
    def everybody_else(self) -> str:
        """The tier of those whom no rule names."""
        return self.default or (REFUSE if self.rules else TRUSTED)

    @property
    def decides(self) -> bool:
        """Whether there is anything in it."""
        return bool(self.rules) or self.everybody_else != TRUSTED

    def tier(self, name: str) -> Tier:
        """What a tier may use."""
        return self.tiers.get(name) or Tier()


def load_trust(home: Home) -> TrustConfig:
    """Read ``config/trust.yaml``. Raises :class:`InvalidConfig` with every problem, its file and its line."""
    path = home.config / TRUST_FILE
    try:
        return load_yaml(path, TrustConfig, {"tiers": []}) if path.exists() else TrustConfig()
    except YamlProblem as error:
        raise InvalidConfig(str(error)) from None
