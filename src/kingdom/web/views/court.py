"""The court as a whole, its statistics and budget."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from zoneinfo import ZoneInfo

from pydantic import Field

from kingdom.court.attention import ConditionLevel
from kingdom.court.budget import all_limits, cost_summary, limit_usage, spending_at
from kingdom.court.chamberlain.reports import current_stats, load_report
from kingdom.court.config import load_system
from kingdom.court.machines.listing import MachineState
from kingdom.court.models import timestamp
from kingdom.court.overview import (
    ActiveAlert,
    BudgetSummary,
    HealthState,
    OpenQuestion,
    QueueState,
    RoleState,
    open_questions,
    read_overview,
)
from kingdom.court.packages.installed import load_generals
from kingdom.court.problems import CourtProblem
from kingdom.court.rollups.queries import StatsHistory, read_history
from kingdom.court.rollups.store import rollups_path
from kingdom.web.envelope import ApiModel
from kingdom.web.views.court_state import court_state
from kingdom.web.views.journal import JournalLine, recent_journal
from kingdom.web.views.redaction import json_safe

if TYPE_CHECKING:
    from kingdom.agents.ledger import LedgerSum, LedgerTotals
    from kingdom.court.budget import BudgetLimit, PeriodSpending
    from kingdom.web.context import WebContext


T = TypeVar("T")
_MIN_AGE_FACTOR: Final = 4  # a result is reused for at least this many times the duration of its read


class CachedRead(Generic[T]):
    """Caches the result of a read for ``seconds``; concurrent callers share one read."""

    def __init__(self, read: Callable[[], Awaitable[T]], seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._until = 0.0
        self._task: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Return the cached result, or read it. All waiting callers get the error of a failed read."""
        if self._task is None or (self._task.done() and time.monotonic() >= self._until):
            self._task = asyncio.create_task(self._run())
        # A caller that is cancelled must not cancel the read of the others.
        return await asyncio.shield(self._task)

    async def _run(self) -> T:
        started = time.monotonic()
        result = await self._read()
        now = time.monotonic()
        self._until = now + max(self._seconds, _MIN_AGE_FACTOR * (now - started))
        return result


# ── Overview ──


_OVERVIEW_SECONDS: Final = 0.5  # how long an overview is reused
_SOLDIER_LINES: Final = 20


class SoldierAtWork(ApiModel):
    """A running soldier and its latest output."""

    id: str
    task_id: str
    general: str
    engine: str
    pid: int | None
    seconds: float | None
    machine: str | None = Field(None, description="The machine, if it is another one than that which answers.")
    said: list[str] = Field(default_factory=list)


class LimitState(ApiModel):
    """A limit and its usage."""

    name: str = Field(examples=["daily budget"])
    shown: str = Field(examples=["$2.50 of $10.00"])
    part: float = Field(description="Used fraction; 1 is the whole limit.", examples=[0.25])


class CostState(ApiModel):
    """Spending and limits."""

    day_usd: float
    day_tokens: int
    month_usd: float
    limits: list[LimitState]


class ConditionState(ApiModel):
    """How the court is."""

    level: ConditionLevel
    reasons: list[str] = Field(description="Everything that speaks against `ok`.")


class CourtState(ApiModel):
    """The state of the court."""

    home: str
    running: bool
    supervisor_pid: int | None
    mode: str | None
    at: str
    roles: list[RoleState]
    queues: list[QueueState]
    holds: dict[str, Any] = Field(description="Why events are on hold: count and some ids for each reason.")
    soldiers: list[SoldierAtWork]
    questions: list[OpenQuestion]
    problems: list[CourtProblem]
    condition: ConditionState
    health: HealthState
    budget: BudgetSummary
    alerts: list[ActiveAlert]
    attention: list[str] = Field(description="What needs a person now, and what to do; empty when nothing does.")
    timezone: str = Field(description="The time zone of the court.", examples=["Asia/Seoul"])
    machines: list[MachineState] = Field(description="The machines of a court on several; empty on one.")
    cost: CostState
    recent: list[JournalLine] = Field(description="The last lines of the journal, newest first.")


class _CachedOverview(CachedRead[CourtState]):
    """The cached state of the court."""


async def court_overview(context: WebContext) -> CourtState:
    """Return the state of the court. It is cached for about half a second, for all callers together."""
    return await context.cached(
        _CachedOverview, lambda: _CachedOverview(lambda: _overview(context), _OVERVIEW_SECONDS)
    ).get()


