"""The sources there are: the name of a section of the configuration, and what makes the watcher for it.

What a source needs is imported when it is watched, so that a court without one does not carry it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kingdom.court.loop import Services
    from kingdom.court.sentinel.watcher import Watcher


def _github(services: Services, section: Any) -> Watcher:
    from kingdom.court.sentinel.github import make

    return make(services, section)


def _jira(services: Services, section: Any) -> Watcher:
    from kingdom.court.sentinel.jira import make

    return make(services, section)


def _local(services: Services, section: Any) -> Watcher:
    from kingdom.court.sentinel.local import DropFolder

    return DropFolder(services, section)


SOURCES: Final[Mapping[str, Callable[[Services, Any], Watcher]]] = {"github": _github, "jira": _jira, "local": _local}
