"""Checkpoints: everything a Work left, in a commit that nothing loses; of several repositories all or nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kingdom.gitops import (
    CheckpointCommit,
    CheckpointConflict,
    CheckpointMark,
    CommandFailed,
    GitError,
    GitRunner,
    InvalidInput,
    RecordedCheckpoint,
    Worktree,
    diff,
    log,
    reset,
    verify,
)
from kingdom.gitops.runner import GitLocation, GitResult
from tests.support.repositories import Ground, Remote, plain_git

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    remote = Remote(tmp_path / "remote")
    remote.commit(
        {"a.txt": "one\n", "dir/b.txt": "two\n", "moved.txt": "some\nlines\nto\nrecognise\n", ".gitignore": "*.log\n"}
    )
    return remote


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path / "ground")


@pytest.fixture
async def tree(remote: Remote, ground: Ground) -> Worktree:
    return await ground.worktree(remote)


def listed(tree: Worktree, commit: str) -> dict[str, str]:
    """The files of a commit with their modes."""
    lines = plain_git(tree.clone.repo, "-c", "core.quotePath=false", "ls-tree", "-r", commit).splitlines()
    return {line.partition("\t")[2]: line.split()[0] for line in lines}


class CountingGit(GitRunner):
    """Notes the commands it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[str] = []

    async def _run(self, place: GitLocation, words: Sequence[str], *more: Any) -> GitResult:
        self.commands.append(words[0])
        return await super()._run(place, words, *more)


async def test_it_takes_few_calls_of_git(remote: Remote, tmp_path: Path) -> None:
    git = CountingGit()
    ground = Ground(tmp_path / "ground", git)
    tree = await ground.worktree(remote)
    git.commands.clear()
    await ground.checkpoint(tree, "one", {"new.txt": "new\n"})
    files, commit = ["ls-files", "update-index", "write-tree"], ["commit-tree", "update-ref"]
    assert git.commands == ["cat-file", *files, *commit, "cat-file", "update-ref"]


async def test_it_has_everything_that_was_left(tree: Worktree, ground: Ground) -> None:
    (tree.path / "a.txt").write_text("changed\n")
    (tree.path / "new.txt").write_text("new\n")
    (tree.path / "dir" / "b.txt").unlink()
    (tree.path / "moved.txt").rename(tree.path / "dir" / "there.txt")
    (tree.path / "run.sh").write_text("#!/bin/sh\n")
    (tree.path / "run.sh").chmod(0o755)
    (tree.path / "link").symlink_to("a.txt")
    (tree.path / "dangling").symlink_to("/nowhere")
    (tree.path / "noise.log").write_text("ignored\n")
    (tree.path / "empty").mkdir()
    os.mkfifo(tree.path / "pipe")
    made = await ground.checkpoint(tree, "one")
    assert listed(tree, made.commit) == {
        ".gitignore": "100644",
        "a.txt": "100644",
        "dangling": "120000",
        "dir/there.txt": "100644",
        "link": "120000",
        "new.txt": "100644",
        "run.sh": "100755",
    }
    found = {file.path: file.status for file in await diff(tree.clone, tree.base, made.commit)}
    assert found == {
        "a.txt": "modified",
        "dangling": "added",
        "dir/b.txt": "deleted",
        "dir/there.txt": "renamed",
        "link": "added",
        "new.txt": "added",
        "run.sh": "added",
    }
    assert plain_git(tree.path, "status", "--short") == ""
    assert (tree.path / "noise.log").exists()


ODD = ["with space.txt", "한국어/파일.txt", "-rf", "--output=x", ":(top)x", "a\nb", 'quo"te', "*.txt", "tab\there", "é"]


async def test_names_of_files_may_be_anything(tree: Worktree, ground: Ground) -> None:
    for name in ODD:
        path = tree.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    Path(os.fsdecode(os.fsencode(tree.path) + b"/not-utf8-\xff")).write_text("bytes")
    made = await ground.checkpoint(tree, "one")
    names = plain_git(tree.clone.repo, "ls-tree", "-r", "-z", "--name-only", made.commit)
    assert set(ODD) <= set(names.split("\0"))
    found = {file.path: file for file in await diff(tree.clone, tree.base, made.commit, patches=True)}
    assert set(ODD) <= set(found)
    assert all("+" in (found[name].patch or "") for name in ODD)
    assert os.fsdecode(b"not-utf8-\xff") in found
    await reset(tree, clock=ground.clock)
    assert sorted(path.name for path in tree.path.iterdir()) == [".git", ".gitignore", "a.txt", "dir", "moved.txt"]
    await reset(tree, made.commit, clock=ground.clock)
    assert all((tree.path / name).read_text() == name for name in ODD)


