"""Who takes an event: the first general whose manifest subscribes to it."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import yaml
from pydantic import ValidationError

from kingdom.court.packages.loading import MANIFEST
from kingdom.court.packages.manifest import Subscription

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kingdom.court.home import Home
    from kingdom.court.packages.loading import Generals
    from kingdom.court.trust.judging import Trust, Verdict
    from kingdom.court.trust.people import People

_AUTHORS: Final = ("author", "sender", "user", "actor", "reporter")
_NAMES: Final = ("login", "name", "id")
_MOST_REMEMBERED: Final = 10_000
_DEFAULT_ORDER: Final = 100


@dataclass(frozen=True, slots=True)
class Route:
    """Where an event goes."""

    general: str
    priority: str | None = None  # of the task, when not the event's
    problem: str | None = None  # why the general cannot take it now


@dataclass(frozen=True, slots=True)
class _Line:
    order: int
    general: str
    subscription: Subscription
    problem: str | None

    @property
    def rank(self) -> tuple[int, bool, str]:
        return self.order, self.subscription.is_pattern, self.general


class Routes:
    """The subscriptions of all installed generals, in the order in which they are asked.

    A general that whoever caused an event may not use is passed over. One whose manifest is invalid keeps its events
    waiting as long as its subscriptions can be read: whoever breaks a manifest while editing it does not want its
    events to be thrown away.
    """

    def __init__(self, generals: Generals, home: Home, trust: Trust) -> None:
        self._generals = generals.by_name
        self._trust = trust
        lines = [
            _Line(general.manifest.order, name, subscription, None)
            for name, general in generals.by_name.items()
            for subscription in general.manifest.subscribes
        ]
        for name in generals.broken:
            lines += _salvage(name, home.generals / name / MANIFEST, generals.problems)
        self._lines = sorted(lines, key=lambda line: line.rank)
        self._known: dict[tuple[str, str | None, str | None, People], Route | None] = {}

    def match(self, event_type: str, repo: str | None, author: str | None, people: People) -> Route | None:
        """Who takes an event of this type, repository, author and of these people; None when nobody does."""
        key = event_type, repo, author, people
        if key not in self._known:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[key] = self._find(*key)
        return self._known[key]

    def why_not(self, event_type: str, repo: str | None, author: str | None, people: People) -> str:
        """Why nobody takes an event."""
        verdict = self._trust.judge(people)
        wanted = (line for line in self._lines if _takes(line.subscription, event_type, repo, author))
        hindrances = (self._hindrance(line, verdict) for line in wanted)
        return next((why for why in hindrances if why is not None), "no general subscribes to it")

    def _find(self, event_type: str, repo: str | None, author: str | None, people: People) -> Route | None:
        verdict = self._trust.judge(people)
        for line in self._lines:
            if not _takes(line.subscription, event_type, repo, author):
                continue
            if verdict.waits:
                return Route(line.general, line.subscription.priority, verdict.reason)
            if self._hindrance(line, verdict) is None:
                return Route(line.general, line.subscription.priority, line.problem)
        return None

    def _hindrance(self, line: _Line, verdict: Verdict) -> str | None:
        general = self._generals.get(line.general)
        return self._trust.hindrance(verdict, line.general, None if general is None else general.manifest)


def author_of(payload: Mapping[str, Any]) -> str | None:
    """Who caused an event, by the names under which sources say it."""
    for key in _AUTHORS:
        value = payload.get(key)
        if isinstance(value, dict):
            value = next((value[name] for name in _NAMES if isinstance(value.get(name), str)), None)
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


def _takes(subscription: Subscription, event_type: str, repo: str | None, author: str | None) -> bool:
    return (
        type_matches(subscription.type, event_type)
        and (not subscription.repos or among(repo, subscription.repos))
        and not among(repo, subscription.exclude_repos)
        and (not subscription.authors or among(author, subscription.authors))
        and not among(author, subscription.exclude_authors)
    )


def among(name: str | None, patterns: Iterable[str]) -> bool:
    """Whether a name is one of these. Only * and ? are special: brackets belong to names, as in ``dependabot[bot]``."""
    if name is None:
        return False
    lowered = name.lower()
    return any(fnmatchcase(lowered, pattern.lower().replace("[", "[[]")) for pattern in patterns)


def _salvage(name: str, path: Path, problems: list[str]) -> list[_Line]:
    problem = next((text for text in problems if text.startswith(str(path.parent))), "its manifest cannot be used")
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):
        return []
    if not isinstance(document, dict):
        return []
    found, order = document.get("subscribes"), document.get("order")
    lines = []
    for item in found if isinstance(found, list) else []:
        try:
            subscription = Subscription.model_validate(item)
        except ValidationError:
            continue
        lines.append(_Line(order if isinstance(order, int) else _DEFAULT_ORDER, name, subscription, problem))
    return lines
