"""Going back: exactly the recorded files, and nothing that was there before is lost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kingdom.gitops import (
    BaseNotFound,
    CheckpointCommit,
    InvalidInput,
    RecordedCheckpoint,
    TreeMismatch,
    Worktree,
    list_rescues,
    remove_rescue,
    reset,
    verify,
)
from tests.support.repositories import Ground, Remote, on_disk, plain_git

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    remote = Remote(tmp_path / "remote")
    remote.commit({"a.txt": "one\n", "dir/b.txt": "two\n", ".gitignore": "*.log\nbuild\n"})
    return remote


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path / "ground")


@pytest.fixture
async def tree(remote: Remote, ground: Ground) -> Worktree:
    return await ground.worktree(remote)


def show(tree: Worktree, ref: str, path: str) -> str:
    return plain_git(tree.clone.repo, "show", f"{ref}:{path}")


async def test_each_of_ten_checkpoints_comes_back_exactly(tree: Worktree, ground: Ground) -> None:
    made: list[CheckpointCommit] = []
    states: list[dict[str, str]] = []
    for number in range(10):
        (tree.path / "a.txt").write_text(f"{number}\n")
        (tree.path / f"new-{number}.txt").write_text("new\n")
        (tree.path / f"new-{number - 2}.txt").unlink(missing_ok=True)
        (tree.path / "a.txt").chmod(0o755 if number % 2 else 0o644)
        if number == 5:
            shutil.rmtree(tree.path / "dir")
            (tree.path / "dir").symlink_to("a.txt")
        made.append(await ground.checkpoint(tree, f"cp-{number}"))
        states.append(on_disk(tree.path))
    for number in (9, 3, 7, 0, 5, 4, 8, 1, 6, 2):
        done = await reset(tree, made[number].commit, expected_tree=made[number].tree, clock=ground.clock)
        assert done.tree == made[number].tree
        assert on_disk(tree.path) == states[number]
        assert await tree.tip() == made[number].commit
        assert plain_git(tree.path, "status", "--short") == ""
    plain_git(tree.clone.repo, "gc", "--quiet", "--prune=now")
    records = [
        RecordedCheckpoint("wf", f"cp-{number}", commit.commit, commit.tree) for number, commit in enumerate(made)
    ]
    assert await verify(tree.clone, records, deep=True) == []


async def test_uncommitted_work_is_kept_first(tree: Worktree, ground: Ground) -> None:
    one = await ground.checkpoint(tree, "one")
    (tree.path / "a.txt").write_text("changed\n")
    (tree.path / "new.txt").write_text("untracked\n")
    (tree.path / "dir" / "b.txt").unlink()
    done = await reset(tree, one.commit, clock=ground.clock)
    (kept,) = done.rescues
    assert on_disk(tree.path) == {".gitignore": "- *.log\nbuild\n", "a.txt": "- one\n", "dir/b.txt": "- two\n"}
    plain_git(tree.clone.repo, "gc", "--quiet", "--prune=now")
    assert show(tree, kept, "a.txt") == "changed"
    assert show(tree, kept, "new.txt") == "untracked"
    assert "dir/b.txt" not in plain_git(tree.clone.repo, "ls-tree", "-r", "--name-only", kept)
    (rescue,) = await list_rescues(tree.clone, "wf")
    assert (rescue.ref, rescue.worktree) == (kept, "app")
    assert rescue.name.startswith("20260131T1200")
    assert one.commit[:12] in rescue.title
    assert rescue.since == one.commit


async def test_commits_that_go_are_kept_first(tree: Worktree, ground: Ground) -> None:
    one = await ground.checkpoint(tree, "one")
    (tree.path / "a.txt").write_text("by the agent\n")
    plain_git(tree.path, "commit", "--quiet", "--all", "--message", "by the agent")
    plain_git(tree.path, "checkout", "--quiet", "--detach")
    plain_git(tree.path, "commit", "--quiet", "--allow-empty", "--message", "beside")
    (kept,) = (await reset(tree, one.commit, clock=ground.clock)).rescues
    plain_git(tree.path, "reflog", "expire", "--expire=now", "--all")
    plain_git(tree.clone.repo, "gc", "--quiet", "--prune=now")
    assert plain_git(tree.clone.repo, "log", "--format=%s", kept).splitlines()[1:3] == ["beside", "by the agent"]
    assert plain_git(tree.path, "symbolic-ref", "HEAD") == tree.ref


async def test_where_nothing_is_lost_nothing_is_kept(tree: Worktree, ground: Ground) -> None:
    one = await ground.checkpoint(tree, "one")
    for _ in range(2):
        assert (await reset(tree, one.commit, clock=ground.clock)).rescues == ()
    assert await list_rescues(tree.clone, "wf") == []


async def test_without_a_checkpoint_it_goes_to_the_base(tree: Worktree, ground: Ground) -> None:
    (tree.path / "a.txt").write_text("changed\n")
    await ground.checkpoint(tree, "one")
    done = await reset(tree, clock=ground.clock)
    assert done.commit == tree.base
    assert (tree.path / "a.txt").read_text() == "one\n"
    (kept,) = done.rescues
    assert show(tree, kept, "a.txt") == "changed"


async def test_ignored_files_stay_unless_asked(tree: Worktree, ground: Ground) -> None:
    (tree.path / "noise.log").write_text("noise\n")
    (tree.path / "build").mkdir()
    (tree.path / "build" / "out").write_text("made\n")
    await reset(tree, clock=ground.clock)
    assert (tree.path / "build" / "out").read_text() == "made\n"
    (kept,) = (await reset(tree, remove_ignored=True, clock=ground.clock)).rescues
    assert not (tree.path / "build").exists()
    assert not (tree.path / "noise.log").exists()
    assert show(tree, kept, "build/out") == "made"


async def test_ignored_files_that_the_target_overwrites_are_kept(tree: Worktree, ground: Ground) -> None:
    (tree.path / ".gitignore").write_text("")
    (tree.path / "x.log").write_text("tracked\n")
    (tree.path / "build").write_text("a tracked file\n")
    (tree.path / "deep").mkdir()
    (tree.path / "deep" / "y.log").write_text("tracked too\n")
    one = await ground.checkpoint(tree, "one")
    await reset(tree, clock=ground.clock)
    (tree.path / "x.log").write_text("precious\n")
    (tree.path / "build").mkdir()
    (tree.path / "build" / "out").write_text("precious too\n")
    (tree.path / "deep.log").write_text("not in the way\n")
    rescues = (await reset(tree, one.commit, clock=ground.clock)).rescues
    assert (tree.path / "x.log").read_text() == "tracked\n"
    assert (tree.path / "build").read_text() == "a tracked file\n"
    assert show(tree, rescues[0], "x.log") == "precious"
    assert show(tree, rescues[0], "build/out") == "precious too"


async def test_files_that_the_target_does_not_ignore_are_kept_and_go(tree: Worktree, ground: Ground) -> None:
    (tree.path / ".gitignore").write_text("*.log\nbuild\nsecret\n")
    await ground.checkpoint(tree, "one")
    (tree.path / "secret").write_text("ignored now, not then\n")
    done = await reset(tree, clock=ground.clock)
    assert not (tree.path / "secret").exists()
    assert [ref for ref in done.rescues if "secret" in plain_git(tree.clone.repo, "ls-tree", "--name-only", ref)]


async def test_a_link_in_the_way_is_replaced_and_not_followed(tree: Worktree, ground: Ground, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b.txt").write_text("not ours\n")
    shutil.rmtree(tree.path / "dir")
    (tree.path / "dir").symlink_to(outside)
    (tree.path / "a.txt").unlink()
    (tree.path / "a.txt").symlink_to(outside / "b.txt")
    (kept,) = (await reset(tree, clock=ground.clock)).rescues
    assert (outside / "b.txt").read_text() == "not ours\n"
    assert on_disk(tree.path)["dir/b.txt"] == "- two\n"
    assert show(tree, kept, "dir") == str(outside)


async def test_a_nested_repository_goes_and_its_files_are_kept(tree: Worktree, ground: Ground) -> None:
    inner = tree.path / "cloned"
    inner.mkdir()
    plain_git(inner, "init", "--quiet")
    (inner / "code.py").write_text("x = 1\n")
    (kept,) = (await reset(tree, clock=ground.clock)).rescues
    assert not (inner / "code.py").exists()
    assert show(tree, kept, "cloned/code.py") == "x = 1"
    assert (inner / ".git").is_dir(), "its history is not ours to delete"


async def test_line_ends_that_a_repository_contradicts_itself_about(tmp_path: Path, ground: Ground) -> None:
    remote = Remote(tmp_path / "crlf")
    (remote.folder / "w.txt").write_bytes(b"one\r\ntwo\r\n")
    remote.commit({"x": "y\n"})
    (remote.folder / ".gitattributes").write_text("*.txt text\n")
    remote.git("add", ".gitattributes")
    remote.git("commit", "--quiet", "--message", "without renormalising")
    tree = await ground.worktree(remote, name="crlf")
    (tree.path / "w.txt").write_bytes(b"changed\n")
    await reset(tree, clock=ground.clock)
    assert (tree.path / "w.txt").read_bytes() == b"one\r\ntwo\r\n"
    os.utime(tree.path / "w.txt", (1, 1))
    await reset(tree, clock=ground.clock)
    assert (tree.path / "w.txt").read_bytes() == b"one\r\ntwo\r\n"


async def test_a_hash_that_is_not_there_or_not_what_was_recorded_changes_nothing(
    tree: Worktree, ground: Ground
) -> None:
    (tree.path / "a.txt").write_text("changed\n")
    with pytest.raises(BaseNotFound, match="verify"):
        await reset(tree, "a" * 40, clock=ground.clock)
    with pytest.raises(TreeMismatch, match="was recorded"):
        await reset(tree, tree.base, expected_tree="b" * 40, clock=ground.clock)
    with pytest.raises(InvalidInput, match="full commit hash"):
        await reset(tree, "main", clock=ground.clock)
    assert (tree.path / "a.txt").read_text() == "changed\n"
    assert await list_rescues(tree.clone, "wf") == []


async def test_rescues_made_in_the_same_instant_do_not_collide(tree: Worktree, ground: Ground) -> None:
    moment = ground.clock()
    for text in ("first\n", "second\n"):
        (tree.path / "a.txt").write_text(text)
        await reset(tree, clock=lambda: moment)
    first, second = await list_rescues(tree.clone, "wf")
    assert (show(tree, first.ref, "a.txt"), show(tree, second.ref, "a.txt")) == ("first", "second")


async def test_a_rescue_is_removed_when_somebody_says_so(tree: Worktree, ground: Ground) -> None:
    (tree.path / "a.txt").write_text("changed\n")
    await reset(tree, clock=ground.clock)
    (rescue,) = await list_rescues(tree.clone, "wf")
    for _ in range(2):
        await remove_rescue(tree.clone, "wf", rescue.name)
    assert await list_rescues(tree.clone, "wf") == []
    with pytest.raises(InvalidInput):
        await remove_rescue(tree.clone, "wf", "../../heads/main")


async def test_a_branch_that_is_gone_comes_back(tree: Worktree, ground: Ground) -> None:
    plain_git(tree.clone.repo, "update-ref", "-d", tree.ref)
    await reset(tree, clock=ground.clock)
    assert await tree.tip() == tree.base
    assert plain_git(tree.path, "status", "--short") == ""