async def test_a_change_of_kind_is_followed(tree: Worktree, ground: Ground) -> None:
    (tree.path / "a.txt").unlink()
    (tree.path / "a.txt").mkdir()
    (tree.path / "a.txt" / "inside").write_text("x\n")
    shutil.rmtree(tree.path / "dir")
    (tree.path / "dir").write_text("a file now\n")
    (tree.path / "moved.txt").unlink()
    os.mkfifo(tree.path / "moved.txt")
    made = await ground.checkpoint(tree, "one")
    assert sorted(listed(tree, made.commit)) == [".gitignore", "a.txt/inside", "dir"]


async def test_a_change_of_the_same_size_in_the_same_second_is_seen(tree: Worktree, ground: Ground) -> None:
    path = tree.path / "a.txt"
    for number in range(10):
        path.write_text(f"{number}\n")
        made = await ground.checkpoint(tree, f"cp-{number}")
        assert plain_git(tree.clone.repo, "show", f"{made.commit}:a.txt") == str(number)
        path.write_text("x\n")
        assert plain_git(tree.path, "status", "--short").strip() == "M a.txt"


async def test_each_work_has_one_also_when_nothing_changed(tree: Worktree, ground: Ground) -> None:
    one = await ground.checkpoint(tree, "one")
    two = await ground.checkpoint(tree, "two")
    assert one.commit != two.commit
    assert one.tree == two.tree
    assert await ground.checkpoints.list(tree.clone, "wf") == {"one": one.commit, "two": two.commit}


async def test_its_commit_says_who_when_and_for_what(tree: Worktree, ground: Ground) -> None:
    mark = CheckpointMark("wf", "cp-1", "work-7", 3, title="Tests for the parser")
    (made,) = await ground.checkpoints.create([tree], mark)
    (commit,) = await log(tree.clone, tree.base, made.commit)
    assert (commit.title, commit.author, commit.email) == ("Tests for the parser", "Kingdom", "kingdom@example.com")
    assert commit.at.isoformat() == "2026-01-31T12:00:00+00:00"
    assert plain_git(tree.clone.repo, "log", "-1", "--format=%(trailers:only)", made.commit).splitlines() == [
        "Kingdom-Workflow: wf",
        "Kingdom-Work: work-7",
        "Kingdom-Attempt: 3",
        "Kingdom-Checkpoint: cp-1",
        "Kingdom-Worktree: app",
        f"Kingdom-Previous: {tree.base}",
    ]
    assert commit.parents == (tree.base,)


async def test_commits_that_an_agent_made_are_below_it(tree: Worktree, ground: Ground) -> None:
    (tree.path / "a.txt").write_text("by the agent\n")
    plain_git(tree.path, "commit", "--quiet", "--all", "--message", "by the agent")
    (tree.path / "a.txt").write_text("and more\n")
    made = await ground.checkpoint(tree, "one")
    assert [commit.title for commit in await log(tree.clone, tree.base, made.commit)] == [
        "Checkpoint one after work work-one",
        "by the agent",
    ]


@pytest.mark.parametrize("how", [["checkout", "--quiet", "--detach"], ["checkout", "--quiet", "-b", "elsewhere"]])
async def test_commits_beside_the_branch_are_joined_to_it(how: list[str], tree: Worktree, ground: Ground) -> None:
    plain_git(tree.path, *how)
    plain_git(tree.path, "commit", "--quiet", "--allow-empty", "--message", "beside")
    beside = plain_git(tree.path, "rev-parse", "HEAD")
    made = await ground.checkpoint(tree, "one")
    assert await tree.clone.is_ancestor(beside, made.commit)
    assert plain_git(tree.path, "symbolic-ref", "HEAD") == tree.ref
    assert plain_git(tree.path, "rev-parse", "HEAD") == made.commit


