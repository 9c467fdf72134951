"""Subjects that could not be read: remembered in the cursor and read again later, with growing pauses.

A 403 or 404 on an issue or pull request usually passes: single sign-on lapsed, access was taken away and given back, or
the server had a bad minute. So the subject stays in the cursor, with the time from which it was not read and with its
notification, which is marked as read only when the subject was read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from kingdom.base.backoff import backoff
from kingdom.court.sentinel.github_api import SubjectRef
from kingdom.court.sentinel.watcher import SourceRefused

_PAUSE_SECONDS: Final = (30.0, 3600.0)  # the first pause, the longest pause
_GIVE_UP_SECONDS: Final = 30 * 86400.0  # as long as events are remembered as seen
_REF_FIELDS: Final = ("repo", "number", "is_pr", "repo_id", "updated_at", "thread", "since")
_MAX_REASON_CHARS: Final = 300
_SSO_REQUIRED: Final = re.compile(r"\s*required\s*;\s*url=(?P<url>\S+)")
_SSO_PARTIAL: Final = re.compile(r"\s*partial-results\s*;\s*organizations=(?P<ids>[\d,\s]+)")
_SSO_ORGANIZATION: Final = re.compile(r"/orgs/(?P<name>[A-Za-z0-9_.\-]+)/sso")
_SSO_HEADER: Final = "x-github-sso"


class LapsedSignOn(NamedTuple):
    """A response that an organization withholds until the token is authorized for its single sign-on."""

    organization: str
    url: str
    """Where the owner of the token authorizes it."""


def lapsed_sign_on(error: Exception, repo: str) -> LapsedSignOn | None:
    """Return the organization whose single sign-on the token lacks, if that is why a request was refused."""
    header = error.headers.get(_SSO_HEADER, "") if isinstance(error, SourceRefused) else ""
    if (found := _SSO_REQUIRED.match(header)) is None:
        return None
    named = _SSO_ORGANIZATION.search(found["url"])
    return LapsedSignOn(named["name"] if named else repo.partition("/")[0], found["url"])


def withheld_organizations(headers: Mapping[str, str]) -> list[str]:
    """Return the ids of organizations whose entries a list leaves out because of their single sign-on."""
    found = _SSO_PARTIAL.match(headers.get(_SSO_HEADER, ""))
    return [identity for part in found["ids"].split(",") if (identity := part.strip())] if found else []


def sign_on_problem(organization: str, url: str = "") -> str:
    where = url or "https://github.com/settings/tokens (Configure SSO)"
    return (
        f"github: the organization {organization} withholds its repositories until the token is authorized for its "
        f"single sign-on again: open {where}. What happens there meanwhile is read afterwards"
    )


@dataclass(frozen=True, slots=True)
class UnreadSubject:
    """A subject to read again."""

    ref: SubjectRef
    tries: int
    """Failed attempts to read it."""
    early: int = 0
    """How often it was read before the server showed what its notification is about."""
    first: float = 0.0
    """When reading it failed for the first time."""
    due: float = 0.0
    reason: str = ""
    organization: str = ""
    """The organization whose single sign-on is missing."""
    sign_on_url: str = ""

    def failed_again(self, error: Exception, now: float) -> UnreadSubject:
        """Return it with one more failed attempt."""
        lapsed = lapsed_sign_on(error, self.ref.repo)
        return replace(
            self,
            tries=self.tries + 1,
            first=self.first or now,
            due=now + backoff(self.tries, *_PAUSE_SECONDS),
            reason=str(error)[:_MAX_REASON_CHARS],
            organization=lapsed.organization if lapsed else "",
            sign_on_url=lapsed.url if lapsed else "",
        )

    def hopeless(self, now: float) -> bool:
        return bool(self.first) and now - self.first > _GIVE_UP_SECONDS

    def to_entry(self) -> dict[str, Any]:
        entry = {name: getattr(self.ref, name) for name in _REF_FIELDS}
        for name in ("tries", "early", "first", "due", "reason", "organization", "sign_on_url"):
            if value := getattr(self, name):
                entry[name] = value
        return entry

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> UnreadSubject:
        ref = SubjectRef(**{name: entry[name] for name in _REF_FIELDS if name in entry})
        given = {name: entry[name] for name in cls.__slots__ if name != "ref" and name in entry}
        return cls(ref, **{"tries": 0, **given})


def unread_subjects(memory: Mapping[str, Any]) -> dict[str, UnreadSubject]:
    """Return the subjects to read again, from the cursor, by their key."""
    return {key: UnreadSubject.from_entry(entry) for key, entry in (memory.get("again") or {}).items()}


def describe_unread(unread: Mapping[str, UnreadSubject]) -> dict[str, str]:
    """Return the organizations whose single sign-on is missing, each with a sentence."""
    lapsed = {item.organization: item.sign_on_url for item in unread.values() if item.organization}
    return {f"single sign-on of {name}": sign_on_problem(name, url) for name, url in lapsed.items()}
