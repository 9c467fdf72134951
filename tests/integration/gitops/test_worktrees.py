"""Worktrees: one per workflow and repository, on a branch of its own; made, reused and released."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kingdom.gitops import (
    BaseNotFound,
    BranchExists,
    CommandFailed,
    FolderExists,
    InvalidInput,
    LockBusy,
    WorktreeBroken,
    Worktrees,
    list_rescues,
)
from tests.support.repositories import Ground, Remote, on_disk, plain_git

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    remote = Remote(tmp_path / "remote")
    remote.commit({"a.txt": "one\n", "dir/b.txt": "two\n"})
    return remote


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path / "ground")


async def test_a_worktree_has_the_files_of_its_base_and_a_branch_of_its_own(remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    assert on_disk(tree.path) == {"a.txt": "- one\n", "dir/b.txt": "- two\n"}
    assert tree.branch == "kingdom/wf/app"
    assert plain_git(tree.path, "symbolic-ref", "HEAD") == "refs/heads/kingdom/wf/app"
    assert plain_git(tree.path, "status", "--short") == ""
    assert plain_git(tree.path, "rev-parse", "HEAD") == remote.git("rev-parse", "HEAD") == tree.base
    assert str(tree.path) in plain_git(tree.clone.repo, "worktree", "list", "--porcelain")
    assert plain_git(tree.path, "fsck") == ""


async def test_git_of_an_agent_works_there_as_usual(remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    (tree.path / "c.txt").write_text("three\n")
    plain_git(tree.path, "add", "c.txt")
    plain_git(tree.path, "commit", "--quiet", "--message", "by an agent")
    assert await tree.tip() == plain_git(tree.path, "rev-parse", "HEAD")
    plain_git(tree.path, "worktree", "prune")
    assert tree.admin.is_dir()


async def test_the_same_worktree_is_reused_with_what_is_in_it(remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    (tree.path / "a.txt").write_text("work in progress\n")
    remote.commit({"a.txt": "later\n"})
    again = await ground.worktree(remote)
    assert again == tree == ground.worktrees.find("wf", "app")
    assert (tree.path / "a.txt").read_text() == "work in progress\n"


async def test_a_worktree_that_was_deleted_by_hand_is_made_again_at_its_branch(remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    (tree.path / "a.txt").write_text("changed\n")
    made = await ground.checkpoint(tree, "one")
    shutil.rmtree(tree.path)
    with pytest.raises(WorktreeBroken, match="create it again"):
        await ground.checkpoint(tree, "two")
    await ground.worktree(remote)
    assert (tree.path / "a.txt").read_text() == "changed\n"
    assert plain_git(tree.path, "rev-parse", "HEAD") == made.commit
    assert plain_git(tree.path, "status", "--short") == ""


async def test_two_workflows_on_one_repository_at_once(remote: Remote, ground: Ground) -> None:
    clone = await ground.clone(remote)
    create = ground.worktrees.create
    one, two, three = await asyncio.gather(
        create(clone, "w1", "app"), create(clone, "w2", "app"), create(clone, "w1", "b")
    )
    (one.path / "a.txt").write_text("of w1\n")
    (two.path / "a.txt").write_text("of w2\n")
    first, second = await asyncio.gather(ground.checkpoint(one, "c"), ground.checkpoint(two, "c"))
    assert first.commit != second.commit
    assert (await one.tip(), await two.tip(), await three.tip()) == (first.commit, second.commit, three.base)
    assert [tree.branch for tree in ground.worktrees.list()] == ["kingdom/w1/app", "kingdom/w1/b", "kingdom/w2/app"]
    assert [tree.branch for tree in ground.worktrees.list("w1")] == ["kingdom/w1/app", "kingdom/w1/b"]


CREATE = """
import asyncio, sys
from pathlib import Path
from kingdom.gitops import Clones, GitRunner, Worktrees
async def main():
    folder = Path(sys.argv[1])
    clones = Clones(GitRunner(), folder / "clones", allow_local=True)
    clone = (await clones.ensure(sys.argv[2])).clone
    print((await Worktrees(clones, folder).create(clone, "wf", "app")).path)
