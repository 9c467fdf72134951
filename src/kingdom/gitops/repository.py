"""One clone on disk: its two git directories, its refs and its objects.

``repo/.git`` is the bare repository of the worktrees. Agents in a worktree can write its objects and refs (they must),
but also its configuration, hooks and ``info`` folder. ``control`` is the git directory that our own calls use. Its
configuration is ours; its objects and refs are symbolic links into ``repo/.git``. So what somebody writes into
``repo/.git/config`` affects their git, never ours.
"""

from __future__ import annotations

import re
import secrets
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kingdom.gitops.errors import BaseNotFound, CloneBroken, CommandFailed
from kingdom.gitops.files import write_file
from kingdom.gitops.locks import remove_stale_locks
from kingdom.gitops.names import all_of, check_ref, is_hash
from kingdom.gitops.runner import GitLocation, GitResult, GitRunner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from kingdom.gitops.names import RepositoryUrl


# ── git directories ──────────────────────────────────────────────────────────────────────────────────────────────────


# Must end in `.git`: otherwise Claude Code takes no git command in a worktree for read-only.
REPO: Final = "repo/.git"
CONTROL: Final = "control"
_SHARED_ENTRIES: Final = ("objects", "refs", "packed-refs", "shallow")
# Allowed in repo/.git/config. Anything else (filters, hooks, aliases, includes, …) could be a trap for the next person
# or agent who uses git in a worktree, so the file is restored.
_HARMLESS_SETTINGS: Final = frozenset({
    "core.repositoryformatversion", "core.filemode", "core.bare", "core.symlinks", "core.ignorecase",
    "core.precomposeunicode", "core.logallrefupdates", "extensions.objectformat", "extensions.partialclone",
    "remote.origin.url", "remote.origin.fetch", "remote.origin.promisor", "remote.origin.partialclonefilter",
    "user.name", "user.email",
})  # fmt: skip


