"""Budgets: per day and month, for the whole court and for each general, in USD and in tokens.

The cost of a run is known only after it has run. So a starting run reserves its expected cost, and reservations count
as spent: runs that start at the same moment stay within the limits together. Days and months are those of the court's
time zone. Reservations are kept in the king's memory; after a restart he reserves again for the tasks under way.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

from kingdom.agents.ledger import Ledger, LedgerSum, LedgerTotals
from kingdom.court.days import day_of, start_of_day

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kingdom.court.config import BudgetSection, SystemConfig
    from kingdom.court.home import Home
    from kingdom.court.packages.installed import GeneralPackage
    from kingdom.court.packages.manifest import GeneralBudget


BudgetUnit = Literal["usd", "tokens"]
BudgetPeriod = Literal["daily", "monthly"]

_ESTIMATE_RUNS: Final = 20  # an estimate uses the latest runs of a general, at most this many
_ESTIMATE_WINDOW_SECONDS: Final = 30 * 86400.0
_MIN_ESTIMATE_RUNS: Final = 3  # fewer runs are not significant


class RunEstimate(NamedTuple):
    """The expected cost of a run."""

    usd: float
    tokens: int


DEFAULT_ESTIMATE: Final = RunEstimate(1.0, 300_000)  # for a general with too few runs


class BudgetLimit(NamedTuple):
    general: str | None  # None: for the whole court
    period: BudgetPeriod
    unit: BudgetUnit
    amount: float

    def used(self, spending: PeriodSpending) -> float:
        """Return how much of the limit is spent."""
        totals = spending.day if self.period == "daily" else spending.month
        spent = totals if self.general is None else totals.by_general.get(self.general, LedgerSum())
        return spent.cost_usd if self.unit == "usd" else float(spent.tokens)

    def show(self, amount: float) -> str:
        """Format an amount in the unit of the limit."""
        return f"${amount:,.2f}" if self.unit == "usd" else f"{amount:,.0f} tokens"

    @property
    def name(self) -> str:
        """The name of the limit in messages."""
        return f"{self.period} budget" + ("" if self.general is None else f" of {self.general}")


class PeriodSpending(NamedTuple):
    """The amounts spent today and this month."""

    day: LedgerTotals
    month: LedgerTotals


def spending_at(ledger: Ledger, now: float, zone: ZoneInfo) -> PeriodSpending:
    """Return the amounts spent in the day and month that contain ``now``."""
    today = day_of(now, zone)
    return PeriodSpending(
        ledger.totals(start_of_day(today, zone)), ledger.totals(start_of_day(today.replace(day=1), zone))
    )


def limits_of(section: BudgetSection | GeneralBudget, general: str | None = None) -> list[BudgetLimit]:
    """Return the limits that a configuration sets."""
    found: list[tuple[BudgetPeriod, BudgetUnit, float | None]] = [
        ("daily", "usd", section.daily_usd),
        ("daily", "tokens", section.daily_tokens),
        ("monthly", "usd", section.monthly_usd),
    ]
    return [BudgetLimit(general, period, unit, float(amount)) for period, unit, amount in found if amount is not None]


def all_limits(system: SystemConfig, generals: Mapping[str, GeneralPackage]) -> list[BudgetLimit]:
    """Return the limits of the court, then those of its generals by name."""
    found = limits_of(system.budget)
    for name, general in sorted(generals.items()):
        found += limits_of(general.manifest.budget, name)
    return found


class Budget:
    """The budget gate that a task passes before it starts (:class:`kingdom.court.king.admission.ReservingGate`)."""

    def __init__(
        self,
        home: Home,
        system: SystemConfig,
        generals: Callable[[], Mapping[str, GeneralPackage]],
        *,
        ledger: Ledger | None = None,
        unknown_run: RunEstimate = DEFAULT_ESTIMATE,
    ) -> None:
        self._ledger = ledger or Ledger(home.ledger)
        self._zone = ZoneInfo(system.timezone)
        self._limits = limits_of(system.budget)
        self._generals = generals
        self._unknown_run = unknown_run
        self._reserved: dict[str, tuple[str, RunEstimate]] = {}  # by task
        self._spending: tuple[float, PeriodSpending] | None = None  # with the time at which it was read

    def refusal(self, general: str, priority: str, now: float) -> str | None:
        """Return why a run of this general may not start now; None when it may.

        No priority overrides a budget. The first run of a period starts even if its expected cost is above the limit:
        otherwise a small budget, or one expensive run, would stop all work for good.
        """
        limits = [*self._limits, *self._limits_of(general)]
        if not limits:
            return None
        estimate = self.estimate(general, now)
        spending = self._look(now)
        for limit in limits:
            spent = limit.used(spending)
            reserved = self._reserved_for(limit)
            wanted = _amount_in(estimate, limit.unit)
            used = spent + reserved
            if used + wanted > limit.amount and (used > 0 or limit.amount == 0):
                return (
                    f"the {limit.name} is {limit.show(limit.amount)}: {limit.show(spent)} spent, "
                    f"{limit.show(reserved)} reserved, this run may take {limit.show(wanted)}"
                )
        return None

    def reserve(self, task_id: str, general: str, now: float) -> RunEstimate:
        """Reserve the expected cost of a task that starts or is under way. Idempotent for a task."""
        if task_id not in self._reserved:
            self._reserved[task_id] = general, self.estimate(general, now)
        return self._reserved[task_id][1]

    def release(self, task_id: str) -> None:
        """Drop the reservation of a task that has ended: its cost is in the ledger now."""
        self._reserved.pop(task_id, None)
        self._spending = None

    def estimate(self, general: str, now: float) -> RunEstimate:
        """Return the expected cost of a run: the 90th percentile of the general's latest runs."""
        runs = self._ledger.latest(general, _ESTIMATE_RUNS, now - _ESTIMATE_WINDOW_SECONDS)
        if len(runs) >= _MIN_ESTIMATE_RUNS:
            return RunEstimate(_p90(run.cost_usd for run in runs), int(_p90(run.tokens for run in runs)))
        found = self._generals().get(general)
        caps = None if found is None else found.manifest.caps
        return RunEstimate(
            self._unknown_run.usd if caps is None or caps.cost_usd is None else caps.cost_usd,
            self._unknown_run.tokens if caps is None or caps.tokens is None else caps.tokens,
        )

    def _look(self, now: float) -> PeriodSpending:
        if self._spending is None or self._spending[0] != now:
            self._spending = now, spending_at(self._ledger, now, self._zone)
        return self._spending[1]

    def _limits_of(self, general: str) -> list[BudgetLimit]:
        found = self._generals().get(general)
        return [] if found is None else limits_of(found.manifest.budget, general)

    def _reserved_for(self, limit: BudgetLimit) -> float:
        return sum(
            _amount_in(estimate, limit.unit)
            for general, estimate in self._reserved.values()
            if limit.general in (None, general)
        )


