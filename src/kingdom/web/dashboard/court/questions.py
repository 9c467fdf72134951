"""What people are asked, with a place for the answer. What somebody types survives every refresh."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Final

from nicegui import ui

from kingdom.court import commands
from kingdom.web.dashboard.building import Keyed, button, card, labelled, link, row, tag, text, told
from kingdom.web.dashboard.building.formats import day_and_time

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.web.dashboard.refreshing import Pulse
    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.views.court import OpenQuestion

USER: Final = "dashboard"
_LONGEST: Final = 10_000  # characters of an answer


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
            text(question.question, "k-wrap k-strong", name="p")
            if question.choices:
                with tag("div", "k-row k-wrapping", role="group", aria_label=words("court.choices")):
                    for choice in question.choices:
                        button(choice, lambda choice=choice: self._answer(question.task_id, choice))
            self._box(question)

    def _box(self, question: OpenQuestion) -> None:
        words = self._visit.words
        with row():
            box = ui.input(placeholder=words("court.answer.hint")).props("outlined dense").classes("k-field k-grow")
            box.props["maxlength"] = _LONGEST
            labelled(box, words("court.answer.to", task=question.task_id))

            async def send() -> None:
                if (box.value or "").strip():
                    await self._answer(question.task_id, box.value.strip())

            box.on("keydown.enter", send)
            button(words("court.answer"), send, kind="primary")

    async def _answer(self, task_id: str, answer: str) -> None:
        async def act() -> None:
            await commands.answer_question(self._visit.court, task_id, answer, USER)

        await told(self._visit, act, self._visit.words("court.answered", task=task_id))
        self._pulse.wake()
