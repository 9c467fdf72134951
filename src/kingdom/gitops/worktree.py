"""One worktree: its parts, its lock, and its content as a git tree.

Its parts are the folder with the files; ``.git`` in it, a file that points to the admin folder; the admin folder in
``repo/.git/worktrees``, which the git of an agent in the worktree reads; and a state folder of ours with the record,
the lock and an index. We never follow ``.git`` and never trust the admin folder: agents can rewrite both.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from kingdom.gitops.errors import CommandFailed, FilesTooLarge, InvalidInput, WorktreeBroken
from kingdom.gitops.files import files_below, real_folder, sort_out, write_file
from kingdom.gitops.locks import locked, remove_stale_locks
from kingdom.gitops.names import check_ref, is_hash
from kingdom.gitops.runner import MIB

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from pathlib import Path

    from kingdom.gitops.repository import Clone
    from kingdom.gitops.runner import GitLocation, GitResult


State = Literal["creating", "ready", "releasing"]
RECORD_FILE: Final = "worktree.json"
_MAX_LARGE_NAMED: Final = 10  # files in an error message
_OPERATION_FILES: Final = (
    "MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "AUTO_MERGE", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD",
    "rebase-merge", "rebase-apply", "sequencer", "config.worktree", "info",
)  # fmt: skip


@dataclass(frozen=True)
class Worktree:
    """A worktree of one workflow on one clone."""

    clone: Clone
    workflow: str
    name: str
    path: Path
    """The folder with the files."""
    base: str
    """The commit its branch started from."""
    state_folder: Path
    lock_timeout: float = 60.0

    @property
    def branch(self) -> str:
        """Its branch, without ``refs/heads/``."""
        return f"kingdom/{self.workflow}/{self.name}"

    @property
    def ref(self) -> str:
        """The full name of its branch."""
        return f"refs/heads/{self.branch}"

    @cached_property
    def admin(self) -> Path:
        """The folder in ``repo/.git/worktrees`` that makes it a worktree for other git processes."""
        return self.clone.repo / "worktrees" / f"{self.workflow}@{self.name}"

    async def tip(self) -> str | None:
        """Return the commit its branch is at; None if the branch is gone."""
        return await self.clone.commit_of(self.ref)

    @contextlib.asynccontextmanager
    async def hold(self, *, check: bool = True) -> AsyncIterator[HeldWorktree]:
        """Lock it against our other processes; raise :class:`LockBusy` or :class:`WorktreeBroken`."""
        async with locked(self.state_folder / "lock", self.lock_timeout) as fd:
            if check:
                self._check()
            # git inherits our lock, so no process is left that owns git's lock files or unfinished files.
            for left in (*self.state_folder.glob("*.lock"), *self.state_folder.glob(".*")):
                left.unlink(missing_ok=True)
            yield HeldWorktree(self, fd)

    def _check(self) -> None:
        if not (self.state_folder / RECORD_FILE).exists():
            raise WorktreeBroken(f"worktree {self.branch} was released: create it again")
        if not real_folder(self.path):
            what = "is a link to somewhere else" if self.path.is_symlink() else "is gone, or behind a link"
            raise WorktreeBroken(
                f"the folder {self.path} of {self.branch} {what}: nothing was touched; create it again"
            )


class HeldWorktree:
    """A locked worktree: everything that changes it goes through here."""

    def __init__(self, tree: Worktree, lock: int) -> None:
        self.tree = tree
        self.clone = tree.clone
        self.index = tree.state_folder / "index"
        self.next_index = tree.state_folder / "index.next"
        self.merging = tree.state_folder / "merging"
        """Exists while a merge changes the files, with the old and the new commit. See ``merges``."""
        self.lock = lock

    async def run(self, *words: str, index: Path, stdin: bytes | None = None, ok: tuple[int, ...] = (0,)) -> GitResult:
        """Run a git command on the files of the worktree, with our own index."""
        return await self.clone.git.run(self.place(index), *words, stdin=stdin, ok=ok)

    def place(self, index: Path) -> GitLocation:
        """Return the location of such a command. git inherits the lock."""
        return self.clone.place(self.tree.path, index, (self.lock,))

    async def head(self) -> str | None:
        """Return the commit that is checked out, or the tip of the branch if that is unclear."""
        head, tip = await self.clone.commits_of(self.head_name(), self.tree.ref)
        return head or tip

    def head_name(self) -> str:
        """Return the ref or hash that is checked out; the branch of the worktree if that is unclear."""
        try:
            name = (self.tree.admin / "HEAD").read_text("utf-8", "replace").strip().removeprefix("ref: ")
            if is_hash(name) or (name.startswith("refs/") and check_ref("HEAD", name)):
                return name
        except (OSError, InvalidInput):
            pass
        return self.tree.ref

    def adopt_next_index(self) -> None:
        """Replace the index by the one an operation prepared."""
        self.next_index.replace(self.index)

    def discard_index(self) -> None:
        """Delete the index, so that the next operation reads all files again."""
        self.index.unlink(missing_ok=True)

    def restore_links(self) -> None:
        """Restore the admin folder and the ``.git`` file that make this folder a worktree on its branch."""
        tree = self.tree
        for folder in (tree.admin.parent, tree.admin):
            if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
                folder.unlink()
            folder.mkdir(parents=True, exist_ok=True)
        pointer = tree.path / ".git"
        if pointer.is_dir() and not pointer.is_symlink():
            pointer.rename(self._free_name("replaced-git"))  # a repository somebody made: keep it, but move it away
        wanted = {
            tree.admin / "commondir": "../..\n",
            tree.admin / "gitdir": f"{pointer}\n",
            tree.admin / "locked": f"in use by workflow {tree.workflow}\n",
            tree.admin / "HEAD": f"ref: {tree.ref}\n",
            pointer: f"gitdir: {tree.admin}\n",
        }
        for path, text in wanted.items():
            content = text.encode("utf-8", "surrogateescape")
            if path.is_symlink() or not path.is_file() or path.read_bytes() != content:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                write_file(path, content, scratch=tree.state_folder)

    def publish(self) -> None:
        """Show the worktree's own git the current branch and index, without unfinished operations."""
        self.restore_links()
        admin = self.tree.admin
        remove_stale_locks([admin / "index.lock", admin / "HEAD.lock"], [self.tree.path, self.clone.folder])
        for name in _OPERATION_FILES:
            left = admin / name
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            else:
                left.unlink(missing_ok=True)
        if self.index.exists():
            # git checks files again that changed in the second in which the index was written, or later. A copy with a
            # later time would hide such a change.
            written = self.index.stat().st_mtime_ns
            content = self.index.read_bytes()
            write_file(admin / "index", content, scratch=self.tree.state_folder, modified_ns=written)
        self.merging.unlink(missing_ok=True)

    def write_record(self, state: State) -> None:
        """Write the record: what this worktree is, and its state."""
        tree = self.tree
        note = {
            "version": 1,
            "state": state,
            "url": tree.clone.url.text,
            "workflow": tree.workflow,
            "name": tree.name,
            "path": str(tree.path),
            "base": tree.base,
        }
        write_file(tree.state_folder / RECORD_FILE, json.dumps(note).encode())

    def _free_name(self, name: str) -> Path:
        number = 1
        while (path := self.tree.state_folder / f"{name}-{number}").exists():
            number += 1
        return path


