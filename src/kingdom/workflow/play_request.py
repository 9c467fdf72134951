"""A court's task as a workflow: the request, the record on disk, and the workflow created for it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.errors import InvalidOrder
from kingdom.agents.port import Tokens
from kingdom.agents.untrusted import clean, cut_middle, fence
from kingdom.base.files import read_object, write_json
from kingdom.workflow.domain.plan import UpdateTask
from kingdom.workflow.domain.resources import GitRef
from kingdom.workflow.domain.statuses import TaskStatus, WorkStatus
from kingdom.workflow.errors import NotFound
from kingdom.workflow.templates import SourceIds, load_template, read_template_file
from kingdom.workflow.usecases.catalog import CreateGit, CreateWorkflowTemplate, UpdateWorkflowTemplate
from kingdom.workflow.usecases.workflows import CreateWorkflow, ModifyWorkflow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.agents.port import Order
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.domain.work import Task, Work
    from kingdom.workflow.domain.workflow import WorkflowTemplate


# What a general asks for: the options of an order for the engine ``workflow``, checked.


_TASK_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,127}\Z")


@dataclass(frozen=True, slots=True)
class PersonAnswer:
    """What a person said to a question of the workflow; ``task_id`` is the court's task that brings it."""

    task_id: str
    text: str


@dataclass(frozen=True, slots=True)
class PlayRequest:
    """One workflow that is to be done for a task of a court."""

    home: Path  # the folder of the workflows
    template: str
    key: str  # the same for all runs of one piece of work: so its workflow is found again
    template_file: Path | None = None  # where the template may lie, beside the store
    repository: tuple[str, str] | None = None  # name and URL
    issue_key: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    engines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # the settings of each, by name
    retries: int = 0  # how many runs of the task have failed so far
    answer: PersonAnswer | None = None


