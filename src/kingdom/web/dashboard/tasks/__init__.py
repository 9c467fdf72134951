"""Tasks: the list, and one with everything that is known of it."""

from __future__ import annotations

from kingdom.web.dashboard import task_list, task_page

__all__ = ["listing", "one"]
