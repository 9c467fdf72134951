"""Looking at checkpoints: what changed, which commits, and whether all is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.gitops import InvalidInput, RecordedCheckpoint, Worktree, diff, log, verify
from tests.support.repositories import Ground, Remote, plain_git

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    remote = Remote(tmp_path / "remote")
    remote.commit({"a.txt": "one\ntwo\nthree\n", "b.txt": "1\n2\n3\n4\n5\n6\n", "c.txt": "c\n"})
    return remote


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path / "ground")


@pytest.fixture
async def tree(remote: Remote, ground: Ground) -> Worktree:
    return await ground.worktree(remote)


async def test_a_diff_says_what_happened_to_each_file(tree: Worktree, ground: Ground) -> None:
    (tree.path / "a.txt").write_text("one\nTWO\nthree\nfour\n")
    (tree.path / "b.txt").rename(tree.path / "renamed b.txt")
    (tree.path / "c.txt").unlink()
    (tree.path / "c.txt").symlink_to("a.txt")
    (tree.path / "image").write_bytes(b"\0\1\2" * 100)
    made = await ground.checkpoint(tree, "one")
    files = {file.path: file for file in await diff(tree.clone, tree.base, made.commit, patches=True)}
    assert {path: file.status for path, file in files.items()} == {
        "a.txt": "modified",
        "c.txt": "type changed",
        "image": "added",
        "renamed b.txt": "renamed",
    }
    assert (files["a.txt"].added, files["a.txt"].removed) == (2, 1)
    assert "-two\n+TWO\n" in (files["a.txt"].patch or "")
    assert files["renamed b.txt"].old_path == "b.txt"
    assert "rename from b.txt" in (files["renamed b.txt"].patch or "")
    assert (files["c.txt"].old_mode, files["c.txt"].new_mode) == ("100644", "120000")
    assert files["image"].binary
    assert files["image"].patch is None
    assert all(file.patch is None for file in await diff(tree.clone, tree.base, made.commit))
    assert await diff(tree.clone, made.commit, made.commit) == []


async def test_a_long_patch_is_cut_and_says_so(tree: Worktree, ground: Ground) -> None:
    (tree.path / "long.txt").write_text("a line\n" * 100_000)
    made = await ground.checkpoint(tree, "one")
    (file,) = await diff(tree.clone, tree.base, made.commit, patches=True, max_patch=1000)
    assert file.truncated
    assert len(file.patch or "") == 1000
    assert file.added == 100_000


@pytest.mark.parametrize("bad", ["HEAD", "--output=x", "main", ""])
async def test_only_hashes_are_compared(bad: str, tree: Worktree) -> None:
    with pytest.raises(InvalidInput):
        await diff(tree.clone, bad, tree.base)
    with pytest.raises(InvalidInput):
        await log(tree.clone, None, bad)


async def test_the_log_has_messages_of_any_kind(tree: Worktree, ground: Ground) -> None:
    plain_git(
        tree.path, "commit", "--quiet", "--allow-empty", "--message", "제목\n\nbody with | and\ttabs\n\nlast: line"
    )
    made = await ground.checkpoint(tree, "one")
    newest, agents = await log(tree.clone, tree.base, made.commit)
    assert newest.hash == made.commit
    assert agents.title == "제목"
    assert "body with | and\ttabs" in agents.message
    assert agents.author == "Somebody"
    assert [commit.hash for commit in await log(tree.clone, None, made.commit, limit=1)] == [made.commit]
    assert len(await log(tree.clone, None, made.commit)) == 3
    with pytest.raises(InvalidInput, match="limit 0"):
        await log(tree.clone, None, made.commit, limit=0)


async def test_verifying_finds_each_kind_of_loss(tree: Worktree, ground: Ground) -> None:
    made = {}
    for number, name in enumerate(["good", "unpinned", "moved"]):
        (tree.path / "a.txt").write_text(f"{number}\n")
        made[name] = await ground.checkpoint(tree, name)
    plain_git(tree.clone.repo, "update-ref", "-d", "refs/kingdom/checkpoints/wf/unpinned")
    plain_git(tree.clone.repo, "update-ref", "refs/kingdom/checkpoints/wf/moved", made["good"].commit)
    records = [RecordedCheckpoint("wf", name, commit.commit, commit.tree) for name, commit in made.items()]
    records.append(RecordedCheckpoint("wf", "gone", "a" * 40, made["good"].tree))
    records.append(RecordedCheckpoint("wf", "good", made["good"].commit, made["moved"].tree))
    problems = await verify(tree.clone, records)
    assert [(problem.recorded.checkpoint, problem.what) for problem in problems] == [
        ("unpinned", "refs/kingdom/checkpoints/wf/unpinned does not hold the commit: there is no such ref"),
        ("moved", f"refs/kingdom/checkpoints/wf/moved does not hold the commit: it is at {made['good'].commit}"),
        ("gone", f"commit {'a' * 40} does not exist"),
        ("good", f"its tree is {made['good'].tree}, and {made['moved'].tree} was recorded"),
    ]
    assert await verify(tree.clone, []) == []


async def test_a_deep_look_finds_a_lost_file(tree: Worktree, ground: Ground) -> None:
    (tree.path / "a.txt").write_text("to be lost\n")
    made = await ground.checkpoint(tree, "one")
    blob = plain_git(tree.clone.repo, "rev-parse", f"{made.commit}:a.txt")
    path = tree.clone.repo / "objects" / blob[:2] / blob[2:]
    path.chmod(0o600)
    path.unlink()
    record = RecordedCheckpoint("wf", "one", made.commit, made.tree)
    assert await verify(tree.clone, [record]) == []
    (problem,) = await verify(tree.clone, [record], deep=True)
    assert problem.what.startswith("not all of it is there")


# ── merging ───────────────────────────────────────────────────────────────────────────────────────────────────
