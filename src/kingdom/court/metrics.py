"""Prometheus metrics of a court: roles, queues, soldiers, health, cost and journal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from prometheus_client.core import GaugeMetricFamily

from kingdom.agents.ledger import Ledger
from kingdom.base.files import read_json
from kingdom.court.chamberlain.config import LEVELS
from kingdom.court.config import load_system
from kingdom.court.days import day_of, start_of_day
from kingdom.court.overview import read_overview

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from kingdom.court.loop import Services
    from kingdom.court.overview import CourtOverview


class CourtMetrics:
    """A custom collector for prometheus_client. :meth:`sample` reads the court; a scrape returns the last sample.

    =============================================== =================================================================
    ``{prefix}_role_up{role}``                      1 while the role runs
    ``{prefix}_role_heartbeat_seconds{role}``       the age of its heartbeat
    ``{prefix}_role_restarts{role}``                its deaths in a row
    ``{prefix}_queue_documents{queue,state}``       documents in each state that is not finished
    ``{prefix}_queue_oldest_seconds{queue}``        the age of the oldest waiting document
    ``{prefix}_held_events{reason}``                events that may not start now
    ``{prefix}_soldiers{general}``                  running agents
    ``{prefix}_questions``                          open questions
    ``{prefix}_problems``                           problems that ``kingdom status`` lists
    ``{prefix}_health``                             0 green, 1 yellow, 2 orange, 3 red
    ``{prefix}_cost_usd_today{general}``            US dollars spent since local midnight
    ``{prefix}_tokens_today{general}``              tokens used since local midnight
    ``{prefix}_journal_bytes``                      the size of the journal's current file
    =============================================== =================================================================
    """

    def __init__(self, services: Services, prefix: str = "kingdom") -> None:
        self._services = services
        self._prefix = prefix
        self._ledger = Ledger(services.home.ledger)
        self._seen: CourtOverview | None = None

    async def sample(self) -> None:
        self._seen = await read_overview(self._services)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the last sample; nothing before the first."""
        if self._seen is not None:
            yield from self._roles(self._seen)
            yield from self._queues(self._seen)
            yield from self._work(self._seen)
            yield from self._cost()
            yield from self._records()

    def _roles(self, seen: CourtOverview) -> Iterator[Metric]:
        up = self._gauge("role_up", "Whether a role runs", ["role"])
        age = self._gauge("role_heartbeat_seconds", "The age of a role's heartbeat", ["role"])
        deaths = self._gauge("role_restarts", "Deaths of a role in a row", ["role"])
        for role in seen.roles:
            up.add_metric([role.name], float(role.state == "running"))
            deaths.add_metric([role.name], role.deaths)
            if role.heartbeat_seconds is not None:
                age.add_metric([role.name], role.heartbeat_seconds)
        yield from (up, age, deaths)

    def _queues(self, seen: CourtOverview) -> Iterator[Metric]:
        documents = self._gauge("queue_documents", "Documents that are not finished", ["queue", "state"])
        oldest = self._gauge("queue_oldest_seconds", "The age of the oldest waiting document", ["queue"])
        for queue in seen.queues:
            oldest.add_metric([queue.name], queue.oldest_seconds)
            for state, count in queue.counts.items():
                documents.add_metric([queue.name, state], count)
        held = self._gauge("held_events", "Events that may not start now", ["reason"])
        for reason, hold in seen.holds.items():
            held.add_metric([str(reason)], float(hold.get("count", 0)) if isinstance(hold, dict) else 0.0)
        yield from (documents, oldest, held)

    def _work(self, seen: CourtOverview) -> Iterator[Metric]:
        soldiers = self._gauge("soldiers", "Running agents", ["general"])
        for general, count in Counter(soldier.general for soldier in seen.soldiers).items():
            soldiers.add_metric([general], count)
        yield soldiers
        yield self._single("questions", "Open questions", len(seen.questions))
        yield self._single("problems", "Problems that need attention", sum(one.count for one in seen.problems))

    def _cost(self) -> Iterator[Metric]:
        zone = ZoneInfo(load_system(self._services.home).timezone)
        midnight = start_of_day(day_of(self._services.clock(), zone), zone)
        cost = self._gauge("cost_usd_today", "Spent since local midnight, in US dollars", ["general"])
        tokens = self._gauge("tokens_today", "Used since local midnight", ["general"])
        for general, spent in self._ledger.totals(midnight).by_general.items():
            cost.add_metric([general], spent.cost_usd)
            tokens.add_metric([general], spent.tokens)
        yield from (cost, tokens)

    def _records(self) -> Iterator[Metric]:
        home = self._services.home
        health = read_json(home.role("chamberlain") / "health.json")
        level = health.get("level") if isinstance(health, dict) else None
        yield self._single(
            "health", "0 green, 1 yellow, 2 orange, 3 red", LEVELS.index(level) if level in LEVELS else 0
        )
        size = home.journal.stat().st_size if home.journal.exists() else 0
        yield self._single("journal_bytes", "The size of the journal's current file", size)

    def _gauge(self, name: str, text: str, labels: list[str]) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"{self._prefix}_{name}", text, labels=labels)

    def _single(self, name: str, text: str, value: float) -> Metric:
        return GaugeMetricFamily(f"{self._prefix}_{name}", text, value=value)
