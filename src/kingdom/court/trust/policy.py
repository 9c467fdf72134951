"""Decide who may use what. The king asks before it gives an event to a general, the envoy before it accepts a message.

The person who *causes* an event decides whether it is handled, and by which generals. The authors of the *text* in it
decide which tools the agent gets: a colleague may have a stranger's pull request reviewed, but the review does not get
the colleague's tools.

* :class:`People` names both, as the source of an event reports them;
* :class:`TrustPolicy` judges people by the rules of ``config/trust.yaml``;
* :class:`Permit` is the part of the decision that a task carries and its general enforces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

from kingdom.agents.port import Profile
from kingdom.agents.sandbox.sandbox import find_bubblewrap
from kingdom.base.files import ChangeDetector
from kingdom.court.errors import InvalidConfig
from kingdom.court.packages.manifest import CommandEvidence
from kingdom.court.patterns import matches_any
from kingdom.court.request_threads import THREAD_FIELD
from kingdom.court.trust.config import REFUSE, TRUST_FILE, TRUSTED, TrustConfig, TrustRule, load_trust

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kingdom.court.home import Home
    from kingdom.court.packages.manifest import Manifest

INTERNAL_SOURCES: Final = ("console", "king", "local", "web")
"""Sources that need access to the home, or a login."""
PERMIT_FIELD: Final = "trust"
"""The field of a task that holds its permit."""
PROFILES: Final[tuple[Profile, ...]] = get_args(Profile)
_AUTHOR_FIELDS: Final = ("author", "sender", "user", "actor", "reporter")
_NAME_FIELDS: Final = ("login", "name", "id")
_SANDBOXED_PROFILES: Final[Mapping[str, tuple[Profile, ...]]] = {"codex": ("read", "edit")}  # by the operating system
_INNER_ENGINES: Final = ("scripted", "workflow")
_WIDENING_OPTIONS: Final = ("allowed_tools", "args")  # engine options that may grant more than the profile does
_MAX_CACHED_DECISIONS: Final = 10_000
_MAX_NAME_CHARS: Final = 200
_SLACK_SOURCE: Final = "slack"
_RULE: Final = "rule"


# ── who an event is from ──────────────────────────────────────────────────────────────────────────────────────────────


class Person(NamedTuple):
    """A person, as the source of an event names them."""

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
    """Who did what the event reports."""
    authors: tuple[Person, ...] = ()
    """Other people whose text it carries: the author of a pull request that somebody else commented on."""


def people_of(event: Mapping[str, Any]) -> People:
    """Return everybody an event is from. The event need not be valid."""
    found, source, repo = event.get("payload"), _text(event.get("source")) or "", _text(event.get("repo"))
    payload: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    if source == "github":
        return _github(payload, repo)
    if source == "jira":
        cause = Person(source, _text(payload.get("author_id")), repo=repo)
        reporter = Person(source, _text(payload.get("reporter_id")), repo=repo)
        return People(cause, (reporter,) if reporter.user and reporter != cause else ())
    if source == "slack":
        return _slack(payload)
    return People(Person(source, author_of(payload), repo=repo))


def author_of(payload: Mapping[str, Any]) -> str | None:
    """Return who caused an event, from the fields that sources use for it."""
    for key in _AUTHOR_FIELDS:
        value = payload.get(key)
        if isinstance(value, dict):
            value = next((value[name] for name in _NAME_FIELDS if isinstance(value.get(name), str)), None)
        if isinstance(value, str) and value:
            return value[:_MAX_NAME_CHARS]
    return None


def _github(payload: Mapping[str, Any], repo: str | None) -> People:
    opener = Person("github", _text(payload.get("opened_by")), _text(payload.get("association")), repo)
    actor = Person("github", _text(payload.get("actor")), _text(payload.get("actor_association")), repo)
    if payload.get("action") == "updated":  # the author of a commit can be set to anything
        return People(opener)
    return People(actor, (opener,) if opener.user and opener.user != actor.user else ())


def _slack(payload: Mapping[str, Any]) -> People:
    channel, thread = _text(payload.get("channel")), payload.get(THREAD_FIELD)
    cause = Person(_SLACK_SOURCE, _text(payload.get("user")), channel=channel)
    posts = [one for one in thread if isinstance(one, Mapping)] if isinstance(thread, list) else []
    authors = dict.fromkeys(Person(_SLACK_SOURCE, _text(one.get("user")), channel=channel) for one in posts)
    return People(cause, tuple(author for author in authors if author != cause))


def _text(value: Any) -> str | None:
    return value[:_MAX_NAME_CHARS] if isinstance(value, str) and value else None


# ── what a task may use ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Permit:
    """The limits of a task. They never grant more than the general's manifest does."""

    tier: str
    by: str
    """Who asked, for messages."""
    profile: Profile = "full"
    sandbox: bool = False
    mcp: bool = True
    sandboxed: tuple[str, ...] = ()
    """Engines that the operator runs in a sandbox."""

    @property
    def restricts(self) -> bool:
        return self.profile != "full" or self.sandbox or not self.mcp

    def document(self) -> dict[str, Any]:
        """Return the JSON form, as a task carries it."""
        return {**asdict(self), "sandboxed": list(self.sandboxed)}

    def restricted_by(self, other: Permit) -> Permit:
        """Return this permit with the stricter limits of both, for a task that also carries another person's text."""
        return Permit(
            self.tier,
            self.by,
            profile=min(self.profile, other.profile, key=PROFILES.index),
            sandbox=self.sandbox or other.sandbox,
            mcp=self.mcp and other.mcp,
            sandboxed=self.sandboxed,
        )

    def denial_reason(self, manifest: Manifest) -> str | None:
        """Say why a general cannot work within these limits; None when it can."""
        if not self.restricts:
            return None
        if manifest.mode == "workflow":
            return f"{manifest.name} works by a workflow, whose template chooses the tools of its agents"
        if not self.sandbox:
            return None
        engine = manifest.engine.name
        if engine in self.sandboxed or _is_confinable(engine):
            return None
        if engine not in _SANDBOXED_PROFILES:
            return f"{manifest.name} uses the engine {engine}, which the operating system does not confine"
        if any(isinstance(demand, CommandEvidence) for demand in manifest.evidence):
            return f"{manifest.name} has commands run as evidence, which the operating system does not confine"
        return None

    def options_for(self, manifest: Manifest) -> dict[str, Any]:
        """Return the engine options of a general, without those that would widen a restricted profile."""
        options = manifest.engine.options
        narrow = self.profile != "full" or self.sandbox
        return {name: value for name, value in options.items() if not (narrow and name in _WIDENING_OPTIONS)}

    def profile_for(self, manifest: Manifest) -> Profile:
        """Return the profile of an agent: the manifest's, or a stricter one."""
        allowed = min(self.profile, manifest.profile, key=PROFILES.index)
        engine = manifest.engine.name
        if self.sandbox and engine not in self.sandboxed and not _is_confinable(engine):
            allowed = min(allowed, _SANDBOXED_PROFILES[engine][-1], key=PROFILES.index)
        return allowed


