"""Reads from the GitHub API: references to issues and pull requests, and their history."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from kingdom.court.sentinel.events import parse_epoch
from kingdom.court.sentinel.http import Params, SourceClient, SourceResponse
from kingdom.court.sentinel.watcher import SourceNotFound, SourceRefused, SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kingdom.court.sentinel.config import GitHubSection


# What happened is about a subject: a pull request or an issue, and what is known of it when it is read.


_NUMBERED_URL: Final = re.compile(r"/repos/(?P<repo>[^/]+/[^/]+)/(?P<kind>pulls|issues)/(?P<number>\d+)\Z")
_REPO_NAME: Final = re.compile(r"[A-Za-z0-9_.\-]+/[A-Za-z0-9_.\-]+\Z")
_URL_KINDS: Final = {"PullRequest": "pulls", "Issue": "issues"}


@dataclass(frozen=True, slots=True)
class SubjectRef:
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
class SubjectHistory:
    """A subject as it is now, and what happened to it lately."""

    ref: SubjectRef
    subject: dict[str, Any]
    timeline: list[dict[str, Any]] = field(default_factory=list)
    review_comments: list[dict[str, Any]] = field(default_factory=list)
    head_commit: dict[str, Any] | None = None
    """Of a head that is another one than at the last look."""

    @property
    def sha(self) -> str | None:
        """The head of a pull request."""
        return text_at(self.subject, "head", "sha")


def notification_ref(thread: dict[str, Any]) -> SubjectRef | None:
    """What a notification is about; a subject without a number is told by the notification alone."""
    repo, identity, updated = text_at(thread, "repository", "full_name"), thread.get("id"), thread.get("updated_at")
    if not is_repo_name(repo) or not isinstance(identity, str | int) or not isinstance(updated, str):
        return None
    kind, url = text_at(thread, "subject", "type"), text_at(thread, "subject", "url")
    found = _NUMBERED_URL.search(url or "")
    if found is None or _URL_KINDS.get(kind or "") != found["kind"]:
        return SubjectRef(repo, updated_at=updated, thread=str(identity), notification=thread)
    return SubjectRef(
        repo, int(found["number"]), found["kind"] == "pulls", updated, thread=str(identity), notification=thread
    )


def issue_ref(repo: str, issue: dict[str, Any]) -> SubjectRef | None:
    """What a line of a repository's list is about; pull requests stand in it as issues."""
    number, updated = issue.get("number"), issue.get("updated_at")
    if not isinstance(number, int) or not isinstance(updated, str):
        return None
    return SubjectRef(repo, number, "pull_request" in issue, updated)


def is_repo_name(name: object) -> TypeGuard[str]:
    """Whether it is the name of a repository, fit to be part of a path."""
    return isinstance(name, str) and _REPO_NAME.match(name) is not None and ".." not in name.split("/")


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
    return parse_epoch(entry.get("created_at") or entry.get("submitted_at"))


# What is read from GitHub.


_PAGE_SIZE: Final = 100
_PAGE_NUMBER: Final = re.compile(r"([?&]page=)\d+")
_MAX_PAGES: Final = 200


def connect_github(section: GitHubSection, token: str, clock: Callable[[], float]) -> SourceClient:
    """A client with the account's token."""
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    return SourceClient("github", section.url, headers, clock, hint=" (kingdom connect github checks the token)")


async def fetch_login(client: SourceClient) -> str | None:
    """Whose token it is; None for the token of an app, which is nobody's."""
    try:
        return text_at((await client.get("/user")).body, "login")
    except SourceNotFound:
        return None
    except SourceRefused as error:
        if "not accessible" in str(error):
            return None
        raise


async def fetch_all_items(
    client: SourceClient, path: str, params: Params, validators: Mapping[str, str] | None = None
) -> tuple[list[dict[str, Any]], SourceResponse]:
    """Everything on all pages, and the first answer; nothing when it is unchanged since the validators."""
    first, found = await client.get(path, params, validators), list[dict[str, Any]]()
    if not first.unchanged:
        async for answer in client.pages(first):
            found += list_items(answer)
    return found, first


def list_items(answer: SourceResponse) -> list[dict[str, Any]]:
    """The list that an answer must be."""
    if not isinstance(answer.body, list):
        raise SourceUnavailable("github: an answer that should be a list is none")
    return [item for item in answer.body if isinstance(item, dict)]


async def fetch_history(client: SourceClient, ref: SubjectRef, known_sha: str | None) -> SubjectHistory:
    """The subject as it is now, and what happened to it since ``ref.since``."""
    subject = (await client.get(f"/repos/{ref.repo}/{'pulls' if ref.is_pr else 'issues'}/{ref.number}")).body
    if not isinstance(subject, dict):
        raise SourceUnavailable(f"github: {ref.key} is not described")
    story = SubjectHistory(ref, subject, await _timeline(client, ref))
    if ref.is_pr:
        await _add_reviews(client, story)
        await _add_head(client, story, known_sha)
    return story


async def _timeline(client: SourceClient, ref: SubjectRef) -> list[dict[str, Any]]:
    """The entries since ``ref.since``: the last pages, back to the first that has an older one."""
    path = f"/repos/{ref.repo}/issues/{ref.number}/timeline"
    first = await client.get(path, {"per_page": _PAGE_SIZE})
    entries = list_items(first)
    if first.next is None:
        return entries
    if first.last is None or not _PAGE_NUMBER.search(first.last):
        return [entry async for answer in client.pages(first) for entry in list_items(answer)]
    pages, number = [], int(_PAGE_NUMBER.search(first.last)[0].rpartition("=")[2])  # type: ignore[index]
    answer = await client.get(first.last)
    while answer.next is not None and number < _MAX_PAGES:  # it grew meanwhile
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


async def _add_reviews(client: SourceClient, story: SubjectHistory) -> None:
    """What was written at lines of the diff, by the review it belongs to."""
    ref = story.ref
    for entry in story.timeline:
        if entry.get("event") == "reviewed" and entry_time(entry) >= ref.since:
            path = f"/repos/{ref.repo}/pulls/{ref.number}/reviews/{entry.get('id')}/comments"
            with contextlib.suppress(SourceNotFound):
                comments, _ = await fetch_all_items(client, path, {"per_page": _PAGE_SIZE})
                story.review_comments += [{**item, "pull_request_review_id": entry.get("id")} for item in comments]


async def _add_head(client: SourceClient, story: SubjectHistory, known_sha: str | None) -> None:
    """The commit at the head, when it is new: it says who made it.

    Of a pull request that was never looked at nobody knows the former head: the commit's own time must do.
    """
    ref, sha = story.ref, story.sha
    opened_before = parse_epoch(story.subject.get("created_at")) < ref.since
    if sha is None or sha == known_sha or story.subject.get("state") != "open":
        return
    if known_sha is None and not opened_before:
        return
    try:
        commit = (await client.get(f"/repos/{ref.repo}/commits/{sha}")).body
    except (SourceNotFound, SourceRefused):
        commit = {}
    written = parse_epoch(text_at(commit, "commit", "committer", "date"))
    if isinstance(commit, dict) and (known_sha is not None or written >= ref.since):
        story.head_commit = {**commit, "previous_sha": known_sha}
