"""Who takes an event: the first general whose manifest subscribes to it."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import yaml
from pydantic import ValidationError

from kingdom.court.packages.installed import MANIFEST_FILE
from kingdom.court.packages.manifest import EventSubscription

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kingdom.court.home import Home
    from kingdom.court.packages.installed import Generals
    from kingdom.court.trust.policy import People, TrustDecision, TrustPolicy

_AUTHOR_FIELDS: Final = ("author", "sender", "user", "actor", "reporter")
_NAME_FIELDS: Final = ("login", "name", "id")
_MAX_CACHED_ROUTES: Final = 10_000
_DEFAULT_ORDER: Final = 100


@dataclass(frozen=True, slots=True)
class Route:
    """Where an event goes."""

    general: str
    priority: str | None = None  # of the task, when not the event's
    problem: str | None = None  # why the general cannot take it now


@dataclass(frozen=True, slots=True)
class _RoutingEntry:
    order: int
    general: str
    subscription: EventSubscription
    problem: str | None

    @property
    def rank(self) -> tuple[int, bool, str]:
        return self.order, self.subscription.is_pattern, self.general


class RoutingTable:
    """The subscriptions of all installed generals, in the order in which they are asked.

    A general that whoever caused an event may not use is passed over. One whose manifest is invalid keeps its events
    waiting as long as its subscriptions can be read: whoever breaks a manifest while editing it does not want its
    events to be thrown away.
    """

    def __init__(self, generals: Generals, home: Home, trust: TrustPolicy) -> None:
        self._generals = generals.by_name
        self._trust = trust
        entries = [
            _RoutingEntry(general.manifest.order, name, subscription, None)
            for name, general in generals.by_name.items()
            for subscription in general.manifest.subscribes
        ]
        for name in generals.broken:
            entries += _read_broken_manifest(name, home.generals / name / MANIFEST_FILE, generals.problems)
        self._entries = sorted(entries, key=lambda entry: entry.rank)
        self._known: dict[tuple[str, str | None, str | None, People], Route | None] = {}

    def match(self, event_type: str, repo: str | None, author: str | None, people: People) -> Route | None:
        """Who takes an event of this type, repository, author and of these people; None when nobody does."""
        key = event_type, repo, author, people
        if key not in self._known:
            if len(self._known) >= _MAX_CACHED_ROUTES:
                self._known.clear()
            self._known[key] = self._find(*key)
        return self._known[key]

    def why_not(self, event_type: str, repo: str | None, author: str | None, people: People) -> str:
        """Why nobody takes an event."""
        verdict = self._trust.judge(people)
        wanted = (entry for entry in self._entries if _accepts(entry.subscription, event_type, repo, author))
        denial_reasons = (self._denial_reason(entry, verdict) for entry in wanted)
        return next((why for why in denial_reasons if why is not None), "no general subscribes to it")

    def _find(self, event_type: str, repo: str | None, author: str | None, people: People) -> Route | None:
        verdict = self._trust.judge(people)
        for entry in self._entries:
            if not _accepts(entry.subscription, event_type, repo, author):
                continue
            if verdict.waits:
                return Route(entry.general, entry.subscription.priority, verdict.reason)
            if self._denial_reason(entry, verdict) is None:
                return Route(entry.general, entry.subscription.priority, entry.problem)
        return None

    def _denial_reason(self, entry: _RoutingEntry, verdict: TrustDecision) -> str | None:
        general = self._generals.get(entry.general)
        return self._trust.denial_reason(verdict, entry.general, None if general is None else general.manifest)


def author_of(payload: Mapping[str, Any]) -> str | None:
    """Who caused an event, by the names under which sources say it."""
    for key in _AUTHOR_FIELDS:
        value = payload.get(key)
        if isinstance(value, dict):
            value = next((value[name] for name in _NAME_FIELDS if isinstance(value.get(name), str)), None)
        if isinstance(value, str) and value:
            return value[:200]
    return None


def type_matches(pattern: str, event_type: str) -> bool:
    """Whether a type is meant: ``*`` stands for one word, at the end for one or more."""
    if "*" not in pattern:
        return pattern == event_type
    wanted, words = pattern.split("."), event_type.split(".")
    if wanted[-1] == "*" and len(words) > len(wanted):
        words = words[: len(wanted)]
    return len(wanted) == len(words) and all(one in ("*", word) for one, word in zip(wanted, words, strict=True))


def _accepts(subscription: EventSubscription, event_type: str, repo: str | None, author: str | None) -> bool:
    return (
        type_matches(subscription.type, event_type)
        and (not subscription.repos or matches_any(repo, subscription.repos))
        and not matches_any(repo, subscription.exclude_repos)
        and (not subscription.authors or matches_any(author, subscription.authors))
        and not matches_any(author, subscription.exclude_authors)
    )


def matches_any(name: str | None, patterns: Iterable[str]) -> bool:
    """Whether a name is one of these. Only * and ? are special: brackets belong to names, as in ``dependabot[bot]``."""
    if name is None:
        return False
    lowered = name.lower()
    return any(fnmatchcase(lowered, pattern.lower().replace("[", "[[]")) for pattern in patterns)


def _read_broken_manifest(name: str, path: Path, problems: list[str]) -> list[_RoutingEntry]:
    problem = next((text for text in problems if text.startswith(str(path.parent))), "its manifest cannot be used")
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):
        return []
    if not isinstance(document, dict):
        return []
    found, order = document.get("subscribes"), document.get("order")
    entries = []
    for item in found if isinstance(found, list) else []:
        try:
            subscription = EventSubscription.model_validate(item)
        except ValidationError:
            continue
        entries.append(_RoutingEntry(order if isinstance(order, int) else _DEFAULT_ORDER, name, subscription, problem))
    return entries
