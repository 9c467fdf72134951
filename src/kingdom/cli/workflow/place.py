"""Which workflows are meant: the folder they live in, their store, and the engines that work on them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kingdom.cli.output import Failure
from kingdom.court.home import ENVIRONMENT
from kingdom.place import FOLDER, is_court

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.agents.engine import Engine, Player
    from kingdom.workflow.home import WorkflowHome

_DATABASE: Final = Path(FOLDER, "workflows.db")


def find_place(home: Path | None, store: str | None) -> WorkflowHome:
    """The place that is meant.

    ``--home`` or ``KINGDOM_HOME`` may name any folder: ``workflows/`` is made in it. Without them it is the nearest
    folder, from the working folder up, that has workflows or is the home of a court.
    """
    from kingdom.workflow.home import WorkflowHome

    return WorkflowHome((_named(home) or _around(Path.cwd())) / FOLDER, store)


def engines_of(place: WorkflowHome) -> Mapping[str, Engine | Player]:
    """The engines of a place; what is wrong with their settings becomes a :class:`Failure`."""
    from kingdom import place as places
    from kingdom.cli.home import errors_told

    with errors_told():
        return places.engines_of(place)


def _named(home: Path | None) -> Path | None:
    given = home if home is not None else Path(named) if (named := os.environ.get(ENVIRONMENT)) else None
    if given is None:
        return None
    if not given.is_dir():
        raise Failure("NO_HOME", f"{given} is no folder: make it first (mkdir -p {given})")
    return given


def _around(start: Path) -> Path:
    for folder in (start, *start.parents):
        if (folder / _DATABASE).is_file() or is_court(folder):
            return folder
    raise Failure(
        "NO_HOME",
        f"there are no workflows in {start} or above: --home DIR (or {ENVIRONMENT}) names the folder to keep them in, "
        f"as --home . for this one",
    )
