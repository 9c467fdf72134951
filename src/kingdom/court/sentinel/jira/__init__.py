"""Jira Cloud as a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.court.sentinel.jira.watcher import JiraWatcher

if TYPE_CHECKING:
    from kingdom.court.loop import Services
    from kingdom.court.sentinel.config import JiraSection

__all__ = ["JiraWatcher", "make"]


def make(services: Services, section: JiraSection) -> JiraWatcher:
    """The watcher a section of the configuration asks for; InvalidConfig when its token is not there."""
    return JiraWatcher(services, section)
