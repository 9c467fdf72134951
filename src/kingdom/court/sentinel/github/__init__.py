"""GitHub as a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.court.sentinel.config import secret
from kingdom.court.sentinel.github.watcher import GitHubWatcher

if TYPE_CHECKING:
    from kingdom.court.loop import Services
    from kingdom.court.sentinel.config import GitHubSection

__all__ = ["GitHubWatcher", "make"]


def make(services: Services, section: GitHubSection) -> GitHubWatcher:
    """The watcher a section of the configuration asks for; InvalidConfig when its token is not there."""
    return GitHubWatcher(services, section, secret(section.token_env, "github"))
