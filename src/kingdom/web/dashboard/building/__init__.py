"""What pages are built from. Text given to these is shown as text, whatever is in it."""

from __future__ import annotations

from kingdom.web.dashboard.building.asking import confirm, told
from kingdom.web.dashboard.building.elements import (
    badge,
    button,
    card,
    code,
    facts,
    figure,
    labelled,
    link,
    meter,
    row,
    stack,
    tab,
    tag,
    text,
)
from kingdom.web.dashboard.building.keyed import Keyed
from kingdom.web.dashboard.building.lines import Lines, cell, part
from kingdom.web.dashboard.building.lines import row as line
from kingdom.web.dashboard.building.states import empty, failed, loading
from kingdom.web.dashboard.building.tables import Column, Table

__all__ = [
    "Column",
    "Keyed",
    "Lines",
    "Table",
    "badge",
    "button",
    "card",
    "cell",
    "code",
    "confirm",
    "empty",
    "facts",
    "failed",
    "figure",
    "labelled",
    "line",
    "link",
    "loading",
    "meter",
    "part",
    "row",
    "stack",
    "tab",
    "tag",
    "text",
    "told",
]
