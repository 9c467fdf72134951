"""The page with the whole transcript of a soldier, part by part."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kingdom.web.dashboard.components import RowList, card, empty, tag
from kingdom.web.dashboard.pager import PartLinks, draw_parts
from kingdom.web.dashboard.refresh import FOLLOW_SECONDS, SLOW_SECONDS, PageRefresher
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.task_page import about_task, draw_soldiers, transcript_row, transcript_url
from kingdom.web.dashboard.visit import Visit
from kingdom.web.views.documents import read_task
from kingdom.web.views.transcripts import TranscriptPart, read_transcript, transcript_before

if TYPE_CHECKING:
    from kingdom.web.live.event import LiveEvent

PART_BYTES: Final = 128 * 1024
"""Of the transcript, which one page shows: a browser draws as much at once."""
_END: Final = "end"
_FAR: Final = 2**62  # behind the end of any file
_KIB: Final = 1024


class _Shown(NamedTuple):
    part: TranscriptPart
    begin: int
    previous: int | None


@page("/tasks/{task_id}/transcript", title="task.transcript", nav="tasks", court=True)
async def transcript_page(visit: Visit, task_id: str, soldier: str | None = None, at: str = "") -> None:
    """A part of the transcript: from the start, from a byte on (``at``), or the last one (``at=end``)."""
    words = visit.words
    state = await read_task(visit.context, task_id)
    begin = await _begin(visit, task_id, soldier, at)  # an unknown soldier raises here
    page_head(words("task.transcript"), above=(about_task(state), f"/tasks/{task_id}"))

    async def load() -> _Shown:
        part = await read_transcript(visit.context, task_id, begin, soldier=soldier, most=PART_BYTES)
        refresher.every = FOLLOW_SECONDS if part.alive and part.next_offset >= part.size else SLOW_SECONDS
        before = partial(transcript_before, visit.context, task_id, soldier=soldier, most=PART_BYTES)
        return _Shown(part, min(begin, part.size), await before(begin) if begin else None)

    def concerns(event: LiveEvent) -> bool:
        return task_id in str(event.data)

    refresher = PageRefresher(visit, concerns)
    above = tag("div")
    with card(words("task.transcript"), flush=True) as (body, side):
        lines = RowList("log", words("task.transcript"), "k-whole")
        nothing = tag("div")
    below = tag("div")
    drawn: list[PartLinks] = []  # those drawn again would lose the focus
    with side:
        draw_soldiers(f"/tasks/{task_id}/transcript", state, soldier)

    def show(found: _Shown) -> None:
        lines.show([transcript_row(number, one.kind, one.text) for number, one in enumerate(found.part.items)])
        links = _links(visit, task_id, soldier, found)
        for place in (above, below) if links not in drawn else ():
            place.clear()
            with place:
                draw_parts(visit, links, again=place is below)
        drawn[:] = [links]
        nothing.clear()
        if not found.part.items:
            with nothing:
                empty(words("task.transcript.none"), words("task.transcript.hint"))

    await refresher.panel(body, load, show, keep=True)


async def _begin(visit: Visit, task_id: str, soldier: str | None, at: str) -> int:
    """Return the byte that an address names; anything that is none is the start."""
    end = await transcript_before(visit.context, task_id, _FAR, soldier=soldier, most=PART_BYTES)
    if at == _END:
        return end
    return min(int(at), _FAR) if at.isascii() and at.isdigit() and len(at) < len(str(_FAR)) else 0


def _links(visit: Visit, task_id: str, soldier: str | None, found: _Shown) -> PartLinks:
    part, words = found.part, visit.words
    url = partial(transcript_url, task_id, soldier)
    further = part.next_offset < part.size and part.next_offset > found.begin
    shown = words("task.transcript.part", first=_kib(found.begin), last=_kib(part.next_offset), size=_kib(part.size))
    return PartLinks(
        shown,
        first=url() if found.begin else None,
        previous=None if found.previous is None else url(str(found.previous)),
        following=url(str(part.next_offset)) if further else None,
        last=url(_END) if further else None,
    )


def _kib(size: int) -> str:
    return f"{-(-size // _KIB):,}"
