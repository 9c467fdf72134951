"""Killed with -9 at every git call and every change of a file, one after the other: the next start finishes or undoes.

Where git itself was running when its caller died, it goes on alone; what follows has to wait for it.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.gitops import (
    CheckpointMark,
    RecordedCheckpoint,
    Worktree,
    list_rescues,
    merge,
    remove_rescue,
    reset,
    verify,
)
from tests.support.forking import fate
from tests.support.gitops_victim import act, recover
from tests.support.repositories import Ground, Remote, on_disk, plain_git

pytestmark = [pytest.mark.walk, pytest.mark.timeout(600)]
BASE = {"a.txt": "- one\n", "dir/b.txt": "- two\n"}


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    remote = Remote(tmp_path / "remote")
    remote.commit({"a.txt": "one\n", "dir/b.txt": "two\n"})
    return remote


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path / "ground")


def killed(ground: Ground, remote: Remote, operation: str, name: str, kind: str, when: int) -> bool:
    """Run an operation in a process that is killed at one point; False when it ended before it came to that."""
    ended = fate(act, ground.folder, remote.url, operation, name, kind, when)
    assert ended in (0, -signal.SIGKILL)
    return ended != 0


def points() -> Iterator[int]:
    """1, 2, 3, …; whoever walks them stops when an operation was not killed any more."""
    yield from range(1, 500)
    pytest.fail("the operation never ends")


@pytest.mark.parametrize(("kind", "fewest"), [("before", 8), ("during", 8), ("files", 8)])
async def test_a_clone(kind: str, fewest: int, ground: Ground, remote: Remote) -> None:
    for when in points():
        was_killed = killed(ground, remote, "clone", "", kind, when)
        ensured = await ground.clones.ensure(remote.url, deep=True)
        assert ensured.broken is None
        assert await ensured.clone.resolve_base(None) == remote.git("rev-parse", "HEAD")
        left = {path.name for path in ensured.clone.folder.iterdir()}
        assert left == {"clone.json", "control", "lock", "repo"}
        if not was_killed:
            print(f"killed at {when - 1} points")
            assert when > fewest, "the walk was too short to mean anything"
            return
        shutil.rmtree(ground.clones.folder)


@pytest.mark.parametrize(("kind", "fewest"), [("before", 12), ("during", 12), ("files", 12)])
async def test_a_clone_that_is_made_again_has_what_the_damaged_one_held(
    kind: str, fewest: int, ground: Ground, remote: Remote
) -> None:
    tree = await ground.worktree(remote)
    made = await ground.checkpoint(tree, "one", {"a.txt": "new\n"})
    for when in points():
        (tree.clone.repo / "HEAD").unlink()
        was_killed = killed(ground, remote, "clone", "", kind, when)
        ensured = await ground.clones.ensure(remote.url, deep=True)
        assert await ground.checkpoints.list(ensured.clone, "wf") == {"one": made.commit}
        assert await tree.tip() == made.commit
        assert plain_git(tree.path, "status", "--short", "--branch") == f"## {tree.branch}"
        assert await verify(ensured.clone, [RecordedCheckpoint("wf", "one", made.commit, made.tree)], deep=True) == []
        aside = list(ensured.clone.folder.glob("broken-*.git"))
        assert {path.name for path in ensured.clone.folder.iterdir()} - {path.name for path in aside} == {
            "clone.json", "control", "lock", "repo"
        }  # fmt: skip
        assert len(aside) == 1
        shutil.rmtree(aside[0])
        if not was_killed:
            print(f"killed at {when - 1} points")
            assert when > fewest, "the walk was too short to mean anything"
            return


@pytest.mark.parametrize(("kind", "fewest"), [("before", 4), ("during", 4), ("files", 8)])
async def test_a_new_worktree(kind: str, fewest: int, ground: Ground, remote: Remote) -> None:
    clone = await ground.clone(remote)
    for when in points():
        workflow = f"wf-{when}"
        was_killed = killed(ground, remote, "create", workflow, kind, when)
        if when % 2:
            await ground.worktrees.prune()
        tree = await ground.worktrees.create(clone, workflow, "app")
        assert on_disk(tree.path) == BASE
        assert plain_git(tree.path, "status", "--short", "--branch") == f"## kingdom/{workflow}/app"
        assert (await ground.worktrees.prune()).unknown == ()
        if not was_killed:
            print(f"killed at {when - 1} points")
            assert when > fewest, "the walk was too short to mean anything"
            return


@pytest.mark.parametrize(("kind", "fewest"), [("before", 12), ("during", 12), ("files", 8)])
async def test_a_checkpoint_of_two_repositories(
    kind: str, fewest: int, ground: Ground, remote: Remote, tmp_path: Path
) -> None:
    second = Remote(tmp_path / "second")
    second.commit({"z.txt": "z\n"})
    trees = [await ground.worktree(remote), await ground.worktree(second, name="lib")]
    records: dict[str, list[RecordedCheckpoint]] = {tree.name: [] for tree in trees}
    for when in points():
        mark = CheckpointMark("wf", f"cp-{when}", "work")
        for tree in trees:
            (tree.path / "a.txt").write_text(f"{when}\n")
            (tree.path / f"new-{when}.txt").write_text("new\n")
        was_killed = killed(ground, remote, "checkpoint", mark.checkpoint, kind, when)
        await ground.worktrees.prune()
        await recover(ground, trees, mark, ground.folder / "store.json")
        if was_killed and not (await ground.checkpoints.list(trees[0].clone, "wf")).get(mark.checkpoint):
            await ground.checkpoints.create(trees, mark)  # it was killed before it could note what it was about to do
        for tree in trees:
            records[tree.name].append(await _complete(tree, ground, mark))
            assert await verify(tree.clone, records[tree.name], deep=when % 10 == 0) == []
        if not was_killed:
            print(f"killed at {when - 1} points")
            assert when > fewest, "the walk was too short to mean anything"
            return


async def _complete(tree: Worktree, ground: Ground, mark: CheckpointMark) -> RecordedCheckpoint:
    commit = (await ground.checkpoints.list(tree.clone, "wf"))[mark.checkpoint]
    assert await ground.checkpoints.pending(tree.clone, "wf") == {}
    assert await tree.tip() == commit
    assert plain_git(tree.path, "status", "--short") == ""
    number = mark.checkpoint.removeprefix("cp-")
    assert plain_git(tree.clone.repo, "show", f"{commit}:a.txt") == number
    assert plain_git(tree.clone.repo, "show", f"{commit}:new-{number}.txt") == "new"
    return RecordedCheckpoint("wf", mark.checkpoint, commit, await tree.clone.tree_of(commit))


@pytest.mark.parametrize(("kind", "fewest"), [("before", 12), ("during", 12), ("files", 4)])
async def test_a_reset(kind: str, fewest: int, ground: Ground, remote: Remote) -> None:
    tree = await ground.worktree(remote)
    for when in points():
        (tree.path / "a.txt").write_text(f"unsaved {when}\n")
        (tree.path / f"new-{when}.txt").write_text("new\n")
        was_killed = killed(ground, remote, "reset", tree.base, kind, when)
        await reset(tree, clock=ground.clock)
        assert on_disk(tree.path) == BASE
        assert await tree.tip() == tree.base
        assert plain_git(tree.path, "status", "--short") == ""
        kept = [plain_git(tree.clone.repo, "show", f"{one.ref}:a.txt") for one in await list_rescues(tree.clone, "wf")]
        assert f"unsaved {when}" in kept
        if not was_killed:
            print(f"killed at {when - 1} points")
            assert when > fewest, "the walk was too short to mean anything"
            return


@pytest.mark.parametrize(("kind", "fewest"), [("before", 25), ("during", 25), ("files", 5)])
async def test_a_merge_of_two_branches(kind: str, fewest: int, ground: Ground, remote: Remote) -> None:
    tree = await ground.worktree(remote)
    sides = [await ground.worktrees.create(tree.clone, "wf", f"side-{number}") for number in (1, 2)]
    for number, side in enumerate(sides):
        (side.path / f"new-{number}.txt").write_text("new\n")
        (side.path / ("a.txt" if number else "dir/b.txt")).write_text(f"by {number}\n")
        await ground.checkpoint(side, f"side-{number}")
    branches = [side.branch for side in sides]
    for when in points():
        was_killed = killed(ground, remote, "merge", " ".join(branches), kind, when)
        await ground.worktrees.prune()
        done = await merge(tree, *branches, clock=ground.clock)
        assert done.clean
        assert on_disk(tree.path) == {
            "a.txt": "- by 1\n", "dir/b.txt": "- by 0\n", "new-0.txt": "- new\n", "new-1.txt": "- new\n"
        }  # fmt: skip
        assert await tree.tip() == done.commit
        assert plain_git(tree.path, "status", "--short", "--branch") == f"## {tree.branch}"
        merges = plain_git(tree.path, "log", "--merges", "--first-parent", "--format=%s")
        assert merges.splitlines() == [f"Merge {branch} into {tree.branch}" for branch in reversed(branches)]
        assert await list_rescues(tree.clone, "wf") == []
        if not was_killed:
            print(f"killed at {when - 1} points")
            assert when > fewest, "the walk was too short to mean anything"
            return
        await reset(tree, clock=ground.clock)
        for one in await list_rescues(tree.clone, "wf"):
            await remove_rescue(tree.clone, "wf", one.name)


@pytest.mark.parametrize(("kind", "fewest"), [("before", 6), ("during", 6), ("files", 6)])
async def test_a_release(kind: str, fewest: int, ground: Ground, remote: Remote) -> None:
    for when in points():
        workflow = f"wf-{when}"
        tree = await ground.worktree(remote, workflow)
        (tree.path / "a.txt").write_text("unsaved\n")
        was_killed = killed(ground, remote, "release", workflow, kind, when)
        if when % 2:
            await ground.worktrees.prune()
        await ground.worktrees.release(workflow, "app")
        assert not tree.path.exists()
        assert not tree.admin.exists()
        assert not tree.state_folder.exists()
        kept = await list_rescues(tree.clone, workflow)
        assert [plain_git(tree.clone.repo, "show", f"{one.ref}:a.txt") for one in kept][:1] == ["unsaved"]
        assert await tree.tip() == tree.base
        if not was_killed:
            print(f"killed at {when - 1} points")
            assert when > fewest, "the walk was too short to mean anything"
            return
