"""What a task may use, as it stands in the task. The general that has the task keeps to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, get_args

from kingdom.agents.port import Profile
from kingdom.court.packages.manifest import CommandEvidence

if TYPE_CHECKING:
    from kingdom.court.packages.manifest import Manifest

FIELD: Final = "trust"
"""The field of a task it stands in."""
PROFILES: Final[tuple[Profile, ...]] = get_args(Profile)
_CONFINED: Final[Mapping[str, tuple[Profile, ...]]] = {"codex": ("read", "edit")}  # by the operating system
_WIDENING: Final = ("allowed_tools", "args")  # options of engines that may give more than the profile does


@dataclass(frozen=True, slots=True)
class Permit:
    """What was decided about whoever asked."""

    tier: str
    by: str
    """Who asked, in words."""
    profile: Profile = "full"
    sandbox: bool = False
    mcp: bool = True
    sandboxed: tuple[str, ...] = ()
    """Engines that are run in a sandbox of one's own."""

    @property
    def limits(self) -> bool:
        """Whether it takes away anything at all."""
        return self.profile != "full" or self.sandbox or not self.mcp

    def document(self) -> dict[str, Any]:
        """As it stands in a task."""
        return {**asdict(self), "sandboxed": list(self.sandboxed)}

    def lowered(self, other: Permit) -> Permit:
        """The same for somebody whose words, too, are in it: of both, what takes away more."""
        return Permit(
            self.tier,
            self.by,
            profile=min(self.profile, other.profile, key=PROFILES.index),
            sandbox=self.sandbox or other.sandbox,
            mcp=self.mcp and other.mcp,
            sandboxed=self.sandboxed,
        )

    def hindrance(self, manifest: Manifest) -> str | None:
        """Why a general cannot work under it; None when it can."""
        if not self.limits:
            return None
        if manifest.mode == "workflow":
            return f"{manifest.name} works by a workflow, whose template chooses the tools of its agents"
        if not self.sandbox:
            return None
        engine = manifest.engine.name
        if engine not in self.sandboxed and engine not in _CONFINED:
            return f"{manifest.name} uses the engine {engine}, which the operating system does not confine"
        if any(isinstance(demand, CommandEvidence) for demand in manifest.evidence):
            return f"{manifest.name} has commands run as evidence, which the operating system does not confine"
        return None

    def options_for(self, manifest: Manifest) -> dict[str, Any]:
        """The options of a general's engine; under a profile, without those that may give more than it does."""
        options = manifest.engine.options
        narrow = self.profile != "full" or self.sandbox
        return {name: value for name, value in options.items() if not (narrow and name in _WIDENING)}

    def profile_for(self, manifest: Manifest) -> Profile:
        """What an agent of a general may do: what its manifest says, or less."""
        allowed = min(self.profile, manifest.profile, key=PROFILES.index)
        engine = manifest.engine.name
        if self.sandbox and engine not in self.sandboxed:
            allowed = min(allowed, _CONFINED[engine][-1], key=PROFILES.index)
        return allowed


def permit_of(task: Mapping[str, Any]) -> Permit | None:
    """What a task may use; None when nothing was decided about it, and its general's manifest is the only limit.

    What makes no sense there takes away everything that can be taken away: somebody wanted a limit.
    """
    found = task.get(FIELD)
    if found is None:
        return None
    match found:
        case {
            "tier": str(tier),
            "by": str(by),
            "profile": "read" | "edit" | "full" as profile,
            "sandbox": bool(sandbox),
            "mcp": bool(mcp),
            "sandboxed": [*engines],
        }:
            return Permit(tier, by, profile, sandbox, mcp, tuple(engines))
    return Permit("unreadable", "nobody known", "read", sandbox=True, mcp=False)
