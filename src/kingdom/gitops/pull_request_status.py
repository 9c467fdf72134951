"""What others say of a pull request: its checks, reviews and comments, read for people."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from kingdom.gitops.errors import LandingRefused
from kingdom.gitops.pull_requests import PullRequests

CheckState: TypeAlias = Literal["passed", "failed", "running"]
_PAGE_SIZE: Final = 100
_MAX_BODY_CHARS: Final = 4_000
_PASSED_CONCLUSIONS: Final = ("success", "neutral", "skipped")
_SAYING_NOTHING: Final = ("COMMENTED", "PENDING")  # states of a review that has no words of its own


@dataclass(frozen=True, slots=True)
class PullRequestCheck:
    """A check of the commit at the head."""

    name: str
    state: CheckState
    url: str | None


@dataclass(frozen=True, slots=True)
class PullRequestComment:
    """A comment, or a review with its verdict. ``path`` and ``line`` are set for one on a line of the diff."""

    author: str
    body: str
    at: str | None
    url: str | None
    verdict: Literal["approved", "changes_requested", "dismissed"] | None = None
    path: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class PullRequestStatus:
    """A pull request as it is now. Comments are the newest, newest first."""

    state: str
    checks: tuple[PullRequestCheck, ...]
    comments: tuple[PullRequestComment, ...]


async def read_status(requests: PullRequests, number: int, *, most: int = 50) -> PullRequestStatus:
    """Read a pull request: five requests, up to 100 entries of each kind.

    A token that may not read checks gets none. Raises :class:`kingdom.gitops.GitError`.
    """
    pull = await requests.get(f"/pulls/{number}")
    head = pull.get("head") or {}
    newest = f"per_page={_PAGE_SIZE}&sort=created&direction=desc"
    runs, reviews, notes, talk = await asyncio.gather(
        _check_runs(requests, str(head.get("sha") or head.get("ref") or "")),
        requests.get(f"/pulls/{number}/reviews?per_page={_PAGE_SIZE}&page=1"),
        requests.get(f"/pulls/{number}/comments?{newest}"),
        requests.get(f"/issues/{number}/comments?per_page={_PAGE_SIZE}"),
    )
    comments = [*filter(None, map(_review, _objects(reviews))), *map(_comment, [*_objects(notes), *_objects(talk)])]
    comments.sort(key=lambda one: one.at or "", reverse=True)
    state = "merged" if pull.get("merged") or pull.get("merged_at") else str(pull.get("state"))
    return PullRequestStatus(state, tuple(map(_check, runs)), tuple(comments[:most]))


async def _check_runs(requests: PullRequests, commit: str) -> list[dict[str, Any]]:
    if not commit:
        return []
    try:
        answer = await requests.get(f"/commits/{commit}/check-runs?per_page={_PAGE_SIZE}&filter=latest")
    except LandingRefused:
        return []
    return _objects(answer.get("check_runs") if isinstance(answer, dict) else None)


def _objects(found: Any) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, Iterable) else []


def _check(run: dict[str, Any]) -> PullRequestCheck:
    state: CheckState = "running"
    if run.get("status") == "completed":
        state = "passed" if run.get("conclusion") in _PASSED_CONCLUSIONS else "failed"
    return PullRequestCheck(str(run.get("name") or "?")[:200], state, _text(run, "html_url"))


def _review(review: dict[str, Any]) -> PullRequestComment | None:
    """Return a review that says something: a verdict, or words. Comments on lines are read by themselves."""
    verdict = str(review.get("state"))
    if verdict in _SAYING_NOTHING and not _text(review, "body"):
        return None
    made = _comment(review)
    word: Any = None if verdict in _SAYING_NOTHING else verdict.lower()
    return PullRequestComment(made.author, made.body, made.at, made.url, word)


def _comment(one: dict[str, Any]) -> PullRequestComment:
    author = one.get("user")
    line = one.get("line") or one.get("original_line")
    return PullRequestComment(
        author=(_text(author, "login") if isinstance(author, dict) else None) or "ghost",
        body=(_text(one, "body") or "")[:_MAX_BODY_CHARS],
        at=_text(one, "created_at") or _text(one, "submitted_at"),
        url=_text(one, "html_url"),
        path=_text(one, "path"),
        line=line if isinstance(line, int) else None,
    )


def _text(document: dict[str, Any], name: str) -> str | None:
    found = document.get(name)
    return found if isinstance(found, str) and found else None
