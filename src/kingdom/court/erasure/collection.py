"""Find everything in a court that belongs to a person or a repository.

A document that names the subject belongs to it, and with it every document that links to it or that it links to: the
event, its tasks, their messages, questions and answers. So do the files of these tasks: results, prompts, transcripts,
runs. Other files that name the subject only mention it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.document_index import expand_ids, links_of
from kingdom.court.erasure.plan import REMOVAL_FILE
from kingdom.court.king.write_ahead_log import WriteAheadLog
from kingdom.court.machines.exchange import ORDERS, REPORTS
from kingdom.court.queues import STATES, StoredDocument, all_documents
from kingdom.court.soldiers import all_soldiers
from kingdom.journal.redaction import log_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kingdom.bus.delivery import Record
    from kingdom.court.erasure.names import SubjectNames
    from kingdom.court.home import Home
    from kingdom.court.loop import Services

_ID: Final = re.compile(r"(?:task|msg)-\d{8}-\d{3,}")
_TEXT_LIMIT: Final = 8192  # of a file, in which a zero byte shows that it is no text
# Not read: queues are searched through the bus, repositories are git's, tokens are revoked.
_SKIPPED: Final = frozenset({"queue", "workspace", "workflows/clones", "workflows/worktrees", "workflows/workspaces"})
_TASK_FOLDER_DEPTH: Final = 4  # workspace/GENERAL/worktrees/GENERAL/TASK
_SKIPPED_FILES: Final = frozenset({f"state/{REMOVAL_FILE}"})
_SKIPPED_PREFIXES: Final = ("state/web/token", "state/sentinel/seen/", "logs/.redacted")
_CONFIGURATION: Final = "config/"
_SQLITE: Final = b"SQLite format 3\0"
_OPEN_STATES: Final = frozenset(
    state for states in STATES.values() for status, state in states.items() if status in ("PENDING", "PROCESSING")
)


@dataclass(slots=True)
class KnownRecords:
    """Everything that belongs to a subject. Paths are relative to the home."""

    documents: list[StoredDocument] = field(default_factory=list)
    reports: list[Record] = field(default_factory=list)
    """Reports and orders between the machines of a court."""
    ids: set[str] = field(default_factory=set)
    """Of its events, tasks, messages and soldiers."""
    paths: list[str] = field(default_factory=list)
    """Its files and folders."""
    clones: list[str] = field(default_factory=list)
    """The clones of a repository, and the worktrees of these clones."""
    mentions: list[str] = field(default_factory=list)
    """Other files that name it."""
    configuration: list[str] = field(default_factory=list)
    """Files of ``config/`` that name it."""
    running: list[str] = field(default_factory=list)
    """What is not finished: ids of documents and soldiers."""


async def collect_records(services: Services, names: SubjectNames) -> KnownRecords:
    """Find everything that belongs to a subject. Reads every text file of the home."""
    found = KnownRecords()
    known = [(stored, links_of(stored)) for stored in await all_documents(services)]
    found.ids = {
        stored.id for stored, _ in known if names.are_in_document(stored.document) or names.are_in(stored.problem or "")
    }
    expand_ids(found.ids, known)
    found.documents = [stored for stored, links in known if stored.id in found.ids or links & found.ids]
    found.running = [stored.id for stored in found.documents if stored.state in _OPEN_STATES]
    cases = WriteAheadLog(services.home.role("king")).open().cases  # also the open questions of scheduled tasks
    found.running += [root for root in cases if root in found.ids and root not in found.running]
    await asyncio.to_thread(_find_files, services.home, names, found)
    declared = await services.bus.depth()
    for stream in (REPORTS, ORDERS):
        if stream in declared:
            found.reports += [
                record
                async for record in services.bus.records(stream)
                if names.are_in_document(record.envelope.payload) or _names_an_id(record.envelope.payload, found.ids)
            ]
    return found


def _names_an_id(value: Any, ids: set[str]) -> bool:
    if isinstance(value, str):
        return value in ids or bool(set(_ID.findall(value)) & ids)
    if isinstance(value, dict):
        return any(_names_an_id(one, ids) for one in value.values())
    return isinstance(value, list) and any(_names_an_id(one, ids) for one in value)


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _find_files(home: Home, names: SubjectNames, found: KnownRecords) -> None:
    for soldier in all_soldiers(home):
        if soldier.task_id in found.ids:
            found.ids.add(soldier.id)
            if soldier.at_work:
                found.running.append(soldier.id)
    if names.kind == "repository":
        found.clones = sorted(_clones_of(home, names))
    for top in ("state", "logs", "memory", "workspace"):
        found.paths += _paths_named(home, home.root / top, names, found)
    journal = {str(path.relative_to(home.root)) for path in log_files(home.journal)}
    for path in _text_files(home, found):
        with contextlib.suppress(OSError):
            if names.are_in(_read_text(home.root / path)):
                if path.startswith(_CONFIGURATION):
                    found.configuration.append(path)
                elif path not in journal:
                    found.mentions.append(path)


def _paths_named(home: Home, folder: Path, names: SubjectNames, found: KnownRecords) -> Iterator[str]:
    """Yield what is named after a document or soldier of the subject, or after the subject itself."""
    for here, folders, files in os.walk(folder):
        place = Path(here).relative_to(home.root)
        folders[:] = sorted(folders)
        for name in [*folders, *sorted(files)]:
            path = f"{place}/{name}"
            if path in found.clones or path.startswith(_SKIPPED_PREFIXES):
                _leave_out(folders, name)
            elif _is_named(name, found.ids) or (place.parts[0] == "memory" and names.are_in(name)):
                _leave_out(folders, name)
                yield path
        if place.parts[0] == "workspace":  # tasks have folders below it; what is in these is not searched
            folders[:] = [one for one in folders if one != home.clones.name and len(place.parts) < _TASK_FOLDER_DEPTH]


def _leave_out(folders: list[str], name: str) -> None:
    if name in folders:
        folders.remove(name)


def _is_named(name: str, ids: set[str]) -> bool:
    return bool({name, Path(name).stem, name.partition(".")[0], *_ID.findall(name)} & ids)


def _text_files(home: Home, found: KnownRecords) -> Iterator[str]:
    """Yield the other text files of the home."""
    own = set(found.paths)
    for here, folders, files in os.walk(home.root):
        relative = Path(here).relative_to(home.root)
        place = "" if relative == Path() else f"{relative}/"
        folders[:] = sorted(one for one in folders if f"{place}{one}" not in _SKIPPED | own and one != ".git")
        for name in sorted(files):
            path = f"{place}{name}"
            if path in own or path in _SKIPPED_FILES or path.startswith(_SKIPPED_PREFIXES):
                continue
            if _is_text(home.root / path):
                yield path


def _is_text(path: Path) -> bool:
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
        with path.open("rb") as file:
            head = file.read(_TEXT_LIMIT)
    except OSError:
        return False
    return bool(head) and not head.startswith(_SQLITE) and b"\0" not in head


def _read_text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "surrogateescape")


def _clones_of(home: Home, names: SubjectNames) -> Iterator[str]:
    """Yield the clones of a repository in the workspace, and their worktrees."""
    clones = []
    for note in home.clones.glob("*/clone.json"):
        with contextlib.suppress(OSError):
            if names.are_in(_read_text(note)):
                clones.append(note.parent)
                yield str(note.parent.relative_to(home.root))
    for pointer in home.workspace.glob("*/worktrees/*/*/.git"):
        with contextlib.suppress(OSError):
            target = _read_text(pointer).removeprefix("gitdir:").strip() if pointer.is_file() else ""
            if any(Path(target).is_relative_to(clone) for clone in clones if target):
                yield str(pointer.parent.relative_to(home.root))
