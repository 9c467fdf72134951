"""A plan while it is edited in a form. It may be invalid and can still be written as YAML.

Errors are reported by the YAML parser (:mod:`kingdom.workflow.templates`), for the form as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, TypeAdapter

from kingdom.base.yamlfile import parse_yaml
from kingdom.web.views.workflows import WorkInfo
from kingdom.workflow.domain.landing import LandPlan
from kingdom.workflow.domain.plan import OPEN_WORKS
from kingdom.workflow.domain.resources import McpServerRef
from kingdom.workflow.domain.statuses import TaskStatus, WorkStatus
from kingdom.workflow.domain.work import DEFAULT_ENGINE, DEFAULT_RETRIES
from kingdom.workflow.domain.workflow import (
    DEFAULT_ON_FAILURE,
    OnFailure,
    TaskDefinition,
    WorkDefinition,
    WorkflowTemplate,
)
from kingdom.workflow.plan_model import (
    GitRefFields,
    McpServerRefFields,
    TaskFields,
    TemplateFields,
    WorkFields,
    from_domain,
)
from kingdom.workflow.templates import SourceIds, dump_yaml, write_template


class _EngineOptions(BaseModel):
    """Engine options; any field is accepted."""

    model_config = ConfigDict(extra="allow")


@dataclass(slots=True)
class TaskDraft:
    name: str = ""
    query: str = ""
    outline: str = ""
    """Section headings of its report, one per line."""
    retries: int = DEFAULT_RETRIES
    locked: bool = False
    """The task is completed and cannot be changed."""
    uid: str = ""
    """Names the drafts of its fields in the browser."""


@dataclass(slots=True)
class WorkDraft:
    name: str = ""
    engine: str = DEFAULT_ENGINE
    model: str = ""
    options: str = ""
    """Engine options as YAML."""
    after: list[str] = field(default_factory=list)
    merge: bool = False
    pause_after: bool = False
    mcp: list[str] = field(default_factory=list)
    tasks: list[TaskDraft] = field(default_factory=lambda: [TaskDraft()])
    locked: bool = False
    """The work is running or completed and cannot be changed."""
    begun: bool = False
    """The work has started and cannot be moved; its remaining tasks can be changed unless it is locked."""
    continues: str | None = None
    """The form does not show it, but keeps it, and follows when that work is renamed or removed."""
    uid: str = ""
    """Names the drafts of its fields in the browser."""


@dataclass(slots=True)
class PlanDraft:
    name: str = ""
    description: str = ""
    repositories: dict[str, str] = field(default_factory=dict)
    """Start branch by repository name; empty: the default branch."""
    mcp: list[str] = field(default_factory=list)
    on_failure: OnFailure = DEFAULT_ON_FAILURE
    works: list[WorkDraft] = field(default_factory=lambda: [WorkDraft()])
    land: LandPlan | None = None
    """The form does not show it but keeps it."""
    env: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    """Variables of MCP servers by work (empty: workflow level) and server.

    The form does not show them but keeps them.
    """

    def number(self) -> None:
        """Give works and tasks that have none an id that is the same whenever the same plan is edited."""
        for place, work in enumerate(self.works):
            work.uid = work.uid or f"w{place}"
            for at, task in enumerate(work.tasks):
                task.uid = task.uid or f"{work.uid}t{at}"

    def rename_work(self, before: str, after: str) -> None:
        """Apply the new name of a work to the works that refer to it, and to its MCP variables."""
        self.env = {(after if work == before else work, server): env for (work, server), env in self.env.items()}
        for work in self.works:
            work.after = [after if name == before else name for name in work.after]
            work.continues = after if work.continues == before else work.continues

    def remove_work(self, number: int) -> None:
        """Remove a work, also from those that refer to it."""
        gone = self.works.pop(number).name
        for work in self.works:
            work.after = [name for name in work.after if name != gone]
            work.continues = None if work.continues == gone else work.continues

    def snapshot(self) -> dict[str, Any]:
        """Return what the form changes, for :meth:`restored`."""
        found: dict[str, Any] = _DRAFT_ADAPTER.dump_python(self, mode="json", exclude={"env", "land"})
        return found

    def restored(self, snapshot: object) -> PlanDraft:
        """Return the draft of a snapshot. What can be changed, and what the form does not show, comes from this one.

        Raises :class:`pydantic.ValidationError`.
        """
        found = _DRAFT_ADAPTER.validate_python(snapshot)
        found.env, found.land = self.env, self.land
        known = {work.name: work for work in self.works}
        for work in found.works:
            same = known.get(work.name, WorkDraft(tasks=[]))
            work.locked, work.begun = same.locked, same.begun
            locked = {task.name for task in same.tasks if task.locked}
            for task in work.tasks:
                task.locked = task.name in locked
        return found

    def text(self) -> str:
        """Return the plan as YAML.

        Raises :class:`kingdom.base.yamlfile.YamlProblem` if engine options are not valid YAML.
        """
        plan = TemplateFields.model_construct(
            name=self.name.strip(),
            description=self.description.strip(),
            git_refs=[GitRefFields.model_construct(git_id=name, base=base) for name, base in self.repositories.items()],
            mcp_server_refs=self._mcp_refs("", self.mcp),
            on_failure=self.on_failure,
            land=from_domain(self.land),
            works=[self._work(work) for work in self.works],
        )
        return write_template(plan, SourceIds(), engines_apart=True)

    def _work(self, work: WorkDraft) -> WorkFields:
        return WorkFields.model_construct(
            name=work.name.strip(),
            tasks=[_task(task) for task in work.tasks],
            engine=work.engine,
            model=work.model.strip(),
            engine_options=_options(work),
            mcp_server_refs=self._mcp_refs(work.name, work.mcp),
            after=work.after,
            merge=work.merge,
            pause_after=work.pause_after,
            continues=work.continues,
        )

    def _mcp_refs(self, work: str, names: Collection[str]) -> list[McpServerRefFields]:
        return [
            McpServerRefFields.model_construct(mcp_server_id=name, env=dict(self.env.get((work, name), {})))
            for name in names
        ]


_DRAFT_ADAPTER: Final = TypeAdapter(PlanDraft)


def draft_of(template: WorkflowTemplate, sources: SourceIds, works: Sequence[WorkInfo] = ()) -> PlanDraft:
    """Create the draft of a plan; ``works`` are the works of the workflow, if it is a workflow's plan."""
    gits = {git_id: name for name, git_id in sources.repositories.items()}
    servers = {server_id: name for name, server_id in sources.mcp_servers.items()}
    begun = {work.name: work for work in works}
    draft = PlanDraft(
        template.name,
        template.description,
        {gits.get(ref.git_id, ref.git_id): ref.base or "" for ref in template.git_refs},
        [servers.get(ref.mcp_server_id, ref.mcp_server_id) for ref in template.mcp_server_refs],
        template.on_failure,
        [_work_draft(work, servers, begun.get(work.name)) for work in template.works],
        template.land,
    )
    draft.env.update(_env("", template.mcp_server_refs, servers))
    for work in template.works:
        draft.env.update(_env(work.name, work.mcp_server_refs, servers))
    return draft


