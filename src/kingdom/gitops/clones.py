"""One bare clone per URL, made once, fetched into afterwards.

A clone is made under another name and renamed when it is complete, so that an existing clone is whole. The next call
removes what a killed process left. A damaged clone is moved aside, never deleted: it may hold checkpoints that exist
nowhere else. What can be read of them is copied to the new clone before it is renamed.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kingdom.gitops.errors import BaseNotFound, CloneBroken, CommandFailed, GitError, InvalidInput
from kingdom.gitops.files import write_file
from kingdom.gitops.locks import locked
from kingdom.gitops.names import OWN_REFS, RepositoryUrl, check_ref, check_url, is_hash
from kingdom.gitops.repository import (
    CONTROL,
    ORIGIN_REFS,
    REPO,
    Clone,
    control_intact,
    make_control,
    make_git_dirs,
    restore_config,
)
from kingdom.gitops.runner import GitLocation, GitRunner

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


# ── salvage of a damaged clone ───────────────────────────────────────────────────────────────────────────────────────
# The damaged repository is read as files. git never runs in it: its configuration may be hostile.


_OWN_REFS: Final = ("refs/kingdom/", "refs/heads/kingdom/")
_is_object_file = re.compile(r"(?:[0-9a-f]{2}/[0-9a-f]{38,62}|pack/pack-[0-9a-f]+\.(?:pack|idx|rev))\Z").match


async def salvage(clone: Clone, damaged: Sequence[Path]) -> tuple[str, ...]:
    """Copy the objects of damaged repositories, and our refs and worktrees of the first one, into a new clone.

    Return the refs that could not be copied.
    """
    first, *_ = damaged
    wanted = _refs(first)
    for broken in damaged if wanted else ():
        _copy_objects(broken / "objects", clone.repo / "objects")
    if (first / "worktrees").is_dir():
        shutil.copytree(first / "worktrees", clone.repo / "worktrees", symlinks=True)
    return tuple([name for name, value in sorted(wanted.items()) if not await _restore_ref(clone, name, value)])


async def _restore_ref(clone: Clone, name: str, value: str) -> bool:
    if await clone.missing_objects(value):
        return False
    try:
        await clone.update_refs([f"create {name} {value}"])
    except CommandFailed as error:
        if "exists; cannot create" not in error.said:
            raise
        return False  # refs that cannot exist side by side, such as a/b and a
    return True


def _refs(broken: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        packed = (broken / "packed-refs").read_text("utf-8", "replace")
    except OSError:
        packed = ""
    for line in packed.splitlines():
        value, _, name = line.partition(" ")
        _add_ref(found, name, value)
    for prefix in _OWN_REFS:
        for folder, _, files in os.walk(broken / prefix):
            for file in files:
                path = broken / folder / file
                try:
                    value = path.read_text("utf-8", "replace").strip()
                except OSError:
                    continue
                _add_ref(found, path.relative_to(broken).as_posix(), value)
    return found


def _add_ref(found: dict[str, str], name: str, value: str) -> None:
    if not name.startswith(_OWN_REFS) or not is_hash(value):
        return
    try:
        found[check_ref("ref", name)] = value
    except GitError:
        return


def _copy_objects(source: Path, target: Path) -> None:
    """Copy missing objects and packs; nothing else, such as alternates."""
    for folder, _, files in os.walk(source):
        for file in files:
            path = source / folder / file
            name = path.relative_to(source).as_posix()
            if _is_object_file(name) and not path.is_symlink() and not (target / name).exists():
                (target / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(path, target / name)


# ── clones ───────────────────────────────────────────────────────────────────────────────────────────────────────────


_CLONE_NOTE: Final = "clone.json"
_BROKEN_PATTERN: Final = "broken-*.git"
_BRANCHES_REFSPEC: Final = "+refs/heads/*:refs/remotes/origin/*"
_is_filter = re.compile(r"(?:blob:none|tree:0|blob:limit=[0-9]+[kmg]?)\Z").match


@dataclass(frozen=True)
class CloneOptions:
    """How much of a repository is cloned. Only used when the clone is made."""

    depth: int | None = None
    """The number of commits of each branch; None for all."""
    partial: str | None = None
    """Fetch objects when they are needed: ``blob:none``, ``blob:limit=1m`` or ``tree:0``."""

    def __post_init__(self) -> None:
        if self.depth is not None and self.depth < 1:
            raise InvalidInput(f"depth {self.depth}: at least one commit is needed")
        if self.partial is not None and not _is_filter(self.partial):
            raise InvalidInput(f"partial {self.partial!r}: use blob:none, blob:limit=SIZE or tree:0")


@dataclass(frozen=True)
class EnsuredClone:
    """The clone, and what was done to get it."""

    clone: Clone
    made: bool = False
    fetched: bool = False
    broken: Path | None = None
    """Where the damaged clone was moved to."""
    lost: tuple[str, ...] = ()
    """Refs of the damaged clone that could not be copied."""


class Clones:
    """The clones below one folder."""

    def __init__(
        self,
        git: GitRunner,
        folder: Path,
        *,
        allow_local: bool = False,
        lock_timeout: float = 600.0,
        network_timeout: float = 1800.0,
    ) -> None:
        self.git = git
        self.folder = folder.resolve()
        self.allow_local = allow_local
        self._lock_timeout = lock_timeout
        self._network_timeout = network_timeout

    def find(self, url: str) -> Clone:
        """Return the clone of a URL, without checking it."""
        checked = check_url(url, allow_local=self.allow_local)
        folder = self.folder / checked.key
        try:
            partial = json.loads((folder / _CLONE_NOTE).read_text("utf-8")).get("partial")
        except (OSError, ValueError, AttributeError):
            partial = None
        return Clone(self.git, checked, folder, partial)

    async def ensure(
        self, url: str, options: CloneOptions | None = None, *, fetch: bool = True, deep: bool = False
    ) -> EnsuredClone:
        """Clone, or fetch, or (``fetch=False``) only check that the clone is intact.

        ``deep`` checks every object instead of the refs only. Safe to call from several processes at once.
        """
        clone = self.find(url)
        clone.folder.mkdir(parents=True, exist_ok=True)
        async with locked(clone.folder / "lock", self._lock_timeout):
            self._sweep(clone.folder)
            if not (clone.folder / REPO).exists():
                made, lost = await self._make(clone.url, options or CloneOptions())
                return EnsuredClone(made, made=True, fetched=True, lost=lost)
            if damage := await self._damage(clone, deep=deep):
                return await self._make_again(clone, options or CloneOptions(partial=clone.partial), damage)
            await restore_config(self.git, clone.folder)
            if fetch:
                await self._fetch_branches(clone, None)
            return EnsuredClone(clone, fetched=fetch)

    async def fetch_ref(self, clone: Clone, source: str, target: str) -> str:
        """Fetch a ref that is no branch, such as a pull request's head, into one of our refs; return its commit.

        Raise :class:`RemoteFailed` if the remote has no ref ``source``. Safe to call from several processes at once.
        """
        check_ref("source", source)
        if not check_ref("target", target).startswith(OWN_REFS):
            raise InvalidInput(f"target {target!r}: it must be below {OWN_REFS}")
        async with locked(clone.folder / "lock", self._lock_timeout):
            await self._fetch(clone, f"+{source}:{target}")
        if (commit := await clone.commit_of(target)) is None:
            raise BaseNotFound(f"{source} of {clone.url.text} is no commit")
        return commit

    async def remove(self, url: str) -> None:
        """Delete a clone with everything in it, including checkpoints, if it exists."""
        clone = self.find(url)
        if not clone.folder.exists():
            return
        async with locked(clone.folder / "lock", self._lock_timeout):
            shutil.rmtree(clone.folder)

    async def _make(self, url: RepositoryUrl, options: CloneOptions) -> tuple[Clone, tuple[str, ...]]:
        """Make a clone with the content of those moved aside; return it and the refs that could not be copied."""
        folder = self.folder / url.key
        making = folder / f"making-{secrets.token_hex(4)}"
        making.mkdir()
        listing = GitLocation(making, remote=url)
        advertised = await self.git.run_remote(
            listing, "ls-remote", "--symref", "--end-of-options", url.text, "HEAD", limit=self._network_timeout
        )
        wide = re.search(r"^[0-9a-f]{64}\t", advertised.text, re.MULTILINE) is not None
        object_format = "sha256" if wide else "sha1"
        await make_git_dirs(self.git, making, object_format=object_format, url=url.text, partial=options.partial)
        fresh = Clone(self.git, url, making, options.partial)
        await self._fetch_branches(fresh, options.depth)
        # Each clone has the content of those before it, so the refs of the last one count: the last one renamed.
        aside = sorted(folder.glob(_BROKEN_PATTERN), key=lambda path: path.stat().st_ctime_ns, reverse=True)
        lost = await salvage(fresh, aside) if aside else ()
        note = {"version": 1, "url": url.text, "partial": options.partial, "objectFormat": object_format}
        write_file(folder / _CLONE_NOTE, json.dumps(note).encode())
        if (folder / CONTROL).exists():
            shutil.rmtree(folder / CONTROL)
        (folder / REPO).parent.mkdir(exist_ok=True)
        (making / REPO).rename(folder / REPO)
        (making / CONTROL).rename(folder / CONTROL)
        shutil.rmtree(making)
        return Clone(self.git, url, folder, options.partial), lost

    async def _fetch(self, clone: Clone, refspec: str, *options: str) -> None:
        words = ["fetch", "--quiet", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules"]
        words += ["--update-shallow"]  # else a remote that is a shallow clone itself gives nothing
        words += ["--force", *options, *([f"--filter={clone.partial}"] if clone.partial else [])]
        place = GitLocation(clone.control, remote=clone.url)
        words += ["--", "origin", refspec]
        await clone.retry_past_locks(lambda: self.git.run_remote(place, *words, limit=self._network_timeout))

    async def _fetch_branches(self, clone: Clone, depth: int | None) -> None:
        await self._fetch(clone, _BRANCHES_REFSPEC, "--prune", *([f"--depth={depth}"] if depth else []))
        if await clone.commit_of(f"{ORIGIN_REFS}HEAD") is None:
            await self._find_default_branch(clone)

    async def _find_default_branch(self, clone: Clone) -> None:
        place = GitLocation(clone.control, remote=clone.url)
        words = ("ls-remote", "--symref", "--", "origin", "HEAD")
        advertised = await self.git.run_remote(place, *words, limit=self._network_timeout)
        found = re.search(r"^ref: refs/heads/(\S+)\tHEAD$", advertised.text, re.MULTILINE)
        for name in [found[1]] if found else ["main", "master"]:
            if await clone.commit_of(f"{ORIGIN_REFS}{name}"):
                await clone.run("symbolic-ref", f"{ORIGIN_REFS}HEAD", f"{ORIGIN_REFS}{name}")
                return

    async def _damage(self, clone: Clone, *, deep: bool) -> str:
        """Return what is wrong with a clone; empty if nothing is."""
        repo = clone.repo
        if missing := [name for name in ("HEAD", "objects", "refs") if not (repo / name).exists()]:
            return f"{', '.join(missing)} missing"
        if not control_intact(clone.folder):
            try:
                await self._remake_control(clone)
            except CloneBroken as error:
                return str(error)
            except CommandFailed as error:
                if not error.answered:
                    raise
                return str(error)
        if not re.match(r"ref: refs/|[0-9a-f]{40}", (repo / "HEAD").read_text("utf-8", "replace")):
            write_file(repo / "HEAD", b"ref: refs/heads/main\n", scratch=clone.folder)
        (repo / "packed-refs").touch()
        words = ("fsck", "--connectivity-only", "--no-dangling", "--no-progress")
        try:
            await clone.run("for-each-ref", "--format=%(objecttype)", stdin=b"")
            if deep:
                await clone.run(*words)
        except CommandFailed as error:
            if not error.answered:
                raise
            return error.said or str(error)
        return ""

    async def _remake_control(self, clone: Clone) -> None:
        try:
            note = json.loads((clone.folder / _CLONE_NOTE).read_text("utf-8"))
            object_format, partial = str(note["objectFormat"]), note["partial"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CloneBroken(f"{clone.folder / _CLONE_NOTE} cannot be read: {error}") from None
        scratch = clone.folder / f"making-{secrets.token_hex(4)}"
        scratch.mkdir()
        await make_git_dirs(self.git, scratch, object_format=object_format, url=clone.url.text, partial=partial)
        await make_control(self.git, clone.folder, object_format, (scratch / REPO / "config").read_bytes())
        shutil.rmtree(scratch)

    async def _make_again(self, clone: Clone, options: CloneOptions, damage: str) -> EnsuredClone:
        aside = clone.folder / _BROKEN_PATTERN.replace("*", secrets.token_hex(4))
        clone.repo.rename(aside)
        try:
            made, lost = await self._make(clone.url, options)
        except CommandFailed as error:
            raise CloneBroken(
                f"the clone {clone.repo} is damaged ({damage}) and was moved to {aside}; a new one failed: {error}"
            ) from error
        return EnsuredClone(made, made=True, fetched=True, broken=aside, lost=lost)

    def _sweep(self, folder: Path) -> None:
        for pattern in ("making-*", f"{CONTROL}-*"):
            for left in folder.glob(pattern):
                shutil.rmtree(left, ignore_errors=True)
        for left in folder.glob(".*"):  # unfinished files
            left.unlink()
