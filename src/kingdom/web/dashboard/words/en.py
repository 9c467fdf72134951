"""English."""

from __future__ import annotations

from typing import Final

WORDS: Final[dict[str, str]] = {
    "nav.label": "Pages",
    "nav.skip": "Skip to content",
    "nav.open": "Open the menu",
    "nav.court": "Court",
    "nav.tasks": "Tasks",
    "nav.workflows": "Workflows",
    "nav.templates": "Templates",
    "nav.bus": "Bus",
    "connection.live": "live",
    "connection.lost": "not connected, trying again",
    "choose.locale": "Language",
    "choose.theme": "Theme",
    "theme.auto": "As the system",
    "theme.light": "Light",
    "theme.dark": "Dark",
    "health.green": "healthy",
    "health.yellow": "strained",
    "health.orange": "only urgent work",
    "health.red": "nothing starts",
    "error.title": "This could not be read",
    "error.refused": "This cannot be shown",
    "state.loading": "Reading…",
    "nocourt.title": "There is no court here",
    "nocourt.hint": "{folder} has workflows only. Found a court there, and its tasks and events show here:",
    "action.back": "Back",
    "action.close": "Close",
}
