"""Who caused an event, and whose words are in it. What a source says of people is known here, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kingdom.court.king.routing import author_of

OURS: Final = ("console", "king", "local", "web")
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
