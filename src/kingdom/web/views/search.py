"""One search over everything: ids, subjects, people and text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import quote, urlencode

from pydantic import Field

from kingdom.web.envelope import ApiModel
from kingdom.web.views.court import list_questions
from kingdom.web.views.documents import DocumentFilter, DocumentSummary, list_tasks
from kingdom.web.views.events import list_events, list_messages
from kingdom.web.views.generals import list_generals
from kingdom.web.views.redaction import json_safe
from kingdom.web.views.templates import list_templates
from kingdom.web.views.workflows import list_workflows, read_summary

if TYPE_CHECKING:
    from kingdom.web.context import WebContext

HitKind: TypeAlias = Literal["question", "task", "workflow", "template", "general", "event", "message", "person"]
_MAX_TEXT_CHARS: Final = 200
_WORKFLOW_PREFIX: Final = "wf-"


class SearchHit(ApiModel):
    """Something that was found."""

    kind: HitKind = Field(examples=["task"])
    id: str = Field(examples=["task-20260207-001"])
    title: str = Field(description="Its subject or name; its id if it has none.", examples=["acme/shop#7 Discounts"])
    text: str = Field(description="More about it.", examples=["task-20260207-001 · gen-pr"])
    path: str = Field(description="Its page in the dashboard.", examples=["/tasks/task-20260207-001"])


async def search_all(context: WebContext, query: str, limit: int) -> list[SearchHit]:
    """Return what has all words of the query, at most ``limit`` of a kind; what has the query as its id comes first."""
    words = query.split()
    if not words:
        return []
    finders: list[_Finder] = [_workflows, _templates, _people]
    if context.services is not None:
        finders = [_questions, _tasks, _workflows, _templates, _generals, _events, _messages, _people]
    found = await asyncio.gather(*(find(context, words, limit) for find in finders))
    hits = [hit for part in found for hit in part[:limit]]
    return sorted(hits, key=lambda hit: hit.id.lower() != query.strip().lower())


_Finder: TypeAlias = Callable[["WebContext", list[str], int], Awaitable[list[SearchHit]]]


def _has_words(words: Sequence[str], *texts: str) -> bool:
    whole = "\n".join(texts).lower()
    return all(word.lower() in whole for word in words)


def _hit(kind: HitKind, item_id: str, title: str, text: str, path: str) -> SearchHit:
    about, more = json_safe(title or item_id), json_safe(text[:_MAX_TEXT_CHARS])
    return SearchHit(kind=kind, id=item_id, title=about, text=more, path=path)


def _about(document: DocumentSummary) -> str:
    return " ".join(filter(None, (document.subject, document.title)))


async def _questions(context: WebContext, words: list[str], limit: int) -> list[SearchHit]:
    return [
        _hit("question", one.task_id, one.question[:_MAX_TEXT_CHARS], one.general, f"/tasks/{quote(one.task_id)}")
        for one in await list_questions(context)
        if _has_words(words, one.task_id, one.question, one.general)
    ]


async def _tasks(context: WebContext, words: list[str], limit: int) -> list[SearchHit]:
    page = await list_tasks(context, DocumentFilter(text=" ".join(words)), limit)
    return [
        _hit("task", one.id, _about(one), f"{one.id} · {one.target_general}", f"/tasks/{quote(one.id)}")
        for one in page.items
    ]


async def _events(context: WebContext, words: list[str], limit: int) -> list[SearchHit]:
    page = await list_events(context, DocumentFilter(text=" ".join(words)), limit)
    return [
        _hit("event", one.id, _about(one), f"{one.id} · {one.type}", f"/events/{quote(one.id)}") for one in page.items
    ]


async def _messages(context: WebContext, words: list[str], limit: int) -> list[SearchHit]:
    page = await list_messages(context, DocumentFilter(text=" ".join(words)), limit)
    return [_hit("message", one.id, _about(one), one.type, f"/messages/{quote(one.id)}") for one in page.items]


async def _generals(context: WebContext, words: list[str], limit: int) -> list[SearchHit]:
    return [
        _hit("general", one.name, one.name, one.description, f"/generals/{quote(one.name)}")
        for one in await list_generals(context)
        if _has_words(words, one.name, one.description, *one.hears)
    ]


async def _workflows(context: WebContext, words: list[str], limit: int) -> list[SearchHit]:
    page = await list_workflows(context, search=" ".join(words), limit=limit)
    found = {one.id: one for one in page.items}
    if len(words) == 1 and words[0].startswith(_WORKFLOW_PREFIX) and words[0] not in found:
        async with context.parts.store.reading() as tx:
            known = await tx.workflows.find(words[0]) is not None
        if known:
            found[words[0]] = await read_summary(context, words[0])
    return [
        _hit(
            "workflow",
            one.id,
            " ".join(filter(None, (one.issue_key, one.name))),
            f"{one.status.value} · {one.id}",
            f"/workflows/{quote(one.id)}",
        )
        for one in found.values()
    ]


async def _templates(context: WebContext, words: list[str], limit: int) -> list[SearchHit]:
    page = await list_templates(context, search=" ".join(words), limit=limit)
    return [
        _hit("template", one.id, one.name, one.description or ", ".join(one.works), f"/templates/{quote(one.id)}")
        for one in page.items
    ]


async def _people(context: WebContext, words: list[str], limit: int) -> list[SearchHit]:
    """Return people by name. Their page is what the journal says of them, or the list of people without a court."""
    found = []
    for person in context.tokens.people():
        if _has_words(words, person.name):
            path = "/people" if context.services is None else f"/logs?{urlencode({'q': person.name})}"
            found.append(_hit("person", person.name, person.name, person.role, path))
    return found
