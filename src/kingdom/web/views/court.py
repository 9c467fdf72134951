"""The court as a whole: who runs, what waits and why, who works and says what, who is asked, what it costs."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from kingdom.court.config.system import load_system
from kingdom.court.costs import cost_at, how_full
from kingdom.court.journal_tail import journal_tail
from kingdom.court.models import timestamp
from kingdom.court.overview import look, open_questions
from kingdom.web.envelope import ApiModel
from kingdom.web.views.fresh import Fresh
from kingdom.web.views.keeping import desk_of
from kingdom.web.views.plain import plain

if TYPE_CHECKING:
    from kingdom.court.budget import Limit, Spending
    from kingdom.court.overview import QuestionView
    from kingdom.journal import Entry
    from kingdom.web.context import WebContext

_FRESH: Final = 0.5  # seconds for which a look at the whole court counts
_RECENT: Final = 50  # lines of the journal
_LINE: Final = 1024  # bytes of the journal that are read for each line: most are much shorter
_SAID: Final = 20  # last lines of each soldier


class RoleState(ApiModel):
    """One role."""

    name: str = Field(examples=["king"])
    state: str = Field(
        description="running, late, starting, waiting, stopping, failed or stopped", examples=["running"]
    )
    pid: int | None
    heartbeat_seconds: float | None = Field(description="How long ago it gave a sign of life.")
    deaths: int = Field(description="How often it died in a row.")
    reason: str


class QueueState(ApiModel):
    """One queue, by its own words for the states."""

    name: str = Field(examples=["tasks"])
    counts: dict[str, int] = Field(examples=[{"pending": 2, "in_progress": 1, "invalid": 0}])
    oldest_seconds: float


class SoldierAtWork(ApiModel):
    """A run under way, and the last lines it said."""

    id: str
    task_id: str
    general: str
    engine: str
    pid: int | None
    seconds: float | None
    said: list[str] = Field(default_factory=list)


class OpenQuestion(ApiModel):
    """A task that waits for a person."""

    task_id: str = Field(examples=["task-20260207-001"])
    general: str
    question: str = Field(examples=["Which of the two?"])
    choices: list[str]
    deadline: str | None


class Trouble(ApiModel):
    """Something a person should look at."""

    what: str = Field(examples=["queue/events/invalid/evt-github-1.json"])
    why: str


class HealthState(ApiModel):
    """How the machine is."""

    level: str = Field(description="green, yellow, orange or red", examples=["green"])
    reason: str


class LimitState(ApiModel):
    """One limit, and how much of it is used."""

    name: str = Field(examples=["daily budget"])
    shown: str = Field(examples=["$2.50 of $10.00"])
    part: float = Field(description="1 is all of it.", examples=[0.25])


class CostState(ApiModel):
    """What was spent, and what may be."""

    day_usd: float
    day_tokens: int
    month_usd: float
    limits: list[LimitState]


class JournalLine(ApiModel):
    """One line of the journal."""

    ts: str
    type: str = Field(examples=["task.created"])
    actor: str = Field(examples=["king"])
    data: dict[str, Any]


class CourtState(ApiModel):
    """All of it."""

    home: str
    running: bool
    supervisor_pid: int | None
    mode: str | None
    at: str
    roles: list[RoleState]
    queues: list[QueueState]
    holds: dict[str, Any] = Field(description="Why events are held back: for each reason the count and a few ids.")
    soldiers: list[SoldierAtWork]
    questions: list[OpenQuestion]
    problems: list[Trouble]
    health: HealthState
    cost: CostState
    recent: list[JournalLine] = Field(description="The last lines of the journal, the newest first.")


class _Overview(Fresh[CourtState]):
    """The last look at the whole court."""


async def court_overview(context: WebContext) -> CourtState:
    """Everything about the court at a glance. However many ask, the court is looked at a few times a second at most."""
    return await context.keep(_Overview, lambda: _Overview(lambda: _overview(context), _FRESH)).get()


async def list_questions(context: WebContext) -> list[OpenQuestion]:
    """What people are asked now."""
    return [_question(one) for one in await open_questions(context.court)]


async def recent_journal(context: WebContext, limit: int = _RECENT) -> list[JournalLine]:
    """The last lines of the journal, the newest first."""
    entries = await asyncio.to_thread(journal_tail, context.court.home.journal, limit * _LINE)
    return [_line(entry) for entry in reversed(entries[-limit:])]


async def court_cost(context: WebContext) -> CostState:
    """What was spent today and this month, against the limits of the whole court."""
    return await asyncio.to_thread(_cost, context)


async def _overview(context: WebContext) -> CourtState:
    desk = desk_of(context)
    seen = await look(desk.services, desk.roster)
    said = await asyncio.to_thread(desk.last_words.hear, [one.id for one in seen.soldiers])
    now = context.clock()
    level, reason = await asyncio.to_thread(desk.health.level, now)
    state = plain(seen.document())
    soldiers = [SoldierAtWork(**one, said=plain(said.get(one["id"], [])[-_SAID:])) for one in state.pop("soldiers")]
    return CourtState(
        **{key: state[key] for key in ("home", "running", "supervisor_pid", "mode", "holds")},
        roles=[RoleState(**one) for one in state["roles"]],
        queues=[QueueState(**one) for one in state["queues"]],
        soldiers=soldiers,
        questions=[_question(one) for one in seen.questions],
        problems=[Trouble(**one) for one in state["problems"]],
        at=timestamp(now),
        health=HealthState(level=level, reason=plain(reason)),
        cost=await court_cost(context),
        recent=await recent_journal(context),
    )


def _question(question: QuestionView) -> OpenQuestion:
    found = plain(asdict(question))
    return OpenQuestion(**{**found, "deadline": None if found["deadline"] is None else str(found["deadline"])})


def _cost(context: WebContext) -> CostState:
    desk = desk_of(context)
    system = load_system(desk.services.home)
    with desk.ledger() as ledger:
        cost = cost_at(context.clock(), ledger, system)
    limits = [LimitState(name=name, shown=shown, part=part) for name, (shown, part) in cost.limits.items()]
    return CostState(day_usd=cost.day_usd, day_tokens=cost.day_tokens, month_usd=cost.month_usd, limits=limits)


def limit_state(limit: Limit, spending: Spending) -> LimitState:
    """How much of a limit is used."""
    shown, part = how_full(limit, spending)
    return LimitState(name=limit.name, shown=shown, part=part)


def _line(entry: Entry) -> JournalLine:
    data = plain(dict(entry.fields))
    return JournalLine(ts=timestamp(entry.at.timestamp()), type=entry.type, actor=plain(entry.actor), data=data)
