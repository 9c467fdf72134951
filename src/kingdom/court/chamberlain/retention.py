"""Retention rules: how long files are kept, finding expired ones, and the active tasks whose files are always kept.

Files are identified by their folder and the pattern of their name; all others are left alone. Each folder is opened
step by step from the home on, without following symbolic links, and files are checked and removed through the open
folder. So nothing outside the home can be reached, even if a folder is replaced meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from kingdom.base.files import read_json
from kingdom.court.bootstrap import FIXED_ROLES
from kingdom.court.queues import EVENTS, TASKS

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.bus import EventBus
    from kingdom.bus.delivery import Record
    from kingdom.court.chamberlain.config import RetentionSection
    from kingdom.court.home import Home


class ActiveTasks:
    """Looks up active tasks during one cleanup. Files of an active task are kept regardless of age.

    A task is active while it is pending or in progress, and after that while its event is open: a question may be
    open, and its answer needs the files of the task. A scheduled task has no event; if it asked a question, it is
    active while the king's log names it.
    """

    def __init__(self, home: Home, bus: EventBus) -> None:
        self._home = home
        self._bus = bus
        self._known: dict[str, bool] = {}
        self._open: bool | None = None  # whether any event or task is open
        self._in_hand: set[str] = set()  # tasks in the king's log

    async def has(self, task_id: str) -> bool:
        """Whether the task is active."""
        if self._open is None:
            depths = await self._bus.depth()
            self._open = any(depths[stream].pending + depths[stream].processing for stream in (EVENTS, TASKS))
            self._in_hand = await asyncio.to_thread(_task_ids_in, self._home.role("king") / ".book")
        if not self._open and task_id not in self._in_hand:
            return False  # the usual case at night: saves a lookup for each of very many tasks
        if task_id not in self._known:
            self._known[task_id] = await self._look(await self._bus.find(task_id))
        return self._known[task_id]

    async def _look(self, record: Record | None) -> bool:
        if record is None or record.stream != TASKS:
            return False
        if _is_open(record):
            return True
        payload, task_id = record.envelope.payload, record.envelope.event_id
        cause = payload.get("event_id") if isinstance(payload, dict) else None
        if not isinstance(cause, str):
            return False
        if cause.startswith("schedule-"):
            result = read_json(self._home.result(task_id)) if task_id in self._in_hand else None
            return isinstance(result, dict) and result.get("status") == "needs_human"
        event = await self._bus.find(cause)
        return event is not None and event.stream == EVENTS and _is_open(event)


def _task_ids_in(book: Path) -> set[str]:
    try:
        return {found.decode() for found in re.findall(rb"task-\d{8}-\d{3,}", book.read_bytes())}
    except OSError:
        return set()


def _is_open(record: Record) -> bool:
    return record.status in ("PENDING", "PROCESSING")


DAY_SECONDS: Final = 86400.0
TASK_ID_PATTERN: Final = r"(?P<task>task-\d{8}-\d{3,})"
_TEMPORARY_NAME: Final = re.compile(r"\.tmp-.+")
_MATCHES_NOTHING: Final = re.compile(r"(?!)")  # for folders where only temporary files expire
_TEMPORARY_MAX_AGE_SECONDS: Final = DAY_SECONDS  # left by a killed process

Warn = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """One kind of file: its folder, the pattern of its name, how long it is kept."""

    name: str
    folder: tuple[str, ...]
    form: re.Pattern[str]
    days: float
    kind: Literal["file", "folder"] = "file"

    @property
    def place(self) -> str:
        """The folder, relative to the home."""
        return "/".join(self.folder)


class ExpiredFile(NamedTuple):
    rule: RetentionRule
    name: str
    age: float  # seconds
    size: int
    task_id: str | None  # from its name, if it has one
    soldier_id: str | None

    @property
    def path(self) -> str:
        """The path, relative to the home."""
        return f"{self.rule.place}/{self.name}"

    @property
    def why(self) -> str:
        """The reason for its removal, for people."""
        if _TEMPORARY_NAME.fullmatch(self.name):
            return "left by an unfinished write"
        return f"{self.rule.name}: {self.age / DAY_SECONDS:.1f} days old, kept {self.rule.days:g}"


def retention_rules(section: RetentionSection) -> tuple[RetentionRule, ...]:
    """Return the rules for all files that expire. The bus purges the queues."""
    soldier = r"(?P<soldier>[A-Za-z0-9_:@+\-][A-Za-z0-9._:@+\-]*)"
    return (
        RetentionRule(
            "results",
            ("state", "results"),
            re.compile(rf"{TASK_ID_PATTERN}(\.json|-raw\.json|-soldier-id|-session-id|-asked)"),
            section.results_days,
        ),
        RetentionRule(
            "handovers", ("workspace", ".handover"), re.compile(TASK_ID_PATTERN), section.results_days, "folder"
        ),
        RetentionRule("prompts", ("state", "prompts"), re.compile(rf"{TASK_ID_PATTERN}\.md"), section.prompts_days),
        RetentionRule(
            "session logs", ("logs", "sessions"), re.compile(rf"{soldier}\.(json|err)"), section.session_logs_days
        ),
        RetentionRule("soldiers", ("state", "soldiers"), re.compile(soldier), section.session_logs_days, "folder"),
        RetentionRule(
            "pull requests", ("state", "pull-requests"), re.compile(r"[0-9a-f]{32}\.json"), section.pull_requests_days
        ),
        RetentionRule(
            "threads", ("state", "request-threads"), re.compile(r"[0-9a-f]{32}\.json"), section.pull_requests_days
        ),
        RetentionRule("seen index", ("state", "sentinel", "seen"), re.compile(r"[^.].*"), section.seen_days),
        RetentionRule("logs", ("logs",), re.compile(r"events-\d{8}(\.\d+)?\.log|[a-z]+\.log\.old"), section.logs_days),
        *(RetentionRule("leftovers", ("state", role), _MATCHES_NOTHING, 0.0) for role in FIXED_ROLES),
        RetentionRule(
            "reports", ("logs", "analysis"), re.compile(r"report-\d{4}-\d\d-\d\d\.(json|md)"), section.reports_days
        ),
    )


def find_expired(home: Path, rule: RetentionRule, now: float, warn: Warn) -> Iterator[ExpiredFile]:
    """Yield what has expired by one rule."""
    with open_folder(home, rule.folder, warn) as folder:
        if folder is None:
            return
        with os.scandir(folder) as entries:
            for entry in entries:
                leftover = rule.kind == "file" and _TEMPORARY_NAME.fullmatch(entry.name)
                match = rule.form.fullmatch(entry.name)
                if not (leftover or match):
                    continue
                found = _stat(entry.name, folder, rule, warn)
                if found is None:
                    continue
                age = now - found.st_mtime
                if age > (_TEMPORARY_MAX_AGE_SECONDS if leftover else rule.days * DAY_SECONDS):
                    groups = match.groupdict() if match else {}
                    yield ExpiredFile(rule, entry.name, age, found.st_size, groups.get("task"), groups.get("soldier"))


def remove_expired(home: Path, rule: RetentionRule, items: Sequence[ExpiredFile], now: float, warn: Warn) -> int:
    """Remove the items that are still expired; return the number removed."""
    removed = 0
    with open_folder(home, rule.folder, warn) as folder:
        if folder is None:
            return 0
        for item in items:
            found = _stat(item.name, folder, rule, warn)
            if found is None or now - found.st_mtime < item.age:  # written since
                continue
            try:
                if rule.kind == "folder":
                    shutil.rmtree(item.name, dir_fd=folder)
                else:
                    os.unlink(item.name, dir_fd=folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                warn(f"clean {rule.place}", f"{item.path} cannot be removed: {error.strerror or error}")
            else:
                removed += 1
    return removed


@contextlib.contextmanager
def open_folder(home: Path, folder: Sequence[str], warn: Warn) -> Iterator[int | None]:
    """Open a folder of the home without following symbolic links; yield its descriptor, or None if there is none."""
    handles: list[int] = []
    try:
        handles.append(os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        try:
            for part in folder:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                handles.append(os.open(part, flags, dir_fd=handles[-1]))
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            warn(
                f"clean {'/'.join(folder)}",
                f"{home}/{'/'.join(folder)} is not cleaned: {part} is a link, or not a folder ({error.strerror})",
            )
            yield None
            return
        yield handles[-1]
    finally:
        for handle in reversed(handles):
            os.close(handle)


def _stat(name: str, folder: int, rule: RetentionRule, warn: Warn) -> os.stat_result | None:
    """Return the status of a file or folder of the rule's kind; None when it is missing or of another kind."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    right = stat.S_ISDIR(found.st_mode) if rule.kind == "folder" else stat.S_ISREG(found.st_mode)
    if right:
        return found
    warn(f"clean {rule.place}/{name}", f"{rule.place}/{name} is not a {rule.kind}: it is left alone")
    return None
