"""Where the two halves meet on disk: workflows in the home of a court are worked on by that court's engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kingdom.court.home import Home

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kingdom.agents.engine import Engine, InProcessEngine
    from kingdom.workflow.home import WorkflowHome

WORKFLOWS_FOLDER: Final = "workflows"
"""The folder of workflows, below the home of a court or any other folder."""


def is_court(folder: Path) -> bool:
    """Whether a folder is the home of a court."""
    return Home(folder).exists


def engines_of(place: WorkflowHome) -> Mapping[str, Engine | InProcessEngine]:
    """The engines, with the settings of the court whose home it is, if it is one.

    Raises :class:`kingdom.court.errors.InvalidConfig` when these cannot be read.
    """
    root = place.root.parent
    if not is_court(root):
        from kingdom.agents.engines import default_engines

        return default_engines()
    from kingdom.court import bootstrap
    from kingdom.court.config import load_system

    return bootstrap.configured_engines(load_system(Home(root)))
