"""Reads from the GitHub API: references to issues and pull requests ("subjects"), and their history."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from kingdom.court.sentinel.events import parse_epoch
from kingdom.court.sentinel.http import Params, SourceClient, SourceResponse
from kingdom.court.sentinel.watcher import (
    SourceError,
    SourceGone,
    SourceNotFound,
    SourceRefused,
    SourceUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kingdom.court.sentinel.config import GitHubSection


_NUMBERED_URL: Final = re.compile(r"/repos/(?P<repo>[^/]+/[^/]+)/(?P<kind>pulls|issues)/(?P<number>\d+)\Z")
_REPO_NAME: Final = re.compile(r"[A-Za-z0-9_.\-]+/[A-Za-z0-9_.\-]+\Z")
_URL_KINDS: Final = {"PullRequest": "pulls", "Issue": "issues"}
_PAGE_SIZE: Final = 100
_PAGE_NUMBER: Final = re.compile(r"([?&]page=)\d+")
_MAX_PAGES: Final = 200


@dataclass(frozen=True, slots=True)
class SubjectRef:
    """A subject to read, found through a notification, a repository's list, or a hint."""

    repo: str
    number: int | None = None
    is_pr: bool = False
    repo_id: int | None = None
    """The id of the repository, which stays the same when it is renamed or transferred."""
    updated_at: str = ""
    thread: str | None = None
    """The id of the notification, to be marked as read."""
    notification: dict[str, Any] | None = None
    hint: str | None = None
    since: float = 0.0
    """Ignore what happened before this time: it was handled already, or is older than the court."""

    @property
    def key(self) -> str:
        """The same for all refs to the same subject."""
        return f"thread {self.thread}" if self.number is None else f"{self.repo_id or self.repo.lower()}#{self.number}"

    @property
    def label(self) -> str:
        """What to call the subject in messages."""
        return self.repo if self.number is None else f"{self.repo}#{self.number}"

    @property
    def keys(self) -> tuple[str, str]:
        """The key, and the one by the name of the repository, which cursors had before ids were used."""
        return self.key, f"{self.repo.lower()}#{self.number}"


class Repository(NamedTuple):
    """A repository: its id never changes, its name is for people."""

    id: int
    name: str


@dataclass(slots=True)
class SubjectHistory:
    """The current state of a subject, and what happened to it since ``ref.since``."""

    ref: SubjectRef
    subject: dict[str, Any]
    timeline: list[dict[str, Any]] = field(default_factory=list)
    review_comments: list[dict[str, Any]] = field(default_factory=list)
    head_commit: dict[str, Any] | None = None
    """The commit at the head, if the head has changed since the last poll."""

    @property
    def sha(self) -> str | None:
        """The commit at the head of a pull request."""
        return text_at(self.subject, "head", "sha")

    @property
    def force_push(self) -> dict[str, Any] | None:
        """The last force push since ``ref.since``. Only by one can the head return to an earlier commit."""
        found = [
            entry
            for entry in self.timeline
            if entry.get("event") == "head_ref_force_pushed" and entry_time(entry) >= self.ref.since
        ]
        return found[-1] if found else None

    @property
    def is_old_head(self) -> bool:
        """Whether the commit at the head was made before the time that was read."""
        written = parse_epoch(text_at(self.head_commit, "commit", "committer", "date"))
        return written < self.ref.since


def notification_ref(thread: dict[str, Any]) -> SubjectRef | None:
    """Return the subject of a notification. Subjects other than issues and pull requests have no number."""
    repo, identity, updated = text_at(thread, "repository", "full_name"), thread.get("id"), thread.get("updated_at")
    if not is_repo_name(repo) or not isinstance(identity, str | int) or not isinstance(updated, str):
        return None
    kind, url = text_at(thread, "subject", "type"), text_at(thread, "subject", "url")
    found = _NUMBERED_URL.search(url or "")
    if found is None or _URL_KINDS.get(kind or "") != found["kind"]:
        return SubjectRef(repo, updated_at=updated, thread=str(identity), notification=thread)
    repo_id = int_at(thread, "repository", "id")
    is_pr = found["kind"] == "pulls"
    return SubjectRef(repo, int(found["number"]), is_pr, repo_id, updated, thread=str(identity), notification=thread)


