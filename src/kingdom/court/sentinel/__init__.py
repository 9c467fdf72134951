"""The sentinel: hears what happens in GitHub, Jira and on this machine, and puts it into the queue as events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.court.sentinel.role import Sentinel

if TYPE_CHECKING:
    from kingdom.court.loop import Services

__all__ = ["Sentinel", "make"]


def make(services: Services) -> Sentinel:
    """The sentinel of a home. Its configuration is read when it looks, and again whenever it changes."""
    return Sentinel(services)
