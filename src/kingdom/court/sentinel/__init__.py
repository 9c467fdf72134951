"""The sentinel: watches GitHub, Jira and a local folder, and puts what happens there into the queue as events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.court.sentinel.role import Sentinel

if TYPE_CHECKING:
    from kingdom.court.loop import Services

__all__ = ["Sentinel", "make"]


def make(services: Services) -> Sentinel:
    """Create the sentinel of a home. It reads its configuration on each tick if the file has changed."""
    return Sentinel(services)
