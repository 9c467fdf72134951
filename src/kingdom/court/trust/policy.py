"""Decide who may use what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

from kingdom.agents.port import Profile
from kingdom.court.errors import InvalidConfig
from kingdom.court.packages.manifest import CommandEvidence
from kingdom.court.patterns import author_of, matches_any
from kingdom.court.trust.config import REFUSE, TRUST_FILE, TRUSTED, TrustConfig, TrustRule, load_trust

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kingdom.court.home import Home
    from kingdom.court.packages.manifest import Manifest


# Who caused an event, and whose words are in it. What a source says of people is known here, and nowhere else.


INTERNAL_SOURCES: Final = ("console", "king", "local", "web")
"""Sources that only those can use who have the home anyway, or have signed in to it."""


class Person(NamedTuple):
    """Somebody, as a source names them."""

    source: str
    user: str | None = None
    association: str | None = None
    repo: str | None = None
    channel: str | None = None

    def __str__(self) -> str:
        return f"{self.source} user {self.user}" if self.user else f"somebody from {self.source}"


class People(NamedTuple):
    """Everybody an event is from."""

    cause: Person
    """Who did what the event tells of."""
    authors: tuple[Person, ...] = ()
    """Whose words it carries besides: the pull request that somebody else commented on."""


def people_of(event: Mapping[str, Any]) -> People:
    """Everybody an event is from. Its fields may be anything."""
    found, source, repo = event.get("payload"), _text(event.get("source")) or "", _text(event.get("repo"))
    payload: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    if source == "github":
        return _github(payload, repo)
    if source == "jira":
        cause = Person(source, _text(payload.get("author_id")), repo=repo)
        reporter = Person(source, _text(payload.get("reporter_id")), repo=repo)
        return People(cause, (reporter,) if reporter.user and reporter != cause else ())
    if source == "slack":
        return People(Person(source, _text(payload.get("user")), channel=_text(payload.get("channel"))))
    return People(Person(source, author_of(payload), repo=repo))


def _github(payload: Mapping[str, Any], repo: str | None) -> People:
    opener = Person("github", _text(payload.get("opened_by")), _text(payload.get("association")), repo)
    actor = Person("github", _text(payload.get("actor")), _text(payload.get("actor_association")), repo)
    if payload.get("action") == "updated":  # a commit says whatever its maker likes about who made it
        return People(opener)
    return People(actor, (opener,) if opener.user and opener.user != actor.user else ())


def _text(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) and value else None


# What a task may use, as it stands in the task. The general that has the task keeps to it.


PERMIT_FIELD: Final = "trust"
"""The field of a task it stands in."""
PROFILES: Final[tuple[Profile, ...]] = get_args(Profile)
_SANDBOXED_PROFILES: Final[Mapping[str, tuple[Profile, ...]]] = {"codex": ("read", "edit")}  # by the operating system
_WIDENING_OPTIONS: Final = ("allowed_tools", "args")  # options of engines that may give more than the profile does


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
    def restricts(self) -> bool:
        """Whether it takes away anything at all."""
        return self.profile != "full" or self.sandbox or not self.mcp

    def document(self) -> dict[str, Any]:
        """As it stands in a task."""
        return {**asdict(self), "sandboxed": list(self.sandboxed)}

    def restricted_by(self, other: Permit) -> Permit:
        """The same for somebody whose words, too, are in it: of both, what takes away more."""
        return Permit(
            self.tier,
            self.by,
            profile=min(self.profile, other.profile, key=PROFILES.index),
            sandbox=self.sandbox or other.sandbox,
            mcp=self.mcp and other.mcp,
            sandboxed=self.sandboxed,
        )

    def denial_reason(self, manifest: Manifest) -> str | None:
        """Why a general cannot work under it; None when it can."""
        if not self.restricts:
            return None
        if manifest.mode == "workflow":
            return f"{manifest.name} works by a workflow, whose template chooses the tools of its agents"
        if not self.sandbox:
            return None
        engine = manifest.engine.name
        if engine not in self.sandboxed and engine not in _SANDBOXED_PROFILES:
            return f"{manifest.name} uses the engine {engine}, which the operating system does not confine"
        if any(isinstance(demand, CommandEvidence) for demand in manifest.evidence):
            return f"{manifest.name} has commands run as evidence, which the operating system does not confine"
        return None

    def options_for(self, manifest: Manifest) -> dict[str, Any]:
        """The options of a general's engine; under a profile, without those that may give more than it does."""
        options = manifest.engine.options
        narrow = self.profile != "full" or self.sandbox
        return {name: value for name, value in options.items() if not (narrow and name in _WIDENING_OPTIONS)}

    def profile_for(self, manifest: Manifest) -> Profile:
        """What an agent of a general may do: what its manifest says, or less."""
        allowed = min(self.profile, manifest.profile, key=PROFILES.index)
        engine = manifest.engine.name
        if self.sandbox and engine not in self.sandboxed:
            allowed = min(allowed, _SANDBOXED_PROFILES[engine][-1], key=PROFILES.index)
        return allowed


def permit_of(task: Mapping[str, Any]) -> Permit | None:
    """What a task may use; None when nothing was decided about it, and its general's manifest is the only limit.

    What makes no sense there takes away everything that can be taken away: somebody wanted a limit.
    """
    found = task.get(PERMIT_FIELD)
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


# Deciding who may use what. The king asks before he gives an event to a general, the envoy before it listens.
#
# Who *causes* an event decides whether something is done for it, and by which generals. Whose *words* are in it decides
# with what tools: a pull request of a stranger may be reviewed because a colleague asks for it, but not with the tools
# that the colleague has.


_MAX_CACHED_DECISIONS: Final = 10_000
_SLACK_SOURCE: Final = "slack"


