"""Where court and workflow meet on disk: workflows in the home of a court use the engines and settings of that court.

Elsewhere their settings are in ``workflows/settings.yaml``, with the keys of ``config/system.yaml`` that apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kingdom.court.home import Home

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kingdom.agents.engine import Engine, InProcessEngine
    from kingdom.agents.sandbox.sandbox import Sandbox
    from kingdom.gitops.settings import GitSettings
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

    root = place.root.parent
    if not is_court(root):
        return Sandbox.read({})
    from kingdom.court import bootstrap
    from kingdom.court.config import load_system

    return bootstrap.configured_sandbox(load_system(Home(root)))


def journal_of(place: WorkflowHome) -> Path | None:
    """Return the journal of the court whose home the workflows are in; None if they are elsewhere."""
    root = place.root.parent
    return Home(root).journal if is_court(root) else None


def git_settings_of(place: WorkflowHome) -> GitSettings:
    """Return who commits and how remotes are reached, by the court's settings or those of the folder.

    Raises :class:`kingdom.court.errors.InvalidConfig` when these settings are invalid.
    """
    from kingdom.gitops.settings import GitSettings

    root = place.root.parent
    if not is_court(root) and not place.settings.exists():
        return GitSettings()  # without the models of the configuration, which take a while to load
    from kingdom.court.config import load_system, load_workflow_settings

    section = load_system(Home(root)).git if is_court(root) else load_workflow_settings(place.settings).git
    return section.settings()
