"""What is landed of a branch: a history people accept, and pushes that never lose what others did."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kingdom.gitops import Clone, Commit, InvalidInput, Worktree, merge
from kingdom.gitops.errors import LandingRefused
from kingdom.gitops.landing import (
    LandedHistory,
    Squash,
    bring_into,
    landed_history,
    patch_series,
    push_branch,
    remote_branch,
    remote_of_checkout,
)
from kingdom.gitops.names import check_url
from tests.support.repositories import Ground, Remote, on_disk, plain_git


class Branch:
    """A worktree with some checkpoints, and a bare repository that is pushed to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ground = Ground(folder / "home")
        self.source = Remote(folder / "source")
        self.source.commit({"README.md": "one\n"})
        self.bare = folder / "bare.git"

    async def open(self) -> Branch:
        plain_git(self.folder, "clone", "--quiet", "--bare", str(self.source.folder), str(self.bare))
        self.tree: Worktree = await self.ground.worktree(self.source)
        self.clone: Clone = self.tree.clone
        self.url = check_url(str(self.bare), allow_local=True)
        return self

    async def history(self, squash: Squash = "work") -> LandedHistory:
        tip = await self.tree.tip()
        assert tip is not None
        return await landed_history(self.clone, self.tree.base, tip, describe, self.ground.identity, squash)

    def log(self, history: LandedHistory) -> list[str]:
        shown = plain_git(self.clone.repo, "log", "--reverse", "--format=%s", f"{history.base}..{history.tip}")
        return shown.splitlines()

    def agent_commits(self, name: str, message: str) -> None:
        (self.tree.path / name).write_text(f"{name}\n")
        plain_git(self.tree.path, "add", "--all")
        plain_git(self.tree.path, "commit", "--quiet", "--message", message)


def describe(commits: Sequence[Commit]) -> str:
    named = [commit.trailers.get("Kingdom-Checkpoint", commit.title) for commit in commits]
    return " + ".join(named) + "\n"


@pytest.fixture
async def branch(tmp_path: Path) -> Branch:
    return await Branch(tmp_path).open()


async def test_each_checkpoint_that_changed_something_is_one_commit(branch: Branch) -> None:
    await branch.ground.checkpoint(branch.tree, "first", {"a": "1"})
    await branch.ground.checkpoint(branch.tree, "nothing")
    branch.agent_commits("b", "Add b")
    branch.agent_commits("c", "Add c")
    await branch.ground.checkpoint(branch.tree, "second", {"d": "1"})
    made = await branch.history()
    assert (branch.log(made), made.commits) == (["first", "Add b + Add c + second"], 2)
    tip = await branch.tree.tip()
    assert tip is not None
    assert await branch.clone.tree_of(made.tip) == await branch.clone.tree_of(tip)


async def test_landing_again_gives_the_same_commits_and_a_new_work_adds_one(branch: Branch) -> None:
    await branch.ground.checkpoint(branch.tree, "first", {"a": "1"})
    once = await branch.history()
    assert await branch.history() == once
    await branch.ground.checkpoint(branch.tree, "second", {"a": "2"})
    more = await branch.history()
    assert await branch.clone.is_ancestor(once.tip, more.tip)
    assert branch.log(more) == ["first", "second"]


@pytest.mark.parametrize(("squash", "log"), [("all", ["first + second"]), ("none", ["Checkpoint first", "Checkpoint"])])
async def test_everything_is_one_commit_or_as_it_is(branch: Branch, squash: Squash, log: list[str]) -> None:
    await branch.ground.checkpoint(branch.tree, "first", {"a": "1"})
    await branch.ground.checkpoint(branch.tree, "second", {"a": "2"})
    made = await branch.history(squash)
    found = branch.log(made)
    assert len(found) == made.commits == len(log)
    assert all(line.startswith(wanted) for line, wanted in zip(found, log, strict=True))


async def test_nothing_is_landed_of_a_branch_that_ends_as_it_began(branch: Branch) -> None:
    await branch.ground.checkpoint(branch.tree, "nothing")
    for squash in ("work", "all", "none"):
        assert (await branch.history(squash)).empty


@pytest.mark.parametrize("squash", ["work", "all"])
async def test_what_was_merged_from_the_remote_is_not_landed_again(branch: Branch, squash: Squash) -> None:
    await branch.ground.checkpoint(branch.tree, "first", {"a": "1"})
    theirs = branch.source.commit({"theirs": "1"}, "Theirs")
    await branch.ground.clone(branch.source)  # fetches
    await merge(branch.tree, theirs, clock=branch.ground.clock)
    await branch.ground.checkpoint(branch.tree, "second", {"b": "1"})
    made = await branch.history(squash)
    assert await branch.clone.is_ancestor(theirs, made.tip)
    mine = plain_git(branch.clone.repo, "log", "--format=%s", "--no-merges", made.tip, f"^{theirs}").splitlines()
    assert mine == (["second", "first"] if squash == "work" else ["first + second"])


