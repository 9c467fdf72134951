"""Worktrees, checkpoints, merges and resets of workflows on real repositories."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kingdom.gitops import (
    BaseNotFound,
    CheckpointConflict,
    GitError,
    RemoteFailed,
    WorktreeBroken,
    WorktreeDirty,
)
from kingdom.gitops import GitRunner as GitProgram
from kingdom.workflow.adapters.git_service import GitopsService, MergeConflict
from kingdom.workflow.domain.resources import Checkpoint, Committed, Git, WorkTree
from tests.support.repositories import Remote, TickingClock, on_disk, plain_git

NOW = datetime(2026, 2, 7, tzinfo=UTC)


class Ground:
    """Two repositories, and a workflow that works on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.remotes = {name: Remote(folder / name) for name in ("app", "lib")}
        for name, remote in self.remotes.items():
            remote.commit({"README": f"{name}\n"})
        self.gits = {name: Git(f"git-{name}", name, url=remote.url) for name, remote in self.remotes.items()}
        self.by_id = {git.id: git for git in self.gits.values()}
        self.service = self.engine()
        self._numbers = iter(range(1, 100))

    def engine(self) -> GitopsService:
        """The service of a new engine on the same folder."""
        return GitopsService(GitProgram(), self.folder / "home", clock=TickingClock())

    async def tree(self, name: str, work_id: str | None = None, base: str | None = None) -> WorkTree:
        tree = WorkTree(f"wt-{name}-{work_id}", "wf-1", f"git-{name}", base, work_id=work_id)
        made = await self.service.prepare(self.gits[name], tree)
        tree.ready(made.path, made.branch)
        return tree

    def point(self, work: str = "work-1", attempt: int = 1) -> Checkpoint:
        return Checkpoint(f"cp-{next(self._numbers)}", "wf-1", work, 0, attempt, NOW)

    async def checkpoint(self, *trees: WorkTree) -> Checkpoint:
        point = self.point()
        point.finish(await self.service.commit_all(point, trees, "a step"), 1)
        return point


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def write(tree: WorkTree, name: str, text: str) -> None:
    assert tree.path is not None
    (Path(tree.path) / name).write_text(text)


def files(tree: WorkTree) -> dict[str, str]:
    assert tree.path is not None
    return on_disk(Path(tree.path))


def head(tree: WorkTree, what: str = "HEAD") -> str:
    assert tree.path is not None
    return plain_git(Path(tree.path), "rev-parse", what)


async def test_a_worktree_has_a_branch_and_a_folder_one_can_read(ground: Ground) -> None:
    tree = await ground.tree("app")
    assert tree.path is not None
    assert tree.branch is not None
    assert tree.branch.startswith("kingdom/wf-1/app-")
    assert Path(tree.path).parent == ground.folder / "home" / "worktrees" / "wf-1"
    assert plain_git(Path(tree.path), "branch", "--show-current") == tree.branch
    assert files(tree) == {"README": "- app\n"}


async def test_a_shallow_clone_can_be_worked_on(ground: Ground) -> None:
    ground.remotes["app"].commit({"more": "1"})
    shallow = ground.folder / "shallow"
    plain_git(ground.folder, "clone", "--quiet", "--depth=1", f"file://{ground.remotes['app'].folder}", str(shallow))
    ground.gits["app"] = Git("git-app", "app", url=str(shallow))
    tree = await ground.tree("app")
    assert files(tree)["more"] == "- 1"
    write(tree, "new", "x")
    point = await ground.checkpoint(tree)
    beside = await ground.tree("app", "work-2", base=point.hashes["git-app"])
    assert files(beside)["new"] == "- x"
    assert await ground.service.verify({"git-app": ground.gits["app"]}, [point], deep=True) == []