def read_record(state_folder: Path) -> dict[str, Any] | None:
    """Return the record of a worktree, or None; raise :class:`WorktreeBroken` if it cannot be read."""
    try:
        note = json.loads((state_folder / RECORD_FILE).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise WorktreeBroken(f"{state_folder / RECORD_FILE} cannot be read: {error}; delete it to start over") from None
    if not isinstance(note, dict) or note.get("version") != 1:
        raise WorktreeBroken(f"{state_folder / RECORD_FILE} was written by another version of this program")
    return note


# ── snapshots ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Plumbing commands, not ``git add``: that runs git in nested repositories, with their configuration. Here only files
# are read. The files of a nested repository are stored like any others, without its ``.git``.


async def snapshot(
    held: HeldWorktree, *, ignored: bool = False, also: Iterable[str] = (), max_file_bytes: int | None = None
) -> str:
    """Store the files as a git tree and return its hash; its index is in ``held.next_index``.

    Files that ``.gitignore`` names are left out unless ``ignored``; files in ``also`` are always stored. Raise
    :class:`FilesTooLarge` for new or changed files over ``max_file_bytes``.
    """
    choice = _Choice(ignored, list(also), max_file_bytes)
    if held.index.exists():
        await asyncio.to_thread(shutil.copy2, held.index, held.next_index)  # keeps its time: see ``publish``
        try:
            return await _store(held, choice)
        except CommandFailed:
            # The index may name objects that were pruned: read everything again, once.
            held.next_index.with_name(f"{held.next_index.name}.lock").unlink(missing_ok=True)
    held.next_index.unlink(missing_ok=True)
    head = await held.head()
    await held.run("read-tree", *([head] if head else ["--empty"]), index=held.next_index)
    return await _store(held, choice)


class _Choice(NamedTuple):
    """Which files a snapshot has."""

    ignored: bool
    also: list[str]
    max_file_bytes: int | None


async def _store(held: HeldWorktree, choice: _Choice) -> str:
    ignored = choice.ignored
    words = ("ls-files", "-z", "--modified", "--others", *(() if ignored else ("--exclude-standard",)))
    listed = (await held.run(*words, index=held.next_index)).fields
    paths = [path for path in listed if not path.endswith("/")]
    nested = [path for path in listed if path.endswith("/")]
    if nested:
        paths += await _files_of_nested(held, nested, ignored=ignored)
    for path in choice.also:
        paths += await asyncio.to_thread(files_below, held.tree.path, path)
    there, gone, folders = await asyncio.to_thread(sort_out, held.tree.path, dict.fromkeys(paths))
    if choice.max_file_bytes is not None:
        sizes = await asyncio.to_thread(lambda: {path: (held.tree.path / path).lstat().st_size for path in there})
        refuse_large(sizes, choice.max_file_bytes)
    submodules = await _submodules(held, folders) if folders else set()
    there += [folder for folder in folders if folder in submodules]
    gone += [folder for folder in folders if folder not in submodules]  # they replace a file
    if gone:
        await held.run("update-index", "-z", "--force-remove", "--stdin", index=held.next_index, stdin=_names(gone))
    if there:
        words = ("update-index", "-z", "--add", "--remove", "--replace", "--stdin")
        await held.run(*words, index=held.next_index, stdin=_names(there))
    return (await held.run("write-tree", index=held.next_index)).text


def refuse_large(sizes: Mapping[str, int], max_file_bytes: int) -> None:
    """Raise :class:`FilesTooLarge` if one of these sizes, by path, is over the largest allowed one."""
    large = sorted((path for path in sizes if sizes[path] > max_file_bytes), key=lambda path: -sizes[path])
    if large:
        some = ", ".join(f"{path} ({sizes[path] / MIB:,.1f} MiB)" for path in large[:_MAX_LARGE_NAMED])
        more = f" and {len(large) - _MAX_LARGE_NAMED} more" if len(large) > _MAX_LARGE_NAMED else ""
        raise FilesTooLarge(
            f"files over {max_file_bytes / MIB:,.0f} MiB: {some}{more}; delete them, name them in .gitignore, or raise "
            "git.max_file_mb",
            large,
        )


async def _submodules(held: HeldWorktree, folders: list[str]) -> set[str]:
    """Return the folders that are submodules in the index."""
    staged = (await held.run("ls-files", "-z", "--stage", "--", *folders, index=held.next_index)).fields
    return {entry.partition("\t")[2] for entry in staged if entry.startswith("160000 ")}


async def _files_of_nested(held: HeldWorktree, nested: list[str], *, ignored: bool) -> list[str]:
    root: Path = held.tree.path
    found = [path for folder in nested for path in await asyncio.to_thread(files_below, root, folder)]
    if ignored or not found:
        return found
    # check-ignore has no literal paths; "./" keeps a name that starts with a colon from being a pattern.
    names, patterns = _names(f"./{path}" for path in found), {"GIT_LITERAL_PATHSPECS": "0"}
    words = ("check-ignore", "-z", "--stdin", "--no-index")
    result = await held.clone.git.run(held.place(held.next_index), *words, stdin=names, ok=(0, 1), environment=patterns)
    left_out = set(result.fields)
    return [path for path in found if f"./{path}" not in left_out]


def _names(paths: Iterable[str]) -> bytes:
    return b"".join(path.encode("utf-8", "surrogateescape") + b"\0" for path in paths)
