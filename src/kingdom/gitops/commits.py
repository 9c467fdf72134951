"""Make commits without a work tree, read them back, and compare them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kingdom.gitops.errors import InvalidInput
from kingdom.gitops.names import check_hash, check_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kingdom.gitops.repository import Clone


Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def stamp(moment: datetime) -> str:
    """Return a time as part of a ref: ``20260131T235959.123456Z``."""
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def git_date(moment: datetime) -> str:
    """Return a time for git's environment variables."""
    return f"{int(moment.timestamp())} +0000"


# ── commits ──────────────────────────────────────────────────────────────────────────────────────────────────────────


_LOG_FORMAT: Final = "%H%x00%T%x00%P%x00%an%x00%ae%x00%ct%x00%B"
_author = re.compile(r" *([^<>\x00-\x1f]*[^<>\x00-\x20]) *<([^<>\x00-\x20]+@[^<>\x00-\x20]+)> *\Z").match
_trailer_line = re.compile(r"^(Kingdom-[A-Za-z-]+): (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class CommitAuthor:
    """The author and committer of a commit."""

    name: str = "Kingdom"
    email: str = "kingdom@localhost"
    co_authors: tuple[CommitAuthor, ...] = ()
    """Others whom the commit's message names, as ``Co-authored-by``."""

    def __post_init__(self) -> None:
        check_line("name of an author", self.name)
        check_line("e-mail address of an author", self.email)

    @classmethod
    def parse(cls, text: str) -> CommitAuthor:
        """Read ``Name <mail@example.com>``; raise :class:`InvalidInput`."""
        found = _author(text) if isinstance(text, str) else None
        if found is None:
            raise InvalidInput(f"author {text!r:.80}: write it as 'Ada Lovelace <ada@example.com>'")
        return cls(found[1].strip(), found[2])

    def __str__(self) -> str:
        return f"{self.name} <{self.email}>"


SHORT_HASH_CHARS: Final = 12
"""Of a hash, in a text for people."""


@dataclass(frozen=True)
class Commit:
    """A commit as it is stored."""

    hash: str
    tree: str
    parents: tuple[str, ...]
    author: str
    email: str
    at: datetime
    message: str

    @property
    def title(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]

    @property
    def trailers(self) -> dict[str, str]:
        """The ``Kingdom-…`` lines at the end of the message."""
        last = self.message.rstrip().rpartition("\n\n")[2]
        return dict(_trailer_line.findall(last))


async def make_commit(
    clone: Clone,
    tree: str,
    parents: Sequence[str],
    message: str,
    trailers: Mapping[str, str],
    by: CommitAuthor,
    at: datetime,
) -> str:
    """Store a commit and return its hash. No ref holds it yet."""
    lines = [f"{name}: {check_line(name, value)}\n" for name, value in trailers.items()]
    lines += [f"Co-authored-by: {other}\n" for other in by.co_authors]
    return await store_commit(clone, tree, parents, f"{message.strip() or 'No title'}\n\n{''.join(lines)}", by, at)


async def store_commit(
    clone: Clone, tree: str, parents: Sequence[str], message: str, by: CommitAuthor, at: datetime
) -> str:
    """Store a commit with exactly this message; the same arguments give the same hash. No ref holds it yet."""
    if "\0" in message:
        raise InvalidInput("the message of a commit contains a NUL character")
    date = git_date(at)
    environment = {
        "GIT_AUTHOR_NAME": by.name, "GIT_AUTHOR_EMAIL": by.email, "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_NAME": by.name, "GIT_COMMITTER_EMAIL": by.email, "GIT_COMMITTER_DATE": date,
    }  # fmt: skip
    words = [word for parent in parents for word in ("-p", parent)]
    text = message.encode("utf-8", "surrogateescape")
    made = await clone.run("commit-tree", tree, *words, "-F", "-", stdin=text, environment=environment)
    return made.text


async def read_commits(
    clone: Clone, *revisions: str, limit: int | None = None, history: bool = True, first_parent: bool = False
) -> list[Commit]:
    """Return the commits ``revisions`` (hashes, ``^hash``) select, newest first; without ``history`` only these.

    With ``first_parent``, of a merge only the branch that was merged into.
    """
    if not revisions:
        return []
    words = ["log", "-z", f"--format=tformat:{_LOG_FORMAT}", "--no-show-signature", "--no-mailmap", "--no-color"]
    words += [] if limit is None else [f"--max-count={limit}"]
    words += ["--first-parent"] if first_parent else []
    words += [] if history else ["--no-walk=unsorted"]
    fields = (await clone.run(*words, "--end-of-options", *revisions, "--")).fields
    return [_commit(fields[at : at + 7]) for at in range(0, len(fields) - 6, 7)]


async def independent(clone: Clone, *commits: str | None) -> list[str]:
    """Return the commits that are not in the history of another one, in the given order."""
    found = list(dict.fromkeys(commit for commit in commits if commit is not None))
    if len(found) < 2:
        return found
    kept = set((await clone.run("merge-base", "--independent", *found)).text.split())
    return [commit for commit in found if commit in kept]


def _commit(fields: Sequence[str]) -> Commit:
    name, tree, parents, author, email, seconds, message = fields
    at = datetime.fromtimestamp(int(seconds), UTC)
    return Commit(name, tree, tuple(parents.split()), author, email, at, message)


# ── diffs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


STATUS_WORDS: Final = {
    "A": "added",
    "M": "modified",
    "D": "deleted",
    "R": "renamed",
    "C": "copied",
    "T": "type changed",
}
_MAX_PARALLEL_PATCHES: Final = 4


@dataclass(frozen=True)
class FileDiff:
    """One changed file. ``added`` and ``removed`` count lines; both are None for a binary file."""

    path: str
    status: str
    """``added``, ``modified``, ``deleted``, ``renamed``, ``copied`` or ``type changed``."""
    old_path: str | None
    """The former path of a renamed or copied file."""
    old_mode: str
    new_mode: str
    added: int | None
    removed: int | None
    patch: str | None = None
    """The patch, if it was requested and the file is not binary."""
    truncated: bool = False
    """Whether the patch was cut at the size limit."""

    @property
    def binary(self) -> bool:
        """Whether git treats it as binary, so that there is no patch."""
        return self.added is None


async def diff(
    clone: Clone,
    older: str,
    newer: str,
    *,
    patches: bool = False,
    max_patch: int = 256 * 1024,
    max_patches: int | None = None,
) -> list[FileDiff]:
    """Return the changed files between two commits; with ``patches``, each with up to ``max_patch`` bytes of patch.

    Files after the first ``max_patches`` get no patch and count as truncated.
    """
    check_hash("commit", older)
    check_hash("commit", newer)
    words = ("diff-tree", "-r", "-z", "-M", "--raw", "--numstat", "--no-ext-diff", "--no-textconv", "--no-color")
    fields = (await clone.run(*words, "--ignore-submodules=none", older, newer)).fields
    files = list(_parse(fields))
    if not patches:
        return files
    shown = await add_patches(clone, older, newer, files[:max_patches], max_patch=max_patch)
    left = [] if max_patches is None else [replace(file, truncated=not file.binary) for file in files[max_patches:]]
    return [*shown, *left]


async def add_patches(
    clone: Clone, older: str, newer: str, files: Sequence[FileDiff], *, max_patch: int = 256 * 1024
) -> list[FileDiff]:
    """Return files of a diff between two commits with their patches, of up to ``max_patch`` bytes each."""
    limit = asyncio.Semaphore(_MAX_PARALLEL_PATCHES)

    async def with_patch(file: FileDiff) -> FileDiff:
        async with limit:
            return await _with_patch(clone, older, newer, file, max_patch)

    return list(await asyncio.gather(*map(with_patch, files)))


async def log(clone: Clone, older: str | None, newer: str, *, limit: int = 1000) -> list[Commit]:
    """Return the commits of ``newer`` that ``older`` does not have, newest first."""
    if limit < 1:
        raise InvalidInput(f"limit {limit}: at least one commit is needed")
    shown = [check_hash("commit", newer), *([f"^{check_hash('commit', older)}"] if older else [])]
    return await read_commits(clone, *shown, limit=limit)


def _parse(fields: list[str]) -> Iterator[FileDiff]:
    """Parse raw records, which begin with a colon, and the numstat records behind them, in the same order."""
    raw: list[tuple[list[str], str | None, str]] = []
    at = 0
    while at < len(fields) and fields[at].startswith(":"):
        about = fields[at][1:].split()
        two = about[4][0] in "RC"
        raw.append((about, fields[at + 1] if two else None, fields[at + 2 if two else at + 1]))
        at += 3 if two else 2
    for about, old_path, path in raw:
        added, removed, name = fields[at].split("\t", 2)
        at += 1 if name else 3
        yield FileDiff(
            path,
            STATUS_WORDS.get(about[4][0], about[4]),
            old_path,
            about[0],
            about[1],
            None if added == "-" else int(added),
            None if removed == "-" else int(removed),
        )


async def _with_patch(clone: Clone, older: str, newer: str, file: FileDiff, room: int) -> FileDiff:
    if file.binary:
        return file
    words = ("diff-tree", "-r", "-p", "-M", "--no-ext-diff", "--no-textconv", "--no-color", "--full-index")
    paths = [path for path in (file.old_path, file.path) if path is not None]
    shown = await clone.run(*words, older, newer, "--", *paths, truncate_at=room)
    text = shown.out.decode("utf-8", "replace")
    return FileDiff(
        file.path, file.status, file.old_path, file.old_mode, file.new_mode, file.added, file.removed, text,
        shown.truncated,
    )  # fmt: skip
