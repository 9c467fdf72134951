"""The git repository in which a user calls a command: where it is, what is checked out, what is not committed."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kingdom.cli.output import CommandError

_BRANCH_LINE: Final = "# branch.head "
_COMMIT_LINE: Final = "# branch.oid "
_DETACHED: Final = "(detached)"
_NO_COMMIT: Final = "(initial)"
_MAX_NAMED_FILES: Final = 3
_SHORT_HASH_CHARS: Final = 10


@dataclass(frozen=True, slots=True)
class Checkout:
    """What is checked out in a repository."""

    root: str
    branch: str | None  # None: a commit is checked out, no branch
    commit: str | None  # None: there is no commit yet
    changed: tuple[str, ...]  # files with changes that are not committed
    untracked: tuple[str, ...]

    @property
    def base(self) -> str | None:
        """The branch or commit that work starts from; None in an empty repository."""
        return None if self.commit is None else self.branch or self.commit

    @property
    def start(self) -> str | None:
        """The same, for a person."""
        return self.branch if self.branch or self.commit is None else f"the commit {self._short_commit}"

    @property
    def _short_commit(self) -> str:
        return (self.commit or "")[:_SHORT_HASH_CHARS]

    def missing_text(self) -> str | None:
        """Return what work that starts from the last commit does not have; None if nothing is missing."""
        parts = [
            f"{len(files)} {what} {'file' if len(files) == 1 else 'files'} ({_some(files)})"
            for what, files in (("changed", self.changed), ("untracked", self.untracked))
            if files
        ]
        if not parts:
            return None
        start = f"the last commit, {self._short_commit}" if self.commit else "an empty folder"
        return f"it starts from {start}, without {' and '.join(parts)}: commit first what it needs"


def _some(files: tuple[str, ...]) -> str:
    return ", ".join(files[:_MAX_NAMED_FILES]) + (", …" if len(files) > _MAX_NAMED_FILES else "")


def read_checkout(folder: Path) -> Checkout:
    """Return what is checked out in the repository that contains a folder; raise a :class:`CommandError`."""
    if not folder.is_dir():
        raise CommandError("NO_REPOSITORY", f"there is no folder {folder}: name one in a git repository with --repo")
    found = _git(folder, "rev-parse", "--show-toplevel")
    if found.returncode:
        raise CommandError("NO_REPOSITORY", _not_a_repository(folder, found.stderr))
    root = found.stdout.removesuffix("\n")
    status = _git(folder, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--no-renames")
    if status.returncode:
        raise CommandError("NO_REPOSITORY", f"git status failed in {root}: {status.stderr.strip()}")
    return _parsed(root, status.stdout.split("\0"))


def check_has_start(checkout: Checkout) -> None:
    """Raise an error where nothing is checked out yet, but there are branches: one of them is to be the start."""
    if checkout.commit is not None:
        return
    listed = _git(
        Path(checkout.root), "for-each-ref", "--sort=-committerdate", "--format=%(refname:lstrip=2)", "refs/heads/"
    )
    if branches := listed.stdout.split():
        names = f"has {_some(tuple(branches))}" if len(branches) > 1 else f"has the branch {branches[0]}"
        newest = shlex.quote(branches[0])
        raise CommandError(
            "NO_START",
            f"nothing is committed on {checkout.branch} yet, but {checkout.root} {names}: "
            f"take it first (git merge {newest}), or start from it with --base {newest}",
        )


def _parsed(root: str, lines: list[str]) -> Checkout:
    branch, commit = None, None
    changed, untracked = [], []
    for line in lines:
        if line.startswith(_BRANCH_LINE):
            branch = line.removeprefix(_BRANCH_LINE)
        elif line.startswith(_COMMIT_LINE):
            commit = line.removeprefix(_COMMIT_LINE)
        elif line.startswith("? "):
            untracked.append(line[2:])
        elif line.startswith("1 "):
            changed.append(line.split(" ", 8)[-1])
        elif line.startswith("u "):
            changed.append(line.split(" ", 10)[-1])
    return Checkout(
        root,
        None if branch == _DETACHED else branch,
        None if commit == _NO_COMMIT else commit,
        tuple(changed),
        tuple(untracked),
    )


def _not_a_repository(folder: Path, said: str) -> str:
    if "not a git repository" in said:
        return (
            f"{folder.resolve()} is not in a git repository: go into one, name one with --repo DIR, or make one "
            "(git init && git add -A && git commit -m Start)"
        )
    if "must be run in a work tree" in said:
        return f"{folder.resolve()} has no working tree: register it with kingdom git add, and name it with --repo"
    return f"git cannot read {folder.resolve()}: {' '.join(said.split())}"


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the user's own git; it runs no hook and no other program for these commands."""
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *words]
    try:
        return subprocess.run(  # noqa: S603 - a list of our own words
            command, capture_output=True, text=True, errors="surrogateescape", check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise CommandError("NO_GIT", "there is no git on the PATH: install git first") from None