async def test_a_push_moves_only_what_is_ours(branch: Branch) -> None:
    await branch.ground.checkpoint(branch.tree, "first", {"a": "1"})
    made = await branch.history()
    await push_branch(branch.clone, branch.url, made.tip, "ours", None)
    assert await remote_branch(branch.clone, branch.url, "ours") == made.tip
    assert await remote_branch(branch.clone, branch.url, "none") is None
    with pytest.raises(LandingRefused, match=r"the branch ours has commits of others .* update-base"):
        await push_branch(branch.clone, branch.url, (await branch.history("none")).tip, "ours", made.base)
    theirs = branch.source.commit({"x": "1"})
    branch.source.git("push", "--quiet", str(branch.bare), f"{theirs}:refs/heads/theirs")
    with pytest.raises(LandingRefused, match="the branch theirs has commits of others"):
        await push_branch(branch.clone, branch.url, made.tip, "theirs", None)
    assert await remote_branch(branch.clone, branch.url, "theirs") == theirs


async def test_what_the_server_says_against_a_push_is_passed_on(branch: Branch) -> None:
    hook = branch.bare / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'GH006: Protected branch' >&2\nexit 1\n")
    hook.chmod(0o755)
    await branch.ground.checkpoint(branch.tree, "first", {"a": "1"})
    made = await branch.history()
    with pytest.raises(LandingRefused, match=r"refused: .*GH006: Protected branch.*--branch"):
        await push_branch(
            branch.clone, branch.url, made.tip, "main", await remote_branch(branch.clone, branch.url, "main")
        )


async def test_a_branch_comes_into_a_checkout_without_touching_its_files(branch: Branch) -> None:
    mine = branch.folder / "mine"
    plain_git(branch.folder, "clone", "--quiet", str(branch.source.folder), str(mine))
    (mine / "README.md").write_text("I work on this\n")
    before = on_disk(mine)
    await branch.ground.checkpoint(branch.tree, "first", {"a": "1"})
    made = await branch.history()
    await branch.clone.update_refs([f"update refs/kingdom/landed/wf/app {made.tip}"])
    await bring_into(branch.clone, mine, "refs/kingdom/landed/wf/app", "ours")
    assert plain_git(mine, "rev-parse", "ours") == made.tip
    assert (on_disk(mine), plain_git(mine, "branch", "--show-current")) == (before, "main")
    await bring_into(branch.clone, mine / ".git", "refs/kingdom/landed/wf/app", "ours")  # again, from inside
    plain_git(mine, "branch", "taken")
    plain_git(mine, "commit", "--quiet", "--allow-empty", "-am", "Mine")
    plain_git(mine, "branch", "--force", "taken")
    with pytest.raises(LandingRefused, match=r"taken in .* has commits of its own: .*--force"):
        await bring_into(branch.clone, mine, "refs/kingdom/landed/wf/app", "taken")
    await bring_into(branch.clone, mine, "refs/kingdom/landed/wf/app", "taken", force=True)
    assert plain_git(mine, "rev-parse", "taken") == made.tip
    with pytest.raises(LandingRefused, match="the branch main is checked out"):
        await bring_into(branch.clone, mine, "refs/kingdom/landed/wf/app", "main", force=True)
    with pytest.raises(InvalidInput, match="is not in a git repository"):
        await bring_into(branch.clone, branch.folder / "home", "refs/kingdom/landed/wf/app", "ours")


async def test_a_checkout_says_where_it_pushes_to(branch: Branch) -> None:
    mine = branch.folder / "mine"
    plain_git(branch.folder, "clone", "--quiet", str(branch.source.folder), str(mine))
    beside = branch.folder / "beside"
    plain_git(mine, "worktree", "add", "--quiet", str(beside))
    git = branch.clone.git
    assert await remote_of_checkout(git, mine) == await remote_of_checkout(git, beside) == branch.source.url
    assert await remote_of_checkout(git, branch.source.folder) is None


async def test_the_patches_make_the_same_files_elsewhere(branch: Branch) -> None:
    await branch.ground.checkpoint(branch.tree, "first", {"a": "1\n"})
    await branch.ground.checkpoint(branch.tree, "second", {"ü": "2\n"})
    text = await patch_series(branch.clone, await branch.history())
    mine = branch.folder / "mine"
    plain_git(branch.folder, "clone", "--quiet", str(branch.source.folder), str(mine))
    (branch.folder / "series.patch").write_text(text)
    plain_git(mine, "am", "--quiet", str(branch.folder / "series.patch"))
    assert plain_git(mine, "log", "-2", "--format=%s").splitlines() == ["second", "first"]
    assert on_disk(mine) == on_disk(branch.tree.path)