def issue_ref(repo: Repository, issue: dict[str, Any]) -> SubjectRef | None:
    """Return the subject of an entry in a repository's issue list, which also lists pull requests."""
    number, updated = issue.get("number"), issue.get("updated_at")
    if not isinstance(number, int) or not isinstance(updated, str):
        return None
    return SubjectRef(repo.name, number, "pull_request" in issue, repo.id, updated)


def is_repo_name(name: object) -> TypeGuard[str]:
    """Return whether it is a repository name that is safe in a URL path."""
    return isinstance(name, str) and _REPO_NAME.match(name) is not None and ".." not in name.split("/")


def text_at(document: Any, *path: str) -> str | None:
    """Return the text at a path inside a document, or None."""
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, str) and document else None


def int_at(document: Any, *path: str) -> int | None:
    """Return the number at a path inside a document, or None."""
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, int) and not isinstance(document, bool) else None


def login_of(document: Any, *names: str) -> str:
    """Return the login under the first of these keys that has one; "ghost" for deleted accounts."""
    return next((found for name in names if (found := text_at(document, name, "login"))), "ghost")


def entry_time(entry: dict[str, Any]) -> float:
    """Return the time of a timeline entry; 0 for commits, which only have the time when they were written."""
    return parse_epoch(entry.get("created_at") or entry.get("submitted_at"))


def connect_github(section: GitHubSection, token: str, clock: Callable[[], float]) -> SourceClient:
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    hint = " (kingdom connect github checks the token; restart the court to use a new one)"
    return SourceClient("github", section.url, headers, clock, hint=hint)


async def fetch_login(client: SourceClient) -> str | None:
    """Return the login of the token's account; None for the token of an app, which has no account."""
    try:
        return text_at((await client.get("/user")).body, "login")
    except SourceNotFound:
        return None
    except SourceRefused as error:
        if "not accessible" in str(error):
            return None
        raise


async def fetch_account_name(client: SourceClient, identity: str) -> str | None:
    """Return the name of an account or organization; None if the server does not tell it."""
    with contextlib.suppress(SourceError):
        return text_at((await client.get(f"/user/{identity}")).body, "login")
    return None


async def fetch_all_items(client: SourceClient, path: str, params: Params) -> list[dict[str, Any]]:
    """Return the items of all pages."""
    first = await client.get(path, params)
    return [item async for answer in client.pages(first) for item in list_items(answer)]


def list_items(answer: SourceResponse) -> list[dict[str, Any]]:
    if not isinstance(answer.body, list):
        raise SourceUnavailable("github: a response that should be a list is not one")
    return [item for item in answer.body if isinstance(item, dict)]


async def fetch_history(
    client: SourceClient, ref: SubjectRef, known_sha: str | None, *, complete: bool = True
) -> SubjectHistory:
    """Read a subject. Unless ``complete`` is set, comments on lines and the commit may be missing."""
    passing = () if complete else (SourceNotFound, SourceRefused)
    subject = (await client.get(f"/repos/{ref.repo}/{'pulls' if ref.is_pr else 'issues'}/{ref.number}")).body
    if not isinstance(subject, dict):
        raise SourceUnavailable(f"github: the response for {ref.label} is not a JSON object")
    ref = await _located(client, ref, subject)
    history = SubjectHistory(ref, subject, await _timeline(client, ref))
    if ref.is_pr:
        await _add_reviews(client, history, passing)
        await _add_head(client, history, known_sha, passing)
    return history


