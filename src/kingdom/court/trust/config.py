"""The model of ``config/trust.yaml``: rules that put people into tiers, and what each tier may use.

Without the file, or without rules in it, everybody may use everything that a general's manifest allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints, ValidationInfo, field_validator, model_validator

from kingdom.agents.port import Profile
from kingdom.base.yamlfile import YamlProblem, load_yaml
from kingdom.court.config_parts import ConfigSection
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
        raise ValueError(f"{REFUSE!r} is reserved, it means no tier: choose another name")
    return name


def _known_tier(tier: str, info: ValidationInfo) -> str:
    """Check a tier's name against the names in the validation context, so that an error has its line."""
    known = (info.context or {}).get("tiers")
    if known is not None and tier not in (*known, TRUSTED, REFUSE):
        raise ValueError(f"no tier {tier!r:.60}: there are {', '.join((*known, TRUSTED, REFUSE))}")
    return tier


TierChoice = Annotated[TierName, AfterValidator(_known_tier)]


class Tier(ConfigSection):
    """What a person may use. A tier never allows more than the general's manifest does."""

    generals: list[GeneralPattern] | None = None
    """The generals that may be used (``*`` and ``?`` as in a shell). None: all."""
    profile: Profile = "full"
    """What agents may do at most: ``read``, ``edit`` or ``full``."""
    sandbox: bool = False
    """Only agents that the operating system confines: all where bubblewrap works (see system.yaml), elsewhere
    Codex with the profiles read and edit, and the engines in ``sandboxed``."""
    mcp: bool = True
    """Whether agents get the MCP servers of the manifest."""


class TrustRule(ConfigSection):
    """Puts people into a tier. All given conditions must hold; of a list, one value."""

    source: SourceName | None = None
    """The source of an event: ``github``, ``jira``, ``slack``, ``webhook_ci`` … None: any source outside the court."""
    users: list[Name] = Field(default_factory=list)
    """Who caused it: GitHub logins, Slack member ids, Jira account ids. Case does not matter."""
    associations: list[Association] = Field(default_factory=list)
    """Their association with the repository on GitHub. Needs ``repos``: everybody owns some repository."""
    repos: list[RepoPattern] = Field(default_factory=list)
    """In these repositories (``acme/*``)."""
    channels: list[Name] = Field(default_factory=list)
    """In these Slack channels, by id."""
    tier: TierChoice
    """The tier: one of ``tiers``, ``trusted`` (no limits), or ``refuse``."""

    @model_validator(mode="after")
    def _in_repositories(self) -> TrustRule:
        if self.associations and not self.repos:
            raise ValueError("associations need repos (as [acme/*]): anybody is the OWNER of some repository")
        return self


class TrustConfig(ConfigSection):
    """The whole file."""

    tiers: dict[Annotated[TierName, AfterValidator(_not_reserved)], Tier] = Field(default_factory=dict)
    """What each tier may use, by name. ``trusted`` always exists, without limits."""
    rules: list[TrustRule] = Field(default_factory=list)
    """Who is in which tier. The first matching rule decides."""
    default: TierChoice | None = None
    """The tier of everybody else. None: ``refuse`` if there are rules, else ``trusted``."""
    sandboxed: list[Name] = Field(default_factory=list)
    """Engines that you run in your own sandbox: by a wrapper in system.yaml, or in a container."""

    @field_validator("tiers", mode="before")
    @classmethod
    def _note_names(cls, tiers: Any, info: ValidationInfo) -> Any:
        """Collect the names before the tiers are validated: an invalid tier does not make the rules invalid."""
        if info.context is not None and isinstance(tiers, dict):
            info.context["tiers"] = [str(name) for name in tiers if name != TRUSTED]
        return tiers

    @property
    def everybody_else(self) -> str:
        """The tier of people whom no rule matches."""
        return self.default or (REFUSE if self.rules else TRUSTED)

    @property
    def decides(self) -> bool:
        """Whether the file sets any limit."""
        return bool(self.rules) or self.everybody_else != TRUSTED

    def tier(self, name: str) -> Tier:
        return self.tiers.get(name) or Tier()


def load_trust(home: Home) -> TrustConfig:
    """Read ``config/trust.yaml``. Raises :class:`InvalidConfig` with all problems and their lines."""
    path = home.config / TRUST_FILE
    try:
        return load_yaml(path, TrustConfig, {"tiers": []}) if path.exists() else TrustConfig()
    except YamlProblem as error:
        raise InvalidConfig(str(error)) from None
