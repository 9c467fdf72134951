"""Workplaces of tasks: a worktree each, or a plain folder when there is no repository.

``workspace/<general>/worktrees/<general>/<task>`` on the branch ``kingdom/<general>/<task>``, from a clone that all
generals share; else ``workspace/<general>/tasks/<task>``. A resume gets the workplace of its first task: the same
folder (recreated when it is gone) and the same branch.

The files that :func:`write_task_files` adds are listed in ``info/exclude`` of the clone, so that they are not
committed. A file of the repository itself is never overwritten. The worktree is made from the default branch, so agent
configuration in it (``.claude``, ``.mcp.json``, ``.codex``) is what the maintainers merged, never that of a pull
request under review; the adapter of an engine decides whether the engine reads it.

The head of a pull request is not a branch of the repository, and a soldier that may only read cannot fetch it. It is
fetched before the soldier starts and kept under a ref of ours; the files in the worktree stay those of the default
branch. Prompts name commits as well as refs: a later task may fetch a newer head into the same ref meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.untrusted import clean_line
from kingdom.base.files import write_atomic, write_json
from kingdom.court.general.errors import RepositoryDenied, RepositoryMissing, TaskHeld, TaskNotReady, TaskRefused
from kingdom.court.home import named_path
from kingdom.gitops import (
    Clones,
    CommandTimedOut,
    GitError,
    LockBusy,
    RemoteFailed,
    WorktreeBroken,
    Worktrees,
)
from kingdom.gitops.access import find_omitted, some_names
from kingdom.gitops.names import check_url, pull_ref
from kingdom.gitops.pull_requests import PullRequests, PullRequestTarget
from kingdom.gitops.remotes import is_outage
from kingdom.gitops.repository import ORIGIN_REFS
from kingdom.gitops.reset import reset
from kingdom.gitops.settings import GitSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kingdom.court.home import Home
    from kingdom.gitops import Clone, Worktree

INSTRUCTION_FILES: Final = ("CLAUDE.md", "AGENTS.md")
TASK_FILE: Final = ".kingdom-task.json"
_EXCLUDE_TEXT: Final = "".join(f"/{name}\n" for name in (*INSTRUCTION_FILES, TASK_FILE, ".tmp-*"))
_MAX_PROBLEM_CHARS: Final = 500
# A part may start with a dot (owner/.github), but is never . or .. and never looks like an option.
_NAME_PART: Final = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9_.][A-Za-z0-9_.\-]{0,99}"
_is_name = re.compile(rf"{_NAME_PART}/{_NAME_PART}\Z").match
log = logging.getLogger("kingdom.court")


# ── repositories and pull requests ────────────────────────────────────────────────────────────────────────────────────


def is_repository_name(text: str) -> bool:
    """Whether a text is ``owner/name``."""
    return _is_name(text) is not None


def repository_url(repo: Any, base_url: str) -> str:
    """Return the URL of a repository that an event names. Raises :class:`TaskRefused` unless it is ``owner/name``."""
    if isinstance(repo, str) and _is_name(repo):
        return f"{base_url.rstrip('/')}/{repo}"
    raise TaskRefused(f"the repository {repo!r:.120} is not usable: owner/name is needed, of A-Z a-z 0-9 . _ -")


def configured_url(repo: str, base_url: str) -> str:
    """Return the URL of a repository that a manifest names: ``owner/name``, a URL or a local folder."""
    return repository_url(repo, base_url) if _is_name(repo) else repo


def allows_local(*urls: str | None) -> bool:
    """Whether one of the operator's URLs is on this machine."""
    return any(url is not None and url.startswith(("/", "file://")) for url in urls)


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request for a prompt. Fields that are not known are empty."""

    number: int
    ref: str = ""  # of its head, in the clone
    head: str = ""  # the commit
    base_branch: str = ""
    base_ref: str = ""
    base: str = ""  # the commit
    problem: str = ""  # what is missing, and why

    def document(self) -> dict[str, Any]:
        """Return the JSON form, for the task file and the prompt."""
        return asdict(self)

    def summary(self) -> str:
        """Describe it in sentences, for a prompt whose template leaves it out."""
        parts = [f"Pull request {self.number}."]
        if self.head:
            parts.append(f"Its head is in this repository: commit {self.head}, {self.ref}.")
        if self.base:
            parts.append(f"Its base is {self.base_ref}, commit {self.base}.")
        if self.head and self.base:
            parts.append(f"`git diff {self.base}...{self.head}` is what it changes.")
        return " ".join([*parts, self.problem]).strip()


async def find_pull_request(clones: Clones, clone: Clone, number: int, base: Any, *, fetch: bool) -> PullRequest:
    """Return a pull request. Its head is fetched when ``fetch`` is set, or when the clone does not have it.

    ``base`` is its target branch as the event names it; without it the default branch. What cannot be found becomes a
    ``problem`` of the pull request: the soldier judges whether it matters.
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
            name = clean_line(repr(branch), _MAX_PROBLEM_CHARS)
            problems.append(f"Its base, {name}, is no branch of the repository.")
        else:
            found |= {"base_branch": branch, "base_ref": f"{ORIGIN_REFS}{branch}", "base": commit}
    except (GitError, OSError) as error:
        problems.append(f"Its base could not be found: {clean_line(str(error), _MAX_PROBLEM_CHARS)}")
    if problems:
        log.warning("pull request %s of %s: %s", number, clone.url.text, " ".join(problems))
    return PullRequest(number, **found, problem=" ".join(problems))


