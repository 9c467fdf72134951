"""A question of a task, with buttons for its choices and a box for any other answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from nicegui import ui

from kingdom.web.dashboard import acting
from kingdom.web.dashboard.building import button, labelled, row, tag, text

if TYPE_CHECKING:
    from kingdom.web.dashboard.visit import Visit

_LONGEST: Final = 10_000  # characters of an answer


def ask(visit: Visit, task_id: str, question: str, choices: Sequence[str], done: Callable[[], None]) -> None:
    """Ask; ``done`` is called once an answer is given."""
    words = visit.words

    async def give(answer: str) -> None:
        if await acting.answer(visit, task_id, answer):
            done()

    text(question, "k-wrap k-strong", name="p")
    if choices:
        with tag("div", "k-row k-wrapping", role="group", aria_label=words("task.choices")):
            for choice in choices:
                button(choice, lambda choice=choice: give(choice))
    with row():
        box = ui.input(placeholder=words("task.answer.hint")).props("outlined dense").classes("k-field k-grow")
        box.props["maxlength"] = _LONGEST
        labelled(box, words("task.answer.to", task=task_id))

        async def send() -> None:
            if (box.value or "").strip():
                await give(box.value.strip())

        box.on("keydown.enter", send)
        button(words("task.answer"), send, kind="primary")
