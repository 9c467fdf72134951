"""Merging the branches of other worktrees into one: what comes together, what does not, and what was cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.gitops import BaseNotFound, InvalidInput, Worktree, WorktreeDirty, log, merge, reset
from tests.support.repositories import Ground, Remote, on_disk, plain_git

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path / "ground")


@pytest.fixture
async def tree(tmp_path: Path, ground: Ground) -> Worktree:
    remote = Remote(tmp_path / "remote")
    remote.commit({"a.txt": "one\ntwo\nthree\n", "b.txt": "1\n2\n3\n4\n5\n6\n", "c.txt": "c\n"})
    return await ground.worktree(remote)


@pytest.fixture
async def side(tree: Worktree, ground: Ground) -> Worktree:
    return await ground.worktrees.create(tree.clone, "wf", "side")


async def test_what_two_branches_did_apart_comes_together(tree: Worktree, side: Worktree, ground: Ground) -> None:
    (tree.path / "a.txt").write_text("ONE\ntwo\nthree\n")
    (side.path / "b.txt").write_text("1\n2\n3\n4\n5\nsix\n")
    (side.path / "new.txt").write_text("new\n")
    one, two = await ground.checkpoint(tree, "one"), await ground.checkpoint(side, "two")
    (tree.path / "noise").write_text("x")
    (tree.path / "noise").unlink()
    done = await merge(tree, side.branch, title="Both parts", clock=ground.clock, identity=ground.identity)
    assert done.clean
    assert on_disk(tree.path) == {
        "a.txt": "- ONE\ntwo\nthree\n",
        "b.txt": "- 1\n2\n3\n4\n5\nsix\n",
        "c.txt": "- c\n",
        "new.txt": "- new\n",
    }
    assert await tree.tip() == done.commit
    (commit, *_) = await log(tree.clone, None, done.commit)
    assert commit.parents == (one.commit, two.commit)
    assert commit.title == "Both parts"
    assert plain_git(tree.path, "status", "--short") == ""
    again = await merge(tree, side.branch)
    assert (again.up_to_date, again.commit) == (True, done.commit)


async def test_conflicts_are_named_and_nothing_changes(tree: Worktree, side: Worktree, ground: Ground) -> None:
    (tree.path / "a.txt").write_text("ours\n")
    (tree.path / "c.txt").unlink()
    (side.path / "a.txt").write_text("theirs\n")
    (side.path / "c.txt").write_text("changed\n")
    (side.path / "fine.txt").write_text("no conflict\n")
    one, two = await ground.checkpoint(tree, "one"), await ground.checkpoint(side, "two")
    before = on_disk(tree.path)
    done = await merge(tree, two.commit)
    assert not done.clean
    assert {conflict.path: conflict.reasons for conflict in done.conflicts} == {
        "a.txt": ("CONFLICT (contents)",),
        "c.txt": ("CONFLICT (modify/delete)",),
    }
    assert done.commit == one.commit == await tree.tip()
    assert on_disk(tree.path) == before
    assert plain_git(tree.path, "status", "--short") == ""


async def test_several_are_merged_all_or_none(tree: Worktree, side: Worktree, ground: Ground) -> None:
    third = await ground.worktrees.create(tree.clone, "wf", "third")
    for number, one in enumerate((side, third)):
        (one.path / "same.txt").write_text(f"{number}\n")
        await ground.checkpoint(one, f"side-{number}")
    before, tip = on_disk(tree.path), await tree.tip()
    done = await merge(tree, side.branch, third.branch)
    assert ([conflict.path for conflict in done.conflicts], done.source) == (["same.txt"], third.branch)
    assert (await tree.tip(), done.commit) == (tip, tip)
    assert on_disk(tree.path) == before
    await ground.checkpoint(third, "side-2", {"same.txt": "0\n"})
    done = await merge(tree, side.branch, third.branch, title="All", clock=ground.clock)
    last, first, *_ = await log(tree.clone, tip, done.commit)
    assert [commit.message.splitlines()[2] for commit in (last, first)] == [
        f"Merges {third.branch}.", f"Merges {side.branch}."
    ]  # fmt: skip
    assert last.parents == (first.hash, await third.tip())


async def test_an_ignored_file_in_the_way_of_a_merge_is_kept(tree: Worktree, side: Worktree, ground: Ground) -> None:
    (tree.path / ".gitignore").write_text("*.env\n")
    await ground.checkpoint(tree, "one")
    (tree.path / "my.env").write_text("a secret that is nowhere else\n")
    await ground.checkpoint(side, "two", {"my.env": "theirs\n"})
    done = await merge(tree, side.branch)
    assert (tree.path / "my.env").read_text() == "theirs\n"
    (ref,) = done.rescues
    assert plain_git(tree.clone.repo, "show", f"{ref}:my.env") == "a secret that is nowhere else"


async def test_a_merge_that_was_cut_off_in_the_middle_of_a_file_is_finished(
    tree: Worktree, side: Worktree, ground: Ground
) -> None:
    tip = await tree.tip()
    await ground.checkpoint(side, "two", {"a.txt": "theirs\n", "new.txt": "new\n"})
    done = await merge(tree, side.branch)
    plain_git(tree.clone.repo, "update-ref", tree.ref, str(tip))
    (tree.path / "a.txt").write_text("the")
    (tree.path / "new.txt").unlink()
    note = tree.state_folder / "merging"
    note.write_text(f"{tip} {done.commit}\n")
    again = await merge(tree, side.branch)
    assert (again.commit, await tree.tip()) == (done.commit, done.commit)
    assert (on_disk(tree.path)["a.txt"], on_disk(tree.path)["new.txt"]) == ("- theirs\n", "- new\n")
    assert plain_git(tree.path, "status", "--short") == ""
    assert not note.exists()


@pytest.mark.parametrize("pruned", [True, False])
async def test_a_merge_that_cannot_be_finished_as_noted_is_made_anew(
    pruned: bool, tree: Worktree, side: Worktree, ground: Ground
) -> None:
    tip = await tree.tip()
    await ground.checkpoint(side, "two", {"a.txt": "theirs\n"})
    note = tree.state_folder / "merging"
    note.write_text(f"{tip} {'0' * 40}\n" if pruned else "not what we write")
    (tree.path / "a.txt").write_text("the")
    if pruned:
        assert (await merge(tree, side.branch)).clean
        assert on_disk(tree.path)["a.txt"] == "- theirs\n"
    else:  # it says nothing of this branch: whatever is in the files is somebody's work
        with pytest.raises(WorktreeDirty):
            await merge(tree, side.branch)
        assert on_disk(tree.path)["a.txt"] == "- the"
    assert not note.exists()


async def test_whoever_resets_a_merge_that_was_cut_off_has_ended_it(
    tree: Worktree, side: Worktree, ground: Ground
) -> None:
    await ground.checkpoint(side, "two", {"a.txt": "theirs\n"})
    note = tree.state_folder / "merging"
    note.write_text(f"{await tree.tip()} {'0' * 40}\n")
    await reset(tree)
    assert not note.exists()
    (tree.path / "new.txt").write_text("open\n")
    with pytest.raises(WorktreeDirty):
        await merge(tree, side.branch)


@pytest.mark.parametrize("change", ["tracked", "untracked", "commit"])
async def test_a_worktree_with_open_work_is_not_merged_into(
    change: str, tree: Worktree, side: Worktree, ground: Ground
) -> None:
    await ground.checkpoint(side, "two", {"b.txt": "theirs\n"})
    if change == "commit":
        plain_git(tree.path, "checkout", "--quiet", "--detach")
        plain_git(tree.path, "commit", "--quiet", "--allow-empty", "--message", "beside")
    else:
        (tree.path / ("a.txt" if change == "tracked" else "new.txt")).write_text("open\n")
    with pytest.raises(WorktreeDirty, match="make a checkpoint first"):
        await merge(tree, side.branch)


async def test_what_was_merged_before_is_not_asked_for_again_whatever_is_done_since(
    tree: Worktree, side: Worktree, ground: Ground
) -> None:
    await ground.checkpoint(side, "two", {"b.txt": "theirs\n"})
    done = await merge(tree, side.branch)
    (tree.path / "new.txt").write_text("open\n")
    again = await merge(tree, side.branch)
    assert (again.up_to_date, again.commit) == (True, done.commit)
    assert (tree.path / "new.txt").read_text() == "open\n"


async def test_a_branch_that_is_not_there_is_named(tree: Worktree) -> None:
    with pytest.raises(BaseNotFound, match="'kingdom/wf/none'"):
        await merge(tree, "kingdom/wf/none")
    with pytest.raises(InvalidInput):
        await merge(tree, "--output=x")
