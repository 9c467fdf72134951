"""The generals, and what the court did and spent: by general, by day."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from pydantic import Field

from kingdom.agents.engines import default_engines
from kingdom.court.budget import limits_of, spending_at
from kingdom.court.config.system import load_system
from kingdom.court.figures import current_stats, report_of
from kingdom.court.home import checked
from kingdom.court.packages.checking import check_package
from kingdom.court.packages.loading import load_generals
from kingdom.web.envelope import ApiModel, not_found
from kingdom.web.views.court import LimitState, limit_state
from kingdom.web.views.keeping import desk_of
from kingdom.web.views.plain import plain

if TYPE_CHECKING:
    from kingdom.agents.ledger import Spent, Totals
    from kingdom.court.packages.loading import General
    from kingdom.web.context import WebContext


class GeneralState(ApiModel):
    """One general, by its manifest."""

    name: str = Field(examples=["gen-pr"])
    description: str
    engine: str = Field(examples=["claude"])
    model: str | None
    mode: str = Field(examples=["agent"])
    hears: list[str] = Field(examples=[["github.pr.*"]])
    schedules: dict[str, str] = Field(description="When it works by itself: cron lines by name.")
    concurrency: int
    timeout_seconds: float
    problems: list[str] = Field(description="What is wrong with it; nothing: it can be used.")
    manifest: dict[str, Any] | None = Field(description="The whole manifest; null when it cannot be read.")


class SpentBy(ApiModel):
    """What somebody spent."""

    cost_usd: float = 0.0
    tokens: int = 0
    runs: int = 0


class BudgetState(ApiModel):
    """What was spent today and this month, by general, and every limit that holds."""

    timezone: str
    day: SpentBy
    month: SpentBy
    day_by_general: dict[str, SpentBy]
    month_by_general: dict[str, SpentBy]
    limits: list[LimitState]


async def list_generals(context: WebContext) -> list[GeneralState]:
    """Every installed general, also those that cannot be used, by name."""
    return await asyncio.to_thread(_generals, context)


async def read_general(context: WebContext, name: str) -> GeneralState:
    """One general."""
    checked("general", name)
    found = [one for one in await list_generals(context) if one.name == name]
    if not found:
        raise not_found("SYS", "general", name)
    return found[0]


async def stats(context: WebContext) -> dict[str, Any]:
    """How much was done, by hour, by day and by general: the chamberlain's own document."""
    return plain(await asyncio.to_thread(current_stats, context.court.home, context.clock()))  # type: ignore[no-any-return]


async def daily_report(context: WebContext, day: str) -> dict[str, Any]:
    """The report of a day. Raises :class:`kingdom.court.figures.NoReport` and ``NoSuchDay``."""
    home = context.court.home
    found = await asyncio.to_thread(lambda: report_of(home, load_system(home), day, context.clock()))
    return plain(found)  # type: ignore[no-any-return]


async def budget(context: WebContext) -> BudgetState:
    """What was spent, and what may be."""
    return await asyncio.to_thread(_budget, context)


def _generals(context: WebContext) -> list[GeneralState]:
    home = context.court.home
    engines = frozenset(default_engines())
    generals = load_generals(home)
    return [
        _general(name, generals.by_name.get(name), check_package(home.general(name), engines))
        for name in sorted({*generals.by_name, *generals.broken})
    ]


def _general(name: str, general: General | None, problems: list[str]) -> GeneralState:
    if general is None:
        return GeneralState(
            name=plain(name),
            description="",
            engine="",
            model=None,
            mode="",
            hears=[],
            schedules={},
            concurrency=0,
            timeout_seconds=0.0,
            problems=plain(problems),
            manifest=None,
        )
    manifest = general.manifest
    return GeneralState(
        name=name,
        description=manifest.description,
        engine=manifest.engine.name,
        model=manifest.engine.model,
        mode=manifest.mode,
        hears=[one.type for one in manifest.subscribes],
        schedules={one.name: one.cron for one in manifest.schedules},
        concurrency=manifest.concurrency,
        timeout_seconds=manifest.timeout_seconds,
        problems=plain(problems),
        manifest=plain(manifest.model_dump(mode="json")),
    )


def _budget(context: WebContext) -> BudgetState:
    desk = desk_of(context)
    home = desk.services.home
    system = load_system(home)
    with desk.ledger() as ledger:
        spending = spending_at(ledger, context.clock(), ZoneInfo(system.timezone))
    limits = limits_of(system.budget)
    for name, general in load_generals(home).by_name.items():
        limits += limits_of(general.manifest.budget, name)
    return BudgetState(
        timezone=system.timezone,
        day=_spent(spending.day),
        month=_spent(spending.month),
        day_by_general={name: _spent(spent) for name, spent in sorted(spending.day.by_general.items())},
        month_by_general={name: _spent(spent) for name, spent in sorted(spending.month.by_general.items())},
        limits=[limit_state(limit, spending) for limit in limits],
    )


def _spent(spent: Totals | Spent) -> SpentBy:
    return SpentBy(cost_usd=round(spent.cost_usd, 6), tokens=spent.tokens, runs=spent.runs)
