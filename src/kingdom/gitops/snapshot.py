"""What is in a worktree right now, as a tree: tracked and new files, deletions, executable bits, links.

Plumbing, not ``git add``: ``git add`` looks into nested repositories by running git there, with their configuration.
Here only the files are read. A nested repository's files are taken like any others, without its ``.git``.
"""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

from kingdom.gitops.errors import CommandFailed
from kingdom.gitops.files import files_below, sort_out

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kingdom.gitops.worktree import HeldWorktree


async def snapshot(held: HeldWorktree, *, ignored: bool = False, also: Iterable[str] = ()) -> str:
    """Store the files as a tree and return its hash. The index of it is left in ``held.next_index``.

    Files that ``.gitignore`` names are left out unless ``ignored``; ``also`` names files to take in any case.
    """
    extra = list(also)
    if held.index.exists():
        await asyncio.to_thread(shutil.copy2, held.index, held.next_index)  # with its time: see ``publish``
        try:
            return await _store(held, ignored=ignored, also=extra)
        except CommandFailed:
            # The index may name objects that no ref held when somebody pruned: read everything anew, once.
            held.next_index.with_name(f"{held.next_index.name}.lock").unlink(missing_ok=True)
    held.next_index.unlink(missing_ok=True)
    head = await held.head()
    await held.run("read-tree", *([head] if head else ["--empty"]), index=held.next_index)
    return await _store(held, ignored=ignored, also=extra)


async def _store(held: HeldWorktree, *, ignored: bool, also: list[str]) -> str:
    words = ("ls-files", "-z", "--modified", "--others", *(() if ignored else ("--exclude-standard",)))
    listed = (await held.run(*words, index=held.next_index)).fields
    paths = [path for path in listed if not path.endswith("/")]
    nested = [path for path in listed if path.endswith("/")]
    if nested:
        paths += await _files_of_nested(held, nested, ignored=ignored)
    for path in also:
        paths += await asyncio.to_thread(files_below, held.tree.path, path)
    there, gone, folders = await asyncio.to_thread(sort_out, held.tree.path, dict.fromkeys(paths))
    submodules = await _submodules(held, folders) if folders else set()
    there += [folder for folder in folders if folder in submodules]
    gone += [folder for folder in folders if folder not in submodules]  # a file was there before
    if gone:
        await held.run("update-index", "-z", "--force-remove", "--stdin", index=held.next_index, stdin=_names(gone))
    if there:
        words = ("update-index", "-z", "--add", "--remove", "--replace", "--stdin")
        await held.run(*words, index=held.next_index, stdin=_names(there))
    return (await held.run("write-tree", index=held.next_index)).text


async def _submodules(held: HeldWorktree, folders: list[str]) -> set[str]:
    """Which of the folders the index knows as submodules."""
    staged = (await held.run("ls-files", "-z", "--stage", "--", *folders, index=held.next_index)).fields
    return {entry.partition("\t")[2] for entry in staged if entry.startswith("160000 ")}


async def _files_of_nested(held: HeldWorktree, nested: list[str], *, ignored: bool) -> list[str]:
    root: Path = held.tree.path
    found = [path for folder in nested for path in await asyncio.to_thread(files_below, root, folder)]
    if ignored or not found:
        return found
    # This command knows no literal paths; "./" keeps a name that starts with a colon from being read as a pattern.
    names, patterns = _names(f"./{path}" for path in found), {"GIT_LITERAL_PATHSPECS": "0"}
    words = ("check-ignore", "-z", "--stdin", "--no-index")
    result = await held.clone.git.run(held.place(held.next_index), *words, stdin=names, ok=(0, 1), environment=patterns)
    left_out = set(result.fields)
    return [path for path in found if f"./{path}" not in left_out]


def _names(paths: Iterable[str]) -> bytes:
    return b"".join(path.encode("utf-8", "surrogateescape") + b"\0" for path in paths)