asyncio.run(main())
"""


async def test_two_processes_at_once_make_one_worktree(remote: Remote, ground: Ground) -> None:
    words = [sys.executable, "-c", CREATE, str(ground.folder), remote.url]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = {process.communicate(timeout=60)[0].strip() for process in running}
    assert said == {str(ground.worktrees.find("wf", "app").path)}
    assert on_disk(Path(said.pop())) == {"a.txt": "- one\n", "dir/b.txt": "- two\n"}


async def test_a_branch_that_exists_already_is_not_taken(remote: Remote, ground: Ground) -> None:
    clone = await ground.clone(remote)
    await clone.update_refs([f"create refs/heads/kingdom/wf/app {await clone.resolve_base(None)}"])
    with pytest.raises(BranchExists, match="kingdom/wf/app exists"):
        await ground.worktrees.create(clone, "wf", "app")
    assert ground.worktrees.list() == []
    tree = await ground.worktrees.create(clone, "wf", "app", existing_branch="continue")
    assert (tree.path / "a.txt").exists()


async def test_a_branch_in_the_way_of_ours_is_named_by_git(remote: Remote, ground: Ground) -> None:
    clone = await ground.clone(remote)
    await clone.update_refs([f"create refs/heads/kingdom/wf {await clone.resolve_base(None)}"])
    with pytest.raises(CommandFailed, match="refs/heads/kingdom/wf' exists"):
        await ground.worktrees.create(clone, "wf", "app")


async def test_a_folder_that_exists_already_is_not_touched(remote: Remote, ground: Ground) -> None:
    clone = await ground.clone(remote)
    folder = ground.folder / "worktrees" / "wf" / "app"
    folder.mkdir(parents=True)
    (folder / "mine.txt").write_text("mine\n")
    with pytest.raises(FolderExists, match="move it away"):
        await ground.worktrees.create(clone, "wf", "app")
    assert (folder / "mine.txt").read_text() == "mine\n"
    assert await clone.refs("refs/heads/") == {}
    assert (await ground.worktrees.prune()).unknown == (folder,)


async def test_one_name_is_not_used_for_two_repositories(remote: Remote, ground: Ground, tmp_path: Path) -> None:
    await ground.worktree(remote)
    other = Remote(tmp_path / "other")
    other.commit({"x": "y"})
    with pytest.raises(FolderExists, match="another name"):
        await ground.worktree(other)


async def test_a_base_that_does_not_exist_leaves_nothing_behind(remote: Remote, ground: Ground) -> None:
    clone = await ground.clone(remote)
    with pytest.raises(BaseNotFound, match="its branches: main"):
        await ground.worktrees.create(clone, "wf", "app", "nothing")
    assert ground.worktrees.list() == []
    assert await clone.refs("refs/heads/") == {}


@pytest.mark.parametrize(("workflow", "name"), [("../x", "app"), ("wf", "../../x"), ("-wf", "app"), ("wf", "a b")])
async def test_ids_that_would_leave_their_folder_are_refused(
    workflow: str, name: str, remote: Remote, ground: Ground
) -> None:
    clone = await ground.clone(remote)
    with pytest.raises(InvalidInput):
        await ground.worktrees.create(clone, workflow, name)
    with pytest.raises(InvalidInput):
        ground.worktrees.find(workflow, name)
    with pytest.raises(InvalidInput):
        await ground.worktrees.release(workflow, name)


async def test_releasing_keeps_the_branch_and_may_be_repeated(remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    (tree.path / "a.txt").write_text("changed\n")
    made = await ground.checkpoint(tree, "one")
    assert await ground.worktrees.release("wf", "app") is None
    assert await ground.worktrees.release("wf", "app") is None
    assert not tree.path.exists()
    assert not tree.admin.exists()
    assert not tree.state_folder.exists()
    assert await tree.tip() == made.commit
    with pytest.raises(WorktreeBroken):
        ground.worktrees.find("wf", "app")
    again = await ground.worktrees.create(tree.clone, "wf", "app", existing_branch="continue")
    assert (again.path / "a.txt").read_text() == "changed\n"


async def test_releasing_rescues_what_no_commit_holds(remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    (tree.path / "new.txt").write_text("unsaved\n")
    kept = await ground.worktrees.release("wf", "app", delete_branch=True)
    assert kept is not None
    assert await tree.tip() is None
    plain_git(tree.clone.repo, "gc", "--quiet", "--prune=now")
    assert plain_git(tree.clone.repo, "show", f"{kept}:new.txt") == "unsaved"
    assert [rescue.ref for rescue in await list_rescues(tree.clone, "wf")] == [kept]


async def test_deleting_a_branch_rescues_its_commits(remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    (tree.path / "a.txt").write_text("changed\n")
    plain_git(tree.path, "commit", "--quiet", "--all", "--message", "by an agent")
    kept = await ground.worktrees.release("wf", "app", delete_branch=True)
    assert kept is not None
    plain_git(tree.clone.repo, "gc", "--quiet", "--prune=now")
    assert "by an agent" in plain_git(tree.clone.repo, "log", "--format=%s", kept)


async def test_a_worktree_that_another_process_works_on_is_busy(remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    impatient = Worktrees(ground.clones, ground.folder, lock_timeout=0.05)
    async with tree.hold():
        with pytest.raises(LockBusy):
            await impatient.release("wf", "app")
    assert tree.path.is_dir()


async def test_pruning_when_nothing_is_wrong_changes_nothing(remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    pruned = await ground.worktrees.prune()
    assert (pruned.finished, pruned.locks, pruned.unknown) == ((), (), ())
    assert tree.path.is_dir()


async def test_a_checkpoint_can_be_forked_into_a_second_branch(remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    (tree.path / "a.txt").write_text("first\n")
    one = await ground.checkpoint(tree, "one")
    (tree.path / "a.txt").write_text("second\n")
    two = await ground.checkpoint(tree, "two")
    fork = await ground.worktrees.create(tree.clone, "wf-fork", "app", one.commit)
    assert (fork.path / "a.txt").read_text() == "first\n"
    assert fork.base == one.commit
    (fork.path / "a.txt").write_text("other way\n")
    await ground.checkpoint(fork, "one")
    assert await tree.tip() == two.commit
    assert (tree.path / "a.txt").read_text() == "second\n"


async def test_a_record_that_cannot_be_read_is_named(remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    (tree.state_folder / "worktree.json").write_text("{")
    with pytest.raises(WorktreeBroken, match=r"worktree\.json cannot be read"):
        ground.worktrees.find("wf", "app")
    (tree.state_folder / "worktree.json").write_text('{"version": 99}')
    with pytest.raises(WorktreeBroken, match="another version"):
        ground.worktrees.find("wf", "app")
