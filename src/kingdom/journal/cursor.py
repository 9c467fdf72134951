"""A reader's position in the journal, and the file in which it is saved.

A position is a file and a byte offset. A file is identified by its inode, which a rename keeps, and by its first bytes:
the inode of a deleted file is soon reused, and a copied directory has new inodes.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Self

from kingdom.base.files import read_object, write_atomic
from kingdom.journal.errors import InvalidCursor, unavailable

HEAD_BYTES: Final = 256
HEADS_FILE: Final = ".redacted.json"
"""The file beside a log with the fingerprints that changed (:mod:`kingdom.journal.redaction`)."""
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class FilePosition:
    """How much of one file was read. ``sealed``: nobody writes to the file any more."""

    inode: int
    offset: int
    head: str
    sealed: bool = False


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of a reader. ``after`` is the newest rotated file that is not ahead of it."""

    files: tuple[FilePosition, ...] = ()  # oldest first; the last is the one being read
    after: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON document. Saved together with the results of the lines, both change in one step."""
        positions = [
            {"inode": position.inode, "offset": position.offset, "head": position.head, "sealed": position.sealed}
            for position in self.files
        ]
        return {"version": _VERSION, "after": self.after, "files": positions}

    @classmethod
    def from_dict(cls, document: object) -> Self:
        """Read the document that :meth:`to_dict` returned. Raises :class:`InvalidCursor`."""
        if isinstance(document, dict) and document.get("version", _VERSION) != _VERSION:
            raise InvalidCursor(
                f"version {document['version']!r:.40} is unknown; this version of kingdom writes {_VERSION}"
            )
        try:
            after, files = document["after"], document["files"]  # type: ignore[index]
            positions = tuple(
                FilePosition(item["inode"], item["offset"], item["head"], item["sealed"]) for item in files
            )
        except (TypeError, KeyError) as error:
            raise InvalidCursor(f"not a cursor: {type(error).__name__}: {error}") from None
        sound = after is None or isinstance(after, str)
        for position in positions:
            sound = sound and type(position.inode) is int and type(position.offset) is int and position.offset >= 0
            sound = sound and isinstance(position.head, str) and isinstance(position.sealed, bool)
        if not sound:
            raise InvalidCursor("not a cursor: a field has the wrong type")
        return cls(positions, after)


def load_cursor(path: Path) -> Cursor | None:
    """Load a saved cursor; None when there is none yet."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unavailable(error, "read the cursor", path) from error
    try:
        return Cursor.from_dict(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise InvalidCursor(
            f"{path} is damaged ({error}); remove it to read the journal again from its oldest line"
        ) from None


def save_cursor(path: Path, cursor: Cursor, *, sync: bool) -> None:
    """Save a cursor. After a crash the file has the old cursor or the new one."""
    try:
        write_atomic(path, json.dumps(cursor.to_dict(), separators=(",", ":")) + "\n", durable=sync)
    except OSError as error:
        raise unavailable(error, "write the cursor", path) from error


def head_of(fd: int, length: int) -> str:
    """Return a fingerprint of a file's first bytes (``HEAD_BYTES`` at most), including their number."""
    return head_of_bytes(os.pread(fd, min(length, HEAD_BYTES), 0))


def head_of_bytes(head: bytes) -> str:
    """Return the fingerprint of these first bytes."""
    return f"{len(head)}:{blake2b(head, digest_size=12).hexdigest()}"


def same_head(fd: int, head: str, folder: str) -> bool:
    """Tell whether a file of this folder begins with the bytes of the fingerprint, or with what replaced them."""
    length = head.partition(":")[0]
    if not length.isdecimal():
        return False
    found = head_of(fd, int(length))
    if found == head:
        return True
    replaced = replaced_heads(Path(folder))
    while (following := replaced.pop(head, None)) is not None:
        if following == found:
            return True
        head = following
    return False


def replaced_heads(folder: Path) -> dict[str, str]:
    """Return the fingerprints that changed in a folder, each with the one that replaced it."""
    heads = read_object(folder / HEADS_FILE).get("heads")
    return {key: value for key, value in heads.items() if isinstance(value, str)} if isinstance(heads, dict) else {}
