"""A reader's place in the journal, and the file that remembers it.

A place is a file and the bytes of it that were taken. A file is known by its inode, wherever it is renamed to, and by
its first bytes: the number of a deleted file's inode is soon given to another file, and a copied directory has new
ones.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Self

from kingdom.base.files import write_atomic
from kingdom.journal.errors import InvalidCursor, unavailable

HEAD_BYTES: Final = 256
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class FilePosition:
    """How much of one file was taken. ``sealed``: it is closed, and nobody writes to it any more."""

    inode: int
    offset: int
    head: str
    sealed: bool = False


@dataclass(frozen=True, slots=True)
class Cursor:
    """Everything a reader has to remember. ``after`` is the newest closed file that is not ahead of it."""

    files: tuple[FilePosition, ...] = ()  # oldest first; the last is the one being read
    after: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON: keep it together with what you made of the lines, and both change in one step."""
        places = [
            {"inode": place.inode, "offset": place.offset, "head": place.head, "sealed": place.sealed}
            for place in self.files
        ]
        return {"version": _VERSION, "after": self.after, "files": places}

    @classmethod
    def from_dict(cls, document: object) -> Self:
        """Read what :meth:`to_dict` gave. Raises :class:`InvalidCursor`."""
        if isinstance(document, dict) and document.get("version", _VERSION) != _VERSION:
            raise InvalidCursor(
                f"version {document['version']!r:.40} is not known here; this version writes {_VERSION}"
            )
        try:
            after, files = document["after"], document["files"]  # type: ignore[index]
            places = tuple(FilePosition(item["inode"], item["offset"], item["head"], item["sealed"]) for item in files)
        except (TypeError, KeyError) as error:
            raise InvalidCursor(f"not a cursor: {type(error).__name__}: {error}") from None
        sound = after is None or isinstance(after, str)
        for place in places:
            sound = sound and type(place.inode) is int and type(place.offset) is int and place.offset >= 0
            sound = sound and isinstance(place.head, str) and isinstance(place.sealed, bool)
        if not sound:
            raise InvalidCursor("not a cursor: a field of the wrong kind")
        return cls(places, after)


def load_cursor(path: Path) -> Cursor | None:
    """The remembered place; None where there is none yet."""
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
    """Remember a place: written beside, then renamed, so that a reader of the file finds the old or the new one."""
    try:
        write_atomic(path, json.dumps(cursor.to_dict(), separators=(",", ":")) + "\n", durable=sync)
    except OSError as error:
        raise unavailable(error, "write the cursor", path) from error


def head_of(fd: int, length: int) -> str:
    """The fingerprint of a file's first bytes (``HEAD_BYTES`` at most), which names their number as well."""
    head = os.pread(fd, min(length, HEAD_BYTES), 0)
    return f"{len(head)}:{blake2b(head, digest_size=12).hexdigest()}"


def same_head(fd: int, head: str) -> bool:
    """Whether the file begins as it did when the fingerprint was taken."""
    length = head.partition(":")[0]
    return length.isdecimal() and head_of(fd, int(length)) == head