def _amount_in(estimate: RunEstimate, unit: BudgetUnit) -> float:
    return estimate.usd if unit == "usd" else float(estimate.tokens)


def _p90(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[-(-len(ordered) * 9 // 10) - 1]


@dataclass(frozen=True, slots=True)
class CostSummary:
    """What the whole court has spent, and its limits."""

    day_usd: float
    day_tokens: int
    month_usd: float
    limits: dict[str, tuple[str, float]]  # by name of the limit: text ("$2.50 of $10.00") and used fraction


def cost_summary(
    now: float, ledger: Ledger, system: SystemConfig, generals: Mapping[str, GeneralPackage]
) -> CostSummary:
    """Return what the whole court has spent in the day and month that contain ``now``, and all limits."""
    spending = spending_at(ledger, now, ZoneInfo(system.timezone))
    limits = {limit.name: limit_usage(limit, spending) for limit in all_limits(system, generals)}
    return CostSummary(spending.day.cost_usd, spending.day.tokens, spending.month.cost_usd, limits)


def limit_usage(limit: BudgetLimit, spending: PeriodSpending) -> tuple[str, float]:
    """Return the used and allowed amount of a limit as text, and the used fraction."""
    used = limit.used(spending)
    return f"{limit.show(used)} of {limit.show(limit.amount)}", used / limit.amount if limit.amount else 1.0


def ledger_lines(folder: Path, tasks: Collection[str]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the ledger lines of some tasks, each with its file."""
    needles = [json.dumps(one).encode() for one in tasks]
    for path in sorted(folder.glob("*.jsonl")) if tasks else []:
        with path.open("rb") as file:
            for raw in file:
                if not any(needle in raw for needle in needles):
                    continue
                with contextlib.suppress(ValueError):
                    line = json.loads(raw)
                    if isinstance(line, dict) and line.get("task_id") in tasks:
                        yield path, line
