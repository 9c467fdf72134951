"""A court's task as a workflow: the request, its record on disk, and the workflow created for it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.errors import InvalidOrder
from kingdom.agents.port import Tokens
from kingdom.agents.untrusted import OUTSIDE, clean, cut_middle, fence, lay_out
from kingdom.base.files import read_object, write_json
from kingdom.workflow.adapters.queries import literal_query
from kingdom.workflow.domain.landing import LandAs, LandPlan
from kingdom.workflow.domain.plan import AddWork, SetLandPlan, UpdateTask, continuing
from kingdom.workflow.domain.resources import GitRef
from kingdom.workflow.domain.statuses import TaskStatus, WorkStatus
from kingdom.workflow.errors import NotFound
from kingdom.workflow.templates import MAX_NAMES, load_template, read_source_ids, read_template_file
from kingdom.workflow.usecases.catalog import create_git, create_workflow_template, update_workflow_template
from kingdom.workflow.usecases.workflows import create_workflow, modify_workflow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.agents.port import Order
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.domain.work import Task, Work
    from kingdom.workflow.domain.workflow import WorkflowTemplate

_TASK_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,127}\Z")
_ANSWER_LABEL: Final = "what a person said: it decides what was asked"
_MAX_ANSWER_CHARS: Final = 32 * 1024
_FOLLOW_UP: Final = """\
Your work is in the pull request {url}. Something happened there: a review, a comment or a failed check.

{said}

Do what it asks for, as a careful engineer would: read the code it is about, change it, and run the tests. If it asks
for nothing, or for something that would be wrong, change nothing and say why. Answer with what you changed, for the
person who asked.
"""


# ── the request ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class PersonAnswer:
    """A person's answer to a question of the workflow; ``task_id`` is the court's task that carries it."""

    task_id: str
    text: str


@dataclass(frozen=True, slots=True)
class PlayRequest:
    """The workflow to run for a court's task."""

    home: Path  # the folder of the workflows
    template: str
    key: str  # the same for all runs of one task, so that they find its workflow again
    template_file: Path | None = None  # a file that may have the template instead of the store
    repository: tuple[str, str] | None = None  # name and URL
    issue_key: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    engines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # settings by engine name
    sandbox: Mapping[str, Any] = field(default_factory=dict)  # settings of the sandbox
    git: Mapping[str, Any] = field(default_factory=dict)  # who commits, and how remotes are reached
    journal: Path | None = None  # where refusals of the sandbox are written
    pull_request: str | None = None  # its address, if the task is about one
    merged: bool = False  # whether that pull request was merged, or closed: there is nothing more to do
    land: LandPlan | None = None  # how the workflow is landed, if not as its template says
    retries: int = 0  # how many runs of the task failed so far
    answer: PersonAnswer | None = None