@dataclass(frozen=True, slots=True)
class TrustDecision:
    """What was decided about an event."""

    permit: Permit | None
    """None: it is refused, or has to wait."""
    reason: str = ""
    """Why it is refused, or has to wait."""
    waits: bool = False
    """Not now: the file cannot be used, and a person has to mend it."""
    generals: tuple[str, ...] | None = None

    @property
    def refused(self) -> bool:
        """Whether nothing is done for it."""
        return self.permit is None and not self.waits


class TrustPolicy:
    """The file, as a judge."""

    def __init__(
        self, config: TrustConfig, *, slack_users: Collection[str] | None = None, problem: str | None = None
    ) -> None:
        """``slack_users`` are those of envoy.yaml, for whoever decides who is heard there; without them, whoever was
        heard counts as trusted unless a rule says otherwise. With a ``problem`` everything from outside waits."""
        self.config = config
        self.problem = problem
        self._rules = [*config.rules, *_implied_rules(slack_users)]
        self._known: dict[People, TrustDecision] = {}

    def judge(self, people: People) -> TrustDecision:
        """What everybody together may use whom an event is from."""
        if people not in self._known:
            if len(self._known) >= _MAX_CACHED_DECISIONS:
                self._known.clear()
            self._known[people] = self._judge(people)
        return self._known[people]

    def denial_reason(self, verdict: TrustDecision, general: str, manifest: Manifest | None) -> str | None:
        """Why an event may not go to a general; None when it may. A general without a manifest has to wait anyway."""
        permit = verdict.permit
        if permit is None:
            return verdict.reason
        who = f"{permit.by} is of the tier {permit.tier!r} (config/{TRUST_FILE})"
        if verdict.generals is not None and not matches_any(general, verdict.generals):
            return f"{who}, which may not use {general}"
        why = None if manifest is None else permit.denial_reason(manifest)
        return None if why is None else f"{who}, but {why}"

    def _judge(self, people: People) -> TrustDecision:
        if self.problem is not None and people.cause.source not in INTERNAL_SOURCES:
            return TrustDecision(None, f"config/{TRUST_FILE} cannot be used: {self.problem}", waits=True)
        name, why = self._tier_of(people.cause)
        if name == REFUSE:
            return TrustDecision(None, f"{people.cause} is refused (config/{TRUST_FILE}: {why})")
        permit = self._permit(name, people.cause)
        for author in people.authors:
            permit = permit.restricted_by(self._permit(self._tier_of(author)[0], author))
        generals = self.config.tier(name).generals
        return TrustDecision(permit, generals=None if generals is None else tuple(generals))

    def _tier_of(self, person: Person) -> tuple[str, str]:
        """The tier of somebody, and which rule says so."""
        for number, rule in enumerate(self._rules, 1):
            if _rule_applies(rule, person):
                written = number <= len(self.config.rules)
                return rule.tier, f"rule {number}" if written else "slack.users of envoy.yaml does not name them"
        return self.config.everybody_else, "no rule names them"

    def _permit(self, name: str, person: Person) -> Permit:
        if name == REFUSE:  # their words are there all the same, since somebody else wants them read
            return Permit(name, str(person), "read", sandbox=False, mcp=False)
        tier = self.config.tier(name)
        return Permit(name, str(person), tier.profile, tier.sandbox, tier.mcp, tuple(self.config.sandboxed))


class TrustFile:
    """Reads the file again whenever it changed. A mistake in it is told, and what held before goes on."""

    def __init__(self, home: Home, slack_users: Collection[str] | None = None) -> None:
        self._path = home.config / TRUST_FILE
        self._home = home
        self._slack_users = slack_users
        self._seen: tuple[int, int, int] | None = None
        self._trust = TrustPolicy(TrustConfig(), slack_users=slack_users)
        self._sound = False
        self.problem: str | None = None

    def load(self) -> TrustPolicy:
        """What holds now; the same object as long as nothing changes."""
        seen = self._signature()
        if seen != self._seen:
            self._seen = seen
            try:
                self._trust = TrustPolicy(load_trust(self._home), slack_users=self._slack_users)
                self.problem, self._sound = None, True
            except InvalidConfig as error:
                self.problem = str(error)
                if not self._sound:  # nothing held before: nobody may use what they perhaps should not
                    self._trust = TrustPolicy(TrustConfig(), slack_users=self._slack_users, problem=self.problem)
        return self._trust

    def _signature(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_mtime_ns, found.st_size, found.st_ino)


def _implied_rules(slack_users: Collection[str] | None) -> Sequence[TrustRule]:
    """What holds after the rules of the file, and before its default."""
    ours = [TrustRule(source=source, tier=TRUSTED) for source in INTERNAL_SOURCES]
    if slack_users is None:
        return [*ours, TrustRule(source=_SLACK_SOURCE, tier=TRUSTED)]
    named = [] if "*" in slack_users else list(slack_users)
    heard = [TrustRule(source=_SLACK_SOURCE, users=named, tier=TRUSTED)] if slack_users else []
    return [*ours, *heard, TrustRule(source=_SLACK_SOURCE, tier=REFUSE)]


def _rule_applies(rule: TrustRule, person: Person) -> bool:
    return (
        (rule.source == person.source or (rule.source is None and person.source not in INTERNAL_SOURCES))
        and (not rule.users or _is_named(person.user, rule.users))
        and (not rule.associations or person.association in rule.associations)
        and (not rule.repos or matches_any(person.repo, rule.repos))
        and (not rule.channels or person.channel in rule.channels)
    )


def _is_named(name: str | None, names: Collection[str]) -> bool:
    """Letter by letter: a pattern for people would let in whoever chooses the right name."""
    return name is not None and name.lower() in {one.lower() for one in names}
