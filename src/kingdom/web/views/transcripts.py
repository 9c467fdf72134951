"""The transcripts of a task's soldiers, in parts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pydantic import Field

from kingdom.court.commands import find_task
from kingdom.court.soldiers import TRANSCRIPT_PAGE_BYTES, TranscriptPage, read_transcript_page, transcript_part_before
from kingdom.web.envelope import ApiError, ApiModel
from kingdom.web.views.court_state import court_state
from kingdom.web.views.redaction import valid_text

if TYPE_CHECKING:
    from kingdom.court.soldiers import Soldier
    from kingdom.web.context import WebContext

_MAX_ENTRY_CHARS: Final = 100_000


class TranscriptEntry(ApiModel):
    """One entry of a transcript."""

    kind: str = Field(description="text, tooluse, began, finished, ratelimit, or raw", examples=["text"])
    text: str


class TranscriptPart(ApiModel):
    """A part of a transcript. Call again with ``nextOffset`` to read on."""

    soldier_id: str | None = Field(description="Null if the task has no soldier.")
    engine: str | None
    soldiers: list[str] = Field(description="All soldiers of the task, oldest first.")
    items: list[TranscriptEntry]
    next_offset: int
    size: int = Field(description="Size in bytes; if greater than `nextOffset`, there is more to read.")
    alive: bool = Field(description="Whether the soldier is running and more may follow.")


async def read_transcript(
    context: WebContext,
    task_id: str,
    offset: int = 0,
    *,
    soldier: str | None = None,
    raw: bool = False,
    most: int = TRANSCRIPT_PAGE_BYTES,
) -> TranscriptPart:
    """Read a soldier's transcript from a byte on (negative: from the end). Default: the last soldier of the task."""
    await find_task(context.court, task_id)
    return await asyncio.to_thread(_transcript, context, task_id, offset, soldier, raw, most)


async def transcript_before(context: WebContext, task_id: str, end: int, *, soldier: str | None, most: int) -> int:
    """Return where the part of ``most`` bytes before ``end`` begins."""
    await find_task(context.court, task_id)
    return await asyncio.to_thread(_part_before, context, task_id, end, soldier, most)


def _transcript(
    context: WebContext, task_id: str, offset: int, wanted: str | None, raw: bool, most: int
) -> TranscriptPart:
    view_state = court_state(context)
    soldiers, last = _soldier_of(context, task_id, wanted)
    if last is None:
        return TranscriptPart(soldier_id=None, engine=None, soldiers=[], items=[], next_offset=0, size=0, alive=False)
    alive = last.at_work  # checked before reading, so that later output is found by the next call
    try:
        page = read_transcript_page(last, view_state.engines, offset, raw=raw, most=most)
    except FileNotFoundError:  # no output yet, or the transcript was already removed
        page = TranscriptPage()
    return TranscriptPart(
        soldier_id=last.id,
        engine=last.order.engine,
        soldiers=[one.id for one in soldiers],
        items=[TranscriptEntry(kind=item.kind, text=valid_text(item.text[:_MAX_ENTRY_CHARS])) for item in page.items],
        next_offset=page.next_offset,
        size=page.size,
        alive=alive,
    )


def _part_before(context: WebContext, task_id: str, end: int, wanted: str | None, most: int) -> int:
    _, last = _soldier_of(context, task_id, wanted)
    try:
        return 0 if last is None else transcript_part_before(last, end, most)
    except FileNotFoundError:
        return 0


def _soldier_of(context: WebContext, task_id: str, wanted: str | None) -> tuple[list[Soldier], Soldier | None]:
    """Return all soldiers of a task, and the named or last one; None: the task has none."""
    soldiers = court_state(context).roster.of_task(task_id)
    names = [one.id for one in soldiers]
    if wanted is not None and wanted not in names:
        known = ", ".join(names) or "none"
        raise ApiError(404, "SYS_NOT_FOUND", f"{task_id} has no soldier {wanted!r:.80} (its soldiers: {known})")
    return soldiers, next((one for one in reversed(soldiers) if wanted in (None, one.id)), None)
