"""Write everything that is known about a person or a repository to one ZIP file."""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom import __version__
from kingdom.base.files import sync_directory
from kingdom.court.budget import ledger_lines
from kingdom.court.erasure.collection import KnownRecords
from kingdom.court.erasure.removal import NOT_REACHED, names_an_id
from kingdom.court.errors import CourtError
from kingdom.court.king.write_ahead_log import LOG_FILE
from kingdom.court.models import timestamp
from kingdom.journal import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kingdom.court.erasure.names import SubjectNames
    from kingdom.court.home import Home

FORMAT: Final = 1
_KINGS_LOG: Final = f"state/king/{LOG_FILE}"  # repeats documents, those of several people in one line


class ExportFailed(CourtError):
    """An export cannot be written; the message says why."""

    code = "EXPORT"


@dataclass(slots=True)
class ExportPart:
    """What another layer adds to an export: documents by name in the archive, and files by their path in the home."""

    documents: dict[str, Any] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)


def write_export(
    home: Home, names: SubjectNames, found: KnownRecords, target: Path, now: float, more: ExportPart
) -> dict[str, int]:
    """Write the archive, which appears when it is complete and only its owner can read; return what it has."""
    if target.exists():
        raise ExportFailed(f"{target} exists already: name another file")
    partial = target.with_name(f".{target.name}.partial")
    with contextlib.suppress(FileNotFoundError):
        partial.unlink()
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as raw:
            with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
                counts = _write_parts(archive, home, names, found, more)
                about = {
                    "format": FORMAT,
                    "version": __version__,
                    "made_at": timestamp(now),
                    "home": str(home.root),
                    names.kind: list(names.names),
                    "counts": counts,
                    "not_included": list(NOT_REACHED),
                }
                archive.writestr("about.json", _json(about))
            raw.flush()
            os.fsync(raw.fileno())
        partial.rename(target)
        sync_directory(target.absolute().parent)
    except OSError as error:
        raise ExportFailed(f"{target} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return counts


def _write_parts(
    archive: zipfile.ZipFile, home: Home, names: SubjectNames, found: KnownRecords, more: ExportPart
) -> dict[str, int]:
    counts: dict[str, int] = {}
    for stored in found.documents:
        counts[stored.stream] = counts.get(stored.stream, 0) + 1
        problem = {} if stored.problem is None else {"problem": stored.problem}
        archive.writestr(
            f"{stored.stream}/{_name(stored.id)}.json", _json({**stored.document, "state": stored.state, **problem})
        )
    for record in found.reports:
        document = {"stream": record.stream, "status": record.status, "payload": record.envelope.payload}
        archive.writestr(f"machines/{_name(record.envelope.event_id)}.json", _json(document))
    for name, document in more.documents.items():
        archive.writestr(name, _json(document))
    written = {path for whole in (*found.paths, *more.paths) for path in _files_below(home.root, whole)}
    for path in sorted(written):
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile: a court may be at work
            archive.write(home.root / path, f"files/{path}")
    journal = list(_journal_lines(home, names, found.ids))
    archive.writestr("journal.jsonl", b"".join(line + b"\n" for line in journal))
    ledger = [line for _, line in ledger_lines(home.ledger, found.ids)]
    archive.writestr("ledger.jsonl", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in ledger))
    others = [path for path in (*found.mentions, *found.configuration) if path != _KINGS_LOG]
    mentions = [line for path in others for line in _mentions(home, names, path)]
    archive.writestr("mentions.jsonl", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in mentions))
    archive.writestr("clones.json", _json({"clones": found.clones}))
    return {
        **counts,
        "machine reports": len(found.reports),
        "other documents": len(more.documents),
        "files": len(written),
        "journal lines": len(journal),
        "ledger lines": len(ledger),
        "mentions": len(mentions),
        "clones": len(found.clones),
    }


def _journal_lines(home: Home, names: SubjectNames, ids: set[str]) -> Iterator[bytes]:
    with Reader(home.journal, report=lambda _: None) as reader:
        for line in reader.read_lines():
            if names.are_in(line.decode("utf-8", "surrogateescape")) or names_an_id(line, ids):
                yield line


def _mentions(home: Home, names: SubjectNames, path: str) -> Iterator[dict[str, Any]]:
    with contextlib.suppress(OSError):
        text = (home.root / path).read_bytes().decode("utf-8", "replace")
        for number, line in enumerate(text.split("\n"), 1):
            if names.are_in(line):
                yield {"file": path, "line": number, "text": line}


def _files_below(root: Path, path: str) -> Iterator[str]:
    """Yield the regular files of a path in the home; links are not followed."""
    whole = root / path
    if whole.is_symlink():
        return
    if whole.is_file():
        yield path
    for here, _, files in os.walk(whole):
        for name in files:
            file = Path(here) / name
            if file.is_file() and not file.is_symlink():
                yield str(file.relative_to(root))


def _name(document_id: str) -> str:
    return document_id.replace("/", "_") or "unnamed"


def _json(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2, default=str)
