"""Remove everything that belongs to a person or a repository, and hide its names where it is only mentioned.

The plan is stored before anything is removed, and deleted at the end. Every step can be repeated, so a removal that was
interrupted is completed by carrying out the same plan again; until then the court does not start. The names are in the
plan as long as it exists.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import read_json, remove_abandoned, write_atomic, write_json
from kingdom.court.chamberlain.cleanup import OUTPUT_LOG, TEXT_LOGS
from kingdom.court.chamberlain.memory import memory_path
from kingdom.court.document_index import INVALID
from kingdom.court.erasure.plan import RemovalPlan, RemovalRefused, delete_plan
from kingdom.court.king.write_ahead_log import LOG_FILE, LogEntry
from kingdom.journal.redaction import redact_log

if TYPE_CHECKING:
    from kingdom.court.erasure.collection import KnownRecords
    from kingdom.court.erasure.names import SubjectNames
    from kingdom.court.home import Home
    from kingdom.court.loop import Services

NOT_REACHED: Final = (
    "GitHub, Jira and Slack, and whatever agents wrote there",
    "the provider of the model, which received the prompts",
    "commits, in clones and where they were pushed",
    "backups and exports that were made before",
    "homes of other machines of the court: run it there first",
)
"""What neither an export nor a removal reaches."""
# Fields of journal lines that say nothing about a person: ids, kinds and numbers. Statistics are made of them.
_KEPT_FIELDS: Final = frozenset(
    {
        "event_id", "task_id", "original_task_id", "msg_id", "soldier_id", "source", "event_type", "target_general",
        "priority", "status", "general", "action", "thread_ts",
    }
)  # fmt: skip
_ID_FIELDS: Final = ("event_id", "task_id", "original_task_id", "msg_id", "soldier_id", "subject")


FurtherRemoval = Callable[[RemovalPlan], Awaitable[None]]
"""Removes what other layers have. It may be called again after an interruption."""


def check_removable(found: KnownRecords) -> None:
    """Raise if something of the subject is not finished."""
    if found.running:
        shown = ", ".join(found.running[:5]) + (f" and {len(found.running) - 5} more" if len(found.running) > 5 else "")
        raise RemovalRefused(
            f"not finished yet: {shown}. Start the court, let them finish, answer or cancel them "
            "(kingdom task cancel), and try again"
        )


def make_plan(names: SubjectNames, found: KnownRecords) -> RemovalPlan:
    """Return the plan for what was found."""
    plan = RemovalPlan(names.kind, list(names.names), sorted(found.ids), mentions=list(found.mentions))
    for stored in found.documents:
        if stored.state == INVALID and stored.path is not None:  # the bus does not know every one of them
            plan.paths.append(f"queue/{stored.stream}/{INVALID}/{stored.path.name}")
            plan.paths.append(f"{plan.paths[-1]}.reason")
        plan.events.setdefault(stored.stream, []).append(stored.id)
    for record in found.reports:
        plan.events.setdefault(record.stream, []).append(record.envelope.event_id)
    plan.paths += [*found.paths, *found.clones]
    return plan


async def carry_out(services: Services, plan: RemovalPlan, further: FurtherRemoval) -> None:
    """Remove what the plan names. Call it again after an interruption."""
    home, ids, names = services.home, frozenset(plan.ids), plan.subject
    await services.lead.discard_copy()
    await further(plan)
    await asyncio.to_thread(_forget_in_state, home, ids)
    for stream, events in plan.events.items():
        await services.bus.purge(0, stream=stream, dead=True, only=events)
    await asyncio.to_thread(_remove_files, home, plan.paths)
    await asyncio.to_thread(_redact_logs, home, ids, names)
    await asyncio.to_thread(_hide_mentions, home, plan.mentions, names)
    for folder in {home.logs, home.state, *home.state.glob("*/"), *((home.root / one).parent for one in plan.mentions)}:
        remove_abandoned(str(folder))  # by an earlier process that was killed
    delete_plan(home)


# ── state ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _forget_in_state(home: Home, ids: frozenset[str]) -> None:
    """Drop what roles would publish again, or keep by the id of a document: threads, open posts, progress."""
    _rewrite_log(home.role("king") / LOG_FILE, ids)
    memory = read_json(memory_path(home))
    if isinstance(memory, dict) and any(_is_of(one, ids) for one in memory.get("outbox") or ()):
        outbox = [one for one in memory["outbox"] if not _is_of(one, ids)]
        write_json(memory_path(home), {**memory, "outbox": outbox})
    for path in home.state.glob("*/*.json"):
        document = read_json(path)
        if isinstance(document, dict) and document.keys() & ids:
            write_json(path, {key: value for key, value in document.items() if key not in ids})


def _is_of(document: Any, ids: frozenset[str]) -> bool:
    return isinstance(document, dict) and document.get("id") in ids


def _rewrite_log(path: Path, ids: frozenset[str]) -> None:
    """Take the documents out of the king's log. He would publish those of its last entry again."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    kept = [_without_documents(line, ids) for line in lines]
    if kept != lines:
        write_atomic(path, b"\n".join(kept))


