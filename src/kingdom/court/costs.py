"""What was spent, what may be, and what a task cost."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from kingdom.court.budget import limits_of, spending_at

if TYPE_CHECKING:
    from kingdom.agents.ledger import Ledger
    from kingdom.court.budget import Limit, Spending
    from kingdom.court.config.system import SystemConfig


@dataclass(frozen=True, slots=True)
class Cost:
    """What was spent, and what may be."""

    day_usd: float
    day_tokens: int
    month_usd: float
    limits: dict[str, tuple[str, float]]  # of each limit by its name: what is used and allowed, and the part of it


def cost_at(now: float, ledger: Ledger, system: SystemConfig) -> Cost:
    """What the whole court has spent in the day and the month that it is."""
    spending = spending_at(ledger, now, ZoneInfo(system.timezone))
    limits = {}
    for limit in limits_of(system.budget):
        limits[limit.name] = how_full(limit, spending)
    return Cost(spending.day.cost_usd, spending.day.tokens, spending.month.cost_usd, limits)


def how_full(limit: Limit, spending: Spending) -> tuple[str, float]:
    """What is used of a limit and what is allowed, for people, and the part of it."""
    used = limit.used(spending)
    return f"{limit.show(used)} of {limit.show(limit.amount)}", used / limit.amount if limit.amount else 1.0


def ledger_lines(folder: Path, tasks: Collection[str]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """What the runs of some tasks used: the lines of the ledger, each with the file it is in."""
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