async def test_preparing_again_finds_the_same_worktree_with_its_work(ground: Ground) -> None:
    tree = await ground.tree("app")
    write(tree, "new", "x")
    shutil.rmtree(ground.remotes["app"].folder)
    ground.service = ground.engine()
    again = await ground.tree("app")
    assert (again.path, again.branch) == (tree.path, tree.branch)
    assert files(again)["new"] == "- x"


async def test_a_lost_folder_is_made_again_where_its_branch_stands(ground: Ground) -> None:
    tree = await ground.tree("app")
    write(tree, "new", "x")
    await ground.checkpoint(tree)
    assert tree.path is not None
    shutil.rmtree(tree.path)
    await ground.tree("app")
    assert files(tree) == {"README": "- app\n", "new": "- x"}


async def test_works_beside_each_other_and_forks_have_trees_of_their_own(ground: Ground) -> None:
    tree = await ground.tree("app")
    write(tree, "new", "x")
    point = await ground.checkpoint(tree)
    beside = await ground.tree("app", "work-2", base=point.hashes["git-app"])
    assert beside.path != tree.path
    assert beside.branch != tree.branch
    assert files(beside) == files(tree)
    assert ground.service.base(beside) == point.hashes["git-app"]


@pytest.mark.parametrize(
    ("base", "url", "error"), [("no-such-branch", None, BaseNotFound), (None, "/no/such/repository", RemoteFailed)]
)
async def test_what_cannot_be_prepared_says_why(
    ground: Ground, base: str | None, url: str | None, error: type[GitError]
) -> None:
    git = Git("git-x", "x", url=url or ground.remotes["app"].url)
    with pytest.raises(error):
        await ground.service.prepare(git, WorkTree("wt", "wf-1", "git-x", base))


def commit(tree: WorkTree, name: str) -> None:
    """What an agent that commits by itself does."""
    write(tree, name, "x")
    plain_git(Path(str(tree.path)), "add", ".")
    plain_git(Path(str(tree.path)), "commit", "--quiet", "-m", name)


def rescued(ground: Ground, tree: WorkTree) -> list[str]:
    """The files of each rescue, sorted."""
    refs = head_refs(ground, "refs/kingdom/rescue")
    return sorted(plain_git(clone_of(ground), "ls-tree", "--name-only", ref).replace("\n", " ") for ref in refs)


def clone_of(ground: Ground, name: str = "app") -> Path:
    (folder,) = (ground.folder / "home" / "clones").glob(f"{name}-*")
    return folder / "repo" / ".git"


def head_refs(ground: Ground, prefix: str) -> list[str]:
    return plain_git(clone_of(ground), "for-each-ref", "--format=%(refname)", prefix).split()


@pytest.mark.parametrize("committed", [False, True])
async def test_a_repository_released_before_its_first_checkpoint_comes_back(ground: Ground, committed: bool) -> None:
    tree = await ground.tree("app")
    if committed:
        commit(tree, "theirs")
    await ground.service.release(tree)
    assert ("theirs" in files(await ground.tree("app"))) is committed


async def test_the_tree_of_a_work_that_is_done_again_begins_at_its_base(ground: Ground) -> None:
    tree = await ground.tree("app", "work-2")
    base = head(tree)
    write(tree, "first", "x")
    await ground.checkpoint(tree)
    await ground.service.release(tree)
    again = await ground.tree("app", "work-2", base)
    assert (files(again), head(again)) == ({"README": "- app\n"}, base)
    assert rescued(ground, again) == [], "the checkpoint holds it"


async def test_what_an_agent_committed_and_did_not_finish_is_kept_when_its_work_is_done_again(ground: Ground) -> None:
    tree = await ground.tree("app", "work-2")
    base = head(tree)
    for name in ("once", "twice"):
        commit(tree, name)
        await ground.service.release(tree)
        tree = await ground.tree("app", "work-2", base)
        assert files(tree) == {"README": "- app\n"}
    assert rescued(ground, tree) == ["README once", "README twice"]


