"""What the agents of a workflow say, as it is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, Field

from kingdom.web.envelope import ApiModel, not_found
from kingdom.web.paging import cursor_of, position_of, wrong_cursor
from kingdom.web.views.finding import find_workflow
from kingdom.web.views.work_desk import work_desk

if TYPE_CHECKING:
    from kingdom.web.context import WebContext


class Word(ApiModel):
    """Something an agent said or did, as text."""

    run_id: str = Field(examples=["work-0198c2d4.task-0198c2d5.1"])
    work: str = Field(examples=["fix"])
    task: str = Field(examples=["task-1"])
    number: int = Field(description="Counts per run.", examples=[7])
    text: str = Field(examples=["I found the cause: the timeout is never set."])


class Words(ApiModel):
    """Some of what was said; ``cursor`` gets what is said from here on."""

    model_config = ConfigDict(json_schema_extra={"required": ["items", "cursor"]})

    items: list[Word]
    cursor: str


async def read_words(
    context: WebContext, workflow_id: str, *, work_id: str | None = None, cursor: str | None = None, limit: int = 200
) -> Words:
    """The last words, or with a cursor what was said since, the oldest first. Always with a cursor to go on from."""
    async with context.parts.store.reading() as tx:
        await find_workflow(tx, workflow_id)
        works = await tx.works.of_workflow(workflow_id)
    if work_id is not None and all(work.id != work_id for work in works):
        raise not_found("WFL", "work", work_id)
    counts = _counts(position_of(cursor))
    voices = work_desk(context).voices(workflow_id)
    await voices.read_on(work.id for work in works)
    found = voices.after(counts, "" if work_id is None else f"{work_id}.")
    shown = found[-limit:] if cursor is None else found[:limit]
    for one in found if cursor is None else shown:  # what lies before the last words is no news later
        counts[one.said.run_id] = one.number
    items = [
        Word(run_id=one.said.run_id, work=one.said.work, task=one.said.task, number=one.number, text=one.said.text)
        for one in shown
    ]
    return Words(items=items, cursor=cursor_of(counts))


def _counts(position: Any) -> dict[str, int]:
    if position is None:
        return {}
    if not isinstance(position, dict) or not all(isinstance(count, int) for count in position.values()):
        raise wrong_cursor()
    return dict(position)
