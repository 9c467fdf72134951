"""What people are asked, with a place for the answer. What somebody types survives every refresh."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING

from kingdom.web.dashboard.answering import ask
from kingdom.web.dashboard.building import Keyed, card, link, row, tag, text
from kingdom.web.dashboard.building.formats import day_and_time

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.web.dashboard.refreshing import Pulse
    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.views.court import OpenQuestion


class QuestionList:
    """The open questions; nothing at all while there are none."""

    def __init__(self, visit: Visit, pulse: Pulse, zone: tzinfo) -> None:
        self._visit = visit
        self._pulse = pulse
        self._zone = zone
        with (
            tag("div") as self._whole,
            card(visit.words("court.questions"), "k-asking", flush=True) as (body, _),
        ):
            self._list: Keyed[OpenQuestion] = Keyed(tag("ul", "k-lines"), lambda one: one.task_id, self._draw)
        self._whole.set_visibility(False)
        self.body: Element = body

    def show(self, questions: Sequence[OpenQuestion]) -> None:
        """Have these."""
        self._whole.set_visibility(bool(questions))
        self._list.show(questions)

    def _draw(self, question: OpenQuestion) -> None:
        words = self._visit.words
        with tag("li", "k-stack", data_question=question.task_id):
            with row("k-wrapping k-small k-muted"):
                link(question.task_id, f"/tasks/{question.task_id}", "k-mono")
                text(question.general)
                if question.deadline:
                    text(words("court.deadline", at=day_and_time(question.deadline, self._zone)))
            ask(self._visit, question.task_id, question.question, question.choices, self._pulse.wake)