def _work_draft(work: WorkDefinition, servers: Mapping[str, str], at: WorkInfo | None) -> WorkDraft:
    done = {task.name for task in at.tasks if task.status is TaskStatus.COMPLETED} if at is not None else set()
    return WorkDraft(
        work.name,
        work.engine,
        work.model or "",
        dump_yaml(work.engine_options) if work.engine_options else "",
        list(work.after),
        work.merge,
        work.pause_after,
        [servers.get(ref.mcp_server_id, ref.mcp_server_id) for ref in work.mcp_server_refs],
        [_task_draft(task, locked=task.name in done) for task in work.tasks],
        locked=at is not None and at.status not in OPEN_WORKS,
        begun=at is not None and at.status is not WorkStatus.PENDING,
        continues=work.continues,
    )


def _task_draft(task: TaskDefinition, *, locked: bool) -> TaskDraft:
    return TaskDraft(task.name, task.query, "\n".join(task.outline), task.retries, locked)


def _env(
    work: str, refs: Sequence[McpServerRef], servers: Mapping[str, str]
) -> dict[tuple[str, str], Mapping[str, str]]:
    return {(work, servers.get(ref.mcp_server_id, ref.mcp_server_id)): ref.env for ref in refs if ref.env}


def _task(task: TaskDraft) -> TaskFields:
    headings = [line.strip() for line in task.outline.splitlines() if line.strip()]
    return TaskFields.model_construct(name=task.name.strip(), query=task.query, outline=headings, retries=task.retries)


def _options(work: WorkDraft) -> dict[str, Any]:
    found = parse_yaml(work.options, _EngineOptions, f"options of work {work.name}")
    return dict(found.model_extra or {})
