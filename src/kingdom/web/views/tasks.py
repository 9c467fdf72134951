"""One task: everything known of it, its story, and what its soldiers said."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from kingdom.court.commands import allowed_now, find_task
from kingdom.court.costs import ledger_lines
from kingdom.court.documents import find_document
from kingdom.court.files import read_json
from kingdom.court.home import checked
from kingdom.court.models import timestamp
from kingdom.court.queues import EVENTS, MESSAGES
from kingdom.court.story import tell
from kingdom.court.transcripts import PAGE_BYTES, TranscriptPage, read_page
from kingdom.web.envelope import ApiError, ApiModel, not_found
from kingdom.web.views.keeping import desk_of
from kingdom.web.views.plain import plain, plain_text

if TYPE_CHECKING:
    from kingdom.court.documents import Stored
    from kingdom.court.home import Home
    from kingdom.court.soldiers import Soldier
    from kingdom.web.context import WebContext

_LONGEST_TEXT: Final = 100_000  # characters of one thing a soldier said


class SoldierState(ApiModel):
    """One run of an agent for a task."""

    id: str
    engine: str
    model: str | None
    pid: int | None
    alive: bool
    started_at: str | None


class Spent(ApiModel):
    """What a task cost, by the ledger: all its runs together."""

    cost_usd: float
    tokens: int
    runs: int


class TaskState(ApiModel):
    """Everything known of a task. ``task`` and ``result`` are the documents of the court as they lie in their files."""

    task: dict[str, Any]
    problem: str | None = Field(description="Why it was put aside, if it was.")
    locked_by: str | None
    result: dict[str, Any] | None
    question: dict[str, Any] | None = Field(description="What it asks a person, while nobody has answered.")
    soldiers: list[SoldierState]
    spent: Spent
    actions: list[str] = Field(description="What can be asked of it now: cancel, retry, answer.", examples=[["cancel"]])


class StoryLine(ApiModel):
    """One thing that happened."""

    ts: str
    who: str = Field(examples=["king"])
    what: str
    where: str = Field(description="The file that says so, below the home of the court.")


class SaidItem(ApiModel):
    """One thing a soldier said or did."""

    kind: str = Field(description="text, tooluse, began, finished, ratelimit, or raw", examples=["text"])
    text: str


class TranscriptPart(ApiModel):
    """A part of a transcript. Ask again with ``nextOffset`` for what follows."""

    soldier_id: str | None = Field(description="Null while nobody is on the task.")
    engine: str | None
    soldiers: list[str] = Field(description="All who are or were on the task, the first one first.")
    items: list[SaidItem]
    next_offset: int
    size: int = Field(description="Its bytes; more than `nextOffset`: there is more already.")
    alive: bool = Field(description="Whether the soldier is at work: more may come.")


async def read_task(context: WebContext, task_id: str) -> TaskState:
    """Everything known of a task. Raises :class:`kingdom.court.commands.UnknownTask`."""
    task = await find_task(context.court, task_id)
    actions = await allowed_now(context.court, task)
    return await asyncio.to_thread(_state, context, task, actions)


async def read_event(context: WebContext, event_id: str) -> dict[str, Any]:
    """One event as it lies in its file."""
    return plain((await _find(context, EVENTS, "event", event_id)).document)  # type: ignore[no-any-return]


async def read_message(context: WebContext, message_id: str) -> dict[str, Any]:
    """One message as it lies in its file."""
    return plain((await _find(context, MESSAGES, "message", message_id)).document)  # type: ignore[no-any-return]


async def trace(context: WebContext, traced: str) -> list[StoryLine]:
    """The whole story of an event, a task or a message, in time order."""
    desk = desk_of(context)
    lines = await tell(desk.services, checked("id", traced), list(desk.indexes.values()), desk.roster)
    if not lines:
        raise ApiError(404, "SYS_NOT_FOUND", f"nothing here knows {traced!r:.120}")
    return [StoryLine(**plain(line.document())) for line in lines]


async def read_transcript(
    context: WebContext,
    task_id: str,
    offset: int = 0,
    *,
    soldier: str | None = None,
    raw: bool = False,
    most: int = PAGE_BYTES,
) -> TranscriptPart:
    """What a soldier of a task said from a byte on (negative: so many from the end); the last one if none is named."""
    await find_task(context.court, task_id)
    return await asyncio.to_thread(_transcript, context, task_id, offset, soldier, raw, most)


async def _find(context: WebContext, stream: str, what: str, document_id: str) -> Stored:
    found = await find_document(context.court, checked(what, document_id))
    if found is None or found.stream != stream:
        raise not_found("SYS", what, document_id)
    return found


def _state(context: WebContext, task: Stored, actions: list[str]) -> TaskState:
    desk, home = desk_of(context), context.court.home
    result = read_json(home.result(task.id))
    return TaskState(
        task=plain(task.document),
        problem=None if task.problem is None else plain_text(task.problem),
        locked_by=task.locked_by,
        result=plain(result) if isinstance(result, dict) else None,
        question=_question(result) if "answer" in actions else None,
        soldiers=[_soldier(one) for one in desk.roster.of_task(task.id)],
        spent=_spent(home, task.id),
        actions=actions,
    )


def _question(result: object) -> dict[str, Any] | None:
    if not isinstance(result, dict):
        return None
    question = result.get("question")
    found = question if isinstance(question, dict) else {"text": str(result.get("summary") or ""), "choices": []}
    return plain(found)  # type: ignore[no-any-return]


def _soldier(soldier: Soldier) -> SoldierState:
    return SoldierState(
        id=soldier.id,
        engine=soldier.order.engine,
        model=soldier.order.model,
        pid=soldier.pid,
        alive=soldier.at_work,
        started_at=None if soldier.started_at is None else timestamp(soldier.started_at),
    )


def _spent(home: Home, task_id: str) -> Spent:
    runs: dict[str, tuple[float, int]] = {}  # a line that was written twice counts once
    for _, line in ledger_lines(home.ledger, {task_id}):
        tokens = line.get("tokens")
        total = tokens.get("total") if isinstance(tokens, dict) else 0
        cost = line.get("cost_usd")
        runs[str(line.get("run_id"))] = (
            float(cost) if isinstance(cost, int | float) else 0.0,
            total if isinstance(total, int) else 0,
        )
    return Spent(
        cost_usd=sum(cost for cost, _ in runs.values()), tokens=sum(total for _, total in runs.values()), runs=len(runs)
    )


def _transcript(
    context: WebContext, task_id: str, offset: int, wanted: str | None, raw: bool, most: int
) -> TranscriptPart:
    desk = desk_of(context)
    soldiers = desk.roster.of_task(task_id)
    names = [one.id for one in soldiers]
    if wanted is not None and wanted not in names:
        known = ", ".join(names) or "none"
        raise ApiError(404, "SYS_NOT_FOUND", f"{task_id}: no soldier {wanted!r:.80} was on it (there were: {known})")
    if not soldiers:
        return TranscriptPart(soldier_id=None, engine=None, soldiers=[], items=[], next_offset=0, size=0, alive=False)
    last = next(one for one in reversed(soldiers) if wanted in (None, one.id))
    alive = last.at_work  # before it is read: what is said after the last look is found by the next
    try:
        page = read_page(last, desk.engines, offset, raw=raw, most=most)
    except FileNotFoundError:  # it has said nothing yet, or long ago: transcripts are kept for some days only
        page = TranscriptPage()
    return TranscriptPart(
        soldier_id=last.id,
        engine=last.order.engine,
        soldiers=names,
        items=[SaidItem(kind=item.kind, text=plain_text(item.text[:_LONGEST_TEXT])) for item in page.items],
        next_offset=page.next_offset,
        size=page.size,
        alive=alive,
    )
