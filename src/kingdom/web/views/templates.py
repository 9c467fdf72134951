"""Templates, as fields and as YAML."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from kingdom.base.yamlfile import YamlProblem
from kingdom.web.envelope import ApiError, ApiModel, Page, cursor_id, cursor_of, not_found
from kingdom.web.views.redaction import shown_env, shown_template
from kingdom.web.views.workflow_state import workflow_state
from kingdom.workflow.domain.landing import LandPlan
from kingdom.workflow.domain.resources import GitRef, McpServerRef
from kingdom.workflow.domain.workflow import TaskDefinition, WorkDefinition, WorkflowTemplate
from kingdom.workflow.errors import InvalidPlan
from kingdom.workflow.template_file import KnownNames
from kingdom.workflow.templates import MAX_NAMES, parse_template, read_source_ids, write_template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.web.context import WebContext

EXAMPLE_YAML = """\
name: fix
repositories: [web]
works:
  - name: fix
    tasks:
      - query: Fix {{ issue.key }}.
        report: [Cause, Change]
"""
_UNSAVED_ID = "tpl-new"  # id of a template that is not stored
_YAML_NAME = "template"  # precedes line numbers in error messages


class GitRefFields(ApiModel):
    """Reference to a repository."""

    git_id: str = Field(examples=["git-0198c2d0"])
    base: str | None = Field(default=None, description="Branch to start from; null: the default branch.")


class McpServerRefFields(ApiModel):
    """Reference to an MCP server, with environment overrides."""

    mcp_server_id: str = Field(examples=["mcp-0198c2d1"])
    env: dict[str, str] = Field(
        default_factory=dict,
        description="Overrides the server's variables. `***` is a hidden value; sent back, the value is kept.",
        examples=[{"TRACKER_TOKEN": "${TRACKER_TOKEN}"}],
    )


class TaskFields(ApiModel):
    """A task in a plan."""

    name: str = Field(examples=["task-1"])
    query: str = Field(examples=["Fix {{ issue.key }}."])
    outline: list[str] = Field(default_factory=list, examples=[["Cause", "Change"]])
    retries: int = Field(default=1)


class WorkFields(ApiModel):
    """A work in a plan."""

    name: str = Field(examples=["fix"])
    tasks: list[TaskFields]
    engine: str = Field(default="claude")
    model: str | None = None
    engine_options: dict[str, Any] = Field(default_factory=dict)
    mcp_server_refs: list[McpServerRefFields] = Field(default_factory=list)
    after: list[str] = Field(
        default_factory=list, description="Names of the works it waits for; empty: all works before it."
    )
    merge: bool = False
    pause_after: bool = False
    continues: str | None = Field(default=None, description="Name of a work whose conversation it goes on with.")


class LandFields(ApiModel):
    """What happens with the result when a workflow is completed."""

    how: Literal["pull-request", "push"] = "pull-request"
    squash: Literal["work", "all", "none"] = Field(
        default="work", description="One commit for each work, one for everything, or the branch as it is."
    )
    branch: str | None = Field(default=None, description="Default: made from the issue key and the name.")
    title: str | None = Field(default=None, description="A template; default: the issue key and the topic.")
    body: str | None = Field(default=None, description="A template; default: what each work reports.")
    draft: bool = False


class TemplateFields(ApiModel):
    """Fields of a template."""

    name: str = Field(examples=["fix"])
    description: str = ""
    git_refs: list[GitRefFields] = Field(default_factory=list)
    mcp_server_refs: list[McpServerRefFields] = Field(default_factory=list)
    on_failure: Literal["pause", "fail"] = "pause"
    land: LandFields | None = None
    works: list[WorkFields]


class Template(TemplateFields):
    """A stored template."""

    id: str = Field(examples=["tpl-0198c2d2"])
    version: int = Field(description="Number of its changes.", examples=[1])


class TemplateSummary(ApiModel):
    """A template in a list."""

    id: str = Field(examples=["tpl-0198c2d2"])
    name: str = Field(examples=["fix"])
    description: str = Field(examples=["Fixes an issue."])
    works: list[str] = Field(description="Names of its works.", examples=[["plan", "fix"]])
    tasks: int = Field(description="Number of tasks in all works.", examples=[3])


class ConvertedTemplate(ApiModel):
    """A template in both forms."""

    fields: TemplateFields
    yaml: str = Field(examples=[EXAMPLE_YAML])


async def list_templates(
    context: WebContext, *, search: str | None = None, limit: int = 50, cursor: str | None = None
) -> Page[TemplateSummary]:
    """Return templates, newest first; with ``search`` those whose name or description contains it."""
    after = cursor_id(cursor)
    async with context.parts.store.reading() as tx:
        found = await tx.templates.list(limit=MAX_NAMES if search else limit + 1, after=after)
    if search:
        words = search.lower()
        found = [one for one in found if words in one.name.lower() or words in one.description.lower()]
    items = [
        TemplateSummary(
            id=one.id,
            name=one.name,
            description=one.description,
            works=[work.name for work in one.works],
            tasks=sum(len(work.tasks) for work in one.works),
        )
        for one in found[:limit]
    ]
    return Page(items=items, next_cursor=cursor_of(items[-1].id) if len(found) > limit else None)


async def read_template(context: WebContext, template_id: str) -> Template:
    """Fields of a template."""
    found = await find_template(context, template_id)
    return Template(**fields_of(found).model_dump(), id=found.id, version=found.version)


async def read_yaml(context: WebContext, template_id: str) -> str:
    """Return the YAML of a template."""
    found = await find_template(context, template_id)
    return await _to_yaml(context, shown_template(found))


async def find_template(context: WebContext, template_id: str) -> WorkflowTemplate:
    """Return a stored template. Raises :class:`ApiError` if it does not exist."""
    async with context.parts.store.reading() as tx:
        found = await tx.templates.find(template_id)
    if found is None:
        raise not_found("TPL", "template", template_id)
    return found


async def convert(
    context: WebContext, *, yaml: str | None = None, fields: TemplateFields | None = None
) -> ConvertedTemplate:
    """Return a template in both forms. Raises :class:`ApiError` 422 TPL_INVALID with all problems."""
    template = await (from_yaml(context, yaml) if fields is None else from_fields(context, fields))
    return ConvertedTemplate(fields=fields_of(template), yaml=await _to_yaml(context, shown_template(template)))


async def from_yaml(context: WebContext, yaml: str | None, template_id: str = _UNSAVED_ID) -> WorkflowTemplate:
    """Parse and validate YAML. Hidden values stay hidden."""
    sources = await read_source_ids(context.parts.store)
    known = KnownNames(engines=frozenset(workflow_state(context).engines))
    try:
        return await asyncio.to_thread(parse_template, yaml or "", _YAML_NAME, template_id, sources, known)
    except YamlProblem as problem:
        raise invalid_template(problem.problems) from problem


async def from_fields(context: WebContext, fields: TemplateFields, template_id: str = _UNSAVED_ID) -> WorkflowTemplate:
    """Create a template from fields, validated by the same rules as YAML."""
    try:
        template = WorkflowTemplate(
            template_id,
            fields.name,
            tuple(work_definition(work) for work in fields.works),
            fields.description,
            git_refs(fields.git_refs),
            mcp_refs(fields.mcp_server_refs),
            fields.on_failure,
            None if fields.land is None else LandPlan(**fields.land.model_dump()),
        )
    except InvalidPlan as error:
        raise invalid_template([str(error)]) from error
    return await from_yaml(context, await _to_yaml(context, template), template_id)


async def _to_yaml(context: WebContext, template: WorkflowTemplate) -> str:
    """Write a template as YAML, in a thread because a large one takes seconds."""
    return await asyncio.to_thread(write_template, template, await read_source_ids(context.parts.store))


def invalid_template(problems: Sequence[str]) -> ApiError:
    """Return the error for an invalid template."""
    return ApiError(422, "TPL_INVALID", f"the template is not valid: {problems[0]}", list(problems))


def fields_of(template: WorkflowTemplate) -> TemplateFields:
    """Return the fields of a template, with secrets hidden."""
    return TemplateFields(
        name=template.name,
        description=template.description,
        git_refs=[GitRefFields(git_id=ref.git_id, base=ref.base) for ref in template.git_refs],
        mcp_server_refs=_shown_refs(template.mcp_server_refs),
        on_failure=template.on_failure,
        land=None if template.land is None else LandFields(**asdict(template.land)),
        works=[_work_fields(work) for work in template.works],
    )


def git_refs(fields: Sequence[GitRefFields]) -> tuple[GitRef, ...]:
    return tuple(GitRef(ref.git_id, ref.base) for ref in fields)


def mcp_refs(fields: Sequence[McpServerRefFields]) -> tuple[McpServerRef, ...]:
    return tuple(McpServerRef(ref.mcp_server_id, dict(ref.env)) for ref in fields)


def work_definition(work: WorkFields) -> WorkDefinition:
    return WorkDefinition(
        work.name,
        tuple(task_definition(task) for task in work.tasks),
        work.engine,
        work.model,
        dict(work.engine_options),
        mcp_refs(work.mcp_server_refs),
        tuple(work.after),
        work.merge,
        work.pause_after,
        work.continues,
    )


def task_definition(task: TaskFields) -> TaskDefinition:
    return TaskDefinition(task.name, task.query, tuple(task.outline), task.retries)


def _work_fields(work: WorkDefinition) -> WorkFields:
    return WorkFields(
        name=work.name,
        tasks=[
            TaskFields(name=task.name, query=task.query, outline=list(task.outline), retries=task.retries)
            for task in work.tasks
        ],
        engine=work.engine,
        model=work.model,
        engine_options=dict(work.engine_options),
        mcp_server_refs=_shown_refs(work.mcp_server_refs),
        after=list(work.after),
        merge=work.merge,
        pause_after=work.pause_after,
        continues=work.continues,
    )


def _shown_refs(refs: Sequence[McpServerRef]) -> list[McpServerRefFields]:
    return [McpServerRefFields(mcp_server_id=ref.mcp_server_id, env=shown_env(ref.env)) for ref in refs]
