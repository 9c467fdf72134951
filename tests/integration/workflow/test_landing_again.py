"""A completed workflow whose remote is away is landed later, on SQLite and on PostgreSQL.

The clock of the world is behind that of the bus, so what is to be tried again is due at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest

from kingdom.workflow.commands import COMMAND_STREAM, LAND_AGAIN, command_worker
from kingdom.workflow.domain.landing import LandPlan
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.engine import command_handlers
from kingdom.workflow.errors import IllegalTransition
from kingdom.workflow.ports import NotLanded
from kingdom.workflow.usecases.lifecycle import FIRST_POINT, cancel_workflow, resume_workflow
from tests.support.workflow_fakes import House, World, house
from tests.support.workflow_plans import started, work

AWAY = NotLanded("git.example.com cannot be reached", away=True)
REFUSED = NotLanded("git.example.com refused the token", away=False)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite://{tmp_path}/workflows.db"


@dataclass
class Remote:
    """Where workflows are landed: what it says, one by one, and then that all is well."""

    says: list[NotLanded | None] = field(default_factory=list)
    tries: list[bool] = field(default_factory=list)  # whether they were patient

    async def land(self, workflow_id: str, *, patient: bool) -> NotLanded | None:
        self.tries.append(patient)
        return self.says.pop(0) if self.says else None


async def completed(here: House, remote: Remote) -> str:
    here.parts.land = remote.land
    return await started(here, work("build", "plan"), land=LandPlan())


@asynccontextmanager
async def commands_carried_out(here: House) -> AsyncIterator[None]:
    worker = command_worker(here.parts.store.bus, command_handlers(here.parts))
    working = asyncio.create_task(worker.run())
    yield
    worker.stop()
    await working


async def until_it_waits_no_more(here: House, workflow_id: str) -> None:
    async with asyncio.timeout(60), commands_carried_out(here):
        while (await here.read(workflow_id))[0].land_again is not None:
            await asyncio.sleep(0.01)


async def test_a_remote_that_is_away_is_tried_again_until_it_is_back(url: str) -> None:
    remote = Remote([AWAY, AWAY, AWAY])
    async with house(url) as here:
        workflow_id = await completed(here, remote)
        workflow, _ = await here.read(workflow_id)
        assert (workflow.status, workflow.landing) == (WorkflowStatus.COMPLETED, False)
        assert workflow.reason == "not landed yet, it is tried again: git.example.com cannot be reached"
        assert workflow.land_again is not None
        assert workflow.land_again.tries == 1
        assert not workflow.is_active, "nobody has to wait for it"
        await until_it_waits_no_more(here, workflow_id)
        workflow, _ = await here.read(workflow_id)
        assert (workflow.status, workflow.reason) == (WorkflowStatus.COMPLETED, None)
        assert remote.tries == [True, False, False, False]
        assert (await here.told(workflow_id)).count("WorkflowNotLanded") == 3


async def test_a_killed_engine_leaves_it_to_the_next_one(url: str) -> None:
    world, remote = World(), Remote([AWAY])
    async with house(url, world) as here:
        workflow_id = await completed(here, remote)
    async with house(url, world) as here:
        here.parts.land = remote.land
        assert (await here.read(workflow_id))[0].land_again is not None
        await until_it_waits_no_more(here, workflow_id)
        assert remote.tries == [True, False]


async def test_the_pauses_grow_to_a_quarter_of_an_hour(url: str) -> None:
    remote = Remote([AWAY] * 8)
    async with house(url) as here:
        workflow_id = await completed(here, remote)
        await until_it_waits_no_more(here, workflow_id)
        told = [one for one in await here.parts.store.events(workflow_id, 0, 100) if one.type == "WorkflowNotLanded"]
    records = [one for one in told if one.payload["again"] is not None]
    waits = [(datetime.fromisoformat(str(one.payload["again"])) - one.occurred_at).total_seconds() for one in records]
    assert [round(wait / 60) for wait in waits[:3]] == [1, 2, 4]
    assert all(12 * 60 <= wait <= 17 * 60 for wait in waits[4:])


async def test_what_is_refused_is_left_to_a_person(url: str) -> None:
    remote = Remote([AWAY, REFUSED])
    async with house(url) as here:
        workflow_id = await completed(here, remote)
        await until_it_waits_no_more(here, workflow_id)
        workflow, _ = await here.read(workflow_id)
        assert (workflow.status, workflow.reason) == (WorkflowStatus.COMPLETED, None)
        assert remote.tries == [True, False]
        last = (await here.parts.store.events(workflow_id, 0, 100))[-1]
        assert (last.type, last.payload["again"]) == ("WorkflowNotLanded", None)


async def test_a_person_gives_it_up_or_goes_on(url: str) -> None:
    remote = Remote([AWAY, AWAY])
    async with house(url) as here:
        workflow_id = await completed(here, remote)
        await cancel_workflow(here.parts, workflow_id)
        workflow, _ = await here.read(workflow_id)
        assert (workflow.status, workflow.land_again, workflow.reason) == (WorkflowStatus.COMPLETED, None, None)
        with pytest.raises(IllegalTransition):
            await cancel_workflow(here.parts, workflow_id)
        await command_handlers(here.parts)[LAND_AGAIN](workflow_id, tries=1)

        other = await completed(here, remote)
        here.world.silent = True
        await resume_workflow(here.parts, other, checkpoint_id=FIRST_POINT)
        await command_handlers(here.parts)[LAND_AGAIN](other, tries=1)
        workflow, _ = await here.read(other)
        assert (workflow.status, workflow.land_again) == (WorkflowStatus.RUNNING, None)
        assert remote.tries == [True, True], "neither is tried again"


async def test_a_try_that_a_kill_repeats_happens_once(url: str) -> None:
    remote = Remote([AWAY, AWAY])
    async with house(url) as here:
        workflow_id = await completed(here, remote)
        (record,) = [one async for one in here.parts.store.bus.records(COMMAND_STREAM)]
        given = record.envelope.payload["arguments"]
        for _ in range(2):
            await command_handlers(here.parts)[LAND_AGAIN](workflow_id, **given)
        assert remote.tries == [True, False]
        workflow, _ = await here.read(workflow_id)
        assert workflow.land_again is not None
        assert workflow.land_again.tries == 2
