"""Templates: their fields, and the YAML file that says the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from kingdom.base.yamlfile import YamlProblem
from kingdom.web.envelope import ApiError, ApiModel, Page, cursor_id, cursor_of, not_found
from kingdom.web.views.redaction import shown_env, shown_template
from kingdom.web.views.workflow_state import workflow_state
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
_UNSAVED_ID = "tpl-new"  # the id of a template that is not kept
_YAML_NAME = "template"  # what stands before line numbers


class GitRefFields(ApiModel):
    """A repository of a template or workflow."""

    git_id: str = Field(examples=["git-0198c2d0"])
    base: str | None = Field(default=None, description="The branch to start from; null: the default branch.")


class McpServerRefFields(ApiModel):
    """An MCP server of a template, workflow or work."""

    mcp_server_id: str = Field(examples=["mcp-0198c2d1"])
    env: dict[str, str] = Field(
        default_factory=dict,
        description="Overrides the server's own. `***` stands for a value that is not shown: given back, it stays.",
        examples=[{"TRACKER_TOKEN": "${TRACKER_TOKEN}"}],
    )


class TaskFields(ApiModel):
    """A task of a plan."""

    name: str = Field(examples=["task-1"])
    query: str = Field(examples=["Fix {{ issue.key }}."])
    outline: list[str] = Field(default_factory=list, examples=[["Cause", "Change"]])
    retries: int = Field(default=1)


class WorkFields(ApiModel):
    """A work of a plan."""

    name: str = Field(examples=["fix"])
    tasks: list[TaskFields]
    engine: str = Field(default="claude")
    model: str | None = None
    engine_options: dict[str, Any] = Field(default_factory=dict)
    mcp_server_refs: list[McpServerRefFields] = Field(default_factory=list)
    after: list[str] = Field(default_factory=list, description="The works it waits for; empty: all before it.")
    merge: bool = False
    pause_after: bool = False


class TemplateFields(ApiModel):
    """A plan with a name."""

    name: str = Field(examples=["fix"])
    description: str = ""
    git_refs: list[GitRefFields] = Field(default_factory=list)
    mcp_server_refs: list[McpServerRefFields] = Field(default_factory=list)
    on_failure: Literal["pause", "fail"] = "pause"
    works: list[WorkFields]


class Template(TemplateFields):
    """A template that is kept."""

    id: str = Field(examples=["tpl-0198c2d2"])
    version: int = Field(description="Counts its changes.", examples=[1])


class TemplateSummary(ApiModel):
    """What a list has of a template."""

    id: str = Field(examples=["tpl-0198c2d2"])
    name: str = Field(examples=["fix"])
    description: str = Field(examples=["Fixes an issue."])
    works: list[str] = Field(description="Names.", examples=[["plan", "fix"]])
    tasks: int = Field(description="How many, of all works.", examples=[3])


class ConvertedTemplate(ApiModel):
    """A template in both forms."""

    fields: TemplateFields
    yaml: str = Field(examples=[EXAMPLE_YAML])


async def list_templates(
    context: WebContext, *, search: str | None = None, limit: int = 50, cursor: str | None = None
) -> Page[TemplateSummary]:
    """The templates, the newest first; with ``search`` those whose name or description has these words."""
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
    """The fields of a template."""
    found = await find_template(context, template_id)
    return Template(**fields_of(found).model_dump(), id=found.id, version=found.version)


async def read_yaml(context: WebContext, template_id: str) -> str:
    """The YAML file of a template."""
    found = await find_template(context, template_id)
    return await _to_yaml(context, shown_template(found))


async def find_template(context: WebContext, template_id: str) -> WorkflowTemplate:
    """A template as it is stored; raises :class:`ApiError` when there is none."""
    async with context.parts.store.reading() as tx:
        found = await tx.templates.find(template_id)
    if found is None:
        raise not_found("TPL", "template", template_id)
    return found


async def convert(
    context: WebContext, *, yaml: str | None = None, fields: TemplateFields | None = None
) -> ConvertedTemplate:
    """A template in both forms, from one of them. Raises :class:`ApiError` 422 TPL_INVALID with every problem."""
    template = await (from_yaml(context, yaml) if fields is None else from_fields(context, fields))
    return ConvertedTemplate(fields=fields_of(template), yaml=await _to_yaml(context, shown_template(template)))


async def from_yaml(context: WebContext, yaml: str | None, template_id: str = _UNSAVED_ID) -> WorkflowTemplate:
    """The template of a YAML file, checked; values that are hidden in it are still hidden."""
    sources = await read_source_ids(context.parts.store)
    known = KnownNames(engines=frozenset(workflow_state(context).engines))
    try:
        return await asyncio.to_thread(parse_template, yaml or "", _YAML_NAME, template_id, sources, known)
    except YamlProblem as problem:
        raise invalid_template(problem.problems) from problem


async def from_fields(context: WebContext, fields: TemplateFields, template_id: str = _UNSAVED_ID) -> WorkflowTemplate:
    """The template of its fields, checked by the same rules as a file."""
    try:
        template = WorkflowTemplate(
            template_id,
            fields.name,
            tuple(work_definition(work) for work in fields.works),
            fields.description,
            git_refs(fields.git_refs),
            mcp_refs(fields.mcp_server_refs),
            fields.on_failure,
        )
    except InvalidPlan as error:
        raise invalid_template([str(error)]) from error
    return await from_yaml(context, await _to_yaml(context, template), template_id)


async def _to_yaml(context: WebContext, template: WorkflowTemplate) -> str:
    """The YAML of a template. A large one takes seconds to be written, or read."""
    return await asyncio.to_thread(write_template, template, await read_source_ids(context.parts.store))


def invalid_template(problems: Sequence[str]) -> ApiError:
    """What is wrong with a template."""
    return ApiError(422, "TPL_INVALID", f"the template is not valid: {problems[0]}", list(problems))


def fields_of(template: WorkflowTemplate) -> TemplateFields:
    """The fields of a template, without secrets."""
    return TemplateFields(
        name=template.name,
        description=template.description,
        git_refs=[GitRefFields(git_id=ref.git_id, base=ref.base) for ref in template.git_refs],
        mcp_server_refs=_shown_refs(template.mcp_server_refs),
        on_failure=template.on_failure,
        works=[_work_fields(work) for work in template.works],
    )


def git_refs(fields: Sequence[GitRefFields]) -> tuple[GitRef, ...]:
    """As the domain has them."""
    return tuple(GitRef(ref.git_id, ref.base) for ref in fields)


def mcp_refs(fields: Sequence[McpServerRefFields]) -> tuple[McpServerRef, ...]:
    """As the domain has them."""
    return tuple(McpServerRef(ref.mcp_server_id, dict(ref.env)) for ref in fields)


def work_definition(work: WorkFields) -> WorkDefinition:
    """As the domain has it."""
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
    )


def task_definition(task: TaskFields) -> TaskDefinition:
    """As the domain has it."""
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
    )


def _shown_refs(refs: Sequence[McpServerRef]) -> list[McpServerRefFields]:
    return [McpServerRefFields(mcp_server_id=ref.mcp_server_id, env=shown_env(ref.env)) for ref in refs]
