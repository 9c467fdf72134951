"""Workplaces of tasks: worktrees, plain folders, repositories and pull requests."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.untrusted import clean_line
from kingdom.base.files import write_atomic, write_json
from kingdom.court.general.errors import TaskNotReady, TaskRefused
from kingdom.court.home import named_path
from kingdom.gitops import (
    Clones,
    CommandTimedOut,
    GitError,
    GitRunner,
    LockBusy,
    RemoteFailed,
    WorktreeBroken,
    Worktrees,
)
from kingdom.gitops.names import pull_ref
from kingdom.gitops.repository import ORIGIN_REFS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kingdom.court.general.context import TaskContext
    from kingdom.court.home import Home
    from kingdom.gitops import Clone, Worktree


# Which repository a task works on, and where it is cloned from.


# A part may start with a dot (owner/.github), but is never . or .. and never looks like an option.
_NAME_PART: Final = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9_.][A-Za-z0-9_.\-]{0,99}"
_is_name = re.compile(rf"{_NAME_PART}/{_NAME_PART}\Z").match


def repository_url(repo: Any, base_url: str) -> str:
    """The URL of a repository that an event names as ``owner/name``; :class:`TaskRefused` for anything else."""
    if isinstance(repo, str) and _is_name(repo):
        return f"{base_url.rstrip('/')}/{repo}"
    raise TaskRefused(f"the repository {repo!r:.120} is not usable: owner/name is needed, of A-Z a-z 0-9 . _ -")


def configured_url(repo: str, base_url: str) -> str:
    """The same for a repository from a manifest, which may be a URL or a local folder as well."""
    return repository_url(repo, base_url) if _is_name(repo) else repo


def is_local(url: str) -> bool:
    """Whether a URL that the operator configured leads to this machine."""
    return url.startswith(("/", "file://"))


# The pull request that a task is about: its head and its base are in the clone before the soldier looks for them.
#
# The head of a pull request is no branch of the repository, and a soldier that may only read cannot fetch it. It is kept
# under a ref of ours; the files a soldier finds in its worktree stay those of the default branch. Soldiers are told
# commits, too: a later task may fetch a newer head into the same ref while they read.


_PULL_REQUEST_PREFIX: Final = "github.pr."
_MAX_PULL_REQUEST_NUMBER: Final = 2**31
_MAX_PROBLEM_CHARS: Final = 500  # characters of a problem
log = logging.getLogger("kingdom.court")


@dataclass(frozen=True, slots=True)
class PullRequest:
    """What a soldier is told of a pull request; what is not known is empty."""

    number: int
    ref: str = ""  # of its head, in the clone
    head: str = ""  # the commit
    base_branch: str = ""
    base_ref: str = ""
    base: str = ""  # the commit
    problem: str = ""  # what could not be had, and why

    def document(self) -> dict[str, Any]:
        """As it stands beside the work, and in the prompt."""
        return asdict(self)

    def words(self) -> str:
        """For a prompt whose template does not say it."""
        said = [f"Pull request {self.number}."]
        if self.head:
            said.append(f"Its head is in this repository: commit {self.head}, {self.ref}.")
        if self.base:
            said.append(f"Its base is {self.base_ref}, commit {self.base}.")
        if self.head and self.base:
            said.append(f"`git diff {self.base}...{self.head}` is what it changes.")
        return " ".join([*said, self.problem]).strip()


def pull_request_number(task_context: TaskContext) -> int | None:
    """The number of the pull request that a task is about, if it is about one."""
    number = task_context.task.payload.get("number")
    about = isinstance(task_context.type, str) and task_context.type.startswith(_PULL_REQUEST_PREFIX)
    return number if about and type(number) is int and 0 < number < _MAX_PULL_REQUEST_NUMBER else None


async def find_pull_request(clones: Clones, clone: Clone, number: int, base: Any, *, fetch: bool) -> PullRequest:
    """A pull request, its head fetched anew or (without ``fetch``) only when it is not there.

    ``base`` is the branch it shall go to, as the event names it; the default branch otherwise. Branches are as the
    clone has them. What cannot be had is said in the answer: whether that matters is for the soldier to judge.
    """
    ref, problems = pull_ref(number), []
    found: dict[str, str] = {}
    try:
        head = None if fetch else await clone.commit_of(ref)
        found |= {"ref": ref, "head": head or await clones.fetch_ref(clone, f"refs/pull/{number}/head", ref)}
    except (GitError, OSError) as error:
        problems.append(f"Its head could not be fetched: {clean_line(str(error), _MAX_PROBLEM_CHARS)}")
    try:
        branch = base if isinstance(base, str) and base else await clone.default_branch() or ""
        commit = await clone.commit_of(f"{ORIGIN_REFS}{branch}")
        if commit is None:
            problems.append(
                f"Its base, {clean_line(repr(branch), _MAX_PROBLEM_CHARS)}, is no branch of the repository."
            )
        else:
            found |= {"base_branch": branch, "base_ref": f"{ORIGIN_REFS}{branch}", "base": commit}
    except (GitError, OSError) as error:
        problems.append(f"Its base could not be found: {clean_line(str(error), _MAX_PROBLEM_CHARS)}")
    if problems:
        log.warning("pull request %s of %s: %s", number, clone.url.text, " ".join(problems))
    return PullRequest(number, **found, problem=" ".join(problems))


# Where a soldier works: a worktree of the task's own, or a plain folder when there is no repository.
#
# ``workspace/<general>/worktrees/<general>/<task>`` on the branch ``kingdom/<general>/<task>``, from a clone that all
# generals share; else ``workspace/<general>/tasks/<task>``. A task that goes on after an answer gets the place of the
# task it began as: the same folder (made anew if it is gone) and the same branch.
#
# What we put there (see :func:`furnish`) is not to be committed: ``info/exclude`` of the clone names it. A file of the
# repository itself is never overwritten. The worktree is made from the default branch, so agent configuration in it
# (``.claude``, ``.mcp.json``, ``.codex``) is what the maintainers merged, never that of a pull request under review;
# whether an engine reads it is for the engine's adapter to decide.


INSTRUCTION_FILES: Final = ("CLAUDE.md", "AGENTS.md")
TASK_FILE: Final = ".kingdom-task.json"
_EXCLUDE_TEXT: Final = "".join(f"/{name}\n" for name in (*INSTRUCTION_FILES, TASK_FILE, ".tmp-*"))


@dataclass(frozen=True, slots=True)
class Workplace:
    """A folder to work in; ``tree`` when it is a worktree."""

    folder: Path
    tree: Worktree | None = None


class Workspace:
    """The workspace of one general."""

    def __init__(self, home: Home, general: str, *, local: bool = False, git: GitRunner | None = None) -> None:
        """``local`` allows clones of repositories on this machine."""
        self.general = general
        self._folder = home.work(general)
        self._plain = self._folder / "tasks"
        self._clones = Clones(git or GitRunner(), home.clones, allow_local=local)
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
            raise TaskNotReady(f"the repository {url} could not be fetched: {error}") from error
        except GitError as error:
            raise TaskRefused(f"there is no worktree of {url} to work in: {error}") from error
        _write_exclude_file(clone.repo / "info")
        return Workplace(tree.path, tree)

    async def find_pull_request(self, tree: Worktree, number: int, base: Any, *, fetch: bool) -> PullRequest:
        """The pull request that a piece of work is about, with its head in the clone (:mod:`.pulls`)."""
        return await find_pull_request(self._clones, tree.clone, number, base, fetch=fetch)

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
            for name in {*INSTRUCTION_FILES, TASK_FILE} - await _tracked(place):
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


async def write_task_files(place: Workplace, instructions: str | None, document: Mapping[str, Any]) -> bool:
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
    if not tracked.isdisjoint(INSTRUCTION_FILES):
        return False
    for name in INSTRUCTION_FILES:
        write_atomic(place.folder / name, instructions, durable=False)
    return True


async def _tracked(place: Workplace) -> set[str]:
    """Which of the names we use are the repository's, on the task's branch."""
    if place.tree is None or (tip := await place.tree.tip()) is None:
        return set()
    listed = await place.tree.clone.run("ls-tree", "-z", "--name-only", tip, "--", *INSTRUCTION_FILES, TASK_FILE)
    return set(listed.fields)


def _write_exclude_file(info: Path) -> None:
    if info.is_symlink():
        info.unlink()  # whoever works in a worktree can write to the clone: do not follow
    info.mkdir(exist_ok=True)
    write_atomic(info / "exclude", _EXCLUDE_TEXT, durable=False)


def allows_local(*urls: str | None) -> bool:
    """Whether one of the operator's own URLs is on this machine."""
    return any(url is not None and is_local(url) for url in urls)
