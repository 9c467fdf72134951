"""What a step costs the database does not grow with the plan: statements, and what goes there and comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.usecases.lifecycle import start_workflow
from tests.support.workflow_fakes import House, house
from tests.support.workflow_plans import created, work

_HEAD_CHARS = 90  # of what is read of each Work where the next one is chosen


@dataclass
class Cost:
    statements: int = 0
    written: int = 0  # characters
    read: int = 0

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.statements - other.statements, self.written - other.written, self.read - other.read)


class CountingSession:
    """Counts what goes through a session."""

    def __init__(self, session: Any, cost: Cost) -> None:
        self._session, self._cost = session, cost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def fetch(self, sql: str, *values: Any) -> Sequence[Any]:
        rows: Sequence[Any] = await self._session.fetch(sql, *values)
        self._cost.statements += 1
        self._cost.written += sum(len(str(value)) for value in values)
        self._cost.read += sum(len(str(value)) for row in rows for value in row)
        return rows


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.walk)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite://{tmp_path}/workflows.db"


async def cost_of_run(here: House, works: int, tasks: int) -> Cost:
    """What it costs to run a plan of so many works with so many tasks each, from its start to its end."""
    plan = (work(f"work-{n:03}", *(f"task-{number:03}" for number in range(tasks))) for n in range(works))
    workflow_id = await created(here.parts, *plan)
    cost, store = Cost(), here.parts.store
    plain = store.session  # type: ignore[attr-defined]

    @asynccontextmanager
    async def counted(**more: Any) -> AsyncIterator[CountingSession]:
        async with plain(**more) as session:
            yield CountingSession(session, cost)

    store.session = counted  # type: ignore[attr-defined]
    try:
        await start_workflow(here.parts, workflow_id)
        await here.idle()
    finally:
        store.session = plain  # type: ignore[attr-defined]
    async with store.reading() as tx:
        assert (await tx.workflows.get(workflow_id)).status is WorkflowStatus.COMPLETED
    return cost


def assert_alike(few: Cost, many: Cost) -> None:
    """Some events may take the way over the bus, as it happens; a cost that grew with the plan would be a multiple."""
    assert many.statements <= 1.25 * few.statements
    assert many.written <= 1.25 * few.written
    assert many.read <= 1.25 * few.read


async def test_a_task_costs_the_same_in_a_work_of_ten_and_of_two_hundred(url: str) -> None:
    async with house(url) as here:
        few = await cost_of_run(here, 1, 12) - await cost_of_run(here, 1, 2)
        many = await cost_of_run(here, 1, 200) - await cost_of_run(here, 1, 190)
    assert_alike(few, many)


async def test_a_work_costs_the_same_in_a_plan_of_five_and_of_sixty(url: str) -> None:
    async with house(url) as here:
        few = await cost_of_run(here, 13, 2) - await cost_of_run(here, 3, 2)
        many = await cost_of_run(here, 60, 2) - await cost_of_run(here, 50, 2)
    heads = 10 * (55 - 8) * _HEAD_CHARS
    assert_alike(few, many - Cost(0, 0, heads))
