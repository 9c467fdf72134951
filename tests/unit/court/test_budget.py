"""What may still be spent."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kingdom.base.yamlfile import parse_yaml
from kingdom.court.budget import DEFAULT_ESTIMATE, Budget, RunEstimate
from kingdom.court.config import SystemConfig
from kingdom.court.home import Home
from kingdom.court.packages.manifest import CapSection, GeneralBudget

NOW = datetime(2026, 2, 7, 10, tzinfo=UTC).timestamp()


class Books:
    """A ledger that the test writes, and a budget over it."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.home.ledger.mkdir(parents=True)
        self.generals: dict[str, Any] = {}
        self._runs = 0

    def spend(self, at: float, usd: float, tokens: int = 0, general: str = "gen-pr") -> None:
        self._runs += 1
        ts = datetime.fromtimestamp(at, UTC).isoformat()
        line = {"ts": ts, "run_id": f"r{self._runs}", "general": general, "cost_usd": usd, "tokens": {"total": tokens}}
        with (self.home.ledger / f"{ts[:7]}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def general(self, name: str, budget: GeneralBudget | None = None, caps: CapSection | None = None) -> None:
        manifest = SimpleNamespace(budget=budget or GeneralBudget(), caps=caps or CapSection())
        self.generals[name] = SimpleNamespace(manifest=manifest)

    def budget(self, system: str, **more: Any) -> Budget:
        return Budget(self.home, parse_yaml(system, SystemConfig, "system.yaml"), lambda: self.generals, **more)


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path)


def test_without_a_limit_everything_may_start(books: Books) -> None:
    books.spend(NOW, 1e6)
    assert books.budget("").refusal("gen-pr", "low", NOW) is None


def test_what_is_spent_and_what_this_run_may_take_must_fit(books: Books) -> None:
    budget = books.budget("budget: {daily_usd: 10}")
    books.spend(NOW - 60, 8.5)
    assert budget.refusal("gen-pr", "high", NOW) is None
    books.spend(NOW - 30, 0.6)
    reason = budget.refusal("gen-pr", "high", NOW + 1)
    assert reason == "the daily budget is $10.00: $9.10 spent, $0.00 reserved, this run may take $1.00"


def test_ten_starts_at_once_do_not_overshoot(books: Books) -> None:
    budget = books.budget("budget: {daily_usd: 100}")
    books.spend(NOW - 60, 95)
    started = 0
    for number in range(10):
        if budget.refusal("gen-pr", "normal", NOW) is None:
            budget.reserve(f"task-{number}", "gen-pr", NOW)
            started += 1
    assert started == 5


def test_a_reservation_ends_with_its_task_and_counts_once(books: Books) -> None:
    budget = books.budget("budget: {daily_usd: 2}")
    for _ in range(3):
        budget.reserve("task-1", "gen-pr", NOW)
    assert budget.refusal("gen-pr", "normal", NOW) is None, "three times reserved is once reserved"
    budget.reserve("task-2", "gen-pr", NOW)
    assert budget.refusal("gen-pr", "normal", NOW) is not None
    budget.release("task-1")
    budget.release("task-1")
    budget.release("never-reserved")
    assert budget.refusal("gen-pr", "normal", NOW) is None


def test_the_first_run_of_a_day_starts_even_if_it_may_cost_more_than_there_is(books: Books) -> None:
    budget = books.budget("budget: {daily_usd: 0.5}")
    assert budget.refusal("gen-pr", "normal", NOW) is None
    budget.reserve("task-1", "gen-pr", NOW)
    assert budget.refusal("gen-pr", "normal", NOW) is not None
    assert books.budget("budget: {daily_usd: 0}").refusal("gen-pr", "high", NOW) is not None, "nothing means nothing"


def test_tokens_and_months_have_limits_of_their_own(books: Books) -> None:
    books.spend(NOW - 3 * 86400, 50, tokens=10_000)
    by_month = books.budget("budget: {monthly_usd: 50, daily_usd: 1000}").refusal("gen-pr", "normal", NOW)
    assert by_month is not None
    assert by_month.startswith("the monthly budget is $50.00")
    books.spend(NOW, 0, tokens=800_000)
    by_tokens = books.budget("budget: {daily_tokens: 1000000}").refusal("gen-pr", "normal", NOW)
    assert by_tokens is not None
    assert "800,000 tokens spent" in by_tokens


def test_a_general_has_limits_of_its_own(books: Books) -> None:
    books.general("gen-pr", GeneralBudget(daily_usd=5.0))
    books.general("gen-doc")
    budget = books.budget("")
    books.spend(NOW, 4.5)
    reason = budget.refusal("gen-pr", "normal", NOW)
    assert reason is not None
    assert reason.startswith("the daily budget of gen-pr is $5.00")
    assert budget.refusal("gen-doc", "normal", NOW) is None
    budget.reserve("task-1", "gen-doc", NOW)
    books.general("gen-doc", GeneralBudget(daily_usd=1.5))
    assert budget.refusal("gen-doc", "normal", NOW) is not None, "only its own reservations count for its own limit"


def test_an_estimate_is_what_nine_of_ten_of_the_latest_runs_stayed_below(books: Books) -> None:
    budget = books.budget("")
    for cost in (1, 2):
        books.spend(NOW - 100, cost)
    assert budget.estimate("gen-pr", NOW) == DEFAULT_ESTIMATE, "two runs say nothing"
    for cost in (3, 4, 5, 6, 7, 8, 9, 100):
        books.spend(NOW - 50, cost, tokens=cost * 10)
    assert budget.estimate("gen-pr", NOW) == RunEstimate(9, 90)
    assert budget.estimate("gen-other", NOW) == DEFAULT_ESTIMATE
    for _ in range(20):
        books.spend(NOW - 10, 0.5)
    assert budget.estimate("gen-pr", NOW).usd == 0.5, "only the latest twenty count"


def test_without_runs_the_manifest_says_what_a_run_may_cost(books: Books) -> None:
    books.general("gen-pr", caps=CapSection(cost_usd=3.0))
    assert books.budget("").estimate("gen-pr", NOW) == RunEstimate(3.0, DEFAULT_ESTIMATE.tokens)


def test_the_day_ends_at_local_midnight_also_when_the_clock_changes(books: Books) -> None:
    budget = books.budget("timezone: Europe/Berlin\nbudget: {daily_usd: 10}")
    midnight = datetime(2026, 3, 28, 23, tzinfo=UTC).timestamp()  # 29 March 00:00 in Berlin, a day of 23 hours
    books.spend(midnight - 1, 10)
    assert budget.refusal("gen-pr", "normal", midnight - 1) is not None
    assert budget.refusal("gen-pr", "normal", midnight) is None
    books.spend(midnight, 10)
    next_midnight = midnight + 23 * 3600
    assert budget.refusal("gen-pr", "normal", next_midnight - 1) is not None
    assert budget.refusal("gen-pr", "normal", next_midnight) is None


def test_a_local_month_may_lie_in_two_files_of_the_ledger(books: Books) -> None:
    budget = books.budget("timezone: Asia/Seoul\nbudget: {monthly_usd: 10}")
    books.spend(datetime(2026, 1, 31, 15, tzinfo=UTC).timestamp(), 10)  # 1 February in Seoul
    assert budget.refusal("gen-pr", "normal", NOW) is not None
