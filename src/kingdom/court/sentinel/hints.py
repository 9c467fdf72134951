"""Hints from webhooks: "look at this now". They lie in ``state/sentinel/hints/`` until the look they caused is done.

A webhook may be lost, doubled or forged by whoever knows its secret. So it only makes the sentinel look, and the
source itself says what happened, under the same ids as without a webhook.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.files import read_json, write_json
from kingdom.court.home import checked

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.court.home import Home

_MOST: Final = 200  # taken at once


def hints_folder(home: Home) -> Path:
    """Where they lie."""
    return home.role("sentinel") / "hints"


def leave_hint(home: Home, source: str, delivery: str, what: dict[str, Any]) -> None:
    """Have a source looked at now. Durable when it returns; the same delivery twice is one hint."""
    folder = hints_folder(home)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{checked('source', source)}-{checked('delivery', delivery)}.json"
    write_json(folder / name, what)


class Hints:
    """Those for one source."""

    def __init__(self, home: Home, source: str) -> None:
        self._folder = hints_folder(home)
        self._prefix = f"{source}-"

    def any(self) -> bool:
        """Whether there is one."""
        return bool(self._names())

    def read(self) -> dict[str, Any]:
        """Those there are, by name; at most a few hundred at once."""
        return {name: read_json(self._folder / name) for name in self._names()[:_MOST]}

    def remove(self, name: str) -> None:
        """Done with it."""
        with contextlib.suppress(FileNotFoundError):
            (self._folder / name).unlink()

    def _names(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(path.name for path in self._folder.iterdir() if path.name.startswith(self._prefix))
        return []