def _is_confinable(engine: str) -> bool:
    """Tell whether this machine confines an engine. Engines inside a process of ours are not confined."""
    return engine not in _INNER_ENGINES and find_bubblewrap().problem is None


def permit_of(task: Mapping[str, Any]) -> Permit | None:
    """Return the permit of a task, or None when it has none and only the manifest limits it.

    A malformed permit counts as the strictest one: the king did mean to set a limit.
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


# ── decisions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TrustDecision:
    """The decision about an event."""

    permit: Permit | None
    """None: the event is refused, or waits."""
    reason: str = ""
    """Why it is refused, or waits."""
    waits: bool = False
    """``trust.yaml`` is invalid: wait until a person fixes it."""
    generals: tuple[str, ...] | None = None
    """Patterns of the generals that may be used. None: all."""
    by_rule: bool = False
    """Whether a rule of ``trust.yaml`` refuses it, not that nothing names its people."""
    remedy: str = ""
    """What to write into ``trust.yaml`` to allow it, for those who may."""

    @property
    def refusal(self) -> str:
        """The reason and the remedy, for the journal. On GitHub and Jira the requester gets no reply."""
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason

    @property
    def refused(self) -> bool:
        return self.permit is None and not self.waits


class TrustPolicy:
    """The rules of ``config/trust.yaml``."""

    def __init__(
        self, config: TrustConfig, *, slack_users: Collection[str] | None = None, problem: str | None = None
    ) -> None:
        """Make a policy of a configuration.

        ``slack_users`` are those of envoy.yaml, for the envoy, which decides whose messages to accept. Without them an
        event from Slack was accepted already, and its user is trusted unless a rule says otherwise. With a ``problem``
        all events from outside wait.
        """
        self.config = config
        self.problem = problem
        self._rules = [*config.rules, *_implied_rules(slack_users)]
        self._known: dict[People, TrustDecision] = {}

    def judge(self, people: People) -> TrustDecision:
        """Decide what an event from these people may use."""
        if people not in self._known:
            if len(self._known) >= _MAX_CACHED_DECISIONS:
                self._known.clear()
            self._known[people] = self._judge(people)
        return self._known[people]

    def denial_reason(self, decision: TrustDecision, general: str, manifest: Manifest | None) -> str | None:
        """Say why an event may not go to a general; None when it may.

        Without a manifest only the general's name is checked: such a general cannot start tasks anyway.
        """
        permit = decision.permit
        if permit is None:
            return decision.reason
        who = f"{permit.by} is of the tier {permit.tier!r} (config/{TRUST_FILE})"
        if decision.generals is not None and not matches_any(general, decision.generals):
            return f"{who}, which may not use {general}"
        why = None if manifest is None else permit.denial_reason(manifest)
        return None if why is None else f"{who}, but {why}"

    def _judge(self, people: People) -> TrustDecision:
        if self.problem is not None and people.cause.source not in INTERNAL_SOURCES:
            return TrustDecision(None, f"config/{TRUST_FILE} cannot be used: {self.problem}", waits=True)
        name, why = self._tier_of(people.cause)
        if name == REFUSE:
            reason, by_rule = f"{people.cause} is refused (config/{TRUST_FILE}: {why})", why.startswith(_RULE)
            return TrustDecision(None, reason, by_rule=by_rule, remedy=self._remedy(people.cause, why))
        permit = self._permit(name, people.cause)
        for author in people.authors:
            permit = permit.restricted_by(self._permit(self._tier_of(author)[0], author))
        generals = self.config.tier(name).generals
        return TrustDecision(permit, generals=None if generals is None else tuple(generals))

    def _tier_of(self, person: Person) -> tuple[str, str]:
        """Return a person's tier, and which rule puts them there."""
        for number, rule in enumerate(self._rules, 1):
            if _rule_applies(rule, person):
                written = number <= len(self.config.rules)
                return rule.tier, f"{_RULE} {number}" if written else "slack.users of envoy.yaml does not name them"
        return self.config.everybody_else, "no rule names them"

    def _remedy(self, person: Person, why: str) -> str:
        """Return the rule that would put a refused person into the tier that may do the least."""
        if not person.user or not person.source or person.source == _SLACK_SOURCE:  # envoy.yaml decides about Slack
            return ""
        tiers = self.config.tiers
        tier = min(tiers, key=lambda name: PROFILES.index(tiers[name].profile), default=TRUSTED)
        conditions = [f"source: {person.source}", f"users: [{_quoted(person.user)}]"]
        conditions += [f"repos: [{_quoted(person.repo)}]"] if person.repo else []
        place = f"above {why}" if why.startswith(_RULE) else "below rules:"
        return f"to allow it, add {place} - {{{', '.join(conditions)}, tier: {tier}}}"

    def _permit(self, name: str, person: Person) -> Permit:
        if name == REFUSE:  # an author: somebody who is not refused wants their text read
            return Permit(name, str(person), "read", sandbox=False, mcp=False)
        tier = self.config.tier(name)
        return Permit(name, str(person), tier.profile, tier.sandbox, tier.mcp, tuple(self.config.sandboxed))


