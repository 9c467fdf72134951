"""Texts and tables of ``kingdom top``. No cell has markup: others wrote much of the text."""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Final
from zoneinfo import ZoneInfo

from rich.text import Text
from textual.coordinate import Coordinate
from textual.widgets import DataTable

from kingdom.agents.engines import default_engines
from kingdom.base.files import read_json
from kingdom.base.times import epoch_seconds
from kingdom.cli import output
from kingdom.cli.options import format_duration
from kingdom.cli.output import CommandError
from kingdom.court.days import local_minute
from kingdom.court.history import read_history
from kingdom.court.soldiers import find_soldier, soldiers_of_task, transcript_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.binding import BindingType

    from kingdom.cli.top.watcher import TopSnapshot
    from kingdom.court.loop import Services
    from kingdom.court.overview import QueueState
    from kingdom.court.soldiers import Soldier

# Invisible characters that move or hide others: zero-width characters and those that change the writing direction.
_HIDDEN_CHARACTERS: Final = re.compile("[\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_MAX_LINE_CHARS: Final = 2_000  # of one line: no screen shows more
COLUMNS: Final = {
    "roles": ("role", "state", "pid", "heartbeat", "why"),
    "queues": ("queue", "waiting", "processing", "bad", "oldest"),
    "soldiers": ("soldier", "task", "general", "engine", "for", "last line"),
    "tasks": ("task", "state", "general", "type", "for", "note"),
    "questions": ("task", "general", "question", "choices", "until"),
    "journal": ("time", "type", "actor", "what"),
}
_GOOD, _BAD, _WARN, _DIM = "green", "bold red", "yellow", "dim"
_ROLE_STYLES: Final = {"running": _GOOD, "failed": _BAD, "late": _BAD, "waiting": _WARN, "stopping": _WARN}
_TASK_STYLES: Final = {
    "completed": _GOOD,
    "failed": _BAD,
    "needs human": _WARN,
    "in progress": "cyan",
    "answered": _DIM,
    "cancelled": _DIM,
}
_ENTRY_STYLES: Final = {
    "event": "cyan",
    "task": "blue",
    "soldier": "magenta",
    "system": _WARN,
    "recovery": _GOOD,
}
_BAD_WORDS: Final = ("failed", "timeout", "killed", "missed", "orphaned", "warning", "discarded")
_HEALTH_STYLES: Final = {"green": _GOOD, "yellow": _WARN, "orange": "dark_orange", "red": _BAD}
_TRACED_FIELDS: Final = ("task_id", "event_id", "msg_id")
_MAX_TEXT_LINES: Final = 1_000  # the command line shows longer texts


def one_line(words: object, style: str = "") -> Text:
    """Return anything as one line without markup."""
    text = " ".join(printable(str(words)[:_MAX_LINE_CHARS]).split())
    return Text(text, style=style, no_wrap=True, overflow="ellipsis", end="")


def text_lines(words: str, style: str = "") -> Text:
    """Return a text of several lines without markup."""
    return Text(printable(words).expandtabs(4), style=style)


def printable(words: str) -> str:
    """Replace characters that a terminal would obey or could not show."""
    shown = words.encode("utf-8", "replace").decode("utf-8")  # half of a surrogate pair, from JSON
    return _HIDDEN_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", output.sanitize(shown))


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row: what it stands for, and its cells."""

    key: str
    cells: tuple[Text, ...]
    task_id: str | None = None  # the task to cancel, retry or answer
    traced: str | None = None  # the id whose history is shown
    soldier_id: str | None = None
    role: str | None = None


def headline(snapshot: TopSnapshot) -> Text:
    """Return the first line: the home, its state and health, the cost."""
    overview, (level, why), cost = snapshot.overview, snapshot.health, snapshot.cost
    up = f"up, pid {overview.supervisor_pid}" if overview.running else "not up: kingdom up starts it"
    parts = [
        one_line(overview.home, "bold"),
        one_line(up, _GOOD if overview.running else _WARN),
        one_line(f"health {level}{f' ({why})' if why else ''}", _HEALTH_STYLES.get(level, "")),
        *_cost_parts(snapshot),
    ]
    if not cost.limits:
        parts.append(one_line(f"today ${cost.day_usd:,.2f}, {cost.day_tokens:,} tokens"))
    return Text("  │  ", style=_DIM, no_wrap=True, overflow="ellipsis").join(parts)


def _cost_parts(snapshot: TopSnapshot) -> list[Text]:
    return [
        one_line(f"{name} {words}", _BAD if part >= 1 else _WARN if part >= 0.8 else "")
        for name, (words, part) in snapshot.cost.limits.items()
    ]


def notes_line(snapshot: TopSnapshot) -> Text:
    """Return the second line: what is held back, and problems; empty when there are none."""
    overview = snapshot.overview
    parts = []
    for reason, detail in overview.holds.items():
        count = detail.get("count", "?") if isinstance(detail, dict) else detail
        parts.append(one_line(f"{count} held back: {reason}", _WARN))
    if overview.problems:
        first, count = overview.problems[0], sum(one.count for one in overview.problems)
        parts.append(one_line(f"{count} problems, the first: {first.what}: {first.why}", _BAD))
    return Text("  │  ", style=_DIM, no_wrap=True, overflow="ellipsis").join(parts)


def table_rows(snapshot: TopSnapshot) -> dict[str, list[TableRow]]:
    """Return the rows of all tables, by the name of the table."""
    return {
        "roles": _role_rows(snapshot),
        "queues": [_queue_row(queue) for queue in snapshot.overview.queues],
        "soldiers": _soldier_rows(snapshot),
        "tasks": _task_rows(snapshot),
        "questions": _question_rows(snapshot),
        "journal": _journal_rows(snapshot),
    }


def _role_rows(snapshot: TopSnapshot) -> list[TableRow]:
    return [
        TableRow(
            role.name,
            (
                one_line(role.name),
                one_line(role.state, _ROLE_STYLES.get(role.state, _DIM)),
                one_line(role.pid or "–"),
                one_line(_duration_or_dash(role.heartbeat_seconds)),
                one_line(role.reason, _BAD),
            ),
            role=role.name,
        )
        for role in snapshot.overview.roles
    ]


def _queue_row(queue: QueueState) -> TableRow:
    numbers = list(queue.counts.values())
    waiting, processing, bad = (numbers[0], 0, numbers[1]) if len(numbers) == 2 else numbers
    oldest = format_duration(queue.oldest_seconds) if waiting else "–"
    cells = (queue.name, f"{waiting:,}", f"{processing:,}")
    return TableRow(queue.name, (*map(one_line, cells), one_line(f"{bad:,}", _BAD if bad else ""), one_line(oldest)))


def _soldier_rows(snapshot: TopSnapshot) -> list[TableRow]:
    return [
        TableRow(
            one.id,
            (
                one_line(one.id),
                one_line(one.task_id),
                one_line(one.general),
                one_line(one.engine),
                one_line(_duration_or_dash(one.seconds)),
                one_line((snapshot.said.get(one.id) or [""])[-1], "italic"),
            ),
            task_id=one.task_id,
            traced=one.task_id,
            soldier_id=one.id,
        )
        for one in snapshot.overview.soldiers
    ]


def _task_rows(snapshot: TopSnapshot) -> list[TableRow]:
    return [
        TableRow(
            task.id,
            (
                one_line(task.id),
                one_line(task.state, _TASK_STYLES.get(task.state, "")),
                one_line(task.general),
                one_line(task.kind),
                one_line(_duration_or_dash(max(snapshot.at - task.since, 0.0))),
                one_line(task.note),
            ),
            task_id=task.id,
            traced=task.id,
        )
        for task in snapshot.tasks
    ]


def _question_rows(snapshot: TopSnapshot) -> list[TableRow]:
    zone = ZoneInfo(snapshot.overview.timezone)
    return [
        TableRow(
            one.task_id,
            (
                one_line(one.task_id),
                one_line(one.general),
                one_line(one.question, _WARN),
                one_line(" | ".join(one.choices)),
                one_line(_minute(one.deadline, zone)),
            ),
            task_id=one.task_id,
            traced=one.task_id,
        )
        for one in snapshot.overview.questions
    ]


def _journal_rows(snapshot: TopSnapshot) -> list[TableRow]:
    rows, zone = [], ZoneInfo(snapshot.overview.timezone)
    for number, entry in snapshot.journal:
        category, _, action = entry.type.partition(".")
        style = _BAD if any(word in action for word in _BAD_WORDS) else _ENTRY_STYLES.get(category, "")
        data = " ".join(f"{key}={_short(value)}" for key, value in entry.fields.items() if value not in (None, ""))
        ids = [entry.fields[name] for name in _TRACED_FIELDS if isinstance(entry.fields.get(name), str)]
        task = entry.fields.get("task_id")
        rows.append(
            TableRow(
                str(number),
                (
                    one_line(_clock_time(entry.at, zone), _DIM),
                    one_line(entry.type, style),
                    one_line(entry.actor),
                    one_line(data),
                ),
                task_id=task if isinstance(task, str) else None,
                traced=ids[0] if ids else None,
            )
        )
    return rows


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else text[:119] + "…"


def _clock_time(moment: datetime, zone: ZoneInfo) -> str:
    return moment.astimezone(zone).strftime("%H:%M:%S")


def _minute(text: str | None, zone: ZoneInfo) -> str:
    at = epoch_seconds(text)
    return "–" if at is None else local_minute(at, zone)


def _duration_or_dash(seconds: float | None) -> str:
    return "–" if seconds is None else format_duration(int(seconds) if seconds >= 10 else seconds)


class LiveTable(DataTable[Text]):
    """A table whose rows change; the selected row stays selected when it moves."""

    BINDINGS: ClassVar[list[BindingType]] = [("enter", "select_cursor", "history")]

    def __init__(self, name: str, title: str) -> None:
        super().__init__(id=name, cursor_type="row", zebra_stripes=False, cell_padding=1)
        self.border_title = title
        self._headings = COLUMNS[name]
        self._shown: list[TableRow] = []

    def on_mount(self) -> None:
        self.add_columns(*self._headings)

    @property
    def selected(self) -> TableRow | None:
        """The row under the cursor."""
        return self._shown[self.cursor_row] if 0 <= self.cursor_row < len(self._shown) else None

    def fill(self, rows: Sequence[TableRow]) -> None:
        """Show these rows; cells that have not changed are not touched."""
        before, self._shown = self._shown, list(rows)
        if [row.key for row in before] == [row.key for row in rows]:
            for number, (old, new) in enumerate(zip(before, rows, strict=True)):
                for column, (was, now) in enumerate(zip(old.cells, new.cells, strict=True)):
                    if was != now:
                        self.update_cell_at(Coordinate(number, column), now, update_width=True)
            return
        place, kept = self.cursor_row, self.scroll_offset
        selected = before[place].key if 0 <= place < len(before) else None
        follows = self.has_focus or place > 0  # the first row of a table without focus was not selected by the user
        self.clear()
        for row in rows:
            self.add_row(*row.cells, key=row.key)
        if follows and selected is not None:
            place = next((number for number, row in enumerate(rows) if row.key == selected), min(place, len(rows) - 1))
        if rows:
            self.move_cursor(row=max(place, 0), scroll=self.has_focus)
            if not self.has_focus:
                self.scroll_to(*kept, animate=False)


async def history_text(services: Services, traced: str) -> Text:
    """Return the history of an id."""
    entries = [one.document() for one in await read_history(services, traced)]
    if not entries:
        raise CommandError("NOT_FOUND", f"no file mentions {traced} any more")
    rows = [
        Text.assemble((f"{one['ts'][11:23]} ", "dim"), (f"{one['who']:<12} ", "cyan"), one_line(one["what"]))
        for one in entries[-_MAX_TEXT_LINES:]
    ]
    return Text("\n").join(rows)


async def transcript_text(services: Services, task_id: str | None, soldier_id: str | None) -> Text:
    """Return what a soldier said and did. Without a soldier, the last one of the task."""
    return await asyncio.to_thread(_read_transcript, services, task_id, soldier_id)


def _read_transcript(services: Services, task_id: str | None, soldier_id: str | None) -> Text:
    home = services.home
    found: Soldier | None = None
    if soldier_id is not None:
        found = find_soldier(home, soldier_id)
    elif task_id is not None:
        found = next(reversed(soldiers_of_task(home, task_id)), None)
    if found is None:
        raise CommandError("NOT_FOUND", "no soldier has worked on it yet, or its files were removed")
    try:
        said = deque(transcript_lines(found, default_engines()), maxlen=_MAX_TEXT_LINES)
    except OSError as error:
        raise CommandError("NOT_FOUND", f"the transcript cannot be read: {error}") from error
    return text_lines("\n".join(said) or "no output yet")


async def heartbeat_text(services: Services, role: str) -> Text:
    """Return the last heartbeat of a role."""
    found = read_json(services.home.heartbeat(role))
    if not isinstance(found, dict):
        raise CommandError("NOT_FOUND", f"{role} has not sent a heartbeat yet")
    return text_lines(json.dumps(found, ensure_ascii=False, indent=2))
