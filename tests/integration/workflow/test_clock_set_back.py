"""A clock that is set back between two works loses nothing, on SQLite and on PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from kingdom.workflow.domain.resources import Checkpoint
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.usecases.lifecycle import resume_workflow
from kingdom.workflow.usecases.workflows import fork_workflow
from tests.support.workflow_fakes import House, World, house
from tests.support.workflow_plans import started, work


@dataclass
class SetBack(World):
    """A world in which later ids sort earlier, as those of a process whose clock is behind do."""

    def new(self, kind: str) -> str:
        self.ids[""] += 1
        return f"{kind}-{999_999 - self.ids['']:06}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite://{tmp_path}/workflows.db"


async def checkpoints(here: House, workflow_id: str) -> list[Checkpoint]:
    """In the order of their works."""
    async with here.parts.store.transaction() as tx:
        return await tx.checkpoints.of_workflow(workflow_id)


async def test_a_workflow_goes_on_from_the_checkpoint_that_was_made_last(url: str) -> None:
    async with house(url, SetBack()) as here:
        workflow_id = await started(here, work("first", "a"), work("second", "b", pause_after=True), work("third", "c"))
        first, second = await checkpoints(here, workflow_id)
        assert second.id < first.id
        await resume_workflow(here.parts, workflow_id, discard=True)
        await here.engine.idle()
        assert here.world.resets == [dict(second.hashes)]
        workflow, works = await here.read(workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED
        assert [part.attempt for part in works] == [1, 1, 1]


async def test_going_back_undoes_what_was_made_later(url: str) -> None:
    async with house(url, SetBack()) as here:
        plan = work("first", "a"), work("second", "b"), work("third", "c", pause_after=True), work("fourth", "d")
        workflow_id = await started(here, *plan)
        first, *later = await checkpoints(here, workflow_id)
        await resume_workflow(here.parts, workflow_id, checkpoint_id=first.id)
        await here.engine.idle()
        assert here.world.resets == [dict(first.hashes)]
        _, works = await here.read(workflow_id)
        assert [part.attempt for part in works] == [1, 2, 2, 1]
        valid = {point.id: point.valid for point in await checkpoints(here, workflow_id)}
        assert [valid[point.id] for point in (first, *later)] == [True, False, False]


async def test_a_fork_has_what_was_done_before_its_checkpoint(url: str) -> None:
    async with house(url, SetBack()) as here:
        workflow_id = await started(here, work("first", "a"), work("second", "b"), work("third", "c"))
        _, second, _ = await checkpoints(here, workflow_id)
        fork_id = await fork_workflow(here.parts, second.id)
        fork, works = await here.read(fork_id)
        assert [str(part.status) for part in works] == ["COMPLETED", "COMPLETED", "PENDING"]
        assert fork.git_refs[0].base == second.hashes["git-0"]
        assert [point.number for point in await checkpoints(here, fork_id)] == [1, 2]
