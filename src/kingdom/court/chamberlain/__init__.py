"""The chamberlain: monitors the court, sends alerts, writes the daily report, and cleans up.

It does not interfere with other roles: the supervisor restarts dead roles, the king holds events. The chamberlain
publishes its findings as ``state/chamberlain/health.json`` for the king, as internal events, and as messages to people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.court.chamberlain.chamberlain import Chamberlain
from kingdom.court.config import load_system

if TYPE_CHECKING:
    from kingdom.court.loop import Services

__all__ = ["Chamberlain", "make"]


def make(services: Services) -> Chamberlain:
    """Make the chamberlain of a home."""
    return Chamberlain(services, load_system(services.home))
