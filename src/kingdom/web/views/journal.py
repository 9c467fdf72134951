"""The journal: its latest lines, and searches."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from kingdom.court.activity import journal_tail
from kingdom.court.journal_search import JournalPosition, search_journal
from kingdom.court.models import timestamp
from kingdom.web.envelope import ApiModel, cursor_of, cursor_position, invalid_cursor
from kingdom.web.views.redaction import json_safe

if TYPE_CHECKING:
    from kingdom.court.journal_search import JournalFilter
    from kingdom.journal import Entry
    from kingdom.web.context import WebContext

_RECENT_LINES: Final = 50
_BYTES_PER_LINE: Final = 1024  # read from the journal; most lines are much shorter


class JournalLine(ApiModel):
    """A line of the journal."""

    ts: str
    type: str = Field(examples=["task.created"])
    actor: str = Field(examples=["king"])
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class JournalLines:
    """One page of lines, newest first."""

    items: list[JournalLine]
    next_cursor: str | None
    """Where the search goes on; also when nothing was found in the part that was read."""


async def recent_journal(context: WebContext, limit: int = _RECENT_LINES) -> list[JournalLine]:
    """The last lines of the journal, newest first."""
    entries = await asyncio.to_thread(journal_tail, context.court.home.journal, limit * _BYTES_PER_LINE)
    return [_journal_line(entry) for entry in reversed(entries[-limit:])]


async def search_lines(
    context: WebContext, wanted: JournalFilter, limit: int = _RECENT_LINES, cursor: str | None = None
) -> JournalLines:
    """Search the journal, newest first."""
    found = await asyncio.to_thread(search_journal, context.court.home.journal, wanted, limit, _before(cursor))
    following = None if found.following is None else cursor_of(list(found.following))
    return JournalLines([_journal_line(entry) for entry in found.entries], following)


def _before(cursor: str | None) -> JournalPosition | None:
    match cursor_position(cursor):
        case None:
            return None
        case [int() as inode, int() as offset] if inode >= 0 and 0 <= offset < 2**60:
            return JournalPosition(inode, offset)
    raise invalid_cursor()


def _journal_line(entry: Entry) -> JournalLine:
    data = json_safe(dict(entry.fields))
    return JournalLine(ts=timestamp(entry.at.timestamp()), type=entry.type, actor=json_safe(entry.actor), data=data)
