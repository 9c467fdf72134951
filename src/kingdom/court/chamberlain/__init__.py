"""The chamberlain: watches the court, tells people what is wrong, writes the daily report, and cleans up.

It acts on nobody's work: dead roles are started again by the supervisor, held tasks are the king's. What it finds it
writes down, as ``state/chamberlain/health.json`` for the king's gate, as internal events, and as messages to people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.court.chamberlain.chamberlain import Chamberlain
from kingdom.court.config import load_system

if TYPE_CHECKING:
    from kingdom.court.loop import Services

__all__ = ["Chamberlain", "make"]


def make(services: Services) -> Chamberlain:
    """The chamberlain of a home, by its configuration."""
    return Chamberlain(services, load_system(services.home))
