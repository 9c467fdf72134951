"""The page of one task, with the live transcript of its soldier."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from kingdom.web.dashboard import task_actions
from kingdom.web.dashboard.components import (
    RowList,
    badge,
    button,
    card,
    cell,
    empty,
    facts,
    figure,
    folded_json,
    link,
    list_row,
    row,
    tab,
    tag,
    text,
    web_link,
)
from kingdom.web.dashboard.formats import (
    court_timezone,
    format_count,
    format_datetime,
    format_span,
    format_usd,
    page_url,
)
from kingdom.web.dashboard.refresh import FOLLOW_SECONDS, SLOW_SECONDS, PageRefresher
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.task_actions import answer_text, draw_question
from kingdom.web.dashboard.timeline import draw_links, draw_trace
from kingdom.web.dashboard.visit import Visit
from kingdom.web.envelope import ApiError
from kingdom.web.views.documents import read_task, trace
from kingdom.web.views.transcripts import read_transcript

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.web.dashboard.components import ListRow
    from kingdom.web.live.event import LiveEvent
    from kingdom.web.views.documents import TaskState
    from kingdom.web.views.questions import TaskAnswer


# ── Transcript ──


_FIRST_BYTES: Final = 64 * 1024  # read from the end of a long transcript
_MAX_LINES: Final = 300
_MAX_LINE_CHARS: Final = 4_000


@dataclass(frozen=True, slots=True)
class TranscriptRow:
    """One entry of the transcript and its number."""

    number: int
    kind: str
    text: str


class TranscriptFollower:
    """Follows the transcript of a soldier of a task: the named one, or the last."""

    def __init__(
        self, visit: Visit, task_id: str, soldier: str | None, refresher: PageRefresher, inside: Element
    ) -> None:
        self._visit = visit
        self._task_id = task_id
        self._soldier = soldier
        self._refresher = refresher
        self._reading: str | None = None  # id of the soldier whose transcript is read
        self._offset = -_FIRST_BYTES
        self._said: deque[TranscriptRow] = deque(maxlen=_MAX_LINES)
        self._count = 0
        self._is_cut = False
        with inside:
            with tag("p", "k-muted k-small k-cut") as self._whole:
                text(visit.words("task.transcript.cut") + " ")
                link(visit.words("task.transcript.all"), transcript_url(task_id, soldier))
            box = tag("div", "k-output k-transcript", tabindex="0", role="log")
            box.props["aria-label"] = visit.words("task.transcript")
            with box:
                self._below = tag("div")
                self._lines = RowList("log", visit.words("task.transcript"), "k-block")
        self._whole.set_visibility(False)

    async def load(self) -> list[TranscriptRow]:
        """Read new entries. Returns all entries to show."""
        try:
            while True:
                part = await read_transcript(self._visit.context, self._task_id, self._offset, soldier=self._soldier)
                if self._reading not in (None, part.soldier_id):
                    self._begin_again()
                    continue
                self._reading = part.soldier_id
                for item in part.items:
                    self._count += 1
                    self._said.append(TranscriptRow(self._count, item.kind, _cut(item.text)))
                    self._is_cut |= len(item.text) > _MAX_LINE_CHARS
                self._refresher.every = FOLLOW_SECONDS if part.alive else SLOW_SECONDS
                done = part.next_offset >= part.size or part.next_offset == self._offset
                self._offset = part.next_offset
                self._is_cut |= part.size > _FIRST_BYTES or self._count > _MAX_LINES
                if done:
                    return list(self._said)
        except ApiError as error:
            if error.status != 404:
                raise
            return []

    def show(self, said: list[TranscriptRow]) -> None:
        self._whole.set_visibility(bool(said) and self._is_cut)
        self._lines.show([transcript_row(one.number, one.kind, one.text) for one in said])
        self._below.clear()
        if not said:
            with self._below:
                empty(self._visit.words("task.transcript.none"), self._visit.words("task.transcript.hint"))

    def _begin_again(self) -> None:
        """Start over: another soldier took the task, and its transcript is shown now."""
        self._reading = None
        self._offset = -_FIRST_BYTES
        self._said.clear()


def transcript_row(number: int, kind: str, said: str) -> ListRow:
    """Return the row of an entry of a transcript."""
    return list_row(str(number), [cell(said, "k-wrap")], f"k-said k-said-{kind}")


def transcript_url(task_id: str, soldier: str | None, at: str = "") -> str:
    """Return the URL of the page with a whole transcript; ``at`` is the byte at which a part begins, or ``end``."""
    return page_url("tasks", task_id, "transcript", soldier=soldier, at=at)


def _cut(said: str) -> str:
    return said if len(said) <= _MAX_LINE_CHARS else f"{said[:_MAX_LINE_CHARS]}…"


# ── Page ──


_TRACE_SECONDS: Final = 60.0  # a trace reads many files; journal events refresh it earlier


@page("/tasks/{task_id}", title="nav.tasks", nav="tasks", court=True)
async def task_page(visit: Visit, task_id: str, soldier: str | None = None) -> None:
    """The page of one task: result, transcript, trace, facts, payload."""
    words, zone = visit.words, await court_timezone(visit)
    load = partial(_read, visit, task_id)
    first = await load()  # an unknown task raises here, and the error replaces the page

    def concerns(event: LiveEvent) -> bool:
        return task_id in str(event.data)

    refresher = PageRefresher(visit, concerns)
    story = PageRefresher(visit, concerns, every=_TRACE_SECONDS)
    actions = page_head(about_task(first), above=(words("nav.tasks"), "/tasks"))
    await refresher.panel(
        actions, partial(_offered, visit, task_id), lambda found: _draw_actions(visit, task_id, *found, refresher)
    )
    asked = tag("div", "k-asked")
    await refresher.panel(
        asked, partial(_asked, visit, task_id), lambda found: _draw_question(visit, zone, task_id, *found, refresher)
    )
    with tag("div", "k-card k-card-body k-task-lead"):
        lead = tag("div", "k-stack")
    await refresher.panel(lead, load, lambda state: _draw_lead(visit, task_id, state))
    with tag("div", "k-grid k-below"):
        with tag("div", "k-column k-col-8"):
            with card(words("task.result")) as (body, _):
                pass
            await refresher.panel(body, load, lambda state: _draw_result(visit, state))
            with card(words("task.transcript"), flush=True) as (body, side):
                pass
            await refresher.panel(side, load, lambda state: draw_soldiers(page_url("tasks", task_id), state, soldier))
            follower_refresher = PageRefresher(visit, concerns)
            follower = TranscriptFollower(visit, task_id, soldier, follower_refresher, body)
            await follower_refresher.panel(body, follower.load, follower.show, keep=True)
            with card(words("task.story")) as (body, _):
                pass
            await story.panel(body, partial(trace, visit.context, task_id), partial(draw_trace, visit, zone, task_id))
        with tag("div", "k-column k-col-4"):
            with card(words("task.facts")) as (body, _):
                pass
            await refresher.panel(body, load, lambda state: _draw_facts(visit, zone, state))
            with card(words("events.linked"), flush=True) as (body, _):
                pass
            await refresher.panel(body, load, lambda state: draw_links(visit, state.linked, zone))
            with card(words("task.payload")) as (body, _):
                pass
            await refresher.panel(body, load, partial(_draw_payload, visit))


async def _read(visit: Visit, task_id: str) -> TaskState:
    """Read the task once for all panels of the page."""
    return await visit.shared.read(("task", task_id), partial(read_task, visit.context, task_id))


async def _asked(visit: Visit, task_id: str) -> tuple[dict[str, Any] | None, TaskAnswer | None]:
    state = await _read(visit, task_id)
    return state.question, state.answer


async def _offered(visit: Visit, task_id: str) -> tuple[str, tuple[str, ...]]:
    """Return the status and the possible actions, without what changes each second: the focus stays on a button."""
    state = await _read(visit, task_id)
    return state.shown_status, tuple(state.actions)


def _draw_actions(visit: Visit, task_id: str, status: str, actions: tuple[str, ...], refresher: PageRefresher) -> None:
    words = visit.words
    badge(words.of("status", status), status).props["data-status"] = status

    async def act(what: str) -> None:
        if await (task_actions.retry_task if what == "retry" else task_actions.cancel_task)(visit, task_id):
            refresher.wake()

    if "retry" in actions and visit.may("retryTask"):
        button(words("task.retry"), partial(act, "retry"))
    if "cancel" in actions and visit.may("cancelTask"):
        button(words("task.cancel"), partial(act, "cancel"), kind="danger")


def about_task(state: TaskState) -> str:
    """Return what a task is about: its subject and title, or its id."""
    return " ".join(filter(None, (state.subject, state.title))) or str(state.task.get("id"))


def _draw_lead(visit: Visit, task_id: str, state: TaskState) -> None:
    """Draw how long it took, what it cost, who does it, what came of it, and the tasks before and after it."""
    words, result = visit.words, state.result or {}
    with tag("div", "k-figures"):
        figure(format_span(state.duration_seconds, words, step=1), words("task.duration"))
        figure(format_usd(state.spent.cost_usd), words("task.spent"))
        figure(str(state.task.get("target_general") or "–"), words("task.general"))
    outcome = result.get("error") or result.get("summary")
    if outcome:
        text(str(outcome), f"k-wrap {'k-text-bad' if result.get('error') else 'k-strong'}", name="p")
    links = result.get("links")
    with tag("div", "k-row k-wrapping k-small"):
        text(task_id, "k-mono k-muted")
        for one in links if isinstance(links, list) else ():
            web_link(str(one))
        for related in state.related:
            text(words(f"task.{related.relation}"), "k-muted")
            link(related.task_id, f"/tasks/{related.task_id}", "k-mono").props["data-related"] = related.relation


def _draw_question(
    visit: Visit,
    zone: tzinfo,
    task_id: str,
    question: dict[str, Any] | None,
    answer: TaskAnswer | None,
    refresher: PageRefresher,
) -> None:
    """Draw the open question, or the answer."""
    if answer is not None:
        with card(visit.words("task.answer.card"), "k-answered"), tag("div", "k-stack"):
            text(answer_text(visit, answer, zone), "k-wrap", name="p")
            if answer.resumed_as is not None:
                with row("k-small"):
                    text(visit.words("task.answer.resumed"), "k-muted")
                    link(answer.resumed_as, f"/tasks/{answer.resumed_as}", "k-mono")
    if question is None:
        return
    choices = question.get("choices")
    with card(visit.words("court.questions"), "k-asking"), tag("div", "k-stack"):
        if question.get("deadline"):
            at = format_datetime(question["deadline"], zone)
            text(visit.words("court.deadline", at=at), "k-small k-muted", name="p")
        draw_question(
            visit,
            task_id,
            str(question.get("text") or ""),
            [str(choice) for choice in choices] if isinstance(choices, list) else [],
            refresher.wake,
        )


def _draw_result(visit: Visit, state: TaskState) -> None:
    words, result = visit.words, state.result
    if state.problem is not None:
        text(state.problem, "k-wrap k-text-bad", name="p")
    if result is None:
        empty(words("task.result.none"), words("task.result.hint"))
        return
    folded_json(words("task.raw"), result)


def draw_soldiers(path: str, state: TaskState, chosen: str | None) -> None:
    """Draw the choice between the soldiers of a task, on the page with this path."""
    if len(state.soldiers) > 1:
        last = state.soldiers[-1].id
        with tag("div", "k-tabs"):
            for one in state.soldiers:
                tab(one.id, f"{path}?{urlencode({'soldier': one.id})}", chosen=one.id == (chosen or last))


def _draw_facts(visit: Visit, zone: tzinfo, state: TaskState) -> None:
    words, task = visit.words, state.task
    found = [
        (words("task.id"), str(task.get("id") or "–")),
        (words("task.general"), str(task.get("target_general") or "–")),
        (words("task.type"), str(task.get("type") or "–")),
        (words("task.priority"), str(task.get("priority") or "–")),
        (words("task.event"), str(task.get("event_id") or "–")),
        (words("task.repo"), str(task.get("repo") or "–")),
        (words("task.created"), format_datetime(task.get("created_at"), zone)),
        (words("task.retries"), str(task.get("retry_count") or 0)),
        (
            words("task.spent"),
            f"{format_usd(state.spent.cost_usd)} · {format_count(state.spent.tokens)} {words('task.tokens')}",
        ),
        (words("task.runs"), str(state.spent.runs)),
    ]
    found += [
        (words("task.soldier"), f"{one.id} · {one.engine}{f' · {one.model}' if one.model else ''}")
        for one in state.soldiers
    ]
    facts(found)


def _draw_payload(visit: Visit, state: TaskState) -> None:
    folded_json(visit.words("task.raw"), state.task.get("payload") or {})
