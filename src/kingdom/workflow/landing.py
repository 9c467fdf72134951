"""Land a workflow: push its branches and open pull requests, or bring them to a checkout or into patches.

The agents never have the token: this process pushes. Every step may be repeated. The branch and the commit are stored
before the push, so that a process that was killed goes on with the same branch, and the pull request of a branch is
looked for before one is opened.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from kingdom.gitops.errors import GitError, InvalidInput, LandingRefused, RemoteFailed
from kingdom.gitops.landing import (
    bring_into,
    contains,
    free_branch,
    patch_series,
    push_branch,
    remote_branch,
    remote_of_checkout,
)
from kingdom.gitops.names import check_url
from kingdom.gitops.pull_request_status import PullRequestStatus, read_status
from kingdom.gitops.pull_requests import PullRequests, PullRequestTarget, WantedRequest, same_text
from kingdom.gitops.remotes import RETRY_SECONDS, is_outage, through_outage
from kingdom.workflow.adapters.landing_texts import LandingTexts
from kingdom.workflow.agent_records import WorkflowLedger
from kingdom.workflow.context import workflow_event
from kingdom.workflow.domain.events import WorkflowLanded
from kingdom.workflow.domain.landing import Landing, LandPlan
from kingdom.workflow.domain.refusals import refusal
from kingdom.workflow.domain.statuses import WORKFLOW_ACTIVE_STATUSES, WorkTreeStatus
from kingdom.workflow.errors import HeldElsewhere, WorkflowError
from kingdom.workflow.ports import NotLanded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.gitops import Commit
    from kingdom.gitops.names import RepositoryUrl
    from kingdom.workflow.adapters.git_service import GitopsService, PinnedHistory
    from kingdom.workflow.domain.resources import Git, WorkTree
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.ports import Clock, WorkflowStore

log = logging.getLogger("kingdom.workflow")


class CannotLand(WorkflowError):
    """The workflow cannot be landed now; the message says why and what to do."""

    code = "WFL_CANNOT_LAND"


@dataclass(frozen=True, slots=True)
class LandedBranch:
    """What was landed of one repository."""

    git: Git
    landing: Landing
    commits: int
    opened: bool = False  # whether the pull request is new


@dataclass(frozen=True, slots=True)
class BroughtBranch:
    """A branch that was made in a person's checkout."""

    git: Git
    branch: str
    folder: Path
    commits: int


@dataclass(frozen=True, slots=True)
class _Source:
    """One repository of a workflow, with what there is to land of it."""

    workflow: Workflow
    git: Git
    tree: WorkTree
    texts: LandingTexts
    pinned: PinnedHistory

    @property
    def id(self) -> str:
        return f"land-{self.tree.id}"


