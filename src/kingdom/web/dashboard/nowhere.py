"""The page of every address that has none."""

from __future__ import annotations

from nicegui import ui

from kingdom.web.dashboard.building import empty, link
from kingdom.web.dashboard.shell import framed
from kingdom.web.dashboard.visit import Visit, current


async def nowhere() -> None:
    """Say that there is nothing, in the frame that leads on to what there is."""
    visit = current.get()
    ui.context.client.status_code = 404
    ui.dark_mode(visit.dark)
    await framed(visit, _build, {}, title="nowhere.title", nav="", court=False)


async def _build(visit: Visit) -> None:
    words = visit.words
    empty(words("nowhere.title"), words("nowhere.hint", path=visit.path[:200]), page=True)
    link(words("nav.court"), "/")
