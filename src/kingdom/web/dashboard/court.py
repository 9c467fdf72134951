"""The court page: questions, soldiers, problems, cost, queues, roles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from kingdom.court.attention import attention_of, condition_of, held_count
from kingdom.web.dashboard.components import (
    KeyedList,
    badge,
    card,
    empty,
    figure,
    link,
    row,
    tag,
    text,
    usage,
)
from kingdom.web.dashboard.formats import (
    court_timezone,
    format_age,
    format_count,
    format_datetime,
    format_span,
    format_usd,
)
from kingdom.web.dashboard.journal_list import JournalList
from kingdom.web.dashboard.refresh import FOLLOW_SECONDS, SLOW_SECONDS, PageRefresher
from kingdom.web.dashboard.shell import attention_text, draw_emit_link, page
from kingdom.web.dashboard.task_actions import draw_question
from kingdom.web.dashboard.theme import Tone
from kingdom.web.dashboard.visit import Visit
from kingdom.web.views.court import court_overview

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.court.attention import AttentionItem, CourtCondition
    from kingdom.court.machines.listing import MachineState
    from kingdom.court.overview import (
        BudgetSummary,
        OpenQuestion,
        QueueState,
        RoleState,
    )
    from kingdom.court.problems import CourtProblem
    from kingdom.web.dashboard.words import Translations
    from kingdom.web.views.court import CostState, CourtState, SoldierAtWork

Condition: TypeAlias = "tuple[CourtCondition, BudgetSummary, Sequence[AttentionItem]]"
_RECENT_LINES: Final = 30
_SHOWN_PROBLEMS: Final = 5  # the others are folded


# ── Side column ──


def draw_troubles(visit: Visit, holds: dict[str, Any], problems: Sequence[CourtProblem]) -> None:
    """Draw holds and problems with their reasons."""
    words = visit.words
    if not holds and not problems:
        empty(words("court.troubles.none"))
        return
    with tag("ul", "k-lines"):
        for reason, held in holds.items():
            with tag("li", "k-stack k-tight"):
                with row():
                    badge(words("court.held"), "warning")
                    text(words("court.held.count", n=held_count(held)), "k-muted k-small")
                text(words.reason(reason), "k-wrap")
        for problem in problems[:_SHOWN_PROBLEMS]:
            _draw_problem(words, problem)
    if problems[_SHOWN_PROBLEMS:]:
        more = sum(one.count for one in problems[_SHOWN_PROBLEMS:])
        with tag("details", "k-details k-pad"):
            text(words("list.rest", n=f"{more:,}"), name="summary")
            with tag("ul", "k-lines"):
                for problem in problems[_SHOWN_PROBLEMS:]:
                    _draw_problem(words, problem)


def _draw_problem(words: Translations, problem: CourtProblem) -> None:
    with tag("li", "k-stack k-tight"):
        if problem.what.startswith("task-"):
            link(problem.what, f"/tasks/{problem.what}", "k-mono")
        else:
            text(problem.what, "k-mono k-wrap")
        text(words.reason(problem.why), "k-wrap k-text-bad")


def draw_cost(visit: Visit, cost: CostState) -> None:
    """Draw spending and the usage of budgets."""
    words = visit.words
    with tag("div", "k-stack"):
        with tag("div", "k-figures"):
            figure(format_usd(cost.day_usd), words("court.cost.day"))
            figure(format_usd(cost.month_usd), words("court.cost.month"))
            figure(format_count(cost.day_tokens), words("court.cost.tokens"))
        for limit in cost.limits:
            usage(limit.name, limit.shown, limit.part)
        if not cost.limits:
            text(words("court.cost.unlimited"), "k-muted k-small", name="p")


def draw_queues(visit: Visit, queues: Sequence[QueueState]) -> None:
    """Draw the queues and their depths."""
    words = visit.words
    with tag("table", "k-table", aria_label=words("court.queues")):
        with tag("thead"), tag("tr"):
            text(words("court.queue"), name="th")
            for column in ("waiting", "held", "dead", "oldest"):
                text(words(f"court.queue.{column}"), "k-num", name="th")
        with tag("tbody"):
            for queue in queues:
                waiting, *others = queue.counts.values()
                dead = others[-1] if others else 0
                with tag("tr"):
                    with tag("td"):
                        link(words.of("queue", queue.name), f"/bus?bus=court&stream={queue.name}", "k-row-link")
                    text(f"{waiting:,}", "k-num", name="td")
                    text(f"{sum(others[:-1]):,}", "k-num", name="td")
                    text(f"{dead:,}", f"k-num {'k-text-bad k-strong' if dead else ''}", name="td")
                    oldest = format_span(queue.oldest_seconds, words) if waiting else "–"
                    text(oldest, "k-num k-muted", name="td")


def draw_roles(visit: Visit, roles: Sequence[RoleState]) -> None:
    """Draw the roles, their states and heartbeats."""
    words = visit.words
    with tag("ul", "k-lines k-roles"):
        for role in roles:
            with tag("li"):
                with row():
                    text(role.name, "k-strong k-clip")
                    badge(words.of("role", role.state), role.state, "k-push")
                with row("k-small k-muted"):
                    text(format_age(role.heartbeat_seconds, words))
                    if role.pid is not None:
                        text(f"pid {role.pid}")
                    if role.deaths:
                        text(words("court.deaths", n=role.deaths), "k-text-bad")
                if role.reason:
                    text(words.reason(role.reason), "k-small k-wrap k-text-bad", name="p")


class MachineList:
    """The machines of a court on several; hidden on one."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        with (
            tag("div") as self._whole,
            card(visit.words("court.machines"), flush=True, anchor="machines") as (body, _),
        ):
            self._list: KeyedList[MachineState] = KeyedList(tag("ul", "k-lines"), _machine_key, self._draw)
        self._whole.set_visibility(False)
        self.body: Element = body

    def show(self, machines: Sequence[MachineState]) -> None:
        self._whole.set_visibility(bool(machines))
        self._list.show(machines)

    def _draw(self, machine: MachineState) -> None:
        words = self._visit.words
        with tag("li", data_machine=machine.name):
            with row():
                text(machine.name, "k-strong k-clip")
                if machine.here:
                    text(words("machine.here"), "k-small k-muted")
                badge(words.of("machine", machine.state), machine.state, "k-push")
            leads = "machine.led" if machine.led else "machine.leads" if machine.leads else "machine.standby"
            duty = "" if machine.joined else words(leads)
            shown = [duty, ", ".join(machine.runs)]
            slots = "" if machine.slots is None else f" / {machine.slots}"
            shown.append(words("machine.soldiers", n=f"{len(machine.soldiers)}{slots}"))
            shown.append(words("machine.seen", age=format_age(machine.silent_seconds, words)))
            text(" · ".join(filter(None, shown)), "k-small k-muted k-wrap", name="p")