class TrustFile:
    """Reloads ``config/trust.yaml`` when it changes. An invalid file keeps the last valid policy in force."""

    def __init__(self, home: Home, slack_users: Collection[str] | None = None) -> None:
        self._home = home
        self._slack_users = slack_users
        self._changes = ChangeDetector(home.config / TRUST_FILE)
        self._trust = TrustPolicy(TrustConfig(), slack_users=slack_users)
        self._was_valid = False
        self.problem: str | None = None

    def load(self) -> TrustPolicy:
        """Return the current policy; the same object until the file changes."""
        if self._changes.changed():
            try:
                self._trust = TrustPolicy(load_trust(self._home), slack_users=self._slack_users)
                self.problem, self._was_valid = None, True
            except InvalidConfig as error:
                self.problem = str(error)
                if not self._was_valid:  # no valid policy to fall back to: allow nothing from outside
                    self._trust = TrustPolicy(TrustConfig(), slack_users=self._slack_users, problem=self.problem)
        return self._trust


def _quoted(text: str) -> str:
    """Return a text as YAML has it in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def _implied_rules(slack_users: Collection[str] | None) -> Sequence[TrustRule]:
    """Return the rules that apply after those of the file, and before its default."""
    internal = [TrustRule(source=source, tier=TRUSTED) for source in INTERNAL_SOURCES]
    if slack_users is None:
        return [*internal, TrustRule(source=_SLACK_SOURCE, tier=TRUSTED)]
    named = [] if "*" in slack_users else list(slack_users)
    accepted = [TrustRule(source=_SLACK_SOURCE, users=named, tier=TRUSTED)] if slack_users else []
    return [*internal, *accepted, TrustRule(source=_SLACK_SOURCE, tier=REFUSE)]


def _rule_applies(rule: TrustRule, person: Person) -> bool:
    return (
        (rule.source == person.source or (rule.source is None and person.source not in INTERNAL_SOURCES))
        and (not rule.users or _is_named(person.user, rule.users))
        and (not rule.associations or person.association in rule.associations)
        and (not rule.repos or matches_any(person.repo, rule.repos))
        and (not rule.channels or person.channel in rule.channels)
    )


def _is_named(name: str | None, names: Collection[str]) -> bool:
    """Compare whole names: with patterns anybody could choose a name that matches."""
    return name is not None and name.lower() in {one.lower() for one in names}
