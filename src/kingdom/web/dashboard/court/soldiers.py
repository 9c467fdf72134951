"""Who is at work, and what they said last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kingdom.web.dashboard.building import Keyed, empty, link, row, tag, text
from kingdom.web.dashboard.building.formats import lasting

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.views.court import SoldierAtWork


class SoldierList:
    """The soldiers at work."""

    def __init__(self, visit: Visit, inside: Element) -> None:
        self._visit = visit
        with inside:
            self._list: Keyed[SoldierAtWork] = Keyed(tag("ul", "k-lines"), lambda one: one.id, self._draw, self._nobody)

    def show(self, soldiers: Sequence[SoldierAtWork]) -> None:
        """Have these."""
        self._list.show(soldiers)

    def _nobody(self) -> None:
        words = self._visit.words
        with tag("li"):
            empty(words("court.soldiers.none"), words("court.soldiers.hint"), "kingdom emit TYPE --payload '{…}'")

    def _draw(self, soldier: SoldierAtWork) -> Callable[[SoldierAtWork], None]:
        words = self._visit.words
        with tag("li", "k-stack", data_soldier=soldier.id):
            with row("k-wrapping"):
                link(soldier.task_id, f"/tasks/{soldier.task_id}", "k-mono")
                text(soldier.general, "k-strong")
                text(soldier.engine, "k-muted")
                lasted = text(lasting(soldier.seconds, words), "k-muted k-push")
            with tag("div", "k-output k-short k-mono", tabindex="0", role="log") as scrolled:
                said = text(_said(soldier, words("court.silent")), "k-wrap", name="div")
            scrolled.props["aria-label"] = words("court.output", soldier=soldier.id)

        def update(new: SoldierAtWork) -> None:
            lasted.set_text(lasting(new.seconds, words))
            said.set_text(_said(new, words("court.silent")))

        return update


def _said(soldier: SoldierAtWork, silent: str) -> str:
    return "\n".join(soldier.said) or silent