async def test_a_released_tree_comes_back_with_its_checkpoints(ground: Ground) -> None:
    tree = await ground.tree("app")
    write(tree, "new", "x")
    await ground.checkpoint(tree)
    await ground.service.release(tree)
    await ground.service.release(tree)
    assert tree.path is not None
    assert not Path(tree.path).exists()
    assert files(await ground.tree("app"))["new"] == "- x"


async def test_a_tree_that_was_never_noted_is_found_to_be_released(ground: Ground) -> None:
    await ground.tree("app")
    await ground.service.release(WorkTree("wt-app-None", "wf-1", "git-app"))
    assert not (ground.folder / "home" / "worktrees" / "wf-1").exists()


async def test_a_checkpoint_commits_every_repository_and_names_whose_it_is(ground: Ground) -> None:
    trees = [await ground.tree("app"), await ground.tree("lib")]
    for tree in trees:
        write(tree, "new", tree.git_id)
    point = ground.point("work-7", attempt=3)
    made = await ground.service.commit_all(point, trees, "plan (attempt 3)")
    assert made == {tree.git_id: (head(tree), head(tree, "HEAD^{tree}")) for tree in trees}
    assert trees[0].path is not None
    message = plain_git(Path(trees[0].path), "log", "-1", "--format=%B")
    assert message.splitlines()[0] == "plan (attempt 3)"
    for line in ("Kingdom-Workflow: wf-1", "Kingdom-Work: work-7", "Kingdom-Attempt: 3"):
        assert line in message
    assert await ground.service.commit_all(point, trees, "plan (attempt 3)") == made, "it may be repeated"
    point.finish(made, 1)
    assert await ground.service.verify(ground.by_id, [point], deep=True) == []


async def test_a_checkpoint_of_no_repository_has_no_hashes(ground: Ground) -> None:
    assert await ground.service.commit_all(ground.point(), [], "nothing") == {}
    await ground.service.undo(ground.point(), [])


async def test_a_checkpoint_is_of_all_repositories_or_of_none(ground: Ground) -> None:
    trees = [await ground.tree("app"), await ground.tree("lib")]
    before = [head(tree) for tree in trees]
    for tree in trees:
        write(tree, "new", "x")
    assert trees[1].path is not None
    moved = Path(trees[1].path).rename(ground.folder / "moved")
    point = ground.point()
    with pytest.raises(WorktreeBroken):
        await ground.service.commit_all(point, trees, "half")
    moved.rename(trees[1].path)
    assert [head(tree) for tree in trees] == before
    assert len(await ground.service.commit_all(point, trees, "whole")) == 2


async def test_a_checkpoint_that_cannot_be_completed_is_taken_back(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = [await ground.tree("app"), await ground.tree("lib")]
    before = [head(tree) for tree in trees]
    for tree in trees:
        write(tree, "new", "x")
    checkpoints = ground.service._checkpoints
    complete = checkpoints._complete

    async def fail_for_lib(tree: object, mark: object, made: object) -> None:
        if "lib" in tree.name:  # type: ignore[attr-defined]
            raise CheckpointConflict("it moved")
        await complete(tree, mark, made)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoints, "_complete", fail_for_lib)
    with pytest.raises(CheckpointConflict):
        await ground.service.commit_all(ground.point(), trees, "half")
    assert [head(tree) for tree in trees] == before
    assert all(files(tree)["new"] == "- x" for tree in trees)


async def test_an_unfinished_checkpoint_is_undone(ground: Ground) -> None:
    tree = await ground.tree("app")
    before = head(tree)
    write(tree, "new", "x")
    point = ground.point()
    await ground.service.commit_all(point, [tree], "never recorded")
    await ground.service.undo(point, [tree])
    await ground.service.undo(point, [tree])
    assert head(tree) == before
    assert files(tree)["new"] == "- x"


