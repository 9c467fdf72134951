"""Tasks: the list, and one with everything that is known of it."""

from __future__ import annotations

from kingdom.web.dashboard.tasks import listing, one

__all__ = ["listing", "one"]
