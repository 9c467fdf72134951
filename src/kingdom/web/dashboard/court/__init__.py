"""The court at a glance: the page people keep open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from kingdom.web.dashboard.building import card, figure, tag, text
from kingdom.web.dashboard.building.formats import money
from kingdom.web.dashboard.court.affairs import draw_cost, draw_queues, draw_roles, draw_troubles
from kingdom.web.dashboard.court.journal import JournalList
from kingdom.web.dashboard.court.notices import draw_notice
from kingdom.web.dashboard.court.questions import QuestionList
from kingdom.web.dashboard.court.soldiers import SoldierList
from kingdom.web.dashboard.refreshing import FOLLOWING, SLOW, Pulse
from kingdom.web.dashboard.registry import page
from kingdom.web.dashboard.theme import Tone
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.zone import zone_of
from kingdom.web.views.court import court_overview

if TYPE_CHECKING:
    from kingdom.web.views.court import CourtState, RoleState

T = TypeVar("T")


@page("/", title="nav.court", nav="court", court=True)
async def show(visit: Visit) -> None:
    """Who works on what, who is asked, what it costs, what is wrong."""
    words = visit.words
    pulse = Pulse(visit)
    zone = await zone_of(visit)

    def seen(part: Callable[[CourtState], T]) -> Callable[[], Awaitable[T]]:
        async def load() -> T:
            state = await court_overview(visit.context)
            pulse.every = FOLLOWING if state.soldiers else SLOW
            return part(state)

        return load

    text(words("nav.court"), "k-hidden-text", name="h1")
    await pulse.panel(tag("div"), seen(lambda state: state.running), lambda up: draw_notice(visit, up))
    with tag("div", "k-card k-card-body"):
        figures = tag("div", "k-figures")
    await pulse.panel(figures, seen(_figures), lambda found: _draw_figures(visit, found))
    with tag("div", "k-grid k-below"):
        with tag("div", "k-column k-col-8"):
            questions = QuestionList(visit, pulse, zone)
            await pulse.panel(questions.body, seen(lambda state: state.questions), questions.show, keep=True)
            with card(words("court.soldiers"), flush=True) as (body, _):
                soldiers = SoldierList(visit, body)
            await pulse.panel(body, seen(lambda state: state.soldiers), soldiers.show, keep=True)
            with card(words("court.recent"), flush=True) as (body, _):
                journal = JournalList(visit, body, zone)
            await pulse.panel(body, seen(lambda state: state.recent), journal.show, keep=True)
        with tag("div", "k-column k-col-4"):
            with card(words("court.troubles"), flush=True) as (body, _):
                pass
            await pulse.panel(
                body, seen(lambda state: (state.holds, state.problems)), lambda found: draw_troubles(visit, *found)
            )
            with card(words("court.cost")) as (body, _):
                pass
            await pulse.panel(body, seen(lambda state: state.cost), lambda cost: draw_cost(visit, cost))
            with card(words("court.queues"), flush=True) as (body, _):
                pass
            await pulse.panel(body, seen(lambda state: state.queues), lambda queues: draw_queues(visit, queues))
            with card(words("court.roles"), flush=True) as (body, _):
                pass
            await pulse.panel(body, seen(_settled), lambda roles: draw_roles(visit, roles))


def _settled(state: CourtState) -> list[RoleState]:
    """The roles, with the age of their signs of life as coarse as it is shown: a heartbeat alone changes nothing."""
    return [role.model_copy(update={"heartbeat_seconds": _coarse(role.heartbeat_seconds)}) for role in state.roles]


def _coarse(seconds: float | None) -> float | None:
    return None if seconds is None else seconds // 10 * 10


def _figures(state: CourtState) -> list[tuple[str, str, Tone | None]]:
    """What matters most, as numbers: the key of its name, the number, its tone."""
    counts = {queue.name: queue.counts for queue in state.queues}
    waiting = sum(counts.get(name, {}).get("pending", 0) for name in ("events", "tasks"))
    return [
        ("court.figure.soldiers", f"{len(state.soldiers):,}", "busy" if state.soldiers else None),
        ("court.figure.waiting", f"{waiting:,}", None),
        ("court.figure.questions", f"{len(state.questions):,}", "warn" if state.questions else None),
        ("court.figure.problems", f"{len(state.problems):,}", "bad" if state.problems else None),
        ("court.figure.cost", money(state.cost.day_usd), None),
    ]


def _draw_figures(visit: Visit, found: list[tuple[str, str, Tone | None]]) -> None:
    for key, value, tone in found:
        figure(value, visit.words(key), tone)
