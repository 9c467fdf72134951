"""The ways in which a result can be brought home: those that its repositories have."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kingdom.cli.session import utc_now

if TYPE_CHECKING:
    from kingdom.cli.options import LandChoice
    from kingdom.workflow.domain.resources import Git
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.overview import WorkflowOverview
    from kingdom.workflow.ports import WorkflowStore


@dataclass(frozen=True, slots=True)
class Ways:
    """How a result can be landed."""

    choices: frozenset[LandChoice] = frozenset()
    into: str = "."  # what follows ``--into``: the checkout of its only repository, if it is on this machine


async def ways_to_land(place: WorkflowHome, git: Git, folder: Path | None) -> tuple[LandChoice, ...]:
    """Return how a branch of a repository can be landed, of which ``folder`` is the user's own checkout."""
    from kingdom.gitops.landing import remote_of_checkout
    from kingdom.workflow.home import git_service

    if folder is None:
        return _ways_at(git.url)
    remote = await remote_of_checkout(git_service(place, utc_now).clone_of(git).git, folder)
    return (*_ways_at(remote), "checkout")


async def ways_of_workflow(place: WorkflowHome, store: WorkflowStore, overview: WorkflowOverview) -> Ways:
    """Return how a workflow can be landed: the ways that all of its repositories have."""
    from kingdom.gitops.errors import GitError

    ids = {tree.git_id for tree in overview.present_trees if tree.work_id is None}
    async with store.reading() as tx:
        gits = [git for git_id in sorted(ids) if (git := await tx.gits.find(git_id)) is not None]
    found: list[set[LandChoice]] = []
    folders = [_checkout_of(git) for git in gits]
    for git, folder in zip(gits, folders, strict=True):
        try:
            found.append({*await ways_to_land(place, git, folder), "checkout"})
        except GitError:  # the checkout is gone, for example: landing says so
            found.append({"checkout"})
    choices = frozenset(set.intersection(*found)) if found else frozenset()
    if len(gits) > 1:
        return Ways(choices, "DIR --repo NAME")
    return Ways(choices, *(shlex.quote(str(folder)) for folder in folders if folder is not None))


def _checkout_of(git: Git) -> Path | None:
    """Return the folder of a repository that is a checkout on this machine."""
    folder = Path(git.url.removeprefix("file://"))
    return folder if folder.is_absolute() and (folder / ".git").exists() else None


def _ways_at(url: str | None) -> tuple[LandChoice, ...]:
    """Return how a branch can be landed at a remote. If something is wrong with its URL, landing says what."""
    from kingdom.gitops.errors import InvalidInput
    from kingdom.gitops.names import check_url

    if url is None:
        return ()
    try:
        is_local = check_url(url, allow_local=True).protocol == "file"
    except InvalidInput:
        is_local = False
    return ("push",) if is_local else ("pull-request", "push")
