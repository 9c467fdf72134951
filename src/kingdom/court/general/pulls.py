"""The pull request that a task is about: its head and its base are in the clone before the soldier looks for them.

The head of a pull request is no branch of the repository, and a soldier that may only read cannot fetch it. It is kept
under a ref of ours; the files a soldier finds in its worktree stay those of the default branch. Soldiers are told
commits, too: a later task may fetch a newer head into the same ref while they read.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.untrusted import clean_line
from kingdom.gitops import GitError
from kingdom.gitops.refs import pull_ref
from kingdom.gitops.repository import ORIGIN

if TYPE_CHECKING:
    from kingdom.court.general.errand import Errand
    from kingdom.gitops import Clone, Clones

_KIND: Final = "github.pr."
_MOST: Final = 2**31
_SHOWN: Final = 500  # characters of a problem
log = logging.getLogger("kingdom.court")


@dataclass(frozen=True, slots=True)
class Pull:
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


def pull_number(errand: Errand) -> int | None:
    """The number of the pull request that a task is about, if it is about one."""
    number = errand.task.payload.get("number")
    about = isinstance(errand.type, str) and errand.type.startswith(_KIND)
    return number if about and type(number) is int and 0 < number < _MOST else None


async def find_pull(clones: Clones, clone: Clone, number: int, base: Any, *, fetch: bool) -> Pull:
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
        problems.append(f"Its head could not be fetched: {clean_line(str(error), _SHOWN)}")
    try:
        branch = base if isinstance(base, str) and base else await clone.default_branch() or ""
        commit = await clone.commit_of(f"{ORIGIN}{branch}")
        if commit is None:
            problems.append(f"Its base, {clean_line(repr(branch), _SHOWN)}, is no branch of the repository.")
        else:
            found |= {"base_branch": branch, "base_ref": f"{ORIGIN}{branch}", "base": commit}
    except (GitError, OSError) as error:
        problems.append(f"Its base could not be found: {clean_line(str(error), _SHOWN)}")
    if problems:
        log.warning("pull request %s of %s: %s", number, clone.url.text, " ".join(problems))
    return Pull(number, **found, problem=" ".join(problems))