async def list_questions(context: WebContext) -> list[OpenQuestion]:
    """Return the open questions."""
    return [_question(one) for one in await open_questions(context.court)]


async def court_cost(context: WebContext) -> CostState:
    """Return the spending of today and this month, and the limits of the court."""
    return await asyncio.to_thread(_cost, context)


async def _overview(context: WebContext) -> CourtState:
    view_state = court_state(context)
    seen = await read_overview(view_state.services, view_state.readers)
    said = await asyncio.to_thread(view_state.last_words.read, [one.id for one in seen.soldiers])
    now = context.clock()
    state = json_safe(seen.document())
    for soldier in state["soldiers"]:
        soldier["said"] = json_safe(said.get(soldier["id"], [])[-_SOLDIER_LINES:])
    return CourtState(
        **state,
        at=timestamp(now),
        cost=await court_cost(context),
        recent=await recent_journal(context),
    )


def _question(question: OpenQuestion) -> OpenQuestion:
    return OpenQuestion(**json_safe(asdict(question)))


def _cost(context: WebContext) -> CostState:
    view_state = court_state(context)
    home = view_state.services.home
    system, generals = load_system(home), load_generals(home).by_name
    with view_state.ledger() as ledger:
        cost = cost_summary(context.clock(), ledger, system, generals)
    limits = [LimitState(name=name, shown=shown, part=part) for name, (shown, part) in cost.limits.items()]
    return CostState(day_usd=cost.day_usd, day_tokens=cost.day_tokens, month_usd=cost.month_usd, limits=limits)


def limit_state(limit: BudgetLimit, spending: PeriodSpending) -> LimitState:
    """Return the usage of a limit."""
    shown, part = limit_usage(limit, spending)
    return LimitState(name=limit.name, shown=shown, part=part)


# ── Statistics, budget ──


class SpendingInfo(ApiModel):
    """Spending."""

    cost_usd: float = 0.0
    tokens: int = 0
    runs: int = 0


class BudgetState(ApiModel):
    """Spending of today and this month, by general, and all limits."""

    timezone: str
    day: SpendingInfo
    month: SpendingInfo
    day_by_general: dict[str, SpendingInfo]
    month_by_general: dict[str, SpendingInfo]
    limits: list[LimitState]


async def stats(context: WebContext) -> dict[str, Any]:
    """Return the chamberlain's statistics by hour, day and general."""
    return json_safe(await asyncio.to_thread(current_stats, context.court.home, context.clock()))  # type: ignore[no-any-return]


async def stats_history(
    context: WebContext, since: float | None = None, until: float | None = None, general: str | None = None
) -> StatsHistory:
    """Return the figures of a period in equal steps, from the roll-ups of the chamberlain."""
    home = context.court.home

    def read() -> StatsHistory:
        zone = ZoneInfo(load_system(home).timezone)
        return read_history(rollups_path(home), zone, context.clock(), since, until, general)

    return await asyncio.to_thread(read)


async def daily_report(context: WebContext, day: str) -> dict[str, Any]:
    """Return the report of a day. Raises :class:`kingdom.court.chamberlain.reports.NoReport` and ``NoSuchDay``."""
    home = context.court.home
    found = await asyncio.to_thread(lambda: load_report(home, load_system(home), day, context.clock()))
    return json_safe(found)  # type: ignore[no-any-return]


async def budget(context: WebContext) -> BudgetState:
    """Spending and limits."""
    return await asyncio.to_thread(_budget, context)


def _budget(context: WebContext) -> BudgetState:
    view_state = court_state(context)
    home = view_state.services.home
    system = load_system(home)
    with view_state.ledger() as ledger:
        spending = spending_at(ledger, context.clock(), ZoneInfo(system.timezone))
    limits = all_limits(system, load_generals(home).by_name)
    return BudgetState(
        timezone=system.timezone,
        day=_spent(spending.day),
        month=_spent(spending.month),
        day_by_general={name: _spent(spent) for name, spent in sorted(spending.day.by_general.items())},
        month_by_general={name: _spent(spent) for name, spent in sorted(spending.month.by_general.items())},
        limits=[limit_state(limit, spending) for limit in limits],
    )


def _spent(spent: LedgerTotals | LedgerSum) -> SpendingInfo:
    return SpendingInfo(cost_usd=round(spent.cost_usd, 6), tokens=spent.tokens, runs=spent.runs)
