"""What happened is about a subject: a pull request or an issue, and what is known of it when it is read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from kingdom.court.sentinel.texts import instant

_NUMBERED: Final = re.compile(r"/repos/(?P<repo>[^/]+/[^/]+)/(?P<kind>pulls|issues)/(?P<number>\d+)\Z")
_REPO: Final = re.compile(r"[A-Za-z0-9_.\-]+/[A-Za-z0-9_.\-]+\Z")
_KINDS: Final = {"PullRequest": "pulls", "Issue": "issues"}


@dataclass(frozen=True, slots=True)
class Ref:
    """Something to look at, and why: a notification, a line of a repository's list, or a hint."""

    repo: str
    number: int | None = None
    is_pr: bool = False
    updated_at: str = ""
    thread: str | None = None
    """The notification, to be marked as read."""
    notification: dict[str, Any] | None = None
    hint: str | None = None
    since: float = 0.0
    """What happened before was told before, or is from before the court was there."""

    @property
    def key(self) -> str:
        """The same for all refs to the same subject."""
        return f"{self.repo.lower()}#{self.number}" if self.number is not None else f"thread {self.thread}"


@dataclass(slots=True)
class Story:
    """A subject as it is now, and what happened to it lately."""

    ref: Ref
    subject: dict[str, Any]
    timeline: list[dict[str, Any]] = field(default_factory=list)
    review_comments: list[dict[str, Any]] = field(default_factory=list)
    head_commit: dict[str, Any] | None = None
    """Of a head that is another one than at the last look."""

    @property
    def sha(self) -> str | None:
        """The head of a pull request."""
        return text_at(self.subject, "head", "sha")


def ref_of_notification(thread: dict[str, Any]) -> Ref | None:
    """What a notification is about; a subject without a number is told by the notification alone."""
    repo, identity, updated = text_at(thread, "repository", "full_name"), thread.get("id"), thread.get("updated_at")
    if not is_repo(repo) or not isinstance(identity, str | int) or not isinstance(updated, str):
        return None
    kind, url = text_at(thread, "subject", "type"), text_at(thread, "subject", "url")
    found = _NUMBERED.search(url or "")
    if found is None or _KINDS.get(kind or "") != found["kind"]:
        return Ref(repo, updated_at=updated, thread=str(identity), notification=thread)
    return Ref(repo, int(found["number"]), found["kind"] == "pulls", updated, thread=str(identity), notification=thread)


def ref_of_issue(repo: str, issue: dict[str, Any]) -> Ref | None:
    """What a line of a repository's list is about; pull requests stand in it as issues."""
    number, updated = issue.get("number"), issue.get("updated_at")
    if not isinstance(number, int) or not isinstance(updated, str):
        return None
    return Ref(repo, number, "pull_request" in issue, updated)


def is_repo(name: object) -> TypeGuard[str]:
    """Whether it is the name of a repository, fit to be part of a path."""
    return isinstance(name, str) and _REPO.match(name) is not None and ".." not in name.split("/")


def text_at(document: Any, *path: str) -> str | None:
    """A text inside a document, or None."""
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, str) and document else None


def login_of(document: Any, *names: str) -> str:
    """Whose account stands under one of these names; accounts that are deleted are called ghost."""
    return next((found for name in names if (found := text_at(document, name, "login"))), "ghost")


def entry_time(entry: dict[str, Any]) -> float:
    """When an entry of a timeline happened; 0 for commits, which only say when they were written."""
    return instant(entry.get("created_at") or entry.get("submitted_at"))