async def make_git_dirs(git: GitRunner, folder: Path, *, object_format: str, url: str, partial: str | None) -> None:
    """Create an empty ``repo/.git`` and its ``control`` in ``folder``."""
    repo = folder / REPO
    repo.parent.mkdir()
    await _init(git, repo, object_format)
    place = GitLocation(repo)
    settings = [("remote.origin.url", url), ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")]
    if partial is not None:
        settings += [
            ("core.repositoryformatversion", "1"),
            ("extensions.partialClone", "origin"),
            ("remote.origin.promisor", "true"),
            ("remote.origin.partialclonefilter", partial),
        ]
    for name, value in settings:
        await git.run(place, "config", "--file", str(repo / "config"), name, value)
    (repo / "packed-refs").touch()
    await make_control(git, folder, object_format, (repo / "config").read_bytes())


async def make_control(git: GitRunner, folder: Path, object_format: str, config: bytes) -> None:
    """Create ``control`` beside ``repo/.git``, replacing a damaged one."""
    fresh = folder / f"{CONTROL}-{secrets.token_hex(4)}"
    await _init(git, fresh, object_format)
    for name in ("objects", "refs"):
        shutil.rmtree(fresh / name)
    for name in _SHARED_ENTRIES:
        (fresh / name).symlink_to(f"../{REPO}/{name}")
    (fresh / "config").write_bytes(config)
    if (folder / CONTROL).exists():
        shutil.rmtree(folder / CONTROL)
    fresh.rename(folder / CONTROL)


def control_intact(folder: Path) -> bool:
    """Return whether ``control`` has its own configuration and links into ``repo/.git``."""
    control = folder / CONTROL
    try:
        for name in _SHARED_ENTRIES:
            if not (control / name).is_symlink():  # git removes `shallow` when the clone is no longer shallow
                (control / name).symlink_to(f"../{REPO}/{name}")
        leads = all(str((control / name).readlink()) == f"../{REPO}/{name}" for name in _SHARED_ENTRIES)
        return leads and (control / "HEAD").is_file() and (control / "config").stat().st_size > 0
    except OSError:
        return False


async def restore_config(git: GitRunner, folder: Path) -> bool:
    """Restore ``repo/.git/config`` if it has settings that are not allowed; return whether it had.

    Needs the lock of the clone.
    """
    theirs, ours = folder / REPO / "config", folder / CONTROL / "config"
    if theirs.is_file() and theirs.read_bytes() == ours.read_bytes():
        return False
    expected = dict(await _settings(git, ours))
    try:
        harmless = all(
            name in _HARMLESS_SETTINGS
            and expected.get(name, value if name.startswith(("user.", "core.")) else None) == value
            for name, value in await _settings(git, theirs)
        )
    except CommandFailed:
        harmless = False
    if harmless:
        return False
    write_file(theirs, ours.read_bytes(), scratch=folder)
    return True


async def _settings(git: GitRunner, path: Path) -> list[tuple[str, str]]:
    listed = await git.run(GitLocation(path.parent), "config", "--file", str(path), "--no-includes", "--list", "-z")
    pairs = (field.partition("\n") for field in listed.fields)
    return [(name, value) for name, _, value in pairs]


async def _init(git: GitRunner, folder: Path, object_format: str) -> None:
    words = ("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}")
    await git.run(GitLocation(folder), *words)


# ── the clone ────────────────────────────────────────────────────────────────────────────────────────────────────────


ORIGIN_REFS: Final = "refs/remotes/origin/"
# Lock files, and packed-refs.new, which is written under a lock and stays if its writer is killed.
_blocking_files = re.compile(r"nable to create (?:file )?'?(.+?(?:\.lock|/packed-refs\.new))'?: File exists").findall
_LOCK_TRIES: Final = 5
_MANY_LOOSE_OBJECTS: Final = 5000


_NOBODY: Final = {"NAME": "Kingdom", "EMAIL": "kingdom@localhost", "DATE": "1970-01-01T00:00:00Z"}


@dataclass(frozen=True)
class Clone:
    """A clone made by :class:`~kingdom.gitops.clones.Clones`. Its methods never touch a worktree's files."""

    git: GitRunner
    url: RepositoryUrl
    folder: Path
    partial: str | None = None

    @cached_property
    def repo(self) -> Path:
        """The bare repository of the worktrees."""
        return self.folder / REPO

    @cached_property
    def control(self) -> Path:
        """The git directory of our own calls."""
        return self.folder / CONTROL

    def place(
        self, work_tree: Path | None = None, index: Path | None = None, locks: tuple[int, ...] = ()
    ) -> GitLocation:
        """Return the location of a command on this clone."""
        return GitLocation(self.control, work_tree, index, locks, self.url if self.partial else None)

    async def run(
        self,
        *words: str,
        stdin: bytes | None = None,
        ok: Collection[int] = (0,),
        environment: Mapping[str, str] | None = None,
        truncate_at: int | None = None,
    ) -> GitResult:
        """Run a git command that needs no work tree."""
        return await self.git.run(
            self.place(), *words, stdin=stdin, ok=ok, environment=environment, truncate_at=truncate_at
        )

    async def commit_of(self, name: str) -> str | None:
        """Return the commit of a ref or full hash, or None."""
        (found,) = await self.commits_of(name)
        return found

    async def commits_of(self, *names: str) -> list[str | None]:
        """Return the commits of refs or full hashes, None for each that does not exist, in one call of git."""
        for name in names:
            if not is_hash(name):
                check_ref("ref", name)
        asked = "".join(f"{name}^{{commit}}\n" for name in names).encode()
        found = (await self.run("cat-file", "--batch-check=%(objectname)", stdin=asked)).text.splitlines()
        return [line if is_hash(line) else None for line in found]

    async def tree_of(self, commit: str) -> str:
        """Return the tree of a commit; raise :class:`CloneBroken` if it is missing."""
        found = await self.run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{tree}}", ok=(0, 1, 128)
        )
        last = found.text.rpartition("\n")[2]
        if found.code != 0 or not is_hash(last):
            raise self.commit_missing(commit)
        return last

    def commit_missing(self, commit: str) -> CloneBroken:
        """Return the error for a commit that should be there."""
        return CloneBroken(f"commit {commit} is not in {self.folder}: verify() says what else is missing")

    async def resolve_base(self, base: str | None) -> str:
        """Return the commit of a base: a hash, a remote branch, a tag, a full ref, or None for the default branch."""
        if base is None:
            branch = await self.default_branch()
            if branch is None and not await self.refs(ORIGIN_REFS):
                return await self._empty_commit()
            if branch is None:
                raise BaseNotFound(f"{self.url.text} has no default branch: name a base branch")
            base = f"{ORIGIN_REFS}{branch}"
        if is_hash(base):
            names = [base]
        else:
            check_ref("base", base)
            names = [base] if base.startswith("refs/") else [f"{ORIGIN_REFS}{base}", f"refs/tags/{base}"]
        for name in names:
            if commit := await self.commit_of(name):
                return commit
        known = [
            name.removeprefix(ORIGIN_REFS) for name in await self.refs(ORIGIN_REFS) if name != f"{ORIGIN_REFS}HEAD"
        ]
        some = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
        raise BaseNotFound(f"{self.url.text} has no branch, tag or commit {base!r}; its branches: {some or 'none'}")

    async def _empty_commit(self) -> str:
        """Return a commit without files and parents, to start from in an empty repository. It is always the same."""
        tree = (await self.run("mktree", stdin=b"")).text
        who = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in _NOBODY.items()}
        return (await self.run("commit-tree", "-m", "Start", tree, environment=who)).text

    async def default_branch(self) -> str | None:
        """Return the remote's default branch, without ``refs/heads/``; None for an empty repository."""
        found = await self.run("symbolic-ref", "--quiet", f"{ORIGIN_REFS}HEAD", ok=(0, 1))
        return found.text.removeprefix(ORIGIN_REFS) if found.code == 0 else None

    async def refs(self, prefix: str) -> dict[str, str]:
        """Return all refs below a prefix that ends in a slash, with their objects."""
        check_ref("prefix", prefix.rstrip("/"))
        found = await self.run("for-each-ref", "--format=%(objectname) %(refname)", prefix)
        pairs = (line.partition(" ") for line in found.text.splitlines())
        return {name: value for value, _, name in pairs}

    async def forget(self, workflow: str) -> None:
        """Delete all refs of a workflow: branches, checkpoints, rescues. May be repeated."""
        refs = [name for prefix in all_of(workflow) for name in await self.refs(prefix)]
        if refs:
            await self.update_refs([f"delete {name}" for name in refs])

    async def pack(self) -> bool:
        """Pack loose objects if there are many of them; return whether there were. Nothing is deleted."""
        sample = self.repo / "objects" / "17"  # one of 256 folders: enough to estimate, as git itself does
        if not sample.is_dir() or sum(1 for _ in sample.iterdir()) <= _MANY_LOOSE_OBJECTS // 256:
            return False
        await self.run("repack", "-d", "-l", "-q")
        return True

    async def is_ancestor(self, older: str, newer: str) -> bool:
        """Return whether ``older`` is in the history of ``newer``."""
        return (await self.run("merge-base", "--is-ancestor", older, newer, ok=(0, 1))).code == 0

    async def missing_objects(self, commit: str) -> str:
        """Return what git reports as missing of a commit, its history and its files; empty if nothing is."""
        try:
            await self.run("rev-list", "--objects", "--quiet", "--end-of-options", commit, "--")
        except CommandFailed as error:
            if not error.answered:
                raise
            return error.said or str(error)
        return ""

    async def update_refs(self, changes: Sequence[str]) -> None:
        """Change refs in one transaction, with commands of ``git update-ref --stdin``."""
        lines = "".join(f"{change}\n" for change in changes).encode()
        await self.retry_past_locks(lambda: self.run("update-ref", "--no-deref", "--stdin", stdin=lines))

    async def retry_past_locks(self, step: Callable[[], Awaitable[object]]) -> None:
        """Run a step that changes refs; retry it after removing lock files that a killed git left."""
        for left in reversed(range(_LOCK_TRIES)):
            try:
                await step()
            except CommandFailed as error:
                if not left or not self._cleared(error.said):
                    raise
            else:
                return

    def _cleared(self, said: str) -> bool:
        """Remove stale lock files named in git's error; return whether none of them is left."""
        # git names the path it was given; the file is where the links in ``control`` lead.
        named = [self.control / path for path in _blocking_files(said)]
        found = [(path.parent / path.stem).resolve().with_name(path.name) for path in named]
        remove_stale_locks(found, [self.folder])
        return bool(found) and not any(path.exists() for path in found)
