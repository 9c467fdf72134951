"""One clone per URL: made once, fetched into, shared by processes, noticed when damaged."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kingdom.gitops import (
    BaseNotFound,
    CloneBroken,
    CloneOptions,
    Clones,
    CommandFailed,
    GitRunner,
    LockBusy,
    RecordedCheckpoint,
    RemoteFailed,
    repository,
    reset,
    verify,
)
from kingdom.gitops.locks import locked, remove_stale_locks
from tests.support.repositories import Ground, Remote, plain_git
from tests.support.workshop import SOMEBODY

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    remote = Remote(tmp_path / "remote")
    remote.commit({"a.txt": "one\n"})
    return remote


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path / "ground")


async def test_it_is_cloned_once_and_fetched_afterwards(remote: Remote, ground: Ground) -> None:
    first = await ground.clones.ensure(remote.url)
    assert (first.made, first.fetched) == (True, True)
    later = remote.commit({"a.txt": "two\n"})
    assert await first.clone.resolve_base(None) != later
    second = await ground.clones.ensure(remote.url)
    assert (second.made, second.fetched) == (False, True)
    assert await second.clone.resolve_base(None) == later
    third = await ground.clones.ensure(remote.url, fetch=False)
    assert (third.made, third.fetched) == (False, False)


async def test_the_default_branch_is_the_remotes(remote: Remote, ground: Ground) -> None:
    remote.git("branch", "--move", "main", "트렁크")
    clone = await ground.clone(remote)
    assert await clone.default_branch() == "트렁크"
    assert await clone.resolve_base("트렁크") == await clone.resolve_base(None)


async def test_a_base_may_be_a_branch_a_tag_a_ref_or_a_commit(remote: Remote, ground: Ground) -> None:
    first = remote.git("rev-parse", "HEAD")
    remote.git("tag", "v1")
    remote.git("branch", "feature/x")
    remote.commit({"a.txt": "two\n"})
    clone = await ground.clone(remote)
    for base in ("v1", "feature/x", first, "refs/remotes/origin/feature/x"):
        assert await clone.resolve_base(base) == first
    with pytest.raises(BaseNotFound, match="no branch, tag or commit 'nothing'; its branches: feature/x, main"):
        await clone.resolve_base("nothing")


async def test_an_empty_repository_is_started_from_with_a_commit_without_files(tmp_path: Path, ground: Ground) -> None:
    empty = Remote(tmp_path / "empty")
    clone = await ground.clone(empty)
    assert await clone.default_branch() is None
    start = await clone.resolve_base(None)
    assert await clone.resolve_base(None) == start
    assert (await clone.run("ls-tree", start)).text == ""
    commit = empty.commit({"a": "first\n"})
    assert await (await ground.clone(empty)).resolve_base(None) == commit


async def test_branches_that_the_remote_deleted_go_and_ours_stay(remote: Remote, ground: Ground) -> None:
    remote.git("branch", "gone")
    tree = await ground.worktree(remote)
    remote.git("branch", "--delete", "--force", "gone")
    remote.git("branch", "gone/deeper")
    clone = await ground.clone(remote)
    assert sorted(await clone.refs("refs/remotes/origin/")) == [
        "refs/remotes/origin/HEAD",
        "refs/remotes/origin/gone/deeper",
        "refs/remotes/origin/main",
    ]
    assert await tree.tip() == tree.base


async def test_depth_and_partial_clones(remote: Remote, ground: Ground, tmp_path: Path) -> None:
    for number in range(3):
        remote.commit({"a.txt": f"{number}\n"})
    remote.git("config", "uploadpack.allowFilter", "true")
    url = f"file://{remote.folder}"
    shallow = (await ground.clones.ensure(url, CloneOptions(depth=1))).clone
    assert (await shallow.run("rev-list", "--count", "refs/remotes/origin/main")).text == "1"
    assert not (await ground.clones.ensure(url)).made

    partial = Ground(tmp_path / "partial")
    clone = (await partial.clones.ensure(url, CloneOptions(partial="blob:none"))).clone
    words = ("rev-list", "--objects", "--missing=print", "refs/remotes/origin/main")
    assert "?" in (await clone.run(*words)).text, "blobs were fetched although they were to be left out"
    found = partial.clones.find(url)
    tree = await partial.worktrees.create(found, "wf", "app")
    assert (tree.path / "a.txt").read_text() == "2\n"


async def test_repositories_with_long_hashes(tmp_path: Path, ground: Ground) -> None:
    remote = Remote(tmp_path / "wide", "--object-format=sha256")
    remote.commit({"a.txt": "one\n"})
    tree = await ground.worktree(remote)
    (tree.path / "a.txt").write_text("two\n")
    made = await ground.checkpoint(tree, "one")
    assert len(made.commit) == 64
    await reset(tree, clock=ground.clock)
    assert (tree.path / "a.txt").read_text() == "one\n"


async def test_a_url_with_spaces_and_letters_of_any_script(tmp_path: Path) -> None:
    remote = Remote(tmp_path / "저장소 one")
    remote.commit({"a.txt": "one\n"})
    ground = Ground(tmp_path / "작업 folder")
    tree = await ground.worktree(remote)
    assert (tree.path / "a.txt").read_text() == "one\n"


async def test_a_remote_that_is_not_there_leaves_nothing_behind(ground: Ground, tmp_path: Path) -> None:
    with pytest.raises(RemoteFailed, match="check the path") as caught:
        await ground.clones.ensure(str(tmp_path / "nowhere"))
    assert caught.value.code == 128
    remote = Remote(tmp_path / "nowhere")
    remote.commit({"a": "b"})
    ensured = await ground.clones.ensure(remote.url)
    assert ensured.made
    assert sorted(path.name for path in ensured.clone.folder.iterdir()) == ["clone.json", "control", "lock", "repo"]


async def test_a_remote_that_went_away_says_so_and_the_clone_stays(remote: Remote, ground: Ground) -> None:
    clone = await ground.clone(remote)
    shutil.rmtree(remote.folder)
    with pytest.raises(RemoteFailed):
        await ground.clones.ensure(remote.url)
    assert await (await ground.clones.ensure(remote.url, fetch=False)).clone.resolve_base(None)
    assert clone.repo.is_dir()


ENSURE = """
import asyncio, sys
from pathlib import Path
from kingdom.gitops import Clones, GitRunner
ensured = asyncio.run(Clones(GitRunner(), Path(sys.argv[1]), allow_local=True).ensure(sys.argv[2]))
print("made" if ensured.made else "fetched")
"""


async def test_two_processes_at_once_make_one_clone(remote: Remote, ground: Ground) -> None:
    words = [sys.executable, "-c", ENSURE, str(ground.clones.folder), remote.url]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = sorted(process.communicate(timeout=60)[0].strip() for process in running)
    assert said == ["fetched", "fetched", "made"]
    assert [process.returncode for process in running] == [0, 0, 0]


async def test_a_deleted_clone_is_made_again(remote: Remote, ground: Ground) -> None:
    clone = await ground.clone(remote)
    shutil.rmtree(clone.folder)
    assert (await ground.clones.ensure(remote.url, fetch=False)).made


@pytest.mark.parametrize("part", ["HEAD", "objects", "refs"])
async def test_a_clone_that_lacks_a_part_is_made_again(part: str, remote: Remote, ground: Ground) -> None:
    clone = await ground.clone(remote)
    path = clone.repo / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    ensured = await ground.clones.ensure(remote.url, fetch=False)
    assert ensured.made
    assert ensured.broken is not None
    assert ensured.broken.exists()
    assert await ensured.clone.resolve_base(None) == remote.git("rev-parse", "HEAD")


@pytest.mark.parametrize("part", ["control", "control/config", "control/objects"])
async def test_our_own_part_of_a_clone_is_mended_in_place(part: str, remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    path = tree.clone.folder / part
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    ensured = await ground.clones.ensure(remote.url, fetch=False)
    assert (ensured.made, ensured.broken) == (False, None)
    (tree.path / "a.txt").write_text("two\n")
    assert (await ground.checkpoint(tree, "one")).tree


async def test_a_damaged_clone_is_made_again_and_keeps_its_checkpoints(remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    (tree.path / "a.txt").write_text("two\n")
    made = await ground.checkpoint(tree, "one")
    for pack in (tree.clone.repo / "objects" / "pack").iterdir():
        pack.chmod(0o600)
        pack.unlink()
    for loose in (tree.clone.repo / "objects").glob(f"{tree.base[:2]}/{tree.base[2:]}"):
        loose.chmod(0o600)
        loose.unlink()
    ensured = await ground.clones.ensure(remote.url, fetch=False)
    assert ensured.made
    assert ensured.lost == ()
    assert await verify(ensured.clone, [RecordedCheckpoint("wf", "one", made.commit, made.tree)], deep=True) == []
    assert await tree.tip() == made.commit
    (tree.path / "a.txt").write_text("three\n")
    await ground.checkpoint(tree, "two")
    assert plain_git(tree.path, "status", "--short") == ""


async def test_of_clones_that_were_damaged_one_after_the_other_the_last_one_counts(
    remote: Remote, ground: Ground
) -> None:
    tree = await ground.worktree(remote)
    one = await ground.checkpoint(tree, "one", {"a.txt": "two\n"})
    (tree.clone.repo / "HEAD").unlink()
    await ground.clones.ensure(remote.url)
    two = await ground.checkpoint(tree, "two", {"a.txt": "three\n"})
    await ground.checkpoints.remove(tree.clone, "wf", "one")
    lost = tree.clone.repo / "objects" / one.tree[:2] / one.tree[2:]  # still in the first of the damaged ones
    lost.chmod(0o600)
    lost.unlink()
    ensured = await ground.clones.ensure(remote.url, deep=True)
    assert (ensured.made, ensured.lost) == (True, ())
    assert await ground.checkpoints.list(ensured.clone, "wf") == {"two": two.commit}
    assert await tree.tip() == two.commit
    assert len(list(ensured.clone.folder.glob("broken-*.git"))) == 2


async def test_refs_of_a_damaged_clone_that_cannot_be_side_by_side_are_named(remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    made = await ground.checkpoint(tree, "one", {"a.txt": "two\n"})
    (tree.clone.repo / "packed-refs").write_text(f"{made.commit} refs/kingdom/a\n{made.commit} refs/kingdom/a/b\n")
    (tree.clone.repo / "HEAD").unlink()
    ensured = await ground.clones.ensure(remote.url)
    assert ensured.lost == ("refs/kingdom/a/b",)
    assert await ground.checkpoints.list(ensured.clone, "wf") == {"one": made.commit}


async def test_what_a_damaged_clone_lost_is_named(remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    (tree.path / "a.txt").write_text("two\n")
    made = await ground.checkpoint(tree, "one")
    lost = tree.clone.repo / "objects" / made.tree[:2] / made.tree[2:]
    lost.chmod(0o600)
    lost.unlink()
    assert not (await ground.clones.ensure(remote.url, fetch=False)).made, "a look at the refs does not find this"
    ensured = await ground.clones.ensure(remote.url, fetch=False, deep=True)
    assert ensured.lost == ("refs/heads/kingdom/wf/app", "refs/kingdom/checkpoints/wf/one")
    (problem,) = await verify(ensured.clone, [RecordedCheckpoint("wf", "one", made.commit, made.tree)])
    assert problem.what == f"the tree {made.tree} does not exist"


@pytest.fixture
def dying(tmp_path: Path) -> GitRunner:
    """A git that is killed when it has to look for objects, as by a system without memory."""
    program = tmp_path / "dying-git"
    program.write_text('#!/bin/sh\ncase " $* " in *" fsck "* | *" rev-list "*) kill -9 $$ ;; esac\nexec git "$@"\n')
    program.chmod(0o755)
    return GitRunner(str(program))


async def test_a_git_that_was_killed_says_nothing_about_the_clone(
    remote: Remote, ground: Ground, dying: GitRunner
) -> None:
    tree = await ground.worktree(remote)
    made = await ground.checkpoint(tree, "one", {"a.txt": "two\n"})
    other = Ground(ground.folder, dying)
    with pytest.raises(CommandFailed, match="exit code -9"):
        await other.clones.ensure(remote.url, deep=True)
    assert list(tree.clone.folder.glob("broken-*.git")) == []
    with pytest.raises(CommandFailed, match="exit code -9"):
        await verify(
            other.clones.find(remote.url), [RecordedCheckpoint("wf", "one", made.commit, made.tree)], deep=True
        )


async def test_nothing_of_a_damaged_clone_counts_as_lost_because_git_was_killed(
    remote: Remote, ground: Ground, dying: GitRunner
) -> None:
    tree = await ground.worktree(remote)
    made = await ground.checkpoint(tree, "one", {"a.txt": "two\n"})
    (tree.clone.repo / "HEAD").unlink()
    with pytest.raises(CloneBroken, match="exit code -9"):
        await Ground(ground.folder, dying).clones.ensure(remote.url)
    ensured = await ground.clones.ensure(remote.url)
    assert (ensured.made, ensured.lost) == (True, ())
    assert await ground.checkpoints.list(ensured.clone, "wf") == {"one": made.commit}


async def test_a_damaged_clone_whose_remote_is_gone_is_kept(remote: Remote, ground: Ground) -> None:
    clone = await ground.clone(remote)
    shutil.rmtree(clone.repo / "refs")
    remote.folder.rename(remote.folder.with_name("away"))
    with pytest.raises(CloneBroken, match="was moved to"):
        await ground.clones.ensure(remote.url)
    remote.folder.with_name("away").rename(remote.folder)
    assert (await ground.clones.ensure(remote.url)).made


async def test_a_removed_clone_may_be_removed_again(remote: Remote, ground: Ground) -> None:
    clone = await ground.clone(remote)
    await ground.clones.remove(remote.url)
    await ground.clones.remove(remote.url)
    assert not clone.folder.exists()


async def test_a_clone_that_somebody_else_holds_is_not_waited_for_for_ever(remote: Remote, tmp_path: Path) -> None:
    clones = Clones(GitRunner(), tmp_path / "clones", allow_local=True, lock_timeout=0.05)
    async with locked(clones.find(remote.url).folder / "lock", 1):
        with pytest.raises(LockBusy, match="another process"):
            await clones.ensure(remote.url)
    assert (await clones.ensure(remote.url)).made


# ── lock files that git left ──────────────────────────────────────────────────────────────────────────────────


async def test_a_lock_of_a_dead_process_is_cleared_when_it_is_in_the_way(remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    left = [
        tree.clone.repo / "refs/heads/kingdom/wf/app.lock",
        tree.clone.repo / "refs/kingdom/pending/wf/one.lock",
        tree.admin / "index.lock",
        tree.admin / "HEAD.lock",
    ]
    for lock in left:
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
    (tree.path / "a.txt").write_text("two\n")
    made = await ground.checkpoint(tree, "one")
    assert await tree.tip() == made.commit
    assert [lock for lock in left if lock.exists()] == []


async def test_locks_of_a_fetch_that_was_killed_do_not_keep_the_next_from_its_work(
    remote: Remote, ground: Ground
) -> None:
    for name in ("one", "two", "gone"):
        remote.git("branch", name)
    clone = await ground.clone(remote)
    remote.git("branch", "--delete", "gone")
    newest = remote.commit({"a.txt": "new\n"})
    for name in ("one", "two"):
        remote.git("branch", "--force", name, newest)
    left = [clone.repo / "packed-refs.lock", clone.repo / "packed-refs.new"]
    left += [clone.repo / f"refs/remotes/origin/{name}.lock" for name in ("main", "one", "two")]
    for lock in left:
        lock.touch()
    await ground.clones.ensure(remote.url)
    assert [await clone.resolve_base(name) for name in ("main", "one", "two")] == [newest] * 3
    assert "refs/remotes/origin/gone" not in await clone.refs("refs/remotes/origin/")
    assert [lock for lock in left if lock.exists()] == []


async def test_locks_are_cleared_at_start(remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    left = [tree.admin / "index.lock", tree.clone.repo / "packed-refs.lock", tree.clone.repo / "refs/heads/x.lock"]
    for lock in left:
        lock.touch()
    assert sorted((await ground.worktrees.prune()).locks) == sorted(left)


def test_a_lock_that_somebody_has_open_stays(tmp_path: Path) -> None:
    lock = tmp_path / "index.lock"
    with lock.open("w"):
        assert remove_stale_locks([lock], [tmp_path]) == []
    assert remove_stale_locks([lock], [tmp_path]) == [lock]


async def test_a_lock_stays_while_a_git_is_at_work_in_the_repository(remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    lock = tree.admin / "index.lock"
    lock.touch()
    command = ["git", "cat-file", "--batch"]  # it waits for its input, in the worktree
    with subprocess.Popen(command, cwd=tree.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as working:
        assert working.stdin is not None
        assert working.stdout is not None
        working.stdin.write(b"HEAD\n")
        working.stdin.flush()
        working.stdout.readline()
        assert remove_stale_locks([lock], [tree.path, tree.clone.folder]) == []
        working.stdin.close()
        working.stdout.read()
    assert remove_stale_locks([lock], [tree.path, tree.clone.folder]) == [lock]


async def test_a_ref_whose_lock_is_in_use_is_an_error_and_the_lock_stays(remote: Remote, ground: Ground) -> None:
    tree = await ground.worktree(remote)
    lock = tree.clone.repo / "refs/kingdom/pending/wf/one.lock"
    lock.parent.mkdir(parents=True)
    fd = os.open(lock, os.O_CREAT | os.O_WRONLY)
    try:
        with pytest.raises(CommandFailed, match="File exists"):
            await ground.checkpoint(tree, "one")
    finally:
        os.close(fd)
    assert lock.exists()


async def test_a_lock_whose_file_was_deleted_is_taken_on_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    async with locked(path, 1):
        waiting = asyncio.create_task(_hold(path))
        await asyncio.sleep(0)
        shutil.rmtree(path.parent)
    assert await waiting


async def _hold(path: Path) -> bool:
    async with locked(path, 5):
        return path.exists()


async def test_many_loose_objects_are_packed_and_none_is_lost(
    remote: Remote, ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = await ground.clone(remote)
    files = [tmp_path / str(number) for number in range(3000)]
    for file in files:
        file.write_text(file.name)
    named = "\n".join(map(str, files)).encode()
    blobs = (await clone.run("hash-object", "-w", "--stdin-paths", stdin=named)).text.splitlines()
    tree = (await clone.run("mktree", stdin="".join(f"100644 blob {blob}\t{blob}\n" for blob in blobs).encode())).text
    assert not await clone.pack(), "these are not many"
    commit = (await clone.run("commit-tree", "-m", "Many", tree, environment=SOMEBODY)).text
    await clone.update_refs([f"create refs/heads/many {commit}"])
    (unreachable,) = (await clone.run("hash-object", "-w", "--stdin", stdin=b"nobody has this")).text.splitlines()
    monkeypatch.setattr(repository, "_MANY_LOOSE_OBJECTS", 256)
    assert await clone.pack()
    loose = [path for path in (clone.repo / "objects").glob("??/*") if path.is_file()]
    assert [path.parent.name + path.name for path in loose] == [unreachable]
    assert await clone.missing_objects(commit) == ""
    assert not await clone.pack()
