"""Looking at what still runs."""

from __future__ import annotations

from pathlib import Path


def processes_of(folder: Path) -> list[str]:
    """The command lines of living processes that name ``folder``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended while we looked
        if str(folder) in command:
            found.append(command)
    return found