def _machine_key(machine: MachineState) -> str:
    """Return a key that changes with what is shown."""
    shown = machine.name, machine.state, machine.leads, machine.runs, len(machine.soldiers), machine.silent_seconds
    return " ".join(map(str, shown))


def _coarse_machines(state: CourtState) -> list[MachineState]:
    """Round the ages as they are shown, so that a sign of life alone does not redraw the panel."""
    return [replace(one, silent_seconds=one.silent_seconds // 60 * 60) for one in state.machines]


def draw_notice(visit: Visit, running: bool) -> None:
    """Draw a notice if the court is not running."""
    if running:
        return
    with tag("div", "k-notice k-tone-warn", role="status"):
        text(visit.words("court.down"))
        text(f"kingdom up --home {visit.context.root}", "k-mono k-command")


def draw_condition(visit: Visit, found: Condition) -> None:
    """Draw the condition with its reasons, the budget, and what needs a person."""
    words, (condition, budget, wanted) = visit.words, found
    with tag("div", "k-stack k-tight", role="status"):
        with row("k-wrapping"):
            text(words("court.health"), "k-muted k-small")
            badge(words.of("condition", condition.level), condition.level)
            text(words("court.budget"), "k-muted k-small")
            badge(words.of("budget", budget.status), budget.status)
            text("; ".join(budget.spent), "k-small k-muted k-wrap")
        limits = [item for item in condition.reasons if item not in wanted]
        _draw_items(visit, limits, "k-muted")
        text(words("court.attention" if wanted else "court.attention.none"), "k-strong" if wanted else "k-text-ok")
        _draw_items(visit, wanted, "")


def _draw_items(visit: Visit, items: Sequence[AttentionItem], classes: str) -> None:
    if items:
        with tag("ul", "k-stack k-tight"):
            for item in items:
                shown = text(attention_text(visit.words, item), f"k-wrap {classes}", name="li")
                shown.props["data-attention"] = item.kind


# ── Main column ──


class QuestionList:
    """The open questions; hidden while there are none. Text typed into an answer survives a refresh."""

    def __init__(self, visit: Visit, refresher: PageRefresher, zone: tzinfo) -> None:
        self._visit = visit
        self._refresher = refresher
        self._zone = zone
        with (
            tag("div") as self._whole,
            card(visit.words("court.questions"), "k-asking", flush=True) as (body, _),
        ):
            self._list: KeyedList[OpenQuestion] = KeyedList(tag("ul", "k-lines"), lambda one: one.task_id, self._draw)
        self._whole.set_visibility(False)
        self.body: Element = body

    def show(self, questions: Sequence[OpenQuestion]) -> None:
        self._whole.set_visibility(bool(questions))
        self._list.show(questions)

    def _draw(self, question: OpenQuestion) -> None:
        words = self._visit.words
        with tag("li", "k-stack", data_question=question.task_id):
            with row("k-wrapping k-small k-muted"):
                link(question.task_id, f"/tasks/{question.task_id}", "k-mono")
                text(question.general)
                if question.deadline:
                    text(words("court.deadline", at=format_datetime(question.deadline, self._zone)))
            draw_question(self._visit, question.task_id, question.question, question.choices, self._refresher.wake)


class SoldierList:
    """The running soldiers and their latest output."""

    def __init__(self, visit: Visit, inside: Element) -> None:
        self._visit = visit
        with inside:
            self._list: KeyedList[SoldierAtWork] = KeyedList(
                tag("ul", "k-lines"), lambda one: one.id, self._draw, self._nobody
            )

    def show(self, soldiers: Sequence[SoldierAtWork]) -> None:
        self._list.show(soldiers)

    def _nobody(self) -> None:
        words = self._visit.words
        with tag("li"):
            empty(words("court.soldiers.none"), words("court.soldiers.hint"))
            draw_emit_link(self._visit)

    def _draw(self, soldier: SoldierAtWork) -> Callable[[SoldierAtWork], None]:
        words = self._visit.words
        with tag("li", "k-stack", data_soldier=soldier.id):
            with row("k-wrapping"):
                link(soldier.task_id, f"/tasks/{soldier.task_id}", "k-mono")
                text(soldier.general, "k-strong")
                text(soldier.engine, "k-muted")
                if soldier.machine is not None:
                    text(soldier.machine, "k-muted")
                lasted = text(format_span(soldier.seconds, words), "k-muted k-push")
            with tag("div", "k-output k-short k-mono", tabindex="0", role="log") as scrolled:
                said = text(_output_text(soldier, words("court.silent")), "k-wrap", name="div")
            scrolled.props["aria-label"] = words("court.output", soldier=soldier.id)

        def update(new: SoldierAtWork) -> None:
            lasted.set_text(format_span(new.seconds, words))
            said.set_text(_output_text(new, words("court.silent")))

        return update


def _output_text(soldier: SoldierAtWork, silent: str) -> str:
    return "\n".join(soldier.said) or silent


def _no_lines(visit: Visit) -> None:
    empty(visit.words("court.recent.none"), visit.words("court.recent.hint"), "kingdom up")


# ── Page ──


T = TypeVar("T")


@page("/", title="nav.court", nav="court", court=True)
async def court_page(visit: Visit) -> None:
    """The court page: soldiers, questions, cost, problems."""
    words = visit.words
    refresher = PageRefresher(visit)
    zone = await court_timezone(visit)

    def seen(part: Callable[[CourtState], T]) -> Callable[[], Awaitable[T]]:
        async def load() -> T:
            state = await court_overview(visit.context)
            refresher.every = FOLLOW_SECONDS if state.soldiers else SLOW_SECONDS
            return part(state)

        return load

    text(words("nav.court"), "k-hidden-text", name="h1")
    await refresher.panel(tag("div"), seen(lambda state: state.running), lambda up: draw_notice(visit, up))
    with tag("div", "k-card k-card-body k-condition"):
        condition = tag("div")
    await refresher.panel(condition, seen(_condition), lambda found: draw_condition(visit, found))
    with tag("div", "k-card k-card-body k-below"):
        figures = tag("div", "k-figures")
    await refresher.panel(figures, seen(_figures), lambda found: _draw_figures(visit, found))
    with tag("div", "k-grid k-below"):
        with tag("div", "k-column k-col-8"):
            questions = QuestionList(visit, refresher, zone)
            await refresher.panel(questions.body, seen(lambda state: state.questions), questions.show, keep=True)
            with card(words("court.soldiers"), flush=True) as (body, _):
                soldiers = SoldierList(visit, body)
            await refresher.panel(body, seen(lambda state: state.soldiers), soldiers.show, keep=True)
            with card(words("court.recent"), flush=True) as (body, _):
                journal = JournalList(visit, body, zone, partial(_no_lines, visit), steady=True)
            await refresher.panel(body, seen(lambda state: state.recent[:_RECENT_LINES]), journal.show, keep=True)
        with tag("div", "k-column k-col-4"):
            with card(words("court.troubles"), flush=True, anchor="troubles") as (body, _):
                pass
            await refresher.panel(
                body, seen(lambda state: (state.holds, state.problems)), lambda found: draw_troubles(visit, *found)
            )
            with card(words("court.cost"), anchor="cost") as (body, _):
                pass
            await refresher.panel(body, seen(lambda state: state.cost), lambda cost: draw_cost(visit, cost))
            with card(words("court.queues"), flush=True) as (body, _):
                pass
            await refresher.panel(body, seen(lambda state: state.queues), lambda queues: draw_queues(visit, queues))
            machines = MachineList(visit)
            await refresher.panel(machines.body, seen(_coarse_machines), machines.show, keep=True)
            with card(words("court.roles"), flush=True, anchor="roles") as (body, _):
                pass
            await refresher.panel(body, seen(_settled), lambda roles: draw_roles(visit, roles))


def _condition(state: CourtState) -> Condition:
    return condition_of(state), state.budget, tuple(attention_of(state))


def _settled(state: CourtState) -> list[RoleState]:
    """Round the heartbeat ages of roles as they are shown, so that a heartbeat alone does not redraw the panel."""
    return [replace(role, heartbeat_seconds=_coarse(role.heartbeat_seconds)) for role in state.roles]


def _coarse(seconds: float | None) -> float | None:
    return None if seconds is None else seconds // 10 * 10


def _figures(state: CourtState) -> list[tuple[str, str, Tone | None]]:
    """Return the key figures: text key, number, tone."""
    counts = {queue.name: queue.counts for queue in state.queues}
    waiting = sum(counts.get(name, {}).get("pending", 0) for name in ("events", "tasks"))
    return [
        ("court.figure.soldiers", f"{len(state.soldiers):,}", "busy" if state.soldiers else None),
        ("court.figure.waiting", f"{waiting:,}", None),
        ("court.figure.questions", f"{len(state.questions):,}", "warn" if state.questions else None),
        ("court.figure.problems", f"{sum(one.count for one in state.problems):,}", "bad" if state.problems else None),
        ("court.figure.cost", format_usd(state.cost.day_usd), None),
    ]


def _draw_figures(visit: Visit, found: list[tuple[str, str, Tone | None]]) -> None:
    for key, value, tone in found:
        figure(value, visit.words(key), tone)
