"""Making commits without a work tree, and reading them back with their trailers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kingdom.gitops.clock import git_date
from kingdom.gitops.errors import InvalidInput
from kingdom.gitops.names import check_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kingdom.gitops.repository import Clone

_FIELDS: Final = "%H%x00%T%x00%P%x00%an%x00%ae%x00%ct%x00%B"
_trailer = re.compile(r"^(Kingdom-[A-Za-z-]+): (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Identity:
    """Who a commit is by."""

    name: str = "Kingdom"
    email: str = "kingdom@localhost"

    def __post_init__(self) -> None:
        check_line("name of an author", self.name)
        check_line("e-mail address of an author", self.email)


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
        return dict(_trailer.findall(last))


async def make_commit(
    clone: Clone,
    tree: str,
    parents: Sequence[str],
    message: str,
    trailers: Mapping[str, str],
    by: Identity,
    at: datetime,
) -> str:
    """Store a commit and return its hash. No ref names it yet."""
    if "\0" in message:
        raise InvalidInput("the message of a commit contains a NUL character")
    lines = "\n".join(f"{name}: {check_line(name, value)}" for name, value in trailers.items())
    text = f"{message.strip() or 'No title'}\n\n{lines}\n".encode("utf-8", "surrogateescape")
    date = git_date(at)
    environment = {
        "GIT_AUTHOR_NAME": by.name, "GIT_AUTHOR_EMAIL": by.email, "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_NAME": by.name, "GIT_COMMITTER_EMAIL": by.email, "GIT_COMMITTER_DATE": date,
    }  # fmt: skip
    words = [word for parent in parents for word in ("-p", parent)]
    made = await clone.run("commit-tree", tree, *words, "-F", "-", stdin=text, environment=environment)
    return made.text


async def read_commits(clone: Clone, *revisions: str, limit: int | None = None, history: bool = True) -> list[Commit]:
    """The commits that ``revisions`` (hashes, ``^hash``) select, newest first; or only these (``history=False``)."""
    if not revisions:
        return []
    words = ["log", "-z", f"--format=tformat:{_FIELDS}", "--no-show-signature", "--no-mailmap", "--no-color"]
    words += [] if limit is None else [f"--max-count={limit}"]
    words += [] if history else ["--no-walk=unsorted"]
    fields = (await clone.run(*words, "--end-of-options", *revisions, "--")).fields
    return [_commit(fields[at : at + 7]) for at in range(0, len(fields) - 6, 7)]


async def independent(clone: Clone, *commits: str | None) -> list[str]:
    """The commits that no other of them has in its history, in the order given."""
    found = list(dict.fromkeys(commit for commit in commits if commit is not None))
    if len(found) < 2:
        return found
    kept = set((await clone.run("merge-base", "--independent", *found)).text.split())
    return [commit for commit in found if commit in kept]


def _commit(fields: Sequence[str]) -> Commit:
    name, tree, parents, author, email, seconds, message = fields
    at = datetime.fromtimestamp(int(seconds), UTC)
    return Commit(name, tree, tuple(parents.split()), author, email, at, message)
