"""Where court and workflow meet on disk: workflows in the home of a court use the engines of that court."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kingdom.court.home import Home

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kingdom.agents.engine import Engine, InProcessEngine
    from kingdom.agents.sandbox.sandbox import Sandbox
    from kingdom.workflow.home import WorkflowHome

WORKFLOWS_FOLDER: Final = "workflows"
"""The name of the folder of workflows, in the home of a court or in any other folder."""


def is_court(folder: Path) -> bool:
    """Tell whether a folder is the home of a court."""
    return Home(folder).exists


def engines_of(place: WorkflowHome) -> Mapping[str, Engine | InProcessEngine]:
    """Return the engines, with the settings of the court if the workflows are in the home of one.

    Raises :class:`kingdom.court.errors.InvalidConfig` when these settings are invalid.
    """
    root = place.root.parent
    if not is_court(root):
        from kingdom.agents.engines import default_engines

        return default_engines()
    from kingdom.court import bootstrap
    from kingdom.court.config import load_system

    return bootstrap.configured_engines(load_system(Home(root)))


def sandbox_of(place: WorkflowHome) -> Sandbox:
    """Return the sandbox of agents, with the settings of the court if the workflows are in the home of one.

    Raises :class:`kingdom.court.errors.InvalidConfig` when these settings are invalid.
    """
    from kingdom.agents.sandbox.sandbox import Sandbox
    from kingdom.court import bootstrap
    from kingdom.court.config import load_system

    root = place.root.parent
    if is_court(root):
        return bootstrap.configured_sandbox(load_system(Home(root)))
    return Sandbox.read({})
