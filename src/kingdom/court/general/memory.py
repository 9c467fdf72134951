"""What a general remembers: Markdown files that people and soldiers write, read into every prompt.

``learned.md`` is the general's own: what soldiers reported as worth remembering, an entry for each task, the oldest
dropped when it grows too large. Other files in the folder are people's, and only read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kingdom.agents.untrusted import clean, cut_middle
from kingdom.court.files import write_atomic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LEARNED: Final = "learned.md"
_HEAD: Final = "# Learned\n"
_MOST_UPDATES: Final = 20  # of one task
_LONGEST_UPDATE: Final = 2000  # bytes
_MARKER: Final = 60  # bytes that the marker of a cut needs
_entry_starts = re.compile(r"^(?=## )", re.MULTILINE)


def read_memory(folder: Path, most: int) -> str:
    """All memory files, the newest first in line for the ``most`` bytes there are; of a long one its end is kept."""
    parts: dict[str, str] = {}
    room = most
    for path in sorted(_files(folder), key=lambda path: (-path.stat().st_mtime_ns, path.name)):
        title = f"### {clean(path.name)}\n"
        text = _last_lines(clean(path.read_text("utf-8", "replace")).strip(), room - len(title.encode()) - 1)
        if text:
            parts[path.name] = title + text
            room -= len(parts[path.name].encode()) + 1
    return "\n".join(parts[name] for name in sorted(parts))


def remember(folder: Path, task_id: str, day: str, updates: Sequence[str], most: int) -> bool:
    """Add what a task taught to ``learned.md``; whether anything was added. A task has one entry, however often."""
    items = [_item(update) for update in updates[:_MOST_UPDATES] if clean(update).strip()]
    if not items:
        return False
    path = folder / LEARNED
    head, *entries = _entry_starts.split(_read(path))
    if any(known.partition("\n")[0].endswith(f" {task_id}") for known in entries):
        return False
    head = head if head and len(head.encode()) <= most // 2 else _HEAD
    title = f"## {day} {task_id}\n"
    room = most - len(head.encode()) - len(title) - 1
    if room <= _MARKER:
        return False
    body = "".join(items).rstrip("\n")
    entries.append(f"{title}{body if len(body.encode()) <= room else cut_middle(body, room - _MARKER)}\n")
    while len((head + "".join(entries)).encode()) > most:
        entries.pop(0)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(path, head + "".join(entries))
    return True


def _files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.suffix == ".md" and path.is_file() and not path.is_symlink()]
    except FileNotFoundError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _item(update: str) -> str:
    """One update as a list item; its lines are indented, so that none of them can look like an entry."""
    first, *others = cut_middle(clean(update).strip(), _LONGEST_UPDATE).split("\n")
    return f"- {first}\n" + "".join(f"  {line.rstrip()}\n" for line in others)


def _last_lines(text: str, most: int) -> str:
    """The end of a text, from the beginning of a line, in at most ``most`` bytes."""
    data = text.encode()
    if len(data) <= most:
        return text
    tail = data[len(data) - max(most, 0) :].decode(errors="ignore")
    return tail.partition("\n")[2] if "\n" in tail else tail
