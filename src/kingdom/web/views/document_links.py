"""The documents that belong to one: the event, tasks and messages that link to it, or that it links to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from pydantic import Field

from kingdom.court.queues import EVENTS, MESSAGES, TASKS
from kingdom.web.envelope import ApiModel
from kingdom.web.views.redaction import json_safe

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from kingdom.court.document_index import DocumentIndex, IndexEntry
    from kingdom.web.views.court_state import CourtViewState

StreamWord: TypeAlias = Literal["events", "tasks", "messages"]
_MAX_LINKS: Final = 50  # of each stream; the newest


class DocumentLink(ApiModel):
    """Another document that belongs to one."""

    stream: StreamWord
    id: str = Field(examples=["task-20260207-001"])
    type: str = Field(examples=["github.pr.opened"])
    status: str = Field(examples=["completed"])
    title: str | None = Field(description="What it is about.", examples=["acme/shop#7 Discounts"])
    created_at: str


async def linked_documents(state: CourtViewState, stream: str, document_id: str) -> list[DocumentLink]:
    """Return the event, tasks and messages that belong to a document, by stream, the newest first."""
    own = await state.indexes[stream].get(document_id)
    ids = {document_id} | (set() if own is None else own.links)
    found: dict[str, list[IndexEntry]] = {EVENTS: [], TASKS: [], MESSAGES: []}
    for other in (TASKS, EVENTS, MESSAGES):  # the task is between its event and its messages
        if other == stream == MESSAGES:
            continue
        found[other] = await _linked(state.indexes[other], ids - {document_id}, ids)
        if other == TASKS != stream:
            ids = ids.union({entry.id for entry in found[other]}, *(entry.links for entry in found[other]))
    return [
        _link(other, entry)
        for other, entries in found.items()
        for entry in [one for one in entries if one.id != document_id][:_MAX_LINKS]
    ]


async def _linked(index: DocumentIndex, named: AbstractSet[str], ids: AbstractSet[str]) -> list[IndexEntry]:
    """Return the entries with one of the ids ``named``, and those that link to one of ``ids``."""
    those = [entry for one in sorted(named) if (entry := await index.get(one)) is not None]
    others = [entry for entry in await index.linking_to(ids) if entry not in those]
    return sorted(those + others, key=lambda entry: entry.key, reverse=True)


def _link(stream: str, entry: IndexEntry) -> DocumentLink:
    fields = entry.fields
    title = " ".join(str(one) for one in (fields.get("subject"), fields.get("title")) if one)
    return DocumentLink(
        stream=cast(StreamWord, stream),
        id=entry.id,
        type=json_safe(str(fields.get("type") or "")),
        status=entry.status,
        title=json_safe(title) or None,
        created_at=json_safe(str(fields.get("created_at"))),
    )
