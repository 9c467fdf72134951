"""What a process does that is not the engine, on SQLite and on PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.workflow.commands import CommandRefused, carry_out_left, prepare_commands, send_command
from kingdom.workflow.domain.resources import Git, GitRef
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.domain.workflow import WorkflowTemplate
from kingdom.workflow.engine import command_handlers
from kingdom.workflow.own_events import own_events_handled
from kingdom.workflow.store.transactions import STREAM
from kingdom.workflow.usecases.catalog import delete_git
from kingdom.workflow.usecases.lifecycle import cancel_workflow
from tests.support.workflow_fakes import World, house, opened
from tests.support.workflow_plans import started, work

PLAN = work("build", "plan"), work("ship", "push", pause_after=True), work("tell", "mail")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite://{tmp_path}/workflows.db"


async def test_whether_an_engine_runs_is_known_without_taking_its_lock(url: str) -> None:
    async with opened(url, World()) as parts:
        assert not await parts.store.engine_running()
        async with house(url) as here:
            assert await here.parts.store.engine_running()
            assert await parts.store.engine_running()
        assert not await parts.store.engine_running()


async def test_what_follows_from_a_command_is_done_at_once(url: str) -> None:
    world = World()
    async with house(url, world) as here:
        workflow_id, other_id = await started(here, *PLAN), await started(here, *PLAN)
    async with opened(url, world) as parts:
        async with parts.store.transaction() as tx:
            await tx.gits.save(Git("git-9", "lib", url="https://example.org/lib.git"))
            await tx.templates.save(WorkflowTemplate("tpl-9", "lib", PLAN, git_refs=(GitRef("git-9"),)))
        async with own_events_handled(parts):
            await cancel_workflow(parts, workflow_id)
            await delete_git(parts, "git-9")
        async with parts.store.transaction() as tx:
            assert (await tx.gits.get("git-0")).used_by == {other_id}
            assert (await tx.templates.get("tpl-9")).git_refs == ()
        assert (await parts.store.bus.depth())[STREAM].pending == 0
        assert not await parts.store.engine_running()


async def test_the_events_of_others_are_left_to_the_engine(url: str) -> None:
    world = World()
    async with house(url, world) as here:
        first, second = await started(here, *PLAN), await started(here, *PLAN)
    async with opened(url, world) as parts:
        await cancel_workflow(parts, first)  # a process that was killed before it handled its events
        async with own_events_handled(parts):
            await cancel_workflow(parts, second)
        async with parts.store.transaction() as tx:
            assert (await tx.gits.get("git-0")).used_by == {first}


async def test_an_engine_that_runs_handles_them(url: str) -> None:
    async with house(url) as here:
        workflow_id = await started(here, *PLAN)
        async with opened(url, here.world) as parts, own_events_handled(parts):
            await cancel_workflow(parts, workflow_id)
        await here.engine.idle()
        async with here.parts.store.transaction() as tx:
            assert (await tx.gits.get("git-0")).used_by == set()


async def test_a_command_for_an_engine_that_has_gone_is_carried_out_here(url: str) -> None:
    world = World()
    async with house(url, world) as here:
        workflow_id = await started(here, *PLAN)
    async with opened(url, world) as parts:
        bus, handlers = parts.store.bus, command_handlers(parts)
        await prepare_commands(bus)
        sent = await send_command(bus, "CancelWorkflow", workflow_id)
        await carry_out_left(bus, sent, handlers)
        async with parts.store.transaction() as tx:
            assert (await tx.workflows.get(workflow_id)).status is WorkflowStatus.CANCELLED
        await carry_out_left(bus, sent, handlers)  # it is done
        again = await send_command(bus, "CancelWorkflow", workflow_id)
        with pytest.raises(CommandRefused, match="CANCELLED"):
            await carry_out_left(bus, again, handlers)
