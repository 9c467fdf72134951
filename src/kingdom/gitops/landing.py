"""Bring the result of a worktree's branch to people: a readable history, a push, a branch in a checkout, patches.

The branch of a worktree has checkpoints and whatever agents committed. What is landed is a history made from it: one
commit for each Work, or one for all, without empty commits. The same branch and messages give the same commits, so
landing twice changes nothing, and a Work that was added since adds a commit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from kingdom.gitops.commits import Commit, CommitAuthor, read_commits, store_commit
from kingdom.gitops.errors import InvalidInput, LandingRefused, RemoteFailed
from kingdom.gitops.names import OWN_REFS, check_id, check_ref, check_url, is_hash
from kingdom.gitops.repository import ORIGIN_REFS
from kingdom.gitops.runner import GitLocation

if TYPE_CHECKING:
    from kingdom.gitops.names import RepositoryUrl
    from kingdom.gitops.repository import Clone
    from kingdom.gitops.runner import GitRunner

Squash = Literal["work", "all", "none"]
"""One commit for each Work, one for everything, or the branch as it is."""
Describe = Callable[[Sequence[Commit]], str]
"""Returns the message of the landed commit that takes the place of these commits of the branch, oldest first."""

_NETWORK_SECONDS: Final = 600.0
_CHECKPOINT_TRAILER: Final = "Kingdom-Checkpoint"


def landed_ref(workflow: str, name: str) -> str:
    """Return the ref that holds what was landed of a worktree."""
    return f"{OWN_REFS}landed/{check_id('workflow', workflow)}/{check_id('worktree', name)}"


# ── history ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class LandedHistory:
    """The commits to land: ``tip`` and what it has that ``base`` has not."""

    base: str
    tip: str
    commits: int

    @property
    def empty(self) -> bool:
        """Whether nothing changed."""
        return self.commits == 0


async def landed_history(
    clone: Clone, base: str, tip: str, describe: Describe, by: CommitAuthor, squash: Squash = "work"
) -> LandedHistory:
    """Return the history to land of a branch that started at ``base`` and is at ``tip``.

    What was merged from the remote stays a merge, so that its commits are not landed again.
    """
    if squash == "none":
        found = await read_commits(clone, tip, f"^{base}")
        return LandedHistory(base, tip, len(found) if await clone.tree_of(tip) != await clone.tree_of(base) else 0)
    if squash == "all":
        return await _one_commit(clone, base, tip, describe, by)
    parent, tree, count = base, await clone.tree_of(base), 0
    for part in await _parts(clone, base, tip):
        end = part.commits[-1]
        if end.tree == tree and not part.upstream:
            continue
        parents = [parent, *part.upstream]
        parent = await store_commit(clone, end.tree, parents, describe(part.commits), by, end.at)
        tree, count = end.tree, count + 1
    return LandedHistory(base, parent, count)


@dataclass(frozen=True)
class _Part:
    """Commits of a branch that become one, oldest first."""

    commits: tuple[Commit, ...]
    upstream: tuple[str, ...] = ()  # commits of the remote that it merges


async def _parts(clone: Clone, base: str, tip: str) -> list[_Part]:
    """Return the parts of a branch, oldest first: each ends with a checkpoint, a merge from the remote, or the tip."""
    commits = list(reversed(await read_commits(clone, tip, f"^{base}", first_parent=True)))
    parts: list[_Part] = []
    begun: tuple[Commit, ...] = ()
    for commit in commits:
        upstream = await _merged_upstream(clone, commit)
        if upstream and begun:
            parts.append(_Part(begun))
            begun = ()
        begun += (commit,)
        if upstream or _CHECKPOINT_TRAILER in commit.trailers:
            parts.append(_Part(begun, upstream))
            begun = ()
    return [*parts, _Part(begun)] if begun else parts


async def _merged_upstream(clone: Clone, commit: Commit) -> tuple[str, ...]:
    """Return the parents that came from the remote, and not from another worktree."""
    return tuple([other for other in commit.parents[1:] if await _is_upstream(clone, other)])


async def _is_upstream(clone: Clone, commit: str) -> bool:
    return bool((await clone.run("for-each-ref", "--count=1", f"--contains={commit}", ORIGIN_REFS)).text)


async def _one_commit(clone: Clone, base: str, tip: str, describe: Describe, by: CommitAuthor) -> LandedHistory:
    """Return all changes as one commit on the last commit of the remote that the branch has."""
    parts = await _parts(clone, base, tip)
    for part in parts:
        base = part.upstream[-1] if part.upstream else base
    commits = [commit for part in parts if not part.upstream for commit in part.commits]
    tree = await clone.tree_of(tip)
    if not commits or tree == await clone.tree_of(base):
        return LandedHistory(base, base, 0)
    return LandedHistory(base, await store_commit(clone, tree, [base], describe(commits), by, commits[-1].at), 1)


# ── push ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


_REJECTED: Final = re.compile(r"^ ?! \[(?P<who>(?:remote )?rejected)\].*?\((?P<why>.*)\)$", re.MULTILINE)
_REMOTE_LINE: Final = re.compile(r"^remote: ?(.*\S)\s*$", re.MULTILINE)
_MAX_REMOTE_LINES: Final = 5
_MAX_BRANCHES_TRIED: Final = 20


async def remote_branch(clone: Clone, remote: RepositoryUrl, branch: str) -> str | None:
    """Return the commit of a branch at a remote, or None. Raises :class:`RemoteFailed`."""
    ref = f"refs/heads/{check_ref('branch', branch)}"
    place = GitLocation(clone.control, remote=remote)
    found = await clone.git.run_remote(place, "ls-remote", "--", remote.text, ref, limit=_NETWORK_SECONDS)
    commit = found.text.partition("\t")[0]
    return commit if is_hash(commit) else None


async def free_branch(
    clone: Clone, remote: RepositoryUrl, name: str, tip: str, ours: Collection[str] = ()
) -> tuple[str, str | None]:
    """Return the first of ``name``, ``name-2``, … that is free at a remote, or ours, and the commit it is at.

    A branch is ours if it is at one of ``ours``, or at a commit that ``tip`` contains.
    """
    for number in range(1, _MAX_BRANCHES_TRIED + 1):
        branch = name if number == 1 else f"{name}-{number}"
        present = await remote_branch(clone, remote, branch)
        if present is None or present in ours or await contains(clone, tip, present):
            return branch, present
    raise LandingRefused(
        f"{_MAX_BRANCHES_TRIED} branches such as {name} are there already", "choose another name with --branch"
    )


async def contains(clone: Clone, tip: str, commit: str) -> bool:
    """Whether a commit of a remote is known here, and in the history of ``tip``."""
    return tip == commit or (await clone.commit_of(commit) is not None and await clone.is_ancestor(commit, tip))


async def push_branch(clone: Clone, remote: RepositoryUrl, commit: str, branch: str, expected: str | None) -> None:
    """Push a commit as a branch, if the branch is at ``expected`` (None: does not exist).

    Raises :class:`LandingRefused` if the remote does not take it, with what to do, and :class:`RemoteFailed`.
    """
    ref = f"refs/heads/{check_ref('branch', branch)}"
    words = ("push", "--no-verify", f"--force-with-lease={ref}:{expected or ''}")
    place = GitLocation(clone.control, remote=remote)
    try:
        await clone.git.run_remote(place, *words, "--", remote.text, f"{commit}:{ref}", limit=_NETWORK_SECONDS)
    except RemoteFailed as error:
        if (rejected := _REJECTED.search(error.said)) is None:
            raise
        raise _refusal(branch, rejected["who"], rejected["why"], error.said) from None


def _refusal(branch: str, who: str, why: str, said: str) -> LandingRefused:
    if who == "rejected":
        return LandingRefused(
            f"the branch {branch} has commits of others ({why})",
            f"bring them in with kingdom workflow update-base WORKFLOW --from {branch}, "
            "or choose another name with --branch",
        )
    lines = [line for line in _REMOTE_LINE.findall(said) if line.strip(" *=-")][:_MAX_REMOTE_LINES]
    reason = "; ".join(dict.fromkeys((why, *lines)))
    return LandingRefused(
        f"the branch {branch} was refused: {reason}",
        "choose another name with --branch, or ask the maintainers of the repository",
    )


# ── a checkout of a person, and patches ──────────────────────────────────────────────────────────────────────────────


async def bring_into(clone: Clone, checkout: Path, ref: str, branch: str, *, force: bool = False) -> None:
    """Create or move a branch of another repository on this machine to the commit of a ref. No file there changes.

    Raises :class:`LandingRefused` if the branch has other commits, unless ``force``, or is checked out.
    """
    git_dir = await find_git_dir(clone.git, checkout)
    target = f"refs/heads/{check_ref('branch', branch)}"
    spec = f"{'+' if force else ''}{check_ref('ref', ref)}:{target}"
    words = ("fetch", "--no-write-fetch-head", "--no-tags", "--", str(clone.control), spec)
    place = GitLocation(git_dir, remote=check_url(str(clone.control), allow_local=True))
    try:
        await clone.git.run_remote(place, *words, limit=_NETWORK_SECONDS)
    except RemoteFailed as error:
        if "checked out at" in error.said:
            advice = "switch to another branch there first, or choose another name with --branch"
            raise LandingRefused(f"the branch {branch} is checked out in {checkout}", advice) from None
        if "rejected" in error.said:
            advice = "choose another name with --branch, or replace it with --force"
            raise LandingRefused(f"the branch {branch} in {checkout} has commits of its own", advice) from None
        raise


async def find_git_dir(git: GitRunner, checkout: Path) -> Path:
    """Return the git directory of a checkout or bare repository; raise :class:`InvalidInput` if it is none."""
    found = _nearest_git_dir(checkout)
    common = await git.run(GitLocation(found), "rev-parse", "--path-format=absolute", "--git-common-dir")
    return Path(common.text)


def _nearest_git_dir(checkout: Path) -> Path:
    folder = checkout.resolve()  # otherwise the folder above other/.. is other
    if not folder.is_dir():
        raise InvalidInput(f"there is no folder {checkout}: name one in a git repository")
    for above in (folder, *folder.parents):
        for found in (above / ".git", above):
            if (found / "HEAD").is_file() and (found / "objects").is_dir():
                return found
        if (above / ".git").is_file():  # a worktree or a submodule: a pointer to its directory
            return (above / (above / ".git").read_text("utf-8").removeprefix("gitdir:").strip()).resolve()
    raise InvalidInput(f"{checkout} is not in a git repository: name the folder of one")


async def remote_of_checkout(git: GitRunner, checkout: Path) -> str | None:
    """Return where a checkout pushes to: the URL of its remote ``origin``, or None."""
    place = GitLocation(await find_git_dir(git, checkout))
    for words in (("--push", "origin"), ("origin",)):
        found = await git.run(place, "remote", "get-url", *words, ok=range(256))
        if found.code == 0 and found.text:
            return found.text.splitlines()[0]
    return None


async def patch_series(clone: Clone, history: LandedHistory) -> str:
    """Return the commits as patches that can be mailed, in one text that ``git am`` takes."""
    words = ("format-patch", "--stdout", "--no-signature", f"{history.base}..{history.tip}")
    return (await clone.run(*words)).out.decode("utf-8", "replace")
