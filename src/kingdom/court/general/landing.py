"""Land what a soldier committed: push its branch and open a pull request.

The soldier never has the token. Everything may be repeated: the branch is the same while it is at a commit of the
soldier's, and its pull request is looked for before one is opened. What goes on with a pull request that was merged or
closed meanwhile gets another one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from kingdom.agents.untrusted import clean, clean_line, cut_middle
from kingdom.base.files import read_object, write_json
from kingdom.court.commands import InvalidTaskState, find_task
from kingdom.court.config import load_system
from kingdom.court.general.context import HeldTask, load_task_context, without_follow_up
from kingdom.court.general.posting import keep_reply
from kingdom.court.general.replies import reply_text, reply_to
from kingdom.court.general.workspace import Workspace, allows_local
from kingdom.court.landings import note_landing
from kingdom.court.models import Result, Task
from kingdom.court.packages.installed import load_generals
from kingdom.court.packages.manifest import LandSection
from kingdom.court.pull_requests import (
    ISSUE_EVENTS,
    NOT_LANDED,
    OpenedPullRequest,
    OpenedPullRequests,
    is_about_work,
    opened_by,
    post_mark,
)
from kingdom.court.request_threads import is_request
from kingdom.gitops.commits import log
from kingdom.gitops.errors import GitError, LandingRefused
from kingdom.gitops.landing import contains, free_branch, push_branch, remote_branch
from kingdom.gitops.names import pull_ref
from kingdom.gitops.pull_requests import PullRequests, PullRequestTarget, WantedComment, WantedRequest
from kingdom.gitops.remotes import RETRY_SECONDS, through_outage
from kingdom.journal.catalog import TaskNotLanded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kingdom.court.config import SystemConfig
    from kingdom.court.general.context import GeneralContext, TaskContext
    from kingdom.court.general.workspace import Workplace
    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.court.packages.manifest import Manifest
    from kingdom.gitops import Worktree

_MAX_BODY_CHARS: Final = 60_000
_MAX_TITLE_CHARS: Final = 200
_TITLE_FIELDS: Final = ("title", "summary", "subject")
# Before the next tries to land, for a day: nobody waits at a terminal, and the work is done.
OUTAGE_SECONDS: Final = (*RETRY_SECONDS, 60.0, 120.0, *[300.0] * 287)
_MAX_REASON_CHARS: Final = 500
_WAITS: Final = "the work is done, and is landed when the remote is back: {reason}"
_NOT_LANDED: Final = (
    "The work is done, on {branch} in {folder}, but was not landed: {reason}. "
    "Land it later with: kingdom task land {task}"
)
_NOT_IN_BRANCH: Final = re.compile(r"[^A-Za-z0-9_.]+")


@dataclass(frozen=True, slots=True)
class LandedTask:
    """The pushed branch of a task."""

    branch: str
    commits: int
    url: str | None  # of the pull request


@dataclass(frozen=True, slots=True)
class TaskTexts:
    """What people read of a landed task."""

    task_id: str
    general: str
    subject: str | None  # the ticket or issue
    payload: Mapping[str, Any]
    summary: str
    cost_usd: float | None = None
    task_type: str | None = None
    follow_up: OpenedPullRequest | None = None

    @property
    def branch(self) -> str:
        """The name of the branch: the ticket, or else the task."""
        named = _NOT_IN_BRANCH.sub("-", self.subject or "").strip("-.").removesuffix(".lock")
        return f"kingdom/{named or self.task_id}"

    def title(self, first_commit: str) -> str:
        """The title of the pull request: what the ticket is called, or else the subject of the first commit."""
        titles = [self.payload.get(name) for name in _TITLE_FIELDS]
        named = next((title for title in titles if isinstance(title, str) and title.strip()), first_commit)
        title = clean_line(named, _MAX_TITLE_CHARS)
        key = self.subject or ""
        return title if not key or self._issue is not None or key.lower() in title.lower() else f"{key}: {title}"

    def body(self) -> str:
        """The text of the pull request."""
        about = f" for {self.subject}" if self.subject else ""
        cost = f", ${self.cost_usd:.2f}" if self.cost_usd else ""
        closes = f"Closes #{self._issue}.\n\n" if self._issue is not None else ""
        end = f"{closes}---\nTask `{self.task_id}` of {self.general}{about}{cost}."
        return f"{self._summary}\n\n{end}\n"

    def comment(self, *links: str) -> WantedComment:
        """The answer to what was said about the pull request."""
        mark = post_mark(self.task_id)
        return WantedComment("\n\n".join([self._summary, *links, mark]), mark)

    @property
    def _summary(self) -> str:
        return cut_middle(clean(self.summary).strip(), _MAX_BODY_CHARS)

    @property
    def _issue(self) -> str | None:
        """The number of the issue on GitHub that the task is about; merging the pull request closes it."""
        named = (self.subject or "").rpartition("#")[2]
        return named if (self.task_type or "").startswith(ISSUE_EVENTS) and named.isdigit() else None


class OutageWait:
    """Waits while the remote of a finished task is away. The task stays claimed, so the next process lands it.

    Meanwhile it does not count against the concurrency of its general, and the heartbeat gives the reason.
    """

    def __init__(self, context: GeneralContext) -> None:
        self.held: HeldTask | None = None  # while it takes longer than a moment
        self._context = context

    async def __call__(self, error: GitError, seconds: float) -> None:
        """Wait before the next try."""
        if seconds > RETRY_SECONDS[-1]:
            reason = _WAITS.format(reason=clean_line(str(error), _MAX_REASON_CHARS))
            self.held = HeldTask(reason, self._context.clock() + seconds)
        await self._context.deps.sleep(seconds)


async def land_result(
    context: GeneralContext, task_context: TaskContext, place: Workplace | None, result: Result, outage: OutageWait
) -> Result:
    """Land the commits of a task that succeeded, if its manifest says so; return the result with where they are.

    A remote that refuses them does not undo the success: the summary says what is wrong.
    """
    plan, task = context.manifest.land, task_context.task
    if plan is None or plan.how == "review" or result.status != "success" or context.manifest.mode == "workflow":
        return result
    place = place or context.workspace.find(task_context.history.work_id)  # None: prepared by a former process
    if place is None or place.tree is None:
        return result
    tree, texts = place.tree, _texts(task_context, context.name, result.summary, result.cost_usd)
    try:
        landed = await through_outage(lambda: land_task(tree, plan, texts), OUTAGE_SECONDS, outage)
    except GitError as error:
        said = _NOT_LANDED.format(branch=place.tree.branch, folder=place.folder, reason=error, task=task.id)
        summary = f"{result.summary}\n\n{said}".strip()
        context.emit(TaskNotLanded(task.id, clean_line(str(error), _MAX_REASON_CHARS)))
        return result.model_copy(update={"summary": summary, NOT_LANDED: str(error)})
    return result if landed is None else result.model_copy(update=landed_fields(landed, task_context, result.links))


async def land_again(
    services: Services, task_id: str, how: Literal["pull-request", "push"] | None = None
) -> LandedTask:
    """Land what a finished task committed, after its remote refused it or without a word of it in the manifest.

    The result gets the link. Raises :class:`InvalidTaskState` when there is nothing to land, and
    :class:`kingdom.gitops.GitError` when the remote refuses it.
    """
    home = services.home
    task = Task.model_validate((await find_task(services, task_id)).document)
    result = read_object(home.result(task_id))
    if not result:
        raise InvalidTaskState(
            "NOTHING_TO_LAND",
            f"{task_id} has not ended: if its general lands anything, it does so by itself",
        )
    if result.get("status") != "success":
        raise InvalidTaskState(
            "NOTHING_TO_LAND", f"{task_id} has not ended with success: only what succeeded can be landed"
        )
    generals = load_generals(home)
    package = generals.by_name.get(task.target_general)
    if package is None:
        raise InvalidTaskState(
            "NOTHING_TO_LAND", f"{task_id} was done by {task.target_general}, which is not installed any more"
        )
    plan = package.manifest.land or LandSection(how="pull-request")
    if how is not None or plan.how == "review":
        plan = plan.model_copy(update={"how": how or "pull-request"})
    context = await load_task_context(home, services.bus, task)
    if result.get("follow_up_ended"):
        context = without_follow_up(home, context)
    system = load_system(home)
    local = allows_local(system.repos.base_url, package.manifest.default_repo)
    workspace = Workspace(home, task.target_general, local=local, settings=system.git.settings())
    place = workspace.find(context.history.work_id)
    if place is None or place.tree is None:
        raise InvalidTaskState(
            "NOTHING_TO_LAND", f"{task_id} has no worktree any more, or never had one: its branch is in the clone"
        )
    summary, former = str(result.get("summary") or ""), {name: result.get(name) for name in (NOT_LANDED, "branch")}
    if result.pop(NOT_LANDED, None):  # that it was not landed is no part of what people read of it
        before, found, _ = summary.rpartition(_NOT_LANDED.partition("{")[0])
        summary = before.strip() if found else summary
    tree, texts = place.tree, _texts(context, task.target_general, summary, result.get("cost_usd"))
    landed = await through_outage(lambda: land_task(tree, plan, texts))
    if landed is None:
        raise InvalidTaskState("NOTHING_TO_LAND", f"{task_id} made no commit: there is nothing to land")
    result |= {"summary": summary} | landed_fields(landed, context, result.get("links") or [])
    if former != {NOT_LANDED: None, "branch": landed.branch}:
        _keep_reply(home, package.manifest, system, context, result, services.clock())
        await note_landing(services, system.machine, result)
    known = OpenedPullRequests(home)
    for opened in opened_by(result, task.target_general):  # the king has read the result before
        known.record(opened.after(str(context.type), known.find(opened.url)))
    write_json(home.result(task_id), result)
    return landed


def _keep_reply(
    home: Home,
    manifest: Manifest,
    system: SystemConfig,
    task_context: TaskContext,
    document: Mapping[str, Any],
    now: float,
) -> None:
    """Keep the reply to the requester of a task, the same as for a landing at its end. Its general posts it."""
    if manifest.land is None or not manifest.land.replies:
        return
    result = Result.model_validate(document)
    text, base_url = reply_text(home, manifest, system.locale, task_context, result, {}), system.repos.base_url
    reply = None if text is None else reply_to(manifest.name, base_url, task_context, result, text, now)
    if reply is not None:
        keep_reply(home, manifest.name, reply)


def _texts(task_context: TaskContext, general: str, summary: str, cost_usd: float | None) -> TaskTexts:
    task, kind = task_context.task, task_context.type
    named = not is_request(kind)  # the words of a request are no title
    return TaskTexts(
        task.id,
        general,
        task_context.subject if named else None,
        task.payload if named else {},
        summary,
        cost_usd,
        kind if isinstance(kind, str) else None,
        task_context.follow_up,
    )


def landed_fields(landed: LandedTask, task_context: TaskContext, links: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a result that say where the commits are."""
    fields: dict[str, Any] = {"branch": landed.branch, "links": list(links)}
    if landed.url:
        fields["links"] = [landed.url, *(link for link in links if link != landed.url)]
        named = {"url": landed.url, "branch": landed.branch}
        fields["pull_requests"] = [named | opened_for(task_context)]
        fields["work_id"] = task_context.history.work_id
    return fields