async def test_reset_goes_back_to_the_hashes_or_the_base_and_keeps_what_it_drops(ground: Ground) -> None:
    trees = [await ground.tree("app"), await ground.tree("lib")]
    write(trees[0], "one", "1")
    point = await ground.checkpoint(trees[0])
    wanted = files(trees[0])
    for tree in trees:
        write(tree, "two", "2")
    kept = await ground.service.reset(trees, point.hashes)
    assert files(trees[0]) == wanted
    assert files(trees[1]) == {"README": "- lib\n"}
    assert sorted(kept) == ["git-app", "git-lib"]
    assert plain_git(Path(str(trees[1].path)), "show", f"{kept['git-lib']}:two") == "2"
    assert await ground.service.reset(trees, point.hashes) == {}, "there was nothing left to drop"


async def test_reset_makes_a_lost_folder_again(ground: Ground) -> None:
    tree = await ground.tree("app")
    write(tree, "one", "1")
    point = await ground.checkpoint(tree)
    shutil.rmtree(str(tree.path))
    assert await ground.service.reset([tree], point.hashes) == {}
    assert files(tree)["one"] == "- 1"


async def test_reset_of_several_tells_the_error_and_still_resets_the_others(ground: Ground) -> None:
    trees = [await ground.tree("app"), await ground.tree("lib")]
    for tree in trees:
        write(tree, "two", "2")
    with pytest.raises(BaseNotFound):
        await ground.service.reset(trees, {"git-app": "0" * 40})
    assert files(trees[1]) == {"README": "- lib\n"}


async def test_parallel_works_are_merged_once(ground: Ground) -> None:
    main = await ground.tree("app")
    sides = [await ground.tree("app", f"work-{number}") for number in (1, 2)]
    for number, side in enumerate(sides):
        write(side, f"side-{number}", "x")
        await ground.checkpoint(side)
    await ground.service.merge(main, sides, "Bring it together")
    merged = head(main)
    assert {"side-0", "side-1"} <= files(main).keys()
    assert plain_git(Path(str(main.path)), "log", "-1", "--format=%s") == "Bring it together"
    await ground.service.merge(main, sides, "Bring it together")
    assert head(main) == merged


async def test_works_that_do_not_go_together_leave_the_branch_as_it_was(ground: Ground) -> None:
    main = await ground.tree("app")
    sides = [await ground.tree("app", f"work-{number}") for number in (1, 2)]
    for number, side in enumerate(sides):
        write(side, "README", f"{number}\n")
        await ground.checkpoint(side)
    before = head(main)
    with pytest.raises(MergeConflict, match=r"both sides changed README: merge it by hand in .*/app-") as raised:
        await ground.service.merge(main, sides, "Bring it together")
    assert raised.value.branch == sides[1].branch
    assert head(main) == before
    assert files(main) == {"README": "- app\n"}


async def test_a_merge_into_uncommitted_work_is_refused(ground: Ground) -> None:
    main, side = await ground.tree("app"), await ground.tree("app", "work-1")
    write(side, "side", "x")
    await ground.checkpoint(side)
    write(main, "new", "x")
    with pytest.raises(WorktreeDirty):
        await ground.service.merge(main, [side], "")


async def test_diff_and_log_show_what_a_checkpoint_changed(ground: Ground) -> None:
    tree = await ground.tree("app")
    base = ground.service.base(tree)
    write(tree, "new", "x\n")
    point = await ground.checkpoint(tree)
    commit = point.hashes["git-app"]
    (change,) = await ground.service.diff(ground.gits["app"], base, commit, patches=True)
    assert (change.path, change.status, change.added) == ("new", "added", 1)
    assert change.patch is not None
    assert "+x" in change.patch
    assert [found.title for found in await ground.service.log(ground.gits["app"], base, commit)] == ["a step"]


