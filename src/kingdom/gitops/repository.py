"""One clone on disk: reading and changing its refs and objects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kingdom.gitops.control import CONTROL, REPO
from kingdom.gitops.errors import BaseNotFound, CloneBroken, CommandFailed
from kingdom.gitops.locks import remove_stale_locks
from kingdom.gitops.names import check_ref, is_hash
from kingdom.gitops.runner import Git, Place, Result

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from kingdom.gitops.urls import RepositoryUrl

ORIGIN: Final = "refs/remotes/origin/"
# Locks, and the new packed-refs, which is written under a lock and stays when its writer is killed.
_left_in_the_way = re.compile(r"nable to create (?:file )?'?(.+?(?:\.lock|/packed-refs\.new))'?: File exists").findall
_LOCK_TRIES: Final = 5


@dataclass(frozen=True)
class Clone:
    """A clone that :class:`~kingdom.gitops.clones.Clones` has made. Its methods never touch a worktree's files."""

    git: Git
    url: RepositoryUrl
    folder: Path
    partial: str | None = None

    @cached_property
    def repo(self) -> Path:
        """The bare repository that worktrees belong to."""
        return self.folder / REPO

    @cached_property
    def control(self) -> Path:
        """The git directory that our own calls name (see ``control``)."""
        return self.folder / CONTROL

    def place(self, work_tree: Path | None = None, index: Path | None = None, locks: tuple[int, ...] = ()) -> Place:
        """Where a command on this clone works."""
        return Place(self.control, work_tree, index, locks, self.url.protocol if self.partial else None)

    async def run(
        self,
        *words: str,
        stdin: bytes | None = None,
        ok: Collection[int] = (0,),
        environment: Mapping[str, str] | None = None,
        truncate_at: int | None = None,
    ) -> Result:
        """Run a git command that needs no work tree."""
        return await self.git.run(
            self.place(), *words, stdin=stdin, ok=ok, environment=environment, truncate_at=truncate_at
        )

    async def commit_of(self, name: str) -> str | None:
        """The commit that a ref or a full hash names, or None."""
        if not is_hash(name):
            check_ref("ref", name)
        found = await self.run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", ok=(0, 1, 128)
        )
        last = found.text.rpartition("\n")[2]
        return last if found.code == 0 and is_hash(last) else None

    async def tree_of(self, commit: str) -> str:
        """The tree of a commit. Raises :class:`CloneBroken` when it is not there."""
        found = await self.run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{tree}}", ok=(0, 1, 128)
        )
        last = found.text.rpartition("\n")[2]
        if found.code != 0 or not is_hash(last):
            raise CloneBroken(f"commit {commit} is not in {self.folder}: verify() says what else is missing")
        return last

    async def resolve_base(self, base: str | None) -> str:
        """The commit of a base: a hash, a branch of the remote, a tag, a full ref; None is the default branch."""
        if base is None:
            branch = await self.default_branch()
            if branch is None:
                raise BaseNotFound(f"{self.url.text} has no default branch: is it empty? Name a base branch")
            base = f"{ORIGIN}{branch}"
        if is_hash(base):
            names = [base]
        else:
            check_ref("base", base)
            names = [base] if base.startswith("refs/") else [f"{ORIGIN}{base}", f"refs/tags/{base}"]
        for name in names:
            if commit := await self.commit_of(name):
                return commit
        known = [name.removeprefix(ORIGIN) for name in await self.refs(ORIGIN) if name != f"{ORIGIN}HEAD"]
        some = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
        raise BaseNotFound(f"{self.url.text} has no branch, tag or commit {base!r}; its branches: {some or 'none'}")

    async def default_branch(self) -> str | None:
        """The branch that the remote's HEAD names, without ``refs/heads/``; None for an empty repository."""
        found = await self.run("symbolic-ref", "--quiet", f"{ORIGIN}HEAD", ok=(0, 1))
        return found.text.removeprefix(ORIGIN) if found.code == 0 else None

    async def refs(self, prefix: str) -> dict[str, str]:
        """Every ref below a prefix that ends in a slash, with the object it names."""
        check_ref("prefix", prefix.rstrip("/"))
        found = await self.run("for-each-ref", "--format=%(objectname) %(refname)", prefix)
        pairs = (line.partition(" ") for line in found.text.splitlines())
        return {name: value for value, _, name in pairs}

    async def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether every commit of ``older`` is in the history of ``newer``."""
        return (await self.run("merge-base", "--is-ancestor", older, newer, ok=(0, 1))).code == 0

    async def lacks(self, commit: str) -> str:
        """What git says is missing of a commit, its history and its files; nothing when all of it is there."""
        try:
            await self.run("rev-list", "--objects", "--quiet", "--end-of-options", commit, "--")
        except CommandFailed as error:
            if not error.answered:
                raise
            return error.said or str(error)
        return ""

    async def update_refs(self, changes: Sequence[str]) -> None:
        """Change refs in one go, in the language of ``git update-ref --stdin``."""
        lines = "".join(f"{change}\n" for change in changes).encode()
        await self.past_locks(lambda: self.run("update-ref", "--no-deref", "--stdin", stdin=lines))

    async def past_locks(self, step: Callable[[], Awaitable[object]]) -> None:
        """Do what changes refs; once more when files were in its way that a killed git left, or that are gone now."""
        for left in reversed(range(_LOCK_TRIES)):
            try:
                await step()
            except CommandFailed as error:
                if not left or not self._cleared(error.said):
                    raise
            else:
                return

    def _cleared(self, said: str) -> bool:
        """Whether git stumbled over what another one had left, and none of it is there any more."""
        # git names it as it was asked to, and makes it where the links in ``control`` lead.
        named = [self.control / path for path in _left_in_the_way(said)]
        found = [(path.parent / path.stem).resolve().with_name(path.name) for path in named]
        remove_stale_locks(found, [self.folder])
        return bool(found) and not any(path.exists() for path in found)
