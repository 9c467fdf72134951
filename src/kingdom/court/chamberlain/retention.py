"""What is kept how long, and finding what is past that.

Files are known by their folder and the form of their name; anything else is left alone. The folders are opened step by
step from the home on, without following a link anywhere, and files are looked at and removed through the open folder:
so nothing outside the home can be reached, whatever is put in place of a folder meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from kingdom.court.bootstrap import FIXED_ROLES

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.court.chamberlain.config import RetentionSection

DAY: Final = 86400.0
TASK_FORM: Final = r"(?P<task>task-\d{8}-\d{3,})"
_LEFTOVER: Final = re.compile(r"\.tmp-.+")
_NOTHING: Final = re.compile(r"(?!)")  # a folder in which only leftovers go
_LEFTOVER_AGE: Final = DAY  # of a file that somebody was killed while writing

Warn = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of file: where it lies, how its name looks, how long it is kept."""

    name: str
    folder: tuple[str, ...]
    form: re.Pattern[str]
    days: float
    kind: Literal["file", "folder"] = "file"

    @property
    def place(self) -> str:
        """The folder, seen from the home."""
        return "/".join(self.folder)


class Expired(NamedTuple):
    """Something past its time."""

    rule: Rule
    name: str
    age: float  # seconds
    size: int
    task_id: str | None  # the task it belongs to, if its name says so
    soldier_id: str | None

    @property
    def path(self) -> str:
        """Where it lies, seen from the home."""
        return f"{self.rule.place}/{self.name}"

    @property
    def why(self) -> str:
        """Why it goes, for people."""
        if _LEFTOVER.fullmatch(self.name):
            return "left by a write that was never finished"
        return f"{self.rule.name}: {self.age / DAY:.1f} days old, kept {self.rule.days:g}"


def rules(section: RetentionSection) -> tuple[Rule, ...]:
    """Everything that is removed by its age. What is in the queues goes by the bus."""
    soldier = r"(?P<soldier>[A-Za-z0-9_:@+\-][A-Za-z0-9._:@+\-]*)"
    return (
        Rule(
            "results",
            ("state", "results"),
            re.compile(rf"{TASK_FORM}(\.json|-raw\.json|-soldier-id|-session-id)"),
            section.results_days,
        ),
        Rule("handovers", ("workspace", ".handover"), re.compile(TASK_FORM), section.results_days, "folder"),
        Rule("prompts", ("state", "prompts"), re.compile(rf"{TASK_FORM}\.md"), section.prompts_days),
        Rule("session logs", ("logs", "sessions"), re.compile(rf"{soldier}\.(json|err)"), section.session_logs_days),
        Rule("soldiers", ("state", "soldiers"), re.compile(soldier), section.session_logs_days, "folder"),
        Rule("seen index", ("state", "sentinel", "seen"), re.compile(r"[^.].*"), section.seen_days),
        Rule("logs", ("logs",), re.compile(r"events-\d{8}(\.\d+)?\.log|[a-z]+\.log\.old"), section.logs_days),
        *(Rule("leftovers", ("state", role), _NOTHING, 0.0) for role in FIXED_ROLES),
        Rule("reports", ("logs", "analysis"), re.compile(r"report-\d{4}-\d\d-\d\d\.(json|md)"), section.reports_days),
    )


def find_expired(home: Path, rule: Rule, now: float, warn: Warn) -> Iterator[Expired]:
    """What is past its time by one rule."""
    with open_folder(home, rule.folder, warn) as folder:
        if folder is None:
            return
        with os.scandir(folder) as entries:
            for entry in entries:
                leftover = rule.kind == "file" and _LEFTOVER.fullmatch(entry.name)
                match = rule.form.fullmatch(entry.name)
                if not (leftover or match):
                    continue
                found = _stat(entry.name, folder, rule, warn)
                if found is None:
                    continue
                age = now - found.st_mtime
                if age > (_LEFTOVER_AGE if leftover else rule.days * DAY):
                    groups = match.groupdict() if match else {}
                    yield Expired(rule, entry.name, age, found.st_size, groups.get("task"), groups.get("soldier"))


def remove(home: Path, rule: Rule, items: Sequence[Expired], now: float, warn: Warn) -> int:
    """Remove what is still past its time; returns how many went."""
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
    """A descriptor of a folder below the home, reached without following a link; None when there is none to clean."""
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
                f"{home}/{'/'.join(folder)} is not cleaned: {part} is a link, or no folder ({error.strerror})",
            )
            yield None
            return
        yield handles[-1]
    finally:
        for handle in reversed(handles):
            os.close(handle)


def _stat(name: str, folder: int, rule: Rule, warn: Warn) -> os.stat_result | None:
    """The state of a thing of the rule's kind."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    right = stat.S_ISDIR(found.st_mode) if rule.kind == "folder" else stat.S_ISREG(found.st_mode)
    if right:
        return found
    warn(f"clean {rule.place}/{name}", f"{rule.place}/{name} is not a {rule.kind}: it is left alone")
    return None
