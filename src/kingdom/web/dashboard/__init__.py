"""The dashboard, built with NiceGUI."""

from __future__ import annotations

from kingdom.web.dashboard.nicegui_app import mount

__all__ = ["mount"]
