"""What a part of a page says when it has nothing to show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from kingdom.web.dashboard.building.elements import tag, text
from kingdom.web.errors import as_api_error

if TYPE_CHECKING:
    from kingdom.web.dashboard.visit import Visit


def empty(title: str, hint: str = "", command: str = "", *, page: bool = False) -> None:
    """There is nothing, why that is fine, and what to do: ``command`` is for the shell."""
    with tag("div", f"k-state {'k-state-page' if page else ''}"):
        text(title, "k-state-title", name="div")
        if hint:
            text(hint, name="div")
        if command:
            text(command, "k-mono k-command", name="code")


def failed(visit: Visit, error: Exception, *, page: bool = False) -> None:
    """Something went wrong: what, by which code, and what to do."""
    told = as_api_error(error)
    title = visit.words("error.title") if told.status >= 500 else visit.words("error.refused")
    with tag("div", f"k-state k-state-bad {'k-state-page' if page else ''}", role="alert"):
        text(title, "k-state-title", name="div")
        text(str(told), "k-wrap", name="div")
        text(told.code, "k-mono k-small", name="div")


def loading(visit: Visit) -> None:
    """It is being read."""
    with tag("div", "k-loading", role="status"):
        ui.spinner(size="18px", color=None)
        text(visit.words("state.loading"))
