"""Where a soldier works: a worktree of the task's own, or a plain folder when there is no repository.

``workspace/<general>/worktrees/<general>/<task>`` on the branch ``kingdom/<general>/<task>``, from a clone that all
generals share; else ``workspace/<general>/tasks/<task>``. A task that goes on after an answer gets the place of the
task it began as: the same folder (made anew if it is gone) and the same branch.

What we put there (see :func:`furnish`) is not to be committed: ``info/exclude`` of the clone names it. A file of the
repository itself is never overwritten. The worktree is made from the default branch, so agent configuration in it
(``.claude``, ``.mcp.json``, ``.codex``) is what the maintainers merged, never that of a pull request under review;
whether an engine reads it is for the engine's adapter to decide.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.files import write_atomic, write_json
from kingdom.court.general.errors import NotNow, TaskRefused
from kingdom.court.general.pulls import find_pull
from kingdom.court.general.repositories import is_local
from kingdom.court.home import named_path
from kingdom.gitops import Clones, CommandTimedOut, Git, GitError, LockBusy, RemoteFailed, WorktreeBroken, Worktrees

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kingdom.court.general.pulls import Pull
    from kingdom.court.home import Home
    from kingdom.gitops import Worktree

INSTRUCTIONS: Final = ("CLAUDE.md", "AGENTS.md")
TASK_FILE: Final = ".kingdom-task.json"
_EXCLUDE: Final = "".join(f"/{name}\n" for name in (*INSTRUCTIONS, TASK_FILE, ".tmp-*"))
log = logging.getLogger("kingdom.court")


@dataclass(frozen=True, slots=True)
class Workplace:
    """A folder to work in; ``tree`` when it is a worktree."""

    folder: Path
    tree: Worktree | None = None


class Workspace:
    """The workspace of one general."""

    def __init__(self, home: Home, general: str, *, local: bool = False, git: Git | None = None) -> None:
        """``local`` allows clones of repositories on this machine."""
        self.general = general
        self._folder = home.work(general)
        self._plain = self._folder / "tasks"
        self._clones = Clones(git or Git(), home.clones, allow_local=local)
        self._worktrees = Worktrees(self._clones, self._folder)

    async def prune(self) -> None:
        """Clean up after processes that were killed. Once at start, before work begins."""
        try:
            pruned = await self._worktrees.prune()
        except (GitError, OSError) as error:
            log.warning("%s: worktrees could not be cleaned up: %s", self.general, error)
        else:
            if pruned.finished:
                log.info("%s: released half made worktrees: %s", self.general, ", ".join(pruned.finished))

    async def prepare(self, work_id: str, url: str | None, *, fetch: bool = True) -> Workplace:
        """The place of a piece of work, made when it is not there.

        Raises :class:`TaskRefused` when it cannot be made, :class:`NotNow` when it may be possible later.
        """
        if url is None:
            return Workplace(self._plain_folder(work_id))
        try:
            clone = (await self._clones.ensure(url, fetch=fetch)).clone
            tree = await self._worktrees.create(clone, self.general, work_id, reuse_branch=True)
        except (RemoteFailed, CommandTimedOut, LockBusy) as error:
            raise NotNow(f"the repository {url} could not be fetched: {error}") from error
        except GitError as error:
            raise TaskRefused(f"there is no worktree of {url} to work in: {error}") from error
        _exclude(clone.repo / "info")
        return Workplace(tree.path, tree)

    async def find_pull(self, tree: Worktree, number: int, base: Any, *, fetch: bool) -> Pull:
        """The pull request that a piece of work is about, with its head in the clone (:mod:`.pulls`)."""
        return await find_pull(self._clones, tree.clone, number, base, fetch=fetch)

    def find(self, work_id: str) -> Workplace | None:
        """The place of a piece of work as it is, or None when there is none."""
        try:
            tree = self._worktrees.find(self.general, work_id)
        except WorktreeBroken:
            folder = self._plain_path(work_id)
            return Workplace(folder) if folder.is_dir() and not folder.is_symlink() else None
        return Workplace(tree.path, tree)

    def places(self) -> list[tuple[str, Path]]:
        """Every place there is: whose work it is of, and its folder."""
        trees = [(tree.name, tree.path) for tree in self._worktrees.list(self.general)]
        plain = sorted(self._plain.iterdir()) if self._plain.is_dir() else []
        return trees + [(path.name, path) for path in plain]

    async def remove(self, work_id: str) -> None:
        """Remove a place. The branch of a worktree stays, and what was not committed is kept under a ref."""
        place = self.find(work_id)
        if place is None:
            return
        if place.tree is None:
            await asyncio.to_thread(shutil.rmtree, place.folder)
            return
        if place.folder.is_dir() and not place.folder.is_symlink():
            for name in {*INSTRUCTIONS, TASK_FILE} - await _tracked(place):
                (place.folder / name).unlink(missing_ok=True)  # ours: nothing to keep under a ref
        await self._worktrees.release(self.general, work_id)

    def _plain_path(self, work_id: str) -> Path:
        return named_path(self._plain, "task", work_id)

    def _plain_folder(self, work_id: str) -> Path:
        folder = self._plain_path(work_id)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if folder.is_symlink():
                folder.unlink()  # somebody who worked there put it in its place
                folder.mkdir()
        return folder


async def furnish(place: Workplace, instructions: str | None, document: Mapping[str, Any]) -> bool:
    """Put the instructions and the task's description into a workplace; whether the instructions could be put there.

    When the repository has instructions of its own (``CLAUDE.md`` or ``AGENTS.md``), ours belong into the prompt:
    an engine reads one or the other, and the repository's must neither be hidden nor changed.
    """
    tracked = await _tracked(place)
    if TASK_FILE in tracked:
        raise TaskRefused(f"the repository has a file {TASK_FILE}; that name is needed for the task's description")
    write_json(place.folder / TASK_FILE, document, durable=False)
    if instructions is None:
        return True
    if not tracked.isdisjoint(INSTRUCTIONS):
        return False
    for name in INSTRUCTIONS:
        write_atomic(place.folder / name, instructions, durable=False)
    return True


async def _tracked(place: Workplace) -> set[str]:
    """Which of the names we use are the repository's, on the task's branch."""
    if place.tree is None or (tip := await place.tree.tip()) is None:
        return set()
    listed = await place.tree.clone.run("ls-tree", "-z", "--name-only", tip, "--", *INSTRUCTIONS, TASK_FILE)
    return set(listed.fields)


def _exclude(info: Path) -> None:
    if info.is_symlink():
        info.unlink()  # whoever works in a worktree can write to the clone: do not follow
    info.mkdir(exist_ok=True)
    write_atomic(info / "exclude", _EXCLUDE, durable=False)


def allows_local(*urls: str | None) -> bool:
    """Whether one of the operator's own URLs is on this machine."""
    return any(url is not None and is_local(url) for url in urls)
