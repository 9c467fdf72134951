"""Engines of several machines share a PostgreSQL store: each workflow is held by one, and goes on when it is gone."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.processes import find_process
from kingdom.gitops import RemoteFailed
from kingdom.gitops.checkpoint_remote import CheckpointRemote
from kingdom.workflow.adapters.git_service import GitopsService
from kingdom.workflow.commands import (
    COMMAND_STREAM,
    LAND_AGAIN,
    CommandRefused,
    SentCommand,
    land_again,
    send_command,
    wait_for_command,
)
from kingdom.workflow.context import WorkflowContext
from kingdom.workflow.domain.statuses import WorkflowStatus, WorkStatus
from kingdom.workflow.engine import EngineAlreadyRunning, WorkflowEngine, command_handlers, run_engine
from kingdom.workflow.errors import HeldElsewhere
from kingdom.workflow.lease_keeper import HeldCommands
from kingdom.workflow.store.holds import EngineReplaced
from kingdom.workflow.usecases.lifecycle import cancel_workflow, pause_workflow, start_workflow
from tests.support.repositories import Remote, plain_git
from tests.support.shared_store import (
    create,
    end_lease,
    find,
    holders,
    open_machine,
    running_machine,
    runs,
    wait_for_file,
    wait_until_resting,
    waits_for,
    works_of,
)

pytestmark = pytest.mark.postgres


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return Remote(tmp_path / "remote")


def gone(pid: int) -> bool:
    return find_process(pid) is None


async def command(parts: WorkflowContext, kind: str, workflow_id: str, **arguments: object) -> None:
    bus = parts.store.bus
    await wait_for_command(bus, await send_command(bus, kind, workflow_id, **arguments), 60)


async def start_gated(parts: WorkflowContext, remote: Remote, gate: Path) -> str:
    """A workflow whose second Work waits until a file is there; its first one has its checkpoint."""
    workflow_id = await create(
        parts,
        remote,
        runs("one", "echo 1 > one.txt; printf '## Findings\\n\\nIt leaks.\\n'", outline=("Findings",)),
        runs("two", f"echo 2 >> two.txt; {waits_for(gate)}; echo did two", 'Read {{ reports["one/do"] }}'),
        runs("three", "cat one.txt two.txt > three.txt; echo did three"),
    )
    await command(parts, "StartWorkflow", workflow_id)
    await wait_for_file(gate.with_name(f"{gate.name}.waits"))
    return workflow_id


async def test_workflows_run_on_the_engine_that_holds_them_and_commands_reach_it(
    tmp_path: Path, postgres_url: str, remote: Remote
) -> None:
    a, b, gate = tmp_path / "a", tmp_path / "b", tmp_path / "gate"
    async with running_machine(a, postgres_url) as (parts, _), running_machine(b, postgres_url) as (other, _):
        ids = [await create(parts, remote, runs("one", waits_for(gate))) for _ in range(6)]
        await asyncio.gather(*(command(other, "StartWorkflow", workflow_id) for workflow_id in ids))
        held = await holders(postgres_url)
        assert set(held) == set(ids)
        assert set(held.values()) <= {str(a), str(b)}
        for workflow_id, sender in zip(ids[:2], (parts, other), strict=True):
            await command(sender, "PauseWorkflow", workflow_id)
            assert (await find(parts, workflow_id)).status is WorkflowStatus.PAUSED
        gate.touch()
        for workflow_id in ids[:2]:
            await command(parts, "ResumeWorkflow", workflow_id)
        for workflow_id in ids:
            workflow = await wait_until_resting(parts, workflow_id)
            assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
            async with parts.store.reading() as tx:
                (tree,) = await tx.work_trees.of_workflow(workflow_id)
            assert str(tree.path).startswith(held[workflow_id]), "its worktree is where it was held from the start"


async def test_another_engine_goes_on_from_the_last_checkpoint_when_one_is_gone(
    tmp_path: Path, postgres_url: str, remote: Remote
) -> None:
    a, b, gate = tmp_path / "a", tmp_path / "b", tmp_path / "gate"
    async with running_machine(a, postgres_url) as (parts, engine):
        workflow_id = await start_gated(parts, remote, gate)
        assert len(plain_git(remote.folder, "for-each-ref", "refs/kingdom/checkpoints/").splitlines()) == 1
        remote.commit({"later.txt": "what others push meanwhile is not brought in\n"})
        engine.abandon()
        await end_lease(postgres_url, a)
        gate.touch()
        async with running_machine(b, postgres_url) as (other, _):
            workflow = await wait_until_resting(other, workflow_id)
            assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
            works = await works_of(other, workflow_id)
            async with other.store.reading() as tx:
                (tree,) = await tx.work_trees.of_workflow(workflow_id)
                points = await tx.checkpoints.of_workflow(workflow_id)
    assert {name: work.attempt for name, work in works.items()} == {"one": 1, "two": 2, "three": 1}
    files = Path(str(tree.path))
    assert files.is_relative_to(b)
    assert (files / "three.txt").read_text() == "1\n2\n"
    assert not (files / "later.txt").exists()
    assert await holders(postgres_url) == {workflow_id: str(b)}
    pushed = plain_git(remote.folder, "for-each-ref", "--format=%(objectname)", "refs/kingdom/checkpoints/").split()
    assert sorted(pushed) == sorted(point.hashes["git-1"] for point in points)


async def test_works_beside_each_other_are_merged_on_the_machine_that_goes_on(
    tmp_path: Path, postgres_url: str, remote: Remote
) -> None:
    a, b, gate = tmp_path / "a", tmp_path / "b", tmp_path / "gate"
    async with running_machine(a, postgres_url) as (parts, engine):
        workflow_id = await create(
            parts,
            remote,
            runs("first", "echo f > first.txt"),
            runs("left", "echo l > left.txt", after=("first",)),
            runs("right", f"echo r > right.txt; {waits_for(gate)}", after=("first",)),
            runs("last", "cat first.txt left.txt right.txt > all.txt", after=("left", "right"), merge=True),
        )
        await command(parts, "StartWorkflow", workflow_id)
        await wait_for_file(gate.with_name("gate.waits"))
        async with asyncio.timeout(30):
            while (await works_of(parts, workflow_id))["left"].checkpoint_id is None:
                await asyncio.sleep(0.02)
        engine.abandon()
    await end_lease(postgres_url, a)
    gate.touch()
    async with running_machine(b, postgres_url) as (other, _):
        workflow = await wait_until_resting(other, workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
        works = await works_of(other, workflow_id)
        async with other.store.reading() as tx:
            trees = await tx.work_trees.of_workflow(workflow_id)
    assert {name: work.attempt for name, work in works.items() if name != "last"} == {"first": 1, "left": 1, "right": 2}
    (main,) = [Path(str(tree.path)) for tree in trees if tree.work_id is None]
    assert (main / "all.txt").read_text() == "f\nl\nr\n"


async def test_an_engine_that_was_replaced_writes_nothing_and_stops_its_agents(
    tmp_path: Path, postgres_url: str, remote: Remote
) -> None:
    a, b, gate = tmp_path / "a", tmp_path / "b", tmp_path / "gate"
    async with open_machine(a, postgres_url, lease=6) as parts, WorkflowEngine(parts) as engine:
        workflow_id = await create(parts, remote, runs("one", f"{waits_for(gate)}; echo $$ >> {gate}.done"))
        await command_handlers(parts)["StartWorkflow"](workflow_id)
        await wait_for_file(gate.with_name("gate.waits"))
        pid = int(gate.with_name("gate.waits").read_text())
        async with running_machine(b, postgres_url) as (other, _):
            async with asyncio.timeout(30):
                while (await works_of(other, workflow_id))["one"].attempt == 1:
                    await end_lease(postgres_url, a)  # again and again: it is renewed until the other has seen it
                    await asyncio.sleep(0.02)
            with pytest.raises(EngineReplaced):
                await start_workflow(parts, await create(other, remote, runs("one", "true")))
            async with asyncio.timeout(30):
                await asyncio.wait([asyncio.ensure_future(engine.wait())])
                while not gone(pid):
                    await asyncio.sleep(0.02)
            gate.touch()
            assert (await wait_until_resting(other, workflow_id)).status is WorkflowStatus.COMPLETED
        with pytest.raises(EngineReplaced, match="another engine goes on"):
            await engine.wait()
    assert len(gate.with_name("gate.done").read_text().split()) == 1


async def test_agents_stop_when_nobody_renews_the_lease_of_their_engine(
    tmp_path: Path, postgres_url: str, remote: Remote
) -> None:
    gate = tmp_path / "gate"
    async with running_machine(tmp_path / "a", postgres_url, lease=3) as (parts, engine):
        workflow_id = await create(parts, remote, runs("one", waits_for(gate)))
        await command(parts, "StartWorkflow", workflow_id)
        await wait_for_file(gate.with_name("gate.waits"))
        engine.abandon()
    pid = int(gate.with_name("gate.waits").read_text())
    async with asyncio.timeout(30):
        while not gone(pid):
            await asyncio.sleep(0.05)


@pytest.mark.walk
async def test_a_machine_that_returns_drops_what_another_has_taken_over(
    tmp_path: Path, postgres_url: str, remote: Remote
) -> None:
    a, b, gate = tmp_path / "a", tmp_path / "b", tmp_path / "gate"
    async with running_machine(a, postgres_url) as (parts, engine):
        workflow_id = await start_gated(parts, remote, gate)
        engine.abandon()
    pid = int(gate.with_name("gate.waits").read_text())
    (left,) = (a / "worktrees" / workflow_id).iterdir()
    assert (left / "two.txt").exists()
    await end_lease(postgres_url, a)
    async with running_machine(b, postgres_url) as (other, _):
        async with asyncio.timeout(30):
            while (await works_of(other, workflow_id))["two"].attempt == 1:
                await asyncio.sleep(0.02)
        assert not gone(pid)
        async with running_machine(a, postgres_url) as (parts, _):
            assert gone(pid)
            assert not left.exists()
            async with parts.store.reading() as tx:
                git = await tx.gits.get("git-1")
            assert isinstance(parts.git, GitopsService)
            (rescue,) = await parts.git.rescues(git, workflow_id)
            shown = plain_git(parts.git.clone_of(git).repo, "ls-tree", "--name-only", rescue.commit)
            assert "two.txt" in shown.split()
            gate.touch()
            assert (await wait_until_resting(other, workflow_id)).status is WorkflowStatus.COMPLETED


async def test_a_restarted_engine_goes_on_with_its_own_workflows_in_place(
    tmp_path: Path, postgres_url: str, remote: Remote
) -> None:
    a, gate = tmp_path / "a", tmp_path / "gate"
    async with running_machine(a, postgres_url) as (parts, engine):
        workflow_id = await start_gated(parts, remote, gate)
        engine.abandon()
    async with running_machine(a, postgres_url) as (parts, _), running_machine(tmp_path / "b", postgres_url):
        gate.touch()
        workflow = await wait_until_resting(parts, workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
        works = await works_of(parts, workflow_id)
    assert {work.attempt for work in works.values()} == {1}


async def test_a_paused_workflow_waits_for_its_machine_or_goes_back_to_its_checkpoint_elsewhere(
    tmp_path: Path, postgres_url: str, remote: Remote
) -> None:
    a, b, gate = tmp_path / "a", tmp_path / "b", tmp_path / "gate"
    async with running_machine(a, postgres_url) as (parts, _):
        workflow_id = await start_gated(parts, remote, gate)
        await command(parts, "PauseWorkflow", workflow_id)
    await end_lease(postgres_url, a)
    gate.touch()
    async with running_machine(b, postgres_url) as (other, _):
        with pytest.raises(CommandRefused, match=rf"are on .*{a}.* --discard"):
            await command(other, "ResumeWorkflow", workflow_id)
        assert (await find(other, workflow_id)).status is WorkflowStatus.PAUSED
        await command(other, "ResumeWorkflow", workflow_id, discard=True)
        workflow = await wait_until_resting(other, workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
        works = await works_of(other, workflow_id)
    assert works["one"].attempt == 1
    assert works["two"].attempt == 2


async def test_a_workflow_that_is_only_prepared_starts_elsewhere(
    tmp_path: Path, postgres_url: str, remote: Remote
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    async with running_machine(a, postgres_url) as (parts, _):
        workflow_id = await create(parts, remote, runs("one", "echo 1 > one.txt"))
        await command(parts, "StartWorkflow", workflow_id, prepare_only=True)
        assert (await find(parts, workflow_id)).status is WorkflowStatus.READY
    await end_lease(postgres_url, a)
    async with running_machine(b, postgres_url) as (other, _):
        await command(other, "StartWorkflow", workflow_id)
        assert (await wait_until_resting(other, workflow_id)).status is WorkflowStatus.COMPLETED


async def test_a_workflow_is_deleted_with_its_checkpoints_on_the_remote(
    tmp_path: Path, postgres_url: str, remote: Remote
) -> None:
    async with running_machine(tmp_path / "a", postgres_url) as (parts, _):
        workflow_id = await create(parts, remote, runs("one", "echo 1 > one.txt"))
        await command(parts, "StartWorkflow", workflow_id)
        await wait_until_resting(parts, workflow_id)
        assert plain_git(remote.folder, "for-each-ref", "refs/kingdom/")
        await command(parts, "DeleteWorkflow", workflow_id)
    assert not plain_git(remote.folder, "for-each-ref", "refs/kingdom/")
    assert await holders(postgres_url) == {}


async def test_a_workflow_whose_machine_is_gone_is_cancelled_and_deleted_elsewhere(
    tmp_path: Path, postgres_url: str, remote: Remote
) -> None:
    a, b, gate = tmp_path / "a", tmp_path / "b", tmp_path / "gate"
    async with running_machine(a, postgres_url) as (parts, _):
        workflow_id = await start_gated(parts, remote, gate)
        await command(parts, "PauseWorkflow", workflow_id)
    await end_lease(postgres_url, a)
    async with running_machine(b, postgres_url) as (other, _):
        await command(other, "CancelWorkflow", workflow_id)
        assert (await find(other, workflow_id)).status is WorkflowStatus.CANCELLED
        await command(other, "DeleteWorkflow", workflow_id)
    assert not plain_git(remote.folder, "for-each-ref", "refs/kingdom/")


async def test_what_waits_to_be_landed_waits_for_its_machine(tmp_path: Path, postgres_url: str, remote: Remote) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    async with running_machine(a, postgres_url) as (parts, engine):
        workflow_id = await create(parts, remote, runs("one", "echo 1 > one.txt"))
        await command(parts, "StartWorkflow", workflow_id)
        assert (await wait_until_resting(parts, workflow_id)).status is WorkflowStatus.COMPLETED
        engine.abandon()
        await end_lease(postgres_url, a)
    due = land_again(workflow_id, 1, datetime(2026, 1, 1, tzinfo=UTC))
    sent = SentCommand(due.event_id, LAND_AGAIN, workflow_id)
    async with running_machine(b, postgres_url) as (other, _):
        bus, holds = other.store.bus, other.store.holds
        await bus.publish(COMMAND_STREAM, due)
        assert holds is not None
        assert await HeldCommands(bus, holds).claim(COMMAND_STREAM, worker="b", types=[LAND_AGAIN]) == []
    async with running_machine(a, postgres_url) as (parts, _):
        await wait_for_command(parts.store.bus, sent, 60)


async def test_a_checkpoint_does_not_count_before_it_is_pushed(
    tmp_path: Path, postgres_url: str, remote: Remote
) -> None:
    hook = remote.folder / ".git" / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    async with running_machine(tmp_path / "a", postgres_url) as (parts, _):
        workflow_id = await create(parts, remote, runs("one", "echo 1 > one.txt"), runs("two", "true"))
        await command(parts, "StartWorkflow", workflow_id)
        workflow = await wait_until_resting(parts, workflow_id)
        assert workflow.status is WorkflowStatus.PAUSED
        assert "could not be committed" in str(workflow.reason)
        assert (await works_of(parts, workflow_id))["two"].status is WorkStatus.PENDING
        hook.unlink()
        await command(parts, "ResumeWorkflow", workflow_id, retry=True)
        workflow = await wait_until_resting(parts, workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
        assert (await works_of(parts, workflow_id))["one"].attempt == 1, "nothing is done again"


async def test_a_checkpoint_is_pushed_again_when_its_remote_was_away(
    tmp_path: Path, postgres_url: str, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    away, push = 2, CheckpointRemote.push

    async def push_later(self: CheckpointRemote, *arguments: Any) -> None:
        nonlocal away
        if away:
            away -= 1
            raise RemoteFailed(["git", "push"], 128, "no answer", reason="unreachable")
        await push(self, *arguments)

    monkeypatch.setattr(CheckpointRemote, "push", push_later)
    async with running_machine(tmp_path / "a", postgres_url) as (parts, _):
        workflow_id = await create(parts, remote, runs("one", "echo 1 > one.txt"))
        await command(parts, "StartWorkflow", workflow_id)
        workflow = await wait_until_resting(parts, workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
        assert (await works_of(parts, workflow_id))["one"].attempt == 1
        assert parts.counters.retried == 2
    assert plain_git(remote.folder, "for-each-ref", "refs/kingdom/checkpoints/")


async def test_an_engine_alone_and_engines_that_share_exclude_each_other(
    tmp_path: Path, postgres_url: str, remote: Remote
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    async with open_machine(a, postgres_url, remote=None) as alone, open_machine(b, postgres_url) as shares:
        async with run_engine(alone, patience=0):
            with pytest.raises(EngineAlreadyRunning, match="checkpoint_remote"):
                async with run_engine(shares, patience=0):
                    pass
        async with run_engine(shares, patience=0):
            with pytest.raises(EngineAlreadyRunning):
                async with run_engine(alone, patience=0):
                    pass
            async with open_machine(b, postgres_url) as again:
                with pytest.raises(EngineAlreadyRunning):
                    async with run_engine(again, patience=0):
                        pass


async def test_a_process_that_is_an_engine_leaves_the_command_to_the_one_that_holds_the_workflow(
    tmp_path: Path, postgres_url: str, remote: Remote
) -> None:
    a, b, gate = tmp_path / "a", tmp_path / "b", tmp_path / "gate"
    async with running_machine(a, postgres_url) as (parts, _), running_machine(b, postgres_url) as (other, _):
        workflow_id = await create(parts, remote, runs("one", waits_for(gate)))
        await command_handlers(parts)["StartWorkflow"](workflow_id)
        with pytest.raises(HeldElsewhere, match=str(a)):
            await command_handlers(other)["CancelWorkflow"](workflow_id)
        await command(other, "CancelWorkflow", workflow_id)
        assert (await find(other, workflow_id)).status is WorkflowStatus.CANCELLED


async def test_workflows_from_before_the_store_was_shared_stay_with_their_home(
    tmp_path: Path, postgres_url: str, remote: Remote
) -> None:
    a, b, gate = tmp_path / "a", tmp_path / "b", tmp_path / "gate"
    async with open_machine(a, postgres_url, remote=None) as parts, run_engine(parts) as engine:
        workflow_id = await start_gated(parts, remote, gate)
        engine.abandon()
    async with running_machine(b, postgres_url) as (other, _), running_machine(a, postgres_url):
        gate.touch()
        workflow = await wait_until_resting(other, workflow_id)
        assert workflow.status is WorkflowStatus.COMPLETED, workflow.reason
    assert (await holders(postgres_url)) == {workflow_id: str(a)}


@pytest.mark.walk
async def test_another_machine_leaves_events_of_workflows_from_before_the_store_was_shared(
    tmp_path: Path, postgres_url: str, remote: Remote
) -> None:
    a, b, gate = tmp_path / "a", tmp_path / "b", tmp_path / "gate"
    async with open_machine(a, postgres_url, remote=None) as parts, run_engine(parts) as engine:
        workflow_id = await start_gated(parts, remote, gate)
        engine.abandon()
        await cancel_workflow(parts, workflow_id)  # an event that no engine has handled
    async with running_machine(b, postgres_url) as (_, engine):
        await engine.idle()
        assert await holders(postgres_url) == {}
        async with running_machine(a, postgres_url) as (_, own):
            await own.idle()
            assert await holders(postgres_url) == {workflow_id: str(a)}


@pytest.mark.walk
async def test_a_paused_workflow_from_before_the_store_was_shared_is_resumed_where_its_files_are(
    tmp_path: Path, postgres_url: str, remote: Remote
) -> None:
    a, b, gate = tmp_path / "a", tmp_path / "b", tmp_path / "gate"
    async with open_machine(a, postgres_url, remote=None) as parts, run_engine(parts):
        workflow_id = await start_gated(parts, remote, gate)
        await pause_workflow(parts, workflow_id)
        gate.touch()
        assert (await wait_until_resting(parts, workflow_id)).status is WorkflowStatus.PAUSED
    async with running_machine(b, postgres_url) as (other, _):
        with pytest.raises(CommandRefused, match="has not run since the store is shared: start it there"):
            await command(other, "ResumeWorkflow", workflow_id)
        assert await holders(postgres_url) == {}
        async with running_machine(a, postgres_url):
            await command(other, "ResumeWorkflow", workflow_id)
            assert (await wait_until_resting(other, workflow_id)).status is WorkflowStatus.COMPLETED
            assert await holders(postgres_url) == {workflow_id: str(a)}
