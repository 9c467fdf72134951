"""Answer, cancel or retry a task from a page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from nicegui import ui

from kingdom.court import commands
from kingdom.web.api.court_models import WEB_SOURCE
from kingdom.web.dashboard.components import (
    button,
    confirm,
    forget_draft,
    labelled,
    row,
    run_and_notify,
    tag,
    text,
    with_draft,
)
from kingdom.web.dashboard.formats import format_datetime

if TYPE_CHECKING:
    from datetime import tzinfo

    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.views.questions import TaskAnswer


async def answer_task(visit: Visit, task_id: str, text: str) -> bool:
    """Answer the question of a task. Returns whether it succeeded."""

    async def act() -> None:
        await commands.answer_question(visit.court, task_id, text, visit.person.name, WEB_SOURCE)

    return await run_and_notify(visit, act, visit.words("task.answered", task=task_id), "answerQuestion", task_id)


async def cancel_task(visit: Visit, task_id: str) -> bool:
    """Cancel a task after confirmation. Returns whether it was cancelled."""
    words = visit.words
    sure = await confirm(
        visit,
        words("task.cancel.sure", task=task_id),
        detail=words("task.cancel.detail"),
        yes=words("task.cancel"),
        danger=True,
    )

    async def act() -> None:
        await commands.cancel_task(visit.court, task_id, visit.person.name, WEB_SOURCE)

    return sure and await run_and_notify(visit, act, words("task.cancelled", task=task_id), "cancelTask", task_id)


async def retry_task(visit: Visit, task_id: str) -> bool:
    """Retry a task after confirmation. Returns whether it was retried."""
    words = visit.words
    sure = await confirm(
        visit, words("task.retry.sure", task=task_id), detail=words("task.retry.detail"), yes=words("task.retry")
    )

    async def act() -> None:
        await commands.retry_task(visit.court, task_id, visit.person.name, WEB_SOURCE)

    return sure and await run_and_notify(visit, act, words("task.retried", task=task_id), "retryTask", task_id)


def answer_text(visit: Visit, answer: TaskAnswer, zone: tzinfo) -> str:
    """Say who answered a question, when and what."""
    who = answer.user or visit.words("task.answer.somebody")
    return visit.words("task.answer.given", who=who, at=format_datetime(answer.at, zone), text=answer.text)


_MAX_ANSWER_CHARS: Final = 10_000


def draw_question(visit: Visit, task_id: str, question: str, choices: Sequence[str], done: Callable[[], None]) -> None:
    """Draw the question of a task. ``done`` runs after an answer."""
    draw_answer_form(visit, task_id, question, choices, partial(answer_task, visit, task_id), done)


def draw_answer_form(
    visit: Visit,
    asker: str,
    question: str,
    choices: Sequence[str],
    send_answer: Callable[[str], Awaitable[bool]],
    done: Callable[[], None],
) -> None:
    """Draw a question of ``asker`` with buttons for its choices and an input for other answers.

    ``send_answer`` returns whether it succeeded; then ``done`` runs.
    """
    words, draft = visit.words, f"answer/{asker}"

    async def give(answer: str) -> None:
        if await send_answer(answer):
            await forget_draft(draft)
            done()

    text(question, "k-wrap k-strong", name="p")
    if not visit.may("answerQuestion"):
        text(visit.needs_role("answerQuestion"), "k-muted k-small", name="p")
        return
    if choices:
        with tag("div", "k-row k-wrapping", role="group", aria_label=words("task.choices")):
            for choice in choices:
                button(choice, lambda choice=choice: give(choice))
    with row():
        box = ui.input(placeholder=words("task.answer.hint")).props("outlined dense").classes("k-field k-grow")
        box.props["maxlength"] = _MAX_ANSWER_CHARS
        with_draft(labelled(box, words("task.answer.to", task=asker)), draft)

        async def send() -> None:
            if (box.value or "").strip():
                await give(box.value.strip())

        box.on("keydown.enter", send)
        button(words("task.answer"), send, kind="primary")