async def test_a_branch_that_an_agent_rewrote_loses_no_earlier_checkpoint(tree: Worktree, ground: Ground) -> None:
    (tree.path / "a.txt").write_text("first\n")
    one = await ground.checkpoint(tree, "one")
    plain_git(tree.path, "reset", "--quiet", "--hard", tree.base)
    (tree.path / "a.txt").write_text("second\n")
    two = await ground.checkpoint(tree, "two")
    plain_git(tree.path, "reflog", "expire", "--expire=now", "--all")
    plain_git(tree.clone.repo, "gc", "--quiet", "--prune=now")
    records = [RecordedCheckpoint("wf", name, made.commit, made.tree) for name, made in (("one", one), ("two", two))]
    assert await verify(tree.clone, records, deep=True) == []


async def test_an_unfinished_merge_of_an_agent_does_not_stop_it(tree: Worktree, ground: Ground) -> None:
    plain_git(tree.path, "checkout", "--quiet", "-b", "side")
    (tree.path / "a.txt").write_text("side\n")
    plain_git(tree.path, "commit", "--quiet", "--all", "--message", "side")
    plain_git(tree.path, "checkout", "--quiet", tree.branch)
    (tree.path / "a.txt").write_text("ours\n")
    plain_git(tree.path, "commit", "--quiet", "--all", "--message", "ours")
    plain_git(tree.path, "merge", "side", check=False)
    assert "<<<<<<<" in (tree.path / "a.txt").read_text()
    made = await ground.checkpoint(tree, "one")
    assert "<<<<<<<" in plain_git(tree.clone.repo, "show", f"{made.commit}:a.txt")
    assert plain_git(tree.path, "status", "--short") == ""


async def test_a_nested_repository_is_kept_as_files(tree: Worktree, ground: Ground) -> None:
    inner = tree.path / "cloned"
    inner.mkdir()
    plain_git(inner, "init", "--quiet")
    (inner / "code.py").write_text("x = 1\n")
    (inner / "noise.log").write_text("ignored\n")
    made = await ground.checkpoint(tree, "one")
    assert [path for path in listed(tree, made.commit) if path.startswith("cloned")] == ["cloned/code.py"]
    (inner / "more.py").write_text("y = 2\n")
    two = await ground.checkpoint(tree, "two")
    assert [file.path for file in await diff(tree.clone, made.commit, two.commit)] == ["cloned/more.py"]


async def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, remote: Remote) -> None:
    git = tmp_path / "git-without-override"
    # Root reads everything, unless the capability to do so is taken from it.
    drop = "setpriv --bounding-set=-dac_override,-dac_read_search " if os.geteuid() == 0 else ""
    git.write_text(f'#!/bin/sh\nexec {drop}{shutil.which("git")} "$@"\n')
    git.chmod(0o755)
    ground = Ground(tmp_path / "unprivileged", GitRunner(str(git)))
    tree = await ground.worktree(remote)
    (tree.path / "secret").write_text("x")
    (tree.path / "secret").chmod(0)
    with pytest.raises(CommandFailed, match="secret"):
        await ground.checkpoint(tree, "one")


async def test_the_same_checkpoint_twice_is_one(tree: Worktree, ground: Ground) -> None:
    one = await ground.checkpoint(tree, "one")
    (tree.path / "a.txt").write_text("later\n")
    assert await ground.checkpoint(tree, "one") == one
    assert await tree.tip() == one.commit


async def test_a_name_that_was_used_for_another_attempt_is_refused(tree: Worktree, ground: Ground) -> None:
    await ground.checkpoints.create([tree], CheckpointMark("wf", "one", "work", 1))
    with pytest.raises(CheckpointConflict, match="Kingdom-Attempt"):
        await ground.checkpoints.create([tree], CheckpointMark("wf", "one", "work", 2))


async def test_a_removed_checkpoint_may_be_removed_again(tree: Worktree, ground: Ground) -> None:
    await ground.checkpoint(tree, "one")
    await ground.checkpoints.remove(tree.clone, "wf", "one")
    await ground.checkpoints.remove(tree.clone, "wf", "one")
    assert await ground.checkpoints.list(tree.clone, "wf") == {}


# ── several repositories ──────────────────────────────────────────────────────────────────────────────────────

MARK = CheckpointMark("wf", "cp", "work")


@pytest.fixture
async def pair(tmp_path: Path, remote: Remote, ground: Ground, tree: Worktree) -> list[Worktree]:
    second = Remote(tmp_path / "second")
    second.commit({"z.txt": "z\n"})
    other = await ground.worktree(second, name="lib")
    (tree.path / "a.txt").write_text("changed\n")
    (other.path / "z.txt").write_text("changed\n")
    return [tree, other]