def opened_for(task_context: TaskContext) -> dict[str, str]:
    """Return the field of a pull request that names the issue or ticket of its task; empty if it has none."""
    subject = task_context.subject if is_about_work(task_context.type) else None
    return {} if subject is None else {"opened_for": subject}


async def land_task(tree: Worktree, plan: LandSection, texts: TaskTexts) -> LandedTask | None:
    """Land the commits of a worktree; return None if there are none. Raises :class:`kingdom.gitops.GitError`."""
    if texts.follow_up is None:
        return await _open_pull_request(tree, plan, texts)
    opened, requests = texts.follow_up, await _requests(tree)
    if (await requests.find(opened.number)).state == "open":
        landed = await _push_to(tree, opened)
    elif await _has_all(tree, opened):
        landed = LandedTask(opened.branch, 0, opened.url)
    else:
        landed = await _open_pull_request(tree, plan, texts) or LandedTask(opened.branch, 0, opened.url)
    if plan.replies and not is_about_work(texts.task_type):
        links = [landed.url] if landed.url and landed.url != opened.url else []
        await requests.comment(opened.number, texts.comment(*links))
    return landed


async def _open_pull_request(tree: Worktree, plan: LandSection, texts: TaskTexts) -> LandedTask | None:
    """Push a branch and open its pull request; return None if there are no commits."""
    clone, tip = tree.clone, await tree.tip()
    commits = [] if tip in (None, tree.base) else await log(clone, tree.base, str(tip))
    if tip is None or not commits:
        return None
    base = plan.base or await clone.default_branch()
    if base is None:
        raise LandingRefused(f"{clone.url.text} has no default branch", "name the branch to merge into in land.base")
    if plan.how == "pull-request":
        PullRequestTarget.of(clone.url)  # refuses before anything is pushed
    branch, present = await free_branch(clone, clone.url, texts.branch, tip)
    if present != tip:
        await push_branch(clone, clone.url, tip, branch, present)
    if plan.how != "pull-request":
        return LandedTask(branch, len(commits), None)
    wanted = WantedRequest(branch, base, texts.title(commits[-1].title), texts.body(), plan.draft)
    found, _ = await (await _requests(tree)).ensure(wanted)
    return LandedTask(branch, len(commits), found.url)


async def _push_to(tree: Worktree, opened: OpenedPullRequest) -> LandedTask:
    """Push what was added to the branch of a pull request."""
    clone, tip, branch = tree.clone, await tree.tip(), opened.branch
    present = await remote_branch(clone, clone.url, branch)
    if tip is None or present is None:
        raise LandingRefused(f"the branch {branch} is gone", f"restore it on {opened.url}")
    commits = 0
    if tip != present:
        if not await contains(clone, tip, present):
            raise LandingRefused(f"the branch {branch} has commits of others", f"merge them in {tree.path} and commit")
        commits = len(await log(clone, present, tip))
        await push_branch(clone, clone.url, tip, branch, present)
    return LandedTask(branch, commits, opened.url)


async def _has_all(tree: Worktree, opened: OpenedPullRequest) -> bool:
    """Whether a pull request has all that is in a worktree, by its head as it was last fetched."""
    head, tip = await tree.clone.commit_of(pull_ref(opened.number)), await tree.tip()
    return tip is None or (head is not None and (head == tip or await tree.clone.is_ancestor(tip, head)))


async def _requests(tree: Worktree) -> PullRequests:
    return await PullRequests.open(PullRequestTarget.of(tree.clone.url), tree.clone.git.access.credentials)
