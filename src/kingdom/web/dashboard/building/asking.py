"""Asking before something is done, and telling what came of it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from nicegui import ui

from kingdom.web.dashboard.building.elements import button, tag, text
from kingdom.web.errors import as_api_error

if TYPE_CHECKING:
    from kingdom.web.dashboard.visit import Visit

log = logging.getLogger("kingdom.web")


async def confirm(visit: Visit, question: str, *, detail: str = "", yes: str, danger: bool = False) -> bool:
    """Ask in a dialog; True when the visitor says so, False for anything else."""
    with ui.dialog() as dialog, ui.card().classes("k-dialog"):
        dialog.props["aria-label"] = question
        text(question, name="h2")
        if detail:
            text(detail, "k-muted k-wrap", name="div")
        with tag("div", "k-dialog-actions"):
            button(visit.words("action.back"), lambda: dialog.submit(False)).props("autofocus")
            button(yes, lambda: dialog.submit(True), kind="danger" if danger else "primary")
    try:
        return await dialog is True
    finally:
        dialog.delete()


async def told(visit: Visit, act: Callable[[], Awaitable[object]], done: str) -> bool:
    """Do something, and tell that it is done or why it is not; True when it is."""
    try:
        await act()
    except Exception as error:  # whatever it was, the visitor learns of it, and the log has the rest
        problem = as_api_error(error)
        if problem.status >= 500:
            log.exception("%s", visit.path)
        ui.notify(str(problem), type="negative", timeout=10_000, close_button=visit.words("action.close"))
        return False
    ui.notify(done, type="positive")
    return True