# ── workplaces ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Workplace:
    """A folder to work in; ``tree`` when it is a worktree."""

    folder: Path
    tree: Worktree | None = None


# A token that is missing or has expired is given one day; until then, no event is spent on it.
_ACCESS_REASONS: Final = ("no-credential", "denied", "untrusted")


class Workspace:
    """The workplaces of one general."""

    def __init__(self, home: Home, general: str, *, local: bool = False, settings: GitSettings | None = None) -> None:
        """Open a workspace. ``local`` allows clones of repositories on this machine."""
        settings = settings or GitSettings()
        self.general = general
        self._folder = home.work(general)
        self._plain = self._folder / "tasks"
        self._clones = Clones(settings.runner(), home.clones, allow_local=local)
        self._identity = settings.identity
        self._worktrees = Worktrees(self._clones, self._folder, identity=settings.identity)

    async def prune(self) -> None:
        """Clean up after killed processes. Call it once at start, before any work begins."""
        try:
            pruned = await self._worktrees.prune()
        except (GitError, OSError) as error:
            log.warning("%s: worktrees could not be cleaned up: %s", self.general, error)
        else:
            if pruned.finished:
                log.info("%s: released incomplete worktrees: %s", self.general, ", ".join(pruned.finished))

    async def prepare(self, work_id: str, url: str | None, *, fetch: bool = True) -> Workplace:
        """Return a workplace; create it when it does not exist.

        Raises :class:`TaskRefused` when that is impossible, :class:`TaskNotReady` when it may be possible later.
        """
        if url is None:
            return Workplace(self._plain_folder(work_id))
        try:
            clone = (await self._clones.ensure(url, fetch=fetch)).clone
            tree = await self._worktrees.create(clone, self.general, work_id, existing_branch="continue")
        except (RemoteFailed, CommandTimedOut, LockBusy) as error:
            if is_outage(error):
                raise TaskHeld(f"the repository {url} cannot be reached now: {error}") from error
            if isinstance(error, RemoteFailed) and error.reason in _ACCESS_REASONS:
                raise RepositoryDenied(f"the court has no access to the repository {url}: {error}") from error
            missing = isinstance(error, RemoteFailed) and error.reason == "missing"
            not_ready = RepositoryMissing if missing else TaskNotReady
            raise not_ready(f"the repository {url} could not be fetched: {error}") from error
        except GitError as error:
            raise TaskRefused(f"a worktree of {url} could not be created: {error}") from error
        _write_exclude_file(clone.repo / "info")
        return Workplace(tree.path, tree)

    async def bring_up_to_date(self, tree: Worktree, pull: PullRequest) -> str:
        """Set a worktree to the head of its own pull request, with what others pushed there.

        Return what is missing, for the soldier; empty if nothing is. What would be dropped is kept under a ref.
        """
        tip = await tree.tip()
        if not pull.head or tip is None or tip == pull.head:
            return ""
        clone = tree.clone
        try:
            if await clone.is_ancestor(pull.head, tip):
                return ""  # what is here was not pushed yet
            if not (tip == tree.base or await clone.is_ancestor(tip, pull.head)):
                return f"Others have pushed to it: bring that in first, with `git merge --no-edit {pull.head}`."
            await reset(tree, pull.head, identity=self._identity)
        except GitError as error:
            log.warning("%s: %s was not set to pull request %s: %s", self.general, tree.path, pull.number, error)
            return f"It could not be brought up to date: {clean_line(str(error), _MAX_PROBLEM_CHARS)}"
        return ""

    async def pull_requests(self, url: str) -> PullRequests:
        """Return the pull requests and issues of a repository, with the token of its host."""
        target = PullRequestTarget.of(check_url(url, allow_local=True))
        return await PullRequests.open(target, self._clones.git.access.credentials)

    async def find_pull_request(self, tree: Worktree, number: int, base: Any, *, fetch: bool) -> PullRequest:
        return await find_pull_request(self._clones, tree.clone, number, base, fetch=fetch)

    async def omitted(self, place: Workplace) -> str:
        """Say what a worktree lacks of its repository; empty if nothing."""
        if place.tree is None or (tip := await place.tree.tip()) is None:
            return ""
        try:
            found = await find_omitted(place.tree.clone, tip)
        except GitError as error:
            log.warning("%s: what is not checked out of %s is not known: %s", self.general, place.folder, error)
            return ""
        said = []
        if found.submodules:
            said.append(f"The folders of submodules are empty: {some_names(found.submodules)}.")
        if found.lfs:
            said.append(f"Files in Git LFS are pointers, not the files: {some_names(found.lfs)}.")
        return " ".join([*said, "Do not change them."]) if said else ""

    def find(self, work_id: str) -> Workplace | None:
        """Return an existing workplace, or None."""
        try:
            tree = self._worktrees.find(self.general, work_id)
        except WorktreeBroken:
            folder = self._plain_path(work_id)
            return Workplace(folder) if folder.is_dir() and not folder.is_symlink() else None
        return Workplace(tree.path, tree)

    def places(self) -> list[tuple[str, Path]]:
        """List all workplaces: their work ids and folders."""
        trees = [(tree.name, tree.path) for tree in self._worktrees.list(self.general)]
        plain = sorted(self._plain.iterdir()) if self._plain.is_dir() else []
        return trees + [(path.name, path) for path in plain]

    async def remove(self, work_id: str) -> None:
        """Remove a workplace. The branch of a worktree stays, and uncommitted changes are kept under a ref."""
        place = self.find(work_id)
        if place is None:
            return
        if place.tree is None:
            await asyncio.to_thread(shutil.rmtree, place.folder)
            return
        if place.folder.is_dir() and not place.folder.is_symlink():
            for name in {*INSTRUCTION_FILES, TASK_FILE} - await _tracked(place):
                (place.folder / name).unlink(missing_ok=True)  # written by us: not to be kept under a ref
        await self._worktrees.release(self.general, work_id)

    def _plain_path(self, work_id: str) -> Path:
        return named_path(self._plain, "task", work_id)

    def _plain_folder(self, work_id: str) -> Path:
        folder = self._plain_path(work_id)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if folder.is_symlink():
                folder.unlink()  # a soldier replaced the folder with a link: do not follow it
                folder.mkdir()
        return folder