class Lander:
    """Lands the workflows of a home."""

    def __init__(
        self, store: WorkflowStore, git: GitopsService, clock: Clock, ledger: Path, home: str | None = None
    ) -> None:
        """``home`` is the name under which an engine of this home holds workflows, if engines share the store."""
        self._store = store
        self._home = home
        self._git = git
        self._clock = clock
        self._ledger = ledger

    async def land(
        self, workflow_id: str, plan: LandPlan | None = None, *, base: str | None = None, only: str | None = None
    ) -> list[LandedBranch]:
        """Push the branches of a workflow, and open or update their pull requests; return what was landed.

        ``only`` is the id of one repository. Raises :class:`CannotLand`, and :class:`kingdom.gitops.GitError` if a
        remote refuses or cannot be reached; what was landed before stays.
        """
        sources, plan = await self._sources(workflow_id, plan, only)
        landed = [await self._land(source, plan, base) for source in sources]
        if sources[0].workflow.land_again is not None and only is None:
            await self._end_wait(workflow_id)
        return landed

    async def land_when_completed(self, workflow_id: str, *, patient: bool) -> NotLanded | None:
        """Land a workflow as its plan says; return what keeps it from being landed.

        With ``patient`` a remote that is away is tried again for a while: most outages are short.
        """
        try:
            await through_outage(lambda: self.land(workflow_id), RETRY_SECONDS if patient else ())
        except (GitError, WorkflowError) as error:
            log.warning("workflow %s was not landed: %s", workflow_id, error)
            away = isinstance(error, GitError) and is_outage(error)
            # Git's own words stand with the repository: here it is said which host is away.
            reason = error.advice if away and isinstance(error, RemoteFailed) else str(error)
            return NotLanded(reason, away)
        return None

    async def bring_into(
        self,
        workflow_id: str,
        folder: Path,
        plan: LandPlan | None = None,
        *,
        only: str | None = None,
        force: bool = False,
    ) -> BroughtBranch:
        """Make the branch of a workflow in a checkout on this machine; no file there changes."""
        sources, plan = await self._sources(workflow_id, plan, only)
        source = _the_only(sources, "--into brings one")
        known = await self._find(source)
        branch = known.branch if known is not None and plan.branch is None else source.texts.branch(plan)
        await bring_into(self._git.clone_of(source.git), folder, source.pinned.ref, branch, force=force)
        return BroughtBranch(source.git, branch, folder, source.pinned.history.commits)

    async def patches(self, workflow_id: str, plan: LandPlan | None = None, *, only: str | None = None) -> str:
        """Return the commits of a workflow as patches that can be mailed."""
        sources, _ = await self._sources(workflow_id, plan, only)
        source = _the_only(sources, "--patch writes one")
        return await patch_series(self._git.clone_of(source.git), source.pinned.history)

    async def update_base(self, workflow_id: str, branch: str | None = None) -> dict[str, bool]:
        """Merge a branch of the remote (default: the base) into the worktrees.

        Return by the name of the repository whether there was anything to merge. Raises
        :class:`kingdom.workflow.adapters.git_service.MergeConflict`; that repository does not change then.
        """
        workflow, trees = await self._resting(workflow_id, None)
        merged = {}
        for git, tree in trees:
            wanted = branch or await self._git.base_branch(git, tree)
            if wanted is None:
                raise CannotLand(f"{git.name} has no branch to update {workflow.name} from: name it with --from")
            merged[git.name] = await self._git.merge_upstream(git, tree, wanted)
        return merged

    # ── what there is to land ─────────────────────────────────────────────────────────────────────────────────

    async def _resting(self, workflow_id: str, only: str | None) -> tuple[Workflow, list[tuple[Git, WorkTree]]]:
        """Return a workflow that does not run, with its own worktrees."""
        holder = await self._store.holder(workflow_id)
        async with self._store.reading() as tx:
            workflow = await tx.workflows.get(workflow_id)
            if holder is not None and holder.home != self._home:  # there may be an old worktree here
                raise HeldElsewhere(f"workflow {workflow.name} has its worktrees on {holder.home}: do this there")
            trees = await tx.work_trees.of_workflow(workflow_id)
            mine = [tree for tree in trees if tree.work_id is None and tree.status is WorkTreeStatus.READY]
            gits = {tree.git_id: await tx.gits.get(tree.git_id) for tree in mine}
        if workflow.status in WORKFLOW_ACTIVE_STATUSES:
            raise CannotLand(refusal(workflow.name, workflow.status, "cannot be landed before it rests"))
        if not mine:
            why = "it has no repository" if not workflow.git_refs else "its worktrees are not there (yet, or any more)"
            raise CannotLand(f"workflow {workflow.name} has nothing to land: {why}")
        return workflow, [(gits[tree.git_id], tree) for tree in mine if only in (None, tree.git_id)]

    async def _sources(
        self, workflow_id: str, plan: LandPlan | None, only: str | None
    ) -> tuple[list[_Source], LandPlan]:
        """Return the repositories of a workflow that have something to land."""
        workflow, trees = await self._resting(workflow_id, only)
        plan = plan or workflow.land or LandPlan()
        async with self._store.reading() as tx:
            works, reports = await tx.works.of_workflow(workflow_id), await tx.reports.of_workflow(workflow_id)
        cost = WorkflowLedger(self._ledger, workflow_id).read_on()
        texts = LandingTexts(workflow, works, reports, cost)

        def describe(commits: Sequence[Commit]) -> str:
            co_authors = [str(other) for other in self._git.identity.co_authors]
            return (
                texts.message_for_all(plan, co_authors) if plan.squash == "all" else texts.message(commits, co_authors)
            )

        found = []
        for git, tree in trees:
            pinned = await self._git.history_to_land(tree, describe, plan.squash)
            if not pinned.history.empty:
                found.append(_Source(workflow, git, tree, texts, pinned))
        if not found:
            raise CannotLand(
                f"workflow {workflow.name} has changed nothing that is committed: there is nothing to land"
            )
        return found, plan

    # ── one repository ────────────────────────────────────────────────────────────────────────────────────────

    async def _land(self, source: _Source, plan: LandPlan, base: str | None) -> LandedBranch:
        landing = await self._begin(source, plan, base)
        remote, opened = check_url(landing.remote, allow_local=True), False
        try:
            target = PullRequestTarget.of(remote) if plan.how == "pull-request" else None  # before anything is pushed
            await self._push(source, landing, remote, chosen=plan.branch is not None)
            if target is not None:
                opened = await self._ask_for_merge(source, landing, plan, target)
        except GitError as error:
            landing.error = str(error)
            await self._save(landing)
            raise
        landing.land(source.pinned.history.tip, self._clock())
        await self._save(landing, landed=True)
        return LandedBranch(source.git, landing, source.pinned.history.commits, opened)

    async def _begin(self, source: _Source, plan: LandPlan, base: str | None) -> Landing:
        """Return the landing of a repository: the one before, or a new one."""
        known = await self._find(source)
        base = base or (known.base if known is not None else await self._git.base_branch(source.git, source.tree))
        if base is None:
            raise CannotLand(f"{source.git.name} has no default branch: name the branch to merge into with --base")
        branch = source.texts.branch(plan) if known is None or plan.branch is not None else known.branch
        remote = await self._remote_of(source.git, known)
        if known is not None and (known.branch, known.remote) == (branch, remote):
            return replace(known, base=base)
        made = Landing(source.id, source.workflow.id, source.git.id, remote, branch, base)
        made.version = 0 if known is None else known.version
        return made

    async def _remote_of(self, git: Git, known: Landing | None) -> str:
        """Return where a repository is pushed to: for a checkout on this machine, the remote that it has now.

        What has a pull request stays where that is, and so does what was landed before the checkout was deleted.
        """
        if known is not None and known.number is not None:
            return known.remote
        if check_url(git.url, allow_local=True).protocol != "file":
            return git.url
        clone = self._git.clone_of(git)
        try:
            return await remote_of_checkout(clone.git, Path(git.url.removeprefix("file://"))) or git.url
        except InvalidInput:
            if known is None:
                raise
            return known.remote

    async def _push(self, source: _Source, landing: Landing, remote: RepositoryUrl, *, chosen: bool) -> None:
        """Push what is to be landed, unless it is there already.

        A new name that somebody else has gets a number behind it, unless a person chose it.
        """
        clone, tip = self._git.clone_of(source.git), source.pinned.history.tip
        if chosen or landing.pushed is not None:
            present = await remote_branch(clone, remote, landing.branch)
            ours = present is None or present in landing.commits or await contains(clone, tip, present)
        else:
            landing.branch, present = await free_branch(clone, remote, landing.branch, tip, landing.commits)
            ours = True
        if present == tip:
            return
        if not ours:
            taking = f"kingdom workflow update-base {quote(source.workflow.name)} --from {landing.branch}"
            raise LandingRefused(
                f"the branch {landing.branch} of {source.git.name} has commits of others",
                f"bring them in with {taking}, or choose another name with --branch",
            )
        landing.intend(tip)
        await self._save(landing)
        await push_branch(clone, remote, tip, landing.branch, present)

    async def _ask_for_merge(
        self, source: _Source, landing: Landing, plan: LandPlan, target: PullRequestTarget
    ) -> bool:
        """Open or update the pull request of a branch; return whether it is new."""
        requests = await self._requests(source.git, target)
        title, body = source.texts.title(plan), source.texts.body(plan)
        wanted = WantedRequest(landing.branch, landing.base, title, body, plan.draft)
        found, opened = await requests.ensure(wanted, landing.body)
        landing.number, landing.url = found.number, found.url
        if same_text(found.body, body):
            landing.body = body
        return opened

    async def read_pull_request(self, git: Git, landing: Landing) -> PullRequestStatus:
        """Read the state, checks and comments of a pull request. Raises :class:`kingdom.gitops.GitError`."""
        target = PullRequestTarget.of(check_url(landing.remote, allow_local=True))
        if landing.number is None:
            raise LandingRefused(f"{git.name} has no pull request", "land it first")
        return await read_status(await self._requests(git, target), landing.number)

    async def _requests(self, git: Git, target: PullRequestTarget) -> PullRequests:
        return await PullRequests.open(target, self._git.clone_of(git).git.access.credentials)

    # ── store ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _find(self, source: _Source) -> Landing | None:
        async with self._store.reading() as tx:
            return await tx.landings.find(source.id)

    async def _end_wait(self, workflow_id: str) -> None:
        """Note that a workflow whose landing was to be tried again is landed."""
        async with self._store.transaction() as tx:
            workflow = await tx.workflows.find(workflow_id)
            if workflow is not None and workflow.land_again is not None:
                workflow.end_landing()
                await tx.workflows.save(workflow)

    async def _save(self, landing: Landing, *, landed: bool = False) -> None:
        async with self._store.transaction() as tx:
            await tx.landings.save(landing)
            if landed:
                event = WorkflowLanded(landing.workflow_id, landing.branch, landing.url or landing.remote)
                tx.record(workflow_event(landing.workflow_id, event))


def _the_only(sources: Sequence[_Source], what: str) -> _Source:
    if len(sources) > 1:
        names = ", ".join(source.git.name for source in sources)
        raise CannotLand(f"{len(sources)} repositories have changes ({names}), and {what}: name it with --repo")
    return sources[0]
