"""The state of the token budget: ok, warning, critical; and a new day at local midnight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kingdom.court.budget import limits_of, spending_at
from kingdom.court.days import ONE_DAY, day_of, start_of
from kingdom.journal.catalog import SystemTokenBudgetReset, SystemTokenStatusChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import date
    from zoneinfo import ZoneInfo

    from kingdom.agents.ledger import Ledger, Totals
    from kingdom.court.budget import Limit, Spending
    from kingdom.court.chamberlain.memory import Memory, TokenStatus
    from kingdom.court.config.system import BudgetSection
    from kingdom.court.packages.manifest import GeneralBudget
    from kingdom.journal import EventData

STATUSES: Final[tuple[TokenStatus, ...]] = ("ok", "warning", "critical")


@dataclass(frozen=True, slots=True)
class Standing:
    """How the budget of the court, or of one general, stands."""

    status: TokenStatus = "ok"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TokenLook:
    """What one look found."""

    court: Standing
    generals: dict[str, Standing]
    daily_cost_usd: float
    daily_tokens: int
    monthly_cost_usd: float


class TokenWatch:
    """Looks at the ledger against the limits."""

    def __init__(self, ledger: Ledger, section: BudgetSection, zone: ZoneInfo, memory: Memory) -> None:
        self._ledger = ledger
        self._section = section
        self._zone = zone
        self._memory = memory

    def look(self, budgets: Mapping[str, GeneralBudget], now: float, emit: Callable[[EventData], None]) -> TokenLook:
        """Look, and write into the journal what changed."""
        memory, today = self._memory, day_of(now, self._zone)
        spending = spending_at(self._ledger, now, self._zone)
        if memory.token_day is not None and today.isoformat() > memory.token_day:
            before = self.totals_of(today.fromisoformat(memory.token_day)).cost_usd
            emit(SystemTokenBudgetReset(date=today.isoformat(), previous_cost=money(before)))
        memory.token_day = max(today.isoformat(), memory.token_day or "")
        warning = self._section.warning_percent
        court = _standing(limits_of(self._section), spending, warning)
        if court.status != memory.token_status:
            cost = money(spending.day.cost_usd)
            emit(SystemTokenStatusChanged(from_=memory.token_status, to=court.status, daily_cost_usd=cost))
            memory.token_status = court.status
        generals = {name: _standing(limits_of(budget, name), spending, warning) for name, budget in budgets.items()}
        return TokenLook(court, generals, spending.day.cost_usd, spending.day.tokens, spending.month.cost_usd)

    def totals_of(self, day: date) -> Totals:
        """What was spent on a day."""
        return self._ledger.totals(start_of(day, self._zone), start_of(day + ONE_DAY, self._zone))


def money(amount: float) -> str:
    """USD as the journal writes it: two decimals."""
    return f"{amount:.2f}"


def _standing(limits: Iterable[Limit], spending: Spending, warning_percent: float) -> Standing:
    worst = Standing()
    for limit in limits:
        used = limit.used(spending)
        if used >= limit.amount:
            status: TokenStatus = "critical"
        elif used >= limit.amount * warning_percent / 100:
            status = "warning"
        else:
            continue
        if STATUSES.index(status) > STATUSES.index(worst.status):
            worst = Standing(status, f"{limit.show(used)} of the {limit.name} of {limit.show(limit.amount)} spent")
    return worst
