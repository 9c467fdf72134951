"""What is read from GitHub."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.sentinel.errors import Missing, Refused, Unavailable
from kingdom.court.sentinel.github.subject import Ref, Story, entry_time, text_at
from kingdom.court.sentinel.http import Answer, Client, Params
from kingdom.court.sentinel.texts import instant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kingdom.court.sentinel.config import GitHubSection

_PAGE: Final = 100
_PAGE_NUMBER: Final = re.compile(r"([?&]page=)\d+")
_MOST_PAGES: Final = 200


def connect(section: GitHubSection, token: str, clock: Callable[[], float]) -> Client:
    """A client with the account's token."""
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    return Client("github", section.url, headers, clock, hint=" (kingdom connect github checks the token)")


async def own_login(client: Client) -> str | None:
    """Whose token it is; None for the token of an app, which is nobody's."""
    try:
        return text_at((await client.get("/user")).body, "login")
    except Missing:
        return None
    except Refused as error:
        if "not accessible" in str(error):
            return None
        raise


async def all_items(
    client: Client, path: str, params: Params, validators: Mapping[str, str] | None = None
) -> tuple[list[dict[str, Any]], Answer]:
    """Everything on all pages, and the first answer; nothing when it is unchanged since the validators."""
    first, found = await client.get(path, params, validators), list[dict[str, Any]]()
    if not first.unchanged:
        async for answer in client.pages(first):
            found += items_of(answer)
    return found, first


def items_of(answer: Answer) -> list[dict[str, Any]]:
    """The list that an answer must be."""
    if not isinstance(answer.body, list):
        raise Unavailable("github: an answer that should be a list is none")
    return [item for item in answer.body if isinstance(item, dict)]


async def read_story(client: Client, ref: Ref, known_sha: str | None) -> Story:
    """The subject as it is now, and what happened to it since ``ref.since``."""
    subject = (await client.get(f"/repos/{ref.repo}/{'pulls' if ref.is_pr else 'issues'}/{ref.number}")).body
    if not isinstance(subject, dict):
        raise Unavailable(f"github: {ref.key} is not described")
    story = Story(ref, subject, await _timeline(client, ref))
    if ref.is_pr:
        await _add_reviews(client, story)
        await _add_head(client, story, known_sha)
    return story


async def _timeline(client: Client, ref: Ref) -> list[dict[str, Any]]:
    """The entries since ``ref.since``: the last pages, back to the first that has an older one."""
    path = f"/repos/{ref.repo}/issues/{ref.number}/timeline"
    first = await client.get(path, {"per_page": _PAGE})
    entries = items_of(first)
    if first.next is None:
        return entries
    if first.last is None or not _PAGE_NUMBER.search(first.last):
        return [entry async for answer in client.pages(first) for entry in items_of(answer)]
    pages, number = [], int(_PAGE_NUMBER.search(first.last)[0].rpartition("=")[2])  # type: ignore[index]
    answer = await client.get(first.last)
    while answer.next is not None and number < _MOST_PAGES:  # it grew meanwhile
        pages.append(items_of(answer))
        number, answer = number + 1, await client.get(answer.next)
    pages.append(items_of(answer))
    number -= len(pages) - 1
    while number > 2 and not _is_older(pages, ref.since):
        number -= 1
        pages.append(items_of(await client.get(_PAGE_NUMBER.sub(rf"\g<1>{number}", first.last))))
    if not _is_older(pages, ref.since):
        pages.append(entries)
    return sorted((entry for page in pages for entry in page), key=entry_time)


def _is_older(pages: list[list[dict[str, Any]]], since: float) -> bool:
    times = [at for page in pages for entry in page if (at := entry_time(entry)) > 0]
    return bool(times) and min(times) < since


async def _add_reviews(client: Client, story: Story) -> None:
    """What was written at lines of the diff, by the review it belongs to."""
    ref = story.ref
    for entry in story.timeline:
        if entry.get("event") == "reviewed" and entry_time(entry) >= ref.since:
            path = f"/repos/{ref.repo}/pulls/{ref.number}/reviews/{entry.get('id')}/comments"
            with contextlib.suppress(Missing):
                comments, _ = await all_items(client, path, {"per_page": _PAGE})
                story.review_comments += [{**item, "pull_request_review_id": entry.get("id")} for item in comments]


async def _add_head(client: Client, story: Story, known_sha: str | None) -> None:
    """The commit at the head, when it is new: it says who made it.

    Of a pull request that was never looked at nobody knows the former head: the commit's own time must do.
    """
    ref, sha = story.ref, story.sha
    opened_before = instant(story.subject.get("created_at")) < ref.since
    if sha is None or sha == known_sha or story.subject.get("state") != "open":
        return
    if known_sha is None and not opened_before:
        return
    try:
        commit = (await client.get(f"/repos/{ref.repo}/commits/{sha}")).body
    except (Missing, Refused):
        commit = {}
    written = instant(text_at(commit, "commit", "committer", "date"))
    if isinstance(commit, dict) and (known_sha is not None or written >= ref.since):
        story.head_commit = {**commit, "previous_sha": known_sha}