async def test_verify_names_a_branch_that_lost_its_last_checkpoint(ground: Ground) -> None:
    tree = await ground.tree("app")
    before = head(tree)
    write(tree, "new", "x")
    point = await ground.checkpoint(tree)
    branches = {(point.id, "git-app"): str(tree.branch)}
    commit(tree, "by a person, on top")
    assert await ground.service.verify(ground.by_id, [point], branches) == []
    plain_git(Path(str(tree.path)), "reset", "--quiet", "--hard", before)
    (problem,) = await ground.service.verify(ground.by_id, [point], branches)
    assert problem.what == f"the branch {tree.branch} is at {before} and lacks the commit {point.hashes['git-app']}"
    plain_git(clone_of(ground), "update-ref", "-d", f"refs/heads/{tree.branch}")
    (problem,) = await ground.service.verify(ground.by_id, [point], branches)
    assert problem.what == f"the branch {tree.branch} is gone"


async def test_verify_names_every_checkpoint_that_is_lost(ground: Ground) -> None:
    trees = [await ground.tree("app"), await ground.tree("lib")]
    for tree in trees:
        write(tree, "new", "x")
    point = await ground.checkpoint(*trees)
    plain_git(clone_of(ground, "lib"), "update-ref", "-d", f"refs/kingdom/checkpoints/wf-1/{point.id}")
    gone = ground.point()
    gone.finish({"git-app": Committed("0" * 40, "0" * 40)}, 2)
    problems = await ground.service.verify(ground.by_id, [point, gone])
    assert sorted(problem.what for problem in problems) == [
        f"commit {'0' * 40} does not exist",
        f"refs/kingdom/checkpoints/wf-1/{point.id} does not hold the commit: there is no such ref",
    ]
    shutil.rmtree(ground.folder / "home" / "clones")
    (problem, *_) = await ground.service.verify(ground.by_id, [point])
    assert "cannot be read" in problem.what


async def test_verify_compares_the_files_with_those_that_were_recorded(ground: Ground) -> None:
    tree = await ground.tree("app")
    write(tree, "new", "x")
    point = await ground.checkpoint(tree)
    right, wrong = point.trees["git-app"], "1" * 40
    point.trees = {"git-app": wrong}
    (problem,) = await ground.service.verify(ground.by_id, [point])
    assert problem.what == f"its tree is {right}, and {wrong} was recorded"
    point.trees = {}  # as an older version left it
    assert await ground.service.verify(ground.by_id, [point]) == []


async def test_the_clone_of_a_deleted_repository_stays_while_it_holds_work(ground: Ground) -> None:
    clones = ground.folder / "home" / "clones"
    await ground.service.discard(ground.gits["app"])  # there is none yet
    tree = await ground.tree("app")
    write(tree, "new", "x")
    point = await ground.checkpoint(tree)
    await ground.service.release(tree)
    await ground.service.discard(ground.gits["app"])
    (clone,) = clones.glob("*/repo/.git")
    assert plain_git(clone, "show", f"{point.hashes['git-app']}:new") == "x"
    for ref in plain_git(clone, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/kingdom").split():
        plain_git(clone, "update-ref", "-d", ref)
    await ground.service.discard(ground.gits["app"])
    assert list(clones.glob("*/repo")) == []


async def test_at_start_what_nobody_knows_of_is_released(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    app, lib = await ground.tree("app"), await ground.tree("lib")
    side = await ground.tree("lib", "work-1")
    write(lib, "new", "x")
    (record,) = (ground.folder / "home" / "state" / "wf-1").glob("app-*/worktree.json")
    record.write_text(record.read_text().replace('"ready"', '"creating"'))
    await ground.engine().prune([])
    assert not Path(str(app.path)).exists(), "it was half made"
    assert files(lib)["new"] == "- x", "a new store is not asked about worktrees of another"
    await ground.engine().prune([side])
    assert not Path(str(lib.path)).exists()
    assert Path(str(side.path)).exists()
    (told,) = [entry.getMessage() for entry in caplog.records if str(lib.path) in entry.getMessage()]
    kept = told.rpartition(" ")[2]
    assert plain_git(Path(str(side.path)), "show", f"{kept}:new") == "x"
