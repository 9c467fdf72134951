"""One task: what it is, what came of it, its whole story, what its soldiers said, and what can be done about it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kingdom.web.dashboard import acting
from kingdom.web.dashboard.answering import ask
from kingdom.web.dashboard.building import (
    Lines,
    badge,
    button,
    card,
    cell,
    code,
    empty,
    facts,
    line,
    part,
    tab,
    tag,
    text,
)
from kingdom.web.dashboard.building.formats import clock, day_and_time, money, short
from kingdom.web.dashboard.refreshing import Pulse
from kingdom.web.dashboard.registry import page
from kingdom.web.dashboard.shell import head
from kingdom.web.dashboard.tasks.transcript import TranscriptFollower
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.zone import zone_of
from kingdom.web.views.tasks import read_task, trace

if TYPE_CHECKING:
    from kingdom.web.dashboard.building.lines import Row
    from kingdom.web.dashboard.theme import Tone
    from kingdom.web.live.hub import LiveEvent
    from kingdom.web.views.tasks import StoryLine, TaskState

_STORY_EVERY: Final = 60.0  # seconds; a story is read from many files, and the journal tells when there is more of it
_STORY_LINES: Final = 300
_TASK: Final = re.compile(r"(?<![\w-])(task-\d{8}-\d{3,})\b")
_TONES: Final[tuple[tuple[str, Tone], ...]] = (
    ("failed", "bad"),
    ("error", "bad"),
    ("needs_human", "warn"),
    ("ended as success", "ok"),
    ("completed", "ok"),
    ("started", "busy"),
)


@page("/tasks/{task_id}", title="nav.tasks", nav="tasks", court=True)
async def show(visit: Visit, task_id: str, soldier: str | None = None) -> None:
    """Everything about a task."""
    words, zone = visit.words, await zone_of(visit)
    load = partial(_read, visit, task_id)
    await load()  # one that is not there is told of in place of the page

    def concerns(event: LiveEvent) -> bool:
        return task_id in str(event.data)

    pulse = Pulse(visit, concerns)
    story = Pulse(visit, concerns, every=_STORY_EVERY)
    actions = head(task_id, above=(words("nav.tasks"), "/tasks"))
    await pulse.panel(actions, load, lambda state: _draw_actions(visit, task_id, state, pulse))
    asked = tag("div", "k-asked")
    await pulse.panel(
        asked, partial(_asked, visit, task_id), lambda found: _draw_question(visit, task_id, found, pulse)
    )
    with tag("div", "k-grid"):
        with tag("div", "k-column k-col-8"):
            with card(words("task.result")) as (body, _):
                pass
            await pulse.panel(body, load, lambda state: _draw_result(visit, state))
            with card(words("task.transcript"), flush=True) as (body, side):
                pass
            await pulse.panel(side, load, lambda state: _draw_soldiers(task_id, state, soldier))
            follower_pulse = Pulse(visit, concerns)
            follower = TranscriptFollower(visit, task_id, soldier, follower_pulse, body)
            await follower_pulse.panel(body, follower.load, follower.show, keep=True)
            with card(words("task.story")) as (body, _):
                pass
            await story.panel(body, partial(trace, visit.context, task_id), partial(_draw_story, visit, zone))
        with tag("div", "k-column k-col-4"):
            with card(words("task.facts")) as (body, _):
                pass
            await pulse.panel(body, load, lambda state: _draw_facts(visit, zone, state))
            with card(words("task.payload")) as (body, _):
                pass
            await pulse.panel(body, load, _draw_payload)


async def _read(visit: Visit, task_id: str) -> TaskState:
    """Once for all parts of the page, which look one after the other."""
    return await visit.shared.read(("task", task_id), partial(read_task, visit.context, task_id))


async def _asked(visit: Visit, task_id: str) -> dict[str, Any] | None:
    return (await _read(visit, task_id)).question


def _draw_actions(visit: Visit, task_id: str, state: TaskState, pulse: Pulse) -> None:
    words = visit.words
    status = str(state.task.get("status"))
    badge(words.of("status", status), status).props["data-status"] = status

    async def act(what: str) -> None:
        if await (acting.retry if what == "retry" else acting.cancel)(visit, task_id):
            pulse.wake()

    if "retry" in state.actions:
        button(words("task.retry"), partial(act, "retry"))
    if "cancel" in state.actions:
        button(words("task.cancel"), partial(act, "cancel"), kind="danger")


def _draw_question(visit: Visit, task_id: str, question: dict[str, Any] | None, pulse: Pulse) -> None:
    if question is None:
        return
    choices = question.get("choices")
    with card(visit.words("court.questions"), "k-asking"), tag("div", "k-stack"):
        ask(
            visit,
            task_id,
            str(question.get("text") or ""),
            [str(choice) for choice in choices] if isinstance(choices, list) else [],
            pulse.wake,
        )


def _draw_result(visit: Visit, state: TaskState) -> None:
    words, result = visit.words, state.result
    if state.problem is not None:
        text(state.problem, "k-wrap k-text-bad", name="p")
    if result is None:
        empty(words("task.result.none"), words("task.result.hint"))
        return
    said = [("summary", "k-wrap k-strong"), ("error", "k-wrap k-text-bad")]
    with tag("div", "k-stack"):
        for name, classes in said:
            if result.get(name):
                text(str(result[name]), classes, name="p")
        code(_json({name: value for name, value in result.items() if name not in dict(said)}))


def _draw_soldiers(task_id: str, state: TaskState, chosen: str | None) -> None:
    if len(state.soldiers) > 1:
        last = state.soldiers[-1].id
        with tag("div", "k-tabs"):
            for one in state.soldiers:
                tab(one.id, f"/tasks/{task_id}?soldier={one.id}", chosen=one.id == (chosen or last))


def _draw_story(visit: Visit, zone: tzinfo, lines: Sequence[StoryLine]) -> None:
    if len(lines) > _STORY_LINES:
        text(visit.words("task.story.cut", n=len(lines) - _STORY_LINES), "k-muted k-small", name="p")
    told = [_story_row(visit, zone, number, one) for number, one in enumerate(lines)]
    Lines("list", visit.words("task.story"), "k-timeline").show(told[-_STORY_LINES:])


def _story_row(visit: Visit, zone: tzinfo, number: int, told: StoryLine) -> Row:
    tone = next((tone for word, tone in _TONES if word in told.what), None)
    at = part(clock(told.ts, zone, now=visit.context.clock()), "k-muted k-mono", title=told.ts)
    words = [
        part(one, "nicegui-link", href=f"/tasks/{one}") if index % 2 else part(one)
        for index, one in enumerate(_TASK.split(told.what))
    ]
    where = part(told.where, "k-muted k-small k-mono k-wrap k-block")
    cells = [cell([at]), cell(told.who, "k-strong k-clip"), cell([*words, where], "k-wrap")]
    return line(str(number), cells, f"k-at-{tone}" if tone else "")


def _draw_facts(visit: Visit, zone: tzinfo, state: TaskState) -> None:
    words, task = visit.words, state.task
    found = [
        (words("task.general"), str(task.get("target_general") or "–")),
        (words("task.type"), str(task.get("type") or "–")),
        (words("task.priority"), str(task.get("priority") or "–")),
        (words("task.event"), str(task.get("event_id") or "–")),
        (words("task.repo"), str(task.get("repo") or "–")),
        (words("task.created"), day_and_time(task.get("created_at"), zone)),
        (words("task.retries"), str(task.get("retry_count") or 0)),
        (words("task.spent"), f"{money(state.spent.cost_usd)} · {short(state.spent.tokens)} {words('task.tokens')}"),
        (words("task.runs"), str(state.spent.runs)),
    ]
    found += [
        (words("task.soldier"), f"{one.id} · {one.engine}{f' · {one.model}' if one.model else ''}")
        for one in state.soldiers
    ]
    facts(found)


def _draw_payload(state: TaskState) -> None:
    code(_json(state.task.get("payload") or {}))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
