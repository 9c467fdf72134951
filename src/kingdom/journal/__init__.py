"""The journal: a log of internal events, one JSON line each. Every role appends to it; any process may read it.

::

    journal = Journal("logs/events.log")
    journal.emit(TaskStarted(task_id="task-20260207-001"), "gen-pr")

    with Reader("logs/events.log", "state/chamberlain/journal.cursor") as reader:
        for event in reader.read():
            ...
        reader.commit()

``kingdom.journal.catalog`` lists all events; ``docs/reference/internal-events.md`` is generated from it.
"""

from kingdom.journal import catalog as catalog
from kingdom.journal.catalog import CATALOG, DataField, EventData, EventType
from kingdom.journal.cursor import Cursor
from kingdom.journal.errors import InvalidCursor, InvalidEvent, InvalidLine, JournalError, JournalUnavailable, Problem
from kingdom.journal.lines import MAX_LINE_BYTES, Entry, JournalEvent, UnknownEvent, parse
from kingdom.journal.reader import Reader
from kingdom.journal.rotation import Rotation, copy_to_old, rotate, rotate_to_old
from kingdom.journal.writer import Journal

__all__ = [
    "CATALOG",
    "MAX_LINE_BYTES",
    "Cursor",
    "DataField",
    "Entry",
    "EventData",
    "EventType",
    "InvalidCursor",
    "InvalidEvent",
    "InvalidLine",
    "Journal",
    "JournalError",
    "JournalEvent",
    "JournalUnavailable",
    "Problem",
    "Reader",
    "Rotation",
    "UnknownEvent",
    "copy_to_old",
    "parse",
    "rotate",
    "rotate_to_old",
]
