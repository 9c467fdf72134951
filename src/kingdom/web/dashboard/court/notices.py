"""What a visitor must know before everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.web.dashboard.building import tag, text

if TYPE_CHECKING:
    from kingdom.web.dashboard.visit import Visit


def draw_notice(visit: Visit, running: bool) -> None:
    """Say when nobody works, and what to do about it."""
    if running:
        return
    with tag("div", "k-notice k-tone-warn", role="status"):
        text(visit.words("court.down"))
        text(f"kingdom up --home {visit.context.root}", "k-mono k-command")
