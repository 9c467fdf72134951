"""Deciding who may use what. The king asks before he gives an event to a general, the envoy before it listens.

Who *causes* an event decides whether something is done for it, and by which generals. Whose *words* are in it decides
with what tools: a pull request of a stranger may be reviewed because a colleague asks for it, but not with the tools
that the colleague has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kingdom.court.errors import InvalidConfig
from kingdom.court.king.routing import among
from kingdom.court.trust.config import FILE, REFUSE, TRUSTED, Rule, TrustConfig, load_trust
from kingdom.court.trust.people import OURS, People, Person
from kingdom.court.trust.permit import Permit

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kingdom.court.home import Home
    from kingdom.court.packages.manifest import Manifest

_MOST_REMEMBERED: Final = 10_000
_SLACK: Final = "slack"


@dataclass(frozen=True, slots=True)
class Verdict:
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


class Trust:
    """The file, as a judge."""

    def __init__(
        self, config: TrustConfig, *, slack_users: Collection[str] | None = None, problem: str | None = None
    ) -> None:
        """``slack_users`` are those of envoy.yaml, for whoever decides who is heard there; without them, whoever was
        heard counts as trusted unless a rule says otherwise. With a ``problem`` everything from outside waits."""
        self.config = config
        self.problem = problem
        self._rules = [*config.rules, *_implied(slack_users)]
        self._known: dict[People, Verdict] = {}

    def judge(self, people: People) -> Verdict:
        """What everybody together may use whom an event is from."""
        if people not in self._known:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[people] = self._judge(people)
        return self._known[people]

    def hindrance(self, verdict: Verdict, general: str, manifest: Manifest | None) -> str | None:
        """Why an event may not go to a general; None when it may. A general without a manifest has to wait anyway."""
        permit = verdict.permit
        if permit is None:
            return verdict.reason
        who = f"{permit.by} is of the tier {permit.tier!r} (config/{FILE})"
        if verdict.generals is not None and not among(general, verdict.generals):
            return f"{who}, which may not use {general}"
        why = None if manifest is None else permit.hindrance(manifest)
        return None if why is None else f"{who}, but {why}"

    def _judge(self, people: People) -> Verdict:
        if self.problem is not None and people.cause.source not in OURS:
            return Verdict(None, f"config/{FILE} cannot be used: {self.problem}", waits=True)
        name, why = self._tier_of(people.cause)
        if name == REFUSE:
            return Verdict(None, f"{people.cause} is refused (config/{FILE}: {why})")
        permit = self._permit(name, people.cause)
        for author in people.authors:
            permit = permit.lowered(self._permit(self._tier_of(author)[0], author))
        generals = self.config.tier(name).generals
        return Verdict(permit, generals=None if generals is None else tuple(generals))

    def _tier_of(self, person: Person) -> tuple[str, str]:
        """The tier of somebody, and which rule says so."""
        for number, rule in enumerate(self._rules, 1):
            if _fits(rule, person):
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
        self._path = home.config / FILE
        self._home = home
        self._slack_users = slack_users
        self._seen: tuple[int, int, int] | None = None
        self._trust = Trust(TrustConfig(), slack_users=slack_users)
        self._sound = False
        self.problem: str | None = None

    def load(self) -> Trust:
        """What holds now; the same object as long as nothing changes."""
        seen = self._signature()
        if seen != self._seen:
            self._seen = seen
            try:
                self._trust = Trust(load_trust(self._home), slack_users=self._slack_users)
                self.problem, self._sound = None, True
            except InvalidConfig as error:
                self.problem = str(error)
                if not self._sound:  # nothing held before: nobody may use what they perhaps should not
                    self._trust = Trust(TrustConfig(), slack_users=self._slack_users, problem=self.problem)
        return self._trust

    def _signature(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_mtime_ns, found.st_size, found.st_ino)


def _implied(slack_users: Collection[str] | None) -> Sequence[Rule]:
    """What holds after the rules of the file, and before its default."""
    ours = [Rule(source=source, tier=TRUSTED) for source in OURS]
    if slack_users is None:
        return [*ours, Rule(source=_SLACK, tier=TRUSTED)]
    named = [] if "*" in slack_users else list(slack_users)
    heard = [Rule(source=_SLACK, users=named, tier=TRUSTED)] if slack_users else []
    return [*ours, *heard, Rule(source=_SLACK, tier=REFUSE)]


def _fits(rule: Rule, person: Person) -> bool:
    return (
        (rule.source == person.source or (rule.source is None and person.source not in OURS))
        and (not rule.users or _is_one_of(person.user, rule.users))
        and (not rule.associations or person.association in rule.associations)
        and (not rule.repos or among(person.repo, rule.repos))
        and (not rule.channels or person.channel in rule.channels)
    )


def _is_one_of(name: str | None, names: Collection[str]) -> bool:
    """Letter by letter: a pattern for people would let in whoever chooses the right name."""
    return name is not None and name.lower() in {one.lower() for one in names}