async def test_preparing_moves_no_branch_and_touches_no_file(pair: list[Worktree], ground: Ground) -> None:
    made = await ground.checkpoints.prepare(pair, MARK)
    assert [commit.worktree for commit in made] == ["app", "lib"]
    for tree, commit in zip(pair, made, strict=True):
        assert await tree.tip() == tree.base
        assert await ground.checkpoints.list(tree.clone, "wf") == {}
        assert await ground.checkpoints.pending(tree.clone, "wf") == {"cp": commit.commit}
        assert plain_git(tree.path, "status", "--short").strip().startswith("M")
    await ground.checkpoints.complete(pair, MARK, made)
    for tree, commit in zip(pair, made, strict=True):
        assert await tree.tip() == commit.commit
        assert await ground.checkpoints.list(tree.clone, "wf") == {"cp": commit.commit}
        assert await ground.checkpoints.pending(tree.clone, "wf") == {}
        assert plain_git(tree.path, "status", "--short") == ""


async def test_when_one_repository_fails_none_has_it(pair: list[Worktree], ground: Ground) -> None:
    objects = pair[1].clone.repo / "objects"
    objects.rename(objects.with_name("hidden"))
    with pytest.raises(GitError):
        await ground.checkpoints.create(pair, MARK)
    objects.with_name("hidden").rename(objects)
    for tree in pair:
        assert await tree.tip() == tree.base
        assert await tree.clone.refs("refs/kingdom/") == {}
    assert len(await ground.checkpoints.create(pair, MARK)) == 2


async def test_completing_may_be_repeated_at_any_time(pair: list[Worktree], ground: Ground) -> None:
    made = await ground.checkpoints.prepare(pair, MARK)
    stored = [CheckpointCommit.from_dict(commit.to_dict()) for commit in made]
    for _ in range(2):
        await ground.checkpoints.complete(pair, MARK, stored)
    (pair[0].path / "a.txt").write_text("later\n")
    (later,) = await ground.checkpoints.create(pair[:1], CheckpointMark("wf", "later", "work"))
    await ground.checkpoints.complete(pair, MARK, stored)
    assert await pair[0].tip() == later.commit


async def test_undoing_takes_back_what_was_half_done(pair: list[Worktree], ground: Ground) -> None:
    made = await ground.checkpoints.prepare(pair, MARK)
    await ground.checkpoints.complete(pair[:1], MARK, made[:1])
    for _ in range(2):
        await ground.checkpoints.undo(pair, MARK)
    for tree in pair:
        assert await tree.tip() == tree.base
        assert await tree.clone.refs("refs/kingdom/") == {}
        plain_git(tree.clone.repo, "gc", "--quiet", "--prune=now")
    assert (pair[0].path / "a.txt").read_text() == "changed\n"
    again = await ground.checkpoints.create(pair, MARK)
    for tree, commit in zip(pair, again, strict=True):
        assert await verify(tree.clone, [RecordedCheckpoint("wf", "cp", commit.commit, commit.tree)], deep=True) == []


async def test_a_branch_that_moved_meanwhile_is_not_overwritten(tree: Worktree, ground: Ground) -> None:
    made = await ground.checkpoints.prepare([tree], MARK)
    plain_git(tree.path, "commit", "--quiet", "--allow-empty", "--message", "late")
    late = plain_git(tree.path, "rev-parse", "HEAD")
    with pytest.raises(CheckpointConflict, match="still at work"):
        await ground.checkpoints.complete([tree], MARK, made)
    assert await tree.tip() == late


async def test_what_cannot_be_one_checkpoint_is_refused(tree: Worktree, ground: Ground) -> None:
    twin = await ground.worktrees.create(tree.clone, "wf", "twin")
    other = await ground.worktrees.create(tree.clone, "other", "app")
    with pytest.raises(InvalidInput, match="one clone"):
        await ground.checkpoints.create([tree, twin], MARK)
    with pytest.raises(InvalidInput, match="not one of workflow"):
        await ground.checkpoints.create([other], MARK)
    with pytest.raises(InvalidInput, match="no worktree"):
        await ground.checkpoints.create([], MARK)
    made = await ground.checkpoints.prepare([tree], MARK)
    with pytest.raises(InvalidInput, match="not those of the worktrees"):
        await ground.checkpoints.complete([twin], MARK, made)