def read_request(order: Order) -> PlayRequest:
    """Read the request from an order's options; raise :class:`InvalidOrder`."""
    given = order.options
    try:
        key = given.get("key") or order.task_id
        if not _TASK_KEY.match(key):
            raise ValueError(f"key {key!r:.80} is not the id of a task")  # noqa: TRY301
        file, repository, answer = given.get("template_file"), given.get("repository"), given.get("answer")
        return PlayRequest(
            home=Path(given["home"]),
            template=str(given["template"]),
            key=key,
            template_file=None if file is None else Path(file),
            repository=None if repository is None else (str(repository["name"]), str(repository["url"])),
            issue_key=given.get("issue_key"),
            variables=dict(given.get("variables") or {}),
            engines=dict(given.get("engines") or {}),
            sandbox=dict(given.get("sandbox") or {}),
            git=dict(given.get("git") or {}),
            journal=None if (journal := given.get("journal")) is None else Path(journal),
            pull_request=given.get("pull_request"),
            merged=bool(given.get("merged")),
            land=None
            if given.get("land") is None
            else LandPlan(given["land"]["how"], draft=bool(given["land"]["draft"])),
            retries=int(given.get("retries") or 0),
            answer=None if answer is None else PersonAnswer(str(answer["task_id"]), str(answer["text"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise InvalidOrder(f"run {order.run_id}: invalid options for a workflow: {what}") from None


# ── the record on disk ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class PlayRecord:
    """Which workflow belongs to a task. A run after a crash finds the workflow by it."""

    path: Path
    workflow_id: str | None = None
    follow_up: bool = False  # whether that is the workflow whose pull request the task is about
    answered_by: str | None = None  # the task whose answer was given last
    answered_after: int = 0  # the workflow's last event number before that
    charged_usd: float = 0.0  # what earlier runs of the task reported
    charged: Tokens = field(default_factory=Tokens)

    def save(self) -> None:
        """Write the record durably."""
        document = {name: value for name, value in asdict(self).items() if name != "path"}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, document, mode=0o600)


def load_play_record(home: Path, key: str) -> PlayRecord:
    """Load the record of a task, or return an empty one."""
    path = home / "tasks" / f"{key}.json"
    known = read_object(path)
    return PlayRecord(
        path,
        known.get("workflow_id"),
        bool(known.get("follow_up")),
        known.get("answered_by"),
        int(known.get("answered_after") or 0),
        float(known.get("charged_usd") or 0.0),
        Tokens(**known.get("charged") or {}),
    )


# ── the workflow ──────────────────────────────────────────────────────────────────────────────────────────────────


async def find_or_create_workflow(context: WorkflowContext, request: PlayRequest, record: PlayRecord) -> str:
    """Return the id of the request's workflow. It is recorded before the workflow is created: never two of them."""
    if record.workflow_id is None:
        landed = await landed_workflow(context, request)
        record.workflow_id, record.follow_up = landed or context.ids.new("wf"), landed is not None
        record.save()
    if record.follow_up:
        await _add_follow_up(context, request, record.workflow_id)
        return record.workflow_id
    async with context.store.reading() as tx:
        if await tx.workflows.find(record.workflow_id) is not None:
            return record.workflow_id
    template = await _template(context, request)
    return await create_workflow(
        context,
        template.id,
        workflow_id=record.workflow_id,
        name=f"{template.name} {request.issue_key or request.key}",
        issue_key=request.issue_key,
        variables=request.variables,
        git_refs=await _git_refs(context, request, template),
        land=request.land,
    )


async def landed_workflow(context: WorkflowContext, request: PlayRequest) -> str | None:
    """Return the id of the workflow whose pull request the task is about, or None."""
    if request.pull_request is None:
        return None
    async with context.store.reading() as tx:
        landings = await tx.landings.with_status(request.pull_request)
        known = [one for one in landings if await tx.workflows.find(one.workflow_id) is not None]
    return known[-1].workflow_id if known else None


async def _add_follow_up(context: WorkflowContext, request: PlayRequest, workflow_id: str) -> None:
    """Add a Work that goes on in the conversation of the last one, with what came back. May be repeated.

    Its commits land on the same branch.
    """
    name = f"follow-up {request.key}"
    async with context.store.reading() as tx:
        workflow, works = await tx.workflows.get(workflow_id), await tx.works.of_workflow(workflow_id)
        landings = await tx.landings.of_workflow(workflow_id)
    if any(work.name == name for work in works):
        return
    last = max(works, key=lambda work: work.sequence)
    said = fence(cut_middle(lay_out(request.variables), _MAX_ANSWER_CHARS), OUTSIDE)
    query = literal_query(_FOLLOW_UP.format(url=request.pull_request, said=said))
    how: LandAs = "pull-request" if any(one.url for one in landings) else "push"
    land = [] if workflow.land is not None else [SetLandPlan(request.land or LandPlan(how))]
    await modify_workflow(context, workflow_id, [AddWork(continuing(last, name, query), len(works)), *land])


async def _template(context: WorkflowContext, request: PlayRequest) -> WorkflowTemplate:
    """Return the template of that name, from the general's own file or else from the store."""
    file = request.template_file
    if file is not None and file.is_file() and read_template_file(file).name == request.template:
        return await _store_template(context, file)
    async with context.store.reading() as tx:
        named = [one for one in await tx.templates.list(limit=MAX_NAMES) if one.name == request.template]
    if not named:
        beside = f", nor in {file}" if file is not None else ""
        raise NotFound(
            f"there is no workflow template {request.template!r:.100} in {request.home}{beside}: "
            "add one with kingdom template add FILE"
        )
    return named[0]


async def _store_template(context: WorkflowContext, file: Path) -> WorkflowTemplate:
    """Store the template of a file, replacing the one of that name."""
    template = load_template(file, context.ids.new("tpl"), await read_source_ids(context.store))
    async with context.store.reading() as tx:
        before = {one.name: one for one in await tx.templates.list(limit=MAX_NAMES)}
    known = before.get(template.name)
    if known is None:
        await create_workflow_template(context, template)
    else:
        template.id, template.version = known.id, known.version
        if template != known:
            await update_workflow_template(context, template)
    return template


async def _git_refs(context: WorkflowContext, request: PlayRequest, template: WorkflowTemplate) -> list[GitRef]:
    """Return the task's repository first, then those of the template."""
    if request.repository is None:
        return list(template.git_refs)
    name, url = request.repository
    async with context.store.reading() as tx:
        gits = await tx.gits.list(limit=MAX_NAMES)
    git_id = next((git.id for git in gits if git.url == url), None)
    if git_id is None:
        git_id = await create_git(context, _free_name(name, {git.name for git in gits}), url)
    own = next((ref for ref in template.git_refs if ref.git_id == git_id), GitRef(git_id))
    return [own, *(ref for ref in template.git_refs if ref.git_id != git_id)]


def _free_name(name: str, taken: set[str]) -> str:
    """Return ``name``, or ``name-2``, ``name-3`` … if another repository has it."""
    candidates = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)


# ── an answer ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def give_answer(context: WorkflowContext, workflow_id: str, answer: PersonAnswer) -> None:
    """Add an answer to the query of the task at which the workflow stopped, or of the next one. May be repeated."""
    async with context.store.reading() as tx:
        works = await tx.works.of_workflow(workflow_id)
    heading = f"# A person's answer ({answer.task_id})"
    task = waiting_task(works)
    if task is None or any(heading in one.query for work in works for one in work.tasks):
        return
    said = literal_query(fence(cut_middle(clean(answer.text), _MAX_ANSWER_CHARS), _ANSWER_LABEL))
    query = f"{task.query.rstrip()}\n\n{heading}\n\n{said}\n"
    await modify_workflow(context, workflow_id, [UpdateTask(task.id, {"query": query})])


def waiting_task(works: Sequence[Work]) -> Task | None:
    """Return the task at which a workflow stopped, or the next one."""
    stopped = [work for work in works if work.status in (WorkStatus.WAITING, WorkStatus.FAILED, WorkStatus.PAUSED)]
    waiting = [work for work in works if work.status is WorkStatus.PENDING]
    tasks = [task for work in (*stopped, *waiting) for task in work.tasks]
    return next((task for task in tasks if task.status is not TaskStatus.COMPLETED), None)