def _without_documents(line: bytes, ids: frozenset[str]) -> bytes:
    if not names_an_id(line, ids):
        return line
    try:
        entry = LogEntry(**json.loads(line))
    except (ValueError, TypeError):
        return b""
    entry.cases = {root: None if root in ids else case for root, case in entry.cases.items()}
    entry.tasks, entry.messages, entry.events = (
        [document for document in documents if not _is_of(document, ids)]
        for documents in (entry.tasks, entry.messages, entry.events)
    )
    entry.journal = [one for one in entry.journal if not any(one[1].get(key) in ids for key in _ID_FIELDS)]
    return entry.line().rstrip(b"\n")


def names_an_id(line: bytes, ids: frozenset[str] | set[str]) -> bool:
    """Tell whether one of the texts of a JSON line is one of these ids."""
    return any(word.decode("utf-8", "replace") in ids for word in line.split(b'"')[1::2])


# ── files and logs ────────────────────────────────────────────────────────────────────────────────────────────────


def _remove_files(home: Home, paths: list[str]) -> None:
    for path in paths:
        whole = home.root / path
        if whole.is_dir() and not whole.is_symlink():
            shutil.rmtree(whole)
        else:
            whole.unlink(missing_ok=True)


def _redact_logs(home: Home, ids: frozenset[str], names: SubjectNames) -> None:
    redact_log(home.journal, lambda line: redacted_line(line, ids, names))
    for name in (*TEXT_LOGS, OUTPUT_LOG):
        for path in (home.logs / name, home.logs / f"{name}.old"):
            with contextlib.suppress(FileNotFoundError):
                text = path.read_bytes()
                kept = b"".join(_kept_blocks(text, ids))
                if kept != text:
                    _replace(path, kept)


def redacted_line(line: bytes, ids: frozenset[str] | set[str], names: SubjectNames) -> bytes:
    """Return a journal line without the texts of the subject's tasks, and without its names. Its ids stay."""
    try:
        document = json.loads(line)
        data = document["data"]
        keys = list(data)
    except (ValueError, TypeError, KeyError, RecursionError):
        return names.hide_in_bytes(line)
    if any(isinstance(data.get(key), str) and data[key] in ids for key in _ID_FIELDS):
        data = {key: data[key] if key in _KEPT_FIELDS or not isinstance(data[key], str) else "" for key in keys}
    data = names.hide_in_values(data)
    if data == document["data"]:
        return line
    made = json.dumps({**document, "data": data}, ensure_ascii=False, separators=(",", ":"))
    return made.encode("utf-8", "surrogatepass")


def _kept_blocks(text: bytes, ids: frozenset[str]) -> Iterator[bytes]:
    """Yield the lines of a log that name none of the ids. A message of the console ends with a line that names it."""
    block: list[bytes] = []
    for line in text.splitlines(keepends=True):
        block.append(line)
        if line.startswith(b"    ") or (len(block) == 1 and _begins_message(line)):
            continue
        words = {word.decode("utf-8", "replace").strip("[]():,;.\"'") for word in line.split()}
        if not words & ids:
            yield from block
        block = []
    yield from block


def _begins_message(line: bytes) -> bool:
    words = line.split()
    return 2 <= len(words) <= 3 and words[0].endswith(b"Z") and words[1] in _MESSAGE_TYPES


_MESSAGE_TYPES: Final = frozenset(
    word.encode() for word in ("thread_start", "thread_update", "human_input_request", "notification", "report")
)


def _hide_mentions(home: Home, paths: list[str], names: SubjectNames) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            text = (home.root / path).read_bytes()
            hidden = names.hide_in_bytes(text)
            if hidden != text:
                _replace(home.root / path, hidden)


def _replace(path: Path, data: bytes) -> None:
    """Replace the content of a file; its mode and its time stay, for retention goes by them."""
    info = path.stat()
    write_atomic(path, data, mode=info.st_mode & 0o777)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
