"""Names of workflows, by which people identify them, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kingdom.workflow.context import WorkflowContext
from kingdom.workflow.domain.plan import SetDetails
from kingdom.workflow.domain.workflow import WorkflowTemplate
from kingdom.workflow.errors import NameTaken
from kingdom.workflow.usecases.workflows import create_workflow, fork_workflow, modify_workflow
from tests.support.workflow_fakes import World, house, opened
from tests.support.workflow_plans import started, work


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite://{tmp_path}/workflows.db"


async def names_of(parts: WorkflowContext, *workflow_ids: str) -> list[str]:
    async with parts.store.reading() as tx:
        return [(await tx.workflows.get(workflow_id)).name for workflow_id in workflow_ids]


async def with_template(parts: WorkflowContext, name: str) -> None:
    async with parts.store.transaction() as tx:
        await tx.templates.save(WorkflowTemplate("tpl-1", name, (work("build", "plan"),)))


async def test_a_second_workflow_of_the_same_name_gets_a_number(url: str) -> None:
    async with opened(url, World()) as parts:
        await with_template(parts, "100%_Fix")
        made = [await create_workflow(parts, "tpl-1") for _ in range(3)]
        made += [await create_workflow(parts, "tpl-1", name=name) for name in ("100%_Fix-2", "100%_FIX", "100", "100")]
        assert await names_of(parts, *made) == [
            "100%_Fix", "100%_Fix-2", "100%_Fix-3", "100%_Fix-2-2", "100%_FIX-4", "100", "100-2",
        ]  # fmt: skip


async def test_workflows_created_at_once_have_different_names(url: str) -> None:
    async with opened(url, World()) as one, opened(url, World()) as two:
        await with_template(one, "fix")
        two.ids = one.ids
        made = await asyncio.gather(*(create_workflow(parts, "tpl-1") for parts in (one, two) * 4))
        assert sorted(await names_of(one, *made)) == ["fix", *(f"fix-{number}" for number in range(2, 9))]


async def test_a_fork_has_a_name_of_its_own_and_no_workflow_takes_that_of_another(url: str) -> None:
    async with house(url) as here:
        workflow_id = await started(here, work("build", "plan"), work("ship", "push", pause_after=True))
        async with here.parts.store.reading() as tx:
            (point, *_) = await tx.checkpoints.of_workflow(workflow_id)
        forks = [await fork_workflow(here.parts, point.id) for _ in range(2)]
        (name, *others) = await names_of(here.parts, workflow_id, *forks)
        assert others == [f"{name}-fork", f"{name}-fork-2"]
        with pytest.raises(NameTaken, match="another workflow is called"):
            await modify_workflow(here.parts, forks[0], [SetDetails(name, "")])
        await modify_workflow(here.parts, forks[0], [SetDetails("other", "")])
        assert await names_of(here.parts, forks[0]) == ["other"]