async def fetch_repository(client: SourceClient, name: str) -> Repository:
    """Return a repository by its name, or by a name that it had before."""
    body = (await client.get(f"/repos/{name}")).body
    found = _as_repository(body)
    if found is None:
        raise SourceUnavailable(f"github: the response for {name} contains no id and name of a repository")
    return found


def _as_repository(document: Any) -> Repository | None:
    identity, name = int_at(document, "id"), text_at(document, "full_name")
    return Repository(identity, name) if identity is not None and is_repo_name(name) else None


async def _located(client: SourceClient, ref: SubjectRef, subject: dict[str, Any]) -> SubjectRef:
    """Return the ref with the id and the present name of its repository. An issue does not tell them itself."""
    base = subject.get("base")
    repo = _as_repository(base.get("repo")) if isinstance(base, dict) else None
    if repo is None and ref.repo_id is None:
        repo = await fetch_repository(client, ref.repo)
    return ref if repo is None else replace(ref, repo=repo.name, repo_id=repo.id)


async def _timeline(client: SourceClient, ref: SubjectRef) -> list[dict[str, Any]]:
    """Read the entries since ``ref.since``: from the last page back to the first page with an older entry."""
    path = f"/repos/{ref.repo}/issues/{ref.number}/timeline"
    first = await client.get(path, {"per_page": _PAGE_SIZE})
    entries = list_items(first)
    if first.next is None:
        return entries
    if first.last is None or not _PAGE_NUMBER.search(first.last):
        return [entry async for answer in client.pages(first) for entry in list_items(answer)]
    pages, number = [], int(_PAGE_NUMBER.search(first.last)[0].rpartition("=")[2])  # type: ignore[index]
    answer = await client.get(first.last)
    while answer.next is not None and number < _MAX_PAGES:  # the timeline grew meanwhile
        pages.append(list_items(answer))
        number, answer = number + 1, await client.get(answer.next)
    pages.append(list_items(answer))
    number -= len(pages) - 1
    while number > 2 and not _is_older(pages, ref.since):
        number -= 1
        pages.append(list_items(await client.get(_PAGE_NUMBER.sub(rf"\g<1>{number}", first.last))))
    if not _is_older(pages, ref.since):
        pages.append(entries)
    return sorted((entry for page in pages for entry in page), key=entry_time)


def _is_older(pages: list[list[dict[str, Any]]], since: float) -> bool:
    times = [at for page in pages for entry in page if (at := entry_time(entry)) > 0]
    return bool(times) and min(times) < since


_PassingErrors = tuple[type[Exception], ...]


async def _add_reviews(client: SourceClient, history: SubjectHistory, passing: _PassingErrors) -> None:
    """Read the comments on lines of the diff, review by review."""
    ref = history.ref
    for entry in history.timeline:
        if entry.get("event") == "reviewed" and entry_time(entry) >= ref.since:
            path = f"/repos/{ref.repo}/pulls/{ref.number}/reviews/{entry.get('id')}/comments"
            with contextlib.suppress(SourceGone, *passing):
                comments = await fetch_all_items(client, path, {"per_page": _PAGE_SIZE})
                history.review_comments += [{**item, "pull_request_review_id": entry.get("id")} for item in comments]


async def _add_head(
    client: SourceClient, history: SubjectHistory, known_sha: str | None, passing: _PassingErrors
) -> None:
    """Read the commit at the head if it is new: it says who made it.

    For a pull request that was never read before, the former head is unknown, so the commit's own time decides.
    """
    ref, sha = history.ref, history.sha
    opened_before = parse_epoch(history.subject.get("created_at")) < ref.since
    if sha is None or sha == known_sha or history.subject.get("state") != "open":
        return
    if known_sha is None and not opened_before:
        return
    commit: Any = {}
    with contextlib.suppress(*passing):
        commit = (await client.get(f"/repos/{ref.repo}/commits/{sha}")).body
    if not isinstance(commit, dict):
        return
    history.head_commit = {**commit, "previous_sha": known_sha}
    if known_sha is None and history.is_old_head and history.force_push is None:
        history.head_commit = None