async def write_task_files(place: Workplace, instructions: str | None, document: Mapping[str, Any]) -> bool:
    """Write the task file and the instructions into a workplace; return whether the instructions were written.

    When the repository has its own ``CLAUDE.md`` or ``AGENTS.md``, ours must go into the prompt: an engine reads one
    file or the other, and the repository's must be neither hidden nor changed.
    """
    tracked = await _tracked(place)
    if TASK_FILE in tracked:
        raise TaskRefused(f"the repository has a file {TASK_FILE}; that name is reserved for the task file")
    write_json(place.folder / TASK_FILE, document, durable=False)
    if instructions is None:
        return True
    if not tracked.isdisjoint(INSTRUCTION_FILES):
        return False
    for name in INSTRUCTION_FILES:
        write_atomic(place.folder / name, instructions, durable=False)
    return True


async def _tracked(place: Workplace) -> set[str]:
    """Return which of our file names the repository itself has on the task's branch."""
    if place.tree is None or (tip := await place.tree.tip()) is None:
        return set()
    listed = await place.tree.clone.run("ls-tree", "-z", "--name-only", tip, "--", *INSTRUCTION_FILES, TASK_FILE)
    return set(listed.fields)


def _write_exclude_file(info: Path) -> None:
    if info.is_symlink():
        info.unlink()  # a soldier can write to the clone: do not follow its links
    info.mkdir(exist_ok=True)
    write_atomic(info / "exclude", _EXCLUDE_TEXT, durable=False)