def read_request(order: Order) -> PlayRequest:
    """The commission in an order's options. Raises :class:`InvalidOrder`."""
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
            retries=int(given.get("retries") or 0),
            answer=None if answer is None else PersonAnswer(str(answer["task_id"]), str(answer["text"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise InvalidOrder(f"run {order.run_id}: its options make no workflow: {what}") from None


# Which workflow is done for which task, on disk: whoever goes on with the task after a crash finds it again.


@dataclass(slots=True)
class PlayRecord:
    """What is known of a task's workflow beside the workflow itself."""

    path: Path
    workflow_id: str | None = None
    answered_by: str | None = None  # the task whose answer was given last
    answered_after: int = 0  # the number of the workflow's last event before that
    charged_usd: float = 0.0  # what former runs of the task have told of
    charged: Tokens = field(default_factory=Tokens)

    def save(self) -> None:
        """Write it down; it is there on return."""
        document = {name: value for name, value in asdict(self).items() if name != "path"}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, document, mode=0o600)


def load_play_record(home: Path, key: str) -> PlayRecord:
    """The record of a task; an empty one when there is none."""
    path = home / "tasks" / f"{key}.json"
    known = read_object(path)
    return PlayRecord(
        path,
        known.get("workflow_id"),
        known.get("answered_by"),
        int(known.get("answered_after") or 0),
        float(known.get("charged_usd") or 0.0),
        Tokens(**known.get("charged") or {}),
    )


# From a commission to a workflow: its template, its repository, and the workflow itself, made once.


_MAX_NAMES: Final = 100_000  # of one kind: names are compared with all of them


async def find_or_create_workflow(parts: WorkflowContext, commission: PlayRequest, record: PlayRecord) -> str:
    """The id of the workflow of a commission. Its id is written down before it is made, so there is never a second."""
    if record.workflow_id is None:
        record.workflow_id = parts.ids.new("wf")
        record.save()
    async with parts.store.reading() as tx:
        if await tx.workflows.find(record.workflow_id) is not None:
            return record.workflow_id
    template = await _template(parts, commission)
    return await CreateWorkflow(parts).execute(
        template.id,
        workflow_id=record.workflow_id,
        name=f"{template.name} {commission.issue_key or commission.key}",
        issue_key=commission.issue_key,
        variables=commission.variables,
        git_refs=await _git_refs(parts, commission, template),
    )


async def _template(parts: WorkflowContext, commission: PlayRequest) -> WorkflowTemplate:
    """The template of that name: of the general's own file, else of the store."""
    file = commission.template_file
    if file is not None and file.is_file() and read_template_file(file).name == commission.template:
        return await _store_template(parts, file)
    async with parts.store.reading() as tx:
        named = [one for one in await tx.templates.list(limit=_MAX_NAMES) if one.name == commission.template]
    if not named:
        beside = f", nor in {file}" if file is not None else ""
        raise NotFound(
            f"there is no workflow template {commission.template!r:.100} in {commission.home}{beside}: "
            "kingdom template add FILE keeps one"
        )
    return named[0]


async def _store_template(parts: WorkflowContext, file: Path) -> WorkflowTemplate:
    """Keep the template of a file in the store, in the place of the one of that name."""
    async with parts.store.reading() as tx:
        gits, servers = await tx.gits.list(limit=_MAX_NAMES), await tx.mcp_servers.list(limit=_MAX_NAMES)
        before = {one.name: one for one in await tx.templates.list(limit=_MAX_NAMES)}
    sources = SourceIds({git.name: git.id for git in gits}, {server.name: server.id for server in servers})
    template = load_template(file, parts.ids.new("tpl"), sources)
    known = before.get(template.name)
    if known is None:
        await CreateWorkflowTemplate(parts).execute(template)
    else:
        template.id, template.version = known.id, known.version
        if template != known:
            await UpdateWorkflowTemplate(parts).execute(template)
    return template


async def _git_refs(parts: WorkflowContext, commission: PlayRequest, template: WorkflowTemplate) -> list[GitRef]:
    """The repository of the task first, then those that the template names."""
    if commission.repository is None:
        return list(template.git_refs)
    name, url = commission.repository
    async with parts.store.reading() as tx:
        gits = await tx.gits.list(limit=_MAX_NAMES)
    git_id = next((git.id for git in gits if git.url == url), None)
    if git_id is None:
        git_id = await CreateGit(parts).execute(_free_name(name, {git.name for git in gits}), url)
    own = next((ref for ref in template.git_refs if ref.git_id == git_id), GitRef(git_id))
    return [own, *(ref for ref in template.git_refs if ref.git_id != git_id)]


def _free_name(name: str, taken: set[str]) -> str:
    """The name, or one like it when another repository has it."""
    candidates = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)


# A person's answer, put into the query of the task that waits for it.


_ANSWER_LABEL: Final = "what a person said: it decides what was asked"
_MAX_ANSWER_CHARS: Final = 32 * 1024  # characters of an answer
_MARKER: Final = re.compile(r"\{(?=[{%#])")


async def give_answer(parts: WorkflowContext, workflow_id: str, answer: PersonAnswer) -> None:
    """Add an answer to the query of the task the workflow stopped at, or else of the next one; may be repeated."""
    async with parts.store.reading() as tx:
        works = await tx.works.of_workflow(workflow_id)
    heading = f"# A person's answer ({answer.task_id})"
    task = waiting_task(works)
    if task is None or any(heading in one.query for work in works for one in work.tasks):
        return
    said = escape_markers(fence(cut_middle(clean(answer.text), _MAX_ANSWER_CHARS), _ANSWER_LABEL))
    query = f"{task.query.rstrip()}\n\n{heading}\n\n{said}\n"
    await ModifyWorkflow(parts).execute(workflow_id, [UpdateTask(task.id, {"query": query})])


def waiting_task(works: Sequence[Work]) -> Task | None:
    """The task that a workflow stopped at, or the next one."""
    stopped = [work for work in works if work.status in (WorkStatus.FAILED, WorkStatus.PAUSED)]
    waiting = [work for work in works if work.status is WorkStatus.PENDING]
    tasks = [task for work in (*stopped, *waiting) for task in work.tasks]
    return next((task for task in tasks if task.status is not TaskStatus.COMPLETED), None)


def escape_markers(text: str) -> str:
    """A text as it has to stand in a query, so that nothing in it is taken for a variable."""
    return _MARKER.sub("{{ '{' }}", text)
