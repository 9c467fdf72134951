"""How the result of a workflow is brought home, and what was brought."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

LandAs = Literal["pull-request", "push"]
LandSquash = Literal["work", "all", "none"]
"""One commit for each Work, one for everything, or the branch as it is."""
_MAX_COMMITS_KEPT: Final = 50


@dataclass(frozen=True, slots=True)
class LandPlan:
    """How a workflow is landed when it is completed."""

    how: LandAs = "pull-request"
    squash: LandSquash = "work"
    branch: str | None = None  # a template; None: made from the issue key and the name
    title: str | None = None  # a template; None: the issue key and the description or the name
    body: str | None = None  # a template; None: what each Work reports
    draft: bool = False


@dataclass(frozen=True, slots=True)
class LandAgain:
    """When a workflow is landed again, because a remote was away."""

    at: datetime
    tries: int  # so far


@dataclass(slots=True)
class Landing:
    """The branch of a workflow at the remote of one repository, and its pull request.

    It is saved before the branch is pushed, so that a process that was killed in between goes on with the same branch.
    """

    id: str
    workflow_id: str
    git_id: str
    remote: str  # the URL that it is pushed to
    branch: str
    base: str  # the branch it is to be merged into
    commits: tuple[str, ...] = ()  # those that were pushed, or were about to be, the last one last
    pushed: str | None = None  # the commit that the branch is at, by our last push
    number: int | None = None  # of the pull request
    url: str | None = None
    body: str | None = None  # as we last wrote it: a text that a person changed is left alone
    error: str | None = None  # why the last try did not succeed
    landed_at: datetime | None = None
    version: int = 0

    def intend(self, commit: str) -> None:
        """Note which commit will be pushed: from now on it counts as ours at the remote."""
        self.commits = (*(known for known in self.commits if known != commit), commit)[-_MAX_COMMITS_KEPT:]

    def land(self, commit: str, at: datetime) -> None:
        """Note that the branch is pushed."""
        self.pushed, self.landed_at, self.error = commit, at, None
