"""The last part of the journal, for those who want to know what happened lately and not everything that ever did."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from kingdom.journal import Entry, InvalidLine, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_BYTES: Final = 512 * 1024


def journal_tail(path: Path, size: int = _BYTES) -> list[Entry]:
    """The entries in the last ``size`` bytes of the live file, oldest first. Lines that are no entries are left out."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            begin = max(end - size, 0)
            file.seek(max(begin - 1, 0))
            content = file.read(end - begin + 1)
    except OSError:
        return []
    lines = content.split(b"\n")
    entries = []
    for line in lines[1 if begin else 0 :]:  # the first may be the end of a longer one
        try:
            entries.append(parse(line))
        except InvalidLine:
            continue
    return entries


def untold(path: Path, lines: Iterable[tuple[str, Mapping[str, Any]]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Of these lines, each a type and its data, those that the end of the journal does not have.

    For whoever goes on where a process was killed, which may have written them down or not.
    """
    told = {_key(entry.type, entry.fields) for entry in journal_tail(path)}
    return [(name, data) for name, data in lines if _key(name, data) not in told]


def _key(name: str, data: Mapping[str, Any]) -> str:
    return json.dumps([name, {key: value for key, value in data.items() if value is not None}], sort_keys=True)
