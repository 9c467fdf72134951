"""Templates, as fields and as YAML."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pydantic import Field

from kingdom.base.yamlfile import YamlProblem
from kingdom.web.envelope import ApiError, ApiModel, Page, cursor_id, cursor_of, not_found
from kingdom.web.views.redaction import shown_template
from kingdom.web.views.workflow_state import workflow_state
from kingdom.workflow.domain.workflow import WorkflowTemplate, check_plan
from kingdom.workflow.errors import InvalidPlan
from kingdom.workflow.plan_model import TemplateFields, from_domain
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
    made: Template = from_domain(shown_template(found), Template)
    return made


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
    template = shown_template(await (from_yaml(context, yaml) if fields is None else from_fields(context, fields)))
    return ConvertedTemplate(fields=from_domain(template, TemplateFields), yaml=await _to_yaml(context, template))


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
        check_plan((work.name, tuple(work.after)) for work in fields.works)
    except InvalidPlan as error:
        raise invalid_template([str(error)]) from error
    return await from_yaml(context, await _to_yaml(context, fields), template_id)


async def _to_yaml(context: WebContext, template: WorkflowTemplate | TemplateFields) -> str:
    """Write a template as YAML, in a thread because a large one takes seconds."""
    return await asyncio.to_thread(write_template, template, await read_source_ids(context.parts.store))


def invalid_template(problems: Sequence[str]) -> ApiError:
    """Return the error for an invalid template."""
    return ApiError(422, "TPL_INVALID", f"the template is not valid: {problems[0]}", list(problems))
