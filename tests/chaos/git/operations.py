"""The operations that are cut off: what is there before, what is done, and what must hold afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kingdom.gitops import CheckpointMark, GitRunner, RecordedCheckpoint, Worktree, list_rescues, merge, reset, verify
from tests.support.repositories import Ground, Remote, on_disk, plain_git

BASE: Final = {"a.txt": "one\n", "dir/b.txt": "two\n"}
_MARK: Final = CheckpointMark("wf", "one", "work")
_SIDES: Final = ("kingdom/wf/side-0", "kingdom/wf/side-1")


class Scene:
    """A remote repository, and what is made of it below one folder."""

    def __init__(self, folder: Path, git: GitRunner | None = None) -> None:
        self.remote = folder / "remote"
        self.ground = Ground(folder / "ground", git)

    def make_remote(self) -> Remote:
        """Make the remote repository."""
        remote = Remote(self.remote)
        remote.commit(BASE)
        return remote

    @property
    def url(self) -> str:
        return str(self.remote)

    @property
    def tree(self) -> Worktree:
        """The worktree that most operations are on."""
        return self.ground.worktrees.find("wf", "app")


@dataclass(frozen=True)
class Operation:
    """``act`` is cut off; after ``undo``, if there is one, it is done again, and ``check`` asserts what must hold."""

    prepare: Callable[[Scene], Awaitable[None]]
    act: Callable[[Scene], Awaitable[object]]
    check: Callable[[Scene], Awaitable[None]]
    undo: Callable[[Scene], Awaitable[None]] | None = None


# ── clones ────────────────────────────────────────────────────────────────────────────────────────────────────


async def _ensure(scene: Scene) -> None:
    await scene.ground.clones.ensure(scene.url)


async def _only_a_remote(scene: Scene) -> None:
    scene.make_remote()


async def _cloned(scene: Scene) -> None:
    clone = scene.ground.clones.find(scene.url)
    assert await clone.resolve_base(None) == plain_git(scene.remote, "rev-parse", "HEAD")


async def _news(scene: Scene) -> None:
    remote = scene.make_remote()
    remote.git("branch", "gone")
    await _ensure(scene)
    remote.git("branch", "--delete", "gone")
    remote.commit({"c.txt": "new\n"})
    remote.git("branch", "other")


async def _fetched(scene: Scene) -> None:
    found = await scene.ground.clones.find(scene.url).refs("refs/remotes/origin/")
    newest = plain_git(scene.remote, "rev-parse", "HEAD")
    assert found == {f"refs/remotes/origin/{name}": newest for name in ("HEAD", "main", "other")}


async def _damaged(scene: Scene) -> None:
    tree = await scene.ground.worktree(scene.make_remote())
    await scene.ground.checkpoint(tree, "zero", {"a.txt": "zero\n"})
    (tree.clone.repo / "HEAD").unlink()


async def _mended(scene: Scene) -> None:
    tree = scene.tree
    tip = str(await tree.tip())
    assert await scene.ground.checkpoints.list(tree.clone, "wf") == {"zero": tip}
    recorded = RecordedCheckpoint("wf", "zero", tip, await tree.clone.tree_of(tip))
    assert await verify(tree.clone, [recorded], deep=True) == []
    assert _status(tree) == ""


# ── worktrees ─────────────────────────────────────────────────────────────────────────────────────────────────


async def _a_clone(scene: Scene) -> None:
    await scene.ground.clone(scene.make_remote())


async def _create(scene: Scene) -> None:
    await scene.ground.worktrees.create(scene.ground.clones.find(scene.url), "wf", "app")


async def _created(scene: Scene) -> None:
    assert _files(scene.tree) == BASE
    assert _status(scene.tree) == ""


async def _open_work(scene: Scene) -> None:
    tree = await scene.ground.worktree(scene.make_remote())
    (tree.path / "a.txt").write_text("open\n")
    (tree.path / "dir" / "b.txt").unlink()
    (tree.path / "new.txt").write_text("new\n")


async def _reset(scene: Scene) -> None:
    await reset(scene.tree, clock=scene.ground.clock)


async def _was_reset(scene: Scene) -> None:
    await _created(scene)
    await _rescued(scene)


async def _release(scene: Scene) -> None:
    await scene.ground.worktrees.release("wf", "app")


async def _rescued(scene: Scene) -> None:
    clone = scene.ground.clones.find(scene.url)
    kept = [_shown(clone.repo, f"{rescue.ref}:a.txt") for rescue in await list_rescues(clone, "wf")]
    assert "open" in kept


# ── commits ───────────────────────────────────────────────────────────────────────────────────────────────────


async def _checkpoint(scene: Scene) -> None:
    await scene.ground.checkpoints.create([scene.tree], _MARK)


async def _undo(scene: Scene) -> None:
    await scene.ground.checkpoints.undo([scene.tree], _MARK)


async def _has_checkpoint(scene: Scene) -> None:
    tree, checkpoints = scene.tree, scene.ground.checkpoints
    assert _files(tree) == {"a.txt": "open\n", "new.txt": "new\n"}
    assert _status(tree) == ""
    assert await checkpoints.list(tree.clone, "wf") == {"one": await tree.tip()}
    assert await checkpoints.pending(tree.clone, "wf") == {}


async def _sides(scene: Scene) -> None:
    tree = await scene.ground.worktree(scene.make_remote())
    for number, name in enumerate(("a.txt", "dir/b.txt")):
        side = await scene.ground.worktrees.create(tree.clone, "wf", f"side-{number}")
        await scene.ground.checkpoint(side, f"side-{number}", {name: f"by {number}\n", f"new-{number}.txt": "new\n"})


async def _merge(scene: Scene) -> None:
    assert (await merge(scene.tree, *_SIDES, clock=scene.ground.clock)).clean


async def _merged(scene: Scene) -> None:
    new = {"new-0.txt": "new\n", "new-1.txt": "new\n"}
    assert _files(scene.tree) == {"a.txt": "by 0\n", "dir/b.txt": "by 1\n", **new}
    assert _status(scene.tree) == ""
    assert len(plain_git(scene.tree.path, "log", "--merges", "--format=%H").split()) == len(_SIDES)


OPERATIONS: Final = {
    "clone": Operation(_only_a_remote, _ensure, _cloned),
    "fetch": Operation(_news, _ensure, _fetched),
    "mend": Operation(_damaged, _ensure, _mended),
    "create": Operation(_a_clone, _create, _created),
    "checkpoint": Operation(_open_work, _checkpoint, _has_checkpoint, _undo),
    "reset": Operation(_open_work, _reset, _was_reset),
    "merge": Operation(_sides, _merge, _merged),
    "release": Operation(_open_work, _release, _rescued),
}


def _files(tree: Worktree) -> dict[str, str]:
    return {name: text.removeprefix("- ") for name, text in on_disk(tree.path).items()}


def _status(tree: Worktree) -> str:
    return plain_git(tree.path, "status", "--short")


def _shown(folder: Path, what: str) -> str:
    return plain_git(folder, "show", what, check=False)  # of a file that was half gone when it was rescued: nothing
