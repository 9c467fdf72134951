"""From a snapshot to rows of tables. Every cell is text without markup: much of it was written by others."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from rich.text import Text

from kingdom.cli.durations import format_duration
from kingdom.cli.top.plain import line

if TYPE_CHECKING:
    from kingdom.cli.top.lookout import Snapshot
    from kingdom.court.overview import QueueView

COLUMNS: Final = {
    "roles": ("role", "state", "pid", "heartbeat", "why"),
    "queues": ("queue", "waiting", "held", "bad", "oldest"),
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
}
_ENTRY_STYLES: Final = {
    "event": "cyan",
    "task": "blue",
    "soldier": "magenta",
    "system": _WARN,
    "recovery": _GOOD,
}
_BAD_WORDS: Final = ("failed", "timeout", "killed", "missed", "orphaned", "warning", "discarded")
_HEALTH: Final = {"green": _GOOD, "yellow": _WARN, "orange": "dark_orange", "red": _BAD}
_TRACED: Final = ("task_id", "event_id", "msg_id")


@dataclass(frozen=True, slots=True)
class Row:
    """One row: what it stands for, and its cells."""

    key: str
    cells: tuple[Text, ...]
    task_id: str | None = None  # the task that can be cancelled, retried or answered from here
    traced: str | None = None  # the id whose story is told
    soldier_id: str | None = None
    role: str | None = None


def head(snapshot: Snapshot) -> Text:
    """The first line: where, how it is, what it cost."""
    overview, (level, why), cost = snapshot.overview, snapshot.health, snapshot.cost
    up = f"up, pid {overview.supervisor_pid}" if overview.running else "not up: kingdom up starts it"
    parts = [
        line(overview.home, "bold"),
        line(up, _GOOD if overview.running else _WARN),
        line(f"health {level}{f' ({why})' if why else ''}", _HEALTH.get(level, "")),
        *_spent(snapshot),
    ]
    if not cost.limits:
        parts.append(line(f"today ${cost.day_usd:,.2f}, {cost.day_tokens:,} tokens"))
    return Text("  │  ", style=_DIM, no_wrap=True, overflow="ellipsis").join(parts)


def _spent(snapshot: Snapshot) -> list[Text]:
    return [
        line(f"{name} {words}", _BAD if part >= 1 else _WARN if part >= 0.8 else "")
        for name, (words, part) in snapshot.cost.limits.items()
    ]


def notes(snapshot: Snapshot) -> Text:
    """The second line: what is held back, and what went wrong; empty when there is nothing to say."""
    overview = snapshot.overview
    parts = []
    for reason, told in overview.holds.items():
        count = told.get("count", "?") if isinstance(told, dict) else told
        parts.append(line(f"{count} held back: {reason}", _WARN))
    if overview.problems:
        last = overview.problems[-1]
        parts.append(line(f"{len(overview.problems)} to look at, such as {last.what}: {last.why}", _BAD))
    return Text("  │  ", style=_DIM, no_wrap=True, overflow="ellipsis").join(parts)


def tables(snapshot: Snapshot) -> dict[str, list[Row]]:
    """The rows of every table, by its name."""
    return {
        "roles": _roles(snapshot),
        "queues": [_queue(queue) for queue in snapshot.overview.queues],
        "soldiers": _soldiers(snapshot),
        "tasks": _tasks(snapshot),
        "questions": _questions(snapshot),
        "journal": _journal(snapshot),
    }


def _roles(snapshot: Snapshot) -> list[Row]:
    return [
        Row(
            role.name,
            (
                line(role.name),
                line(role.state, _ROLE_STYLES.get(role.state, _DIM)),
                line(role.pid or "–"),
                line(_span(role.heartbeat_seconds)),
                line(role.reason, _BAD),
            ),
            role=role.name,
        )
        for role in snapshot.overview.roles
    ]


def _queue(queue: QueueView) -> Row:
    numbers = list(queue.counts.values())
    waiting, held, bad = (numbers[0], 0, numbers[1]) if len(numbers) == 2 else numbers
    oldest = format_duration(queue.oldest_seconds) if waiting else "–"
    cells = (queue.name, f"{waiting:,}", f"{held:,}")
    return Row(queue.name, (*map(line, cells), line(f"{bad:,}", _BAD if bad else ""), line(oldest)))


def _soldiers(snapshot: Snapshot) -> list[Row]:
    return [
        Row(
            one.id,
            (
                line(one.id),
                line(one.task_id),
                line(one.general),
                line(one.engine),
                line(_span(one.seconds)),
                line((snapshot.said.get(one.id) or [""])[-1], "italic"),
            ),
            task_id=one.task_id,
            traced=one.task_id,
            soldier_id=one.id,
        )
        for one in snapshot.overview.soldiers
    ]


def _tasks(snapshot: Snapshot) -> list[Row]:
    return [
        Row(
            task.id,
            (
                line(task.id),
                line(task.state, _TASK_STYLES.get(task.state, "")),
                line(task.general),
                line(task.kind),
                line(_span(max(snapshot.at - task.since, 0.0))),
                line(task.note),
            ),
            task_id=task.id,
            traced=task.id,
        )
        for task in snapshot.tasks
    ]


def _questions(snapshot: Snapshot) -> list[Row]:
    return [
        Row(
            one.task_id,
            (
                line(one.task_id),
                line(one.general),
                line(one.question, _WARN),
                line(" | ".join(one.choices)),
                line(one.deadline or "–"),
            ),
            task_id=one.task_id,
            traced=one.task_id,
        )
        for one in snapshot.overview.questions
    ]


def _journal(snapshot: Snapshot) -> list[Row]:
    rows = []
    for number, entry in snapshot.journal:
        category, _, action = entry.type.partition(".")
        style = _BAD if any(word in action for word in _BAD_WORDS) else _ENTRY_STYLES.get(category, "")
        data = " ".join(f"{key}={_short(value)}" for key, value in entry.fields.items() if value not in (None, ""))
        ids = [entry.fields[name] for name in _TRACED if isinstance(entry.fields.get(name), str)]
        task = entry.fields.get("task_id")
        rows.append(
            Row(
                str(number),
                (line(_clock(entry.at), _DIM), line(entry.type, style), line(entry.actor), line(data)),
                task_id=task if isinstance(task, str) else None,
                traced=ids[0] if ids else None,
            )
        )
    return rows


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else text[:119] + "…"


def _clock(moment: datetime) -> str:
    return moment.astimezone().strftime("%H:%M:%S")


def _span(seconds: float | None) -> str:
    return "–" if seconds is None else format_duration(int(seconds) if seconds >= 10 else seconds)
