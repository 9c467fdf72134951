"""The dashboard: pages for people, in Python with NiceGUI."""

from __future__ import annotations

from kingdom.web.dashboard.mounting import mount

__all__ = ["mount"]
