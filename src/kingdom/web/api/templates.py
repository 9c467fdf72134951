"""``/api/workflow-templates``: templates of workflows, as fields and as YAML."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import Path
from pydantic import Field, model_validator

from kingdom.web.api.workflow_models import Deleted, NameSearch, Yaml, error_prefix, workflow_router
from kingdom.web.context import Context, WebContext
from kingdom.web.envelope import ApiError, ApiModel, Cursor, Limit, Ok, Page, ok
from kingdom.web.views import templates
from kingdom.web.views.redaction import restore_secrets
from kingdom.web.views.templates import EXAMPLE_YAML, ConvertedTemplate, Template, TemplateSummary
from kingdom.web.views.workflow_state import workflow_state
from kingdom.workflow import usecases
from kingdom.workflow.domain.workflow import WorkflowTemplate
from kingdom.workflow.plan_model import ID_PATTERN, TemplateFields
from kingdom.workflow.templates import MAX_NAMES

router = workflow_router("workflow-templates", "templates")
TemplateId: TypeAlias = Annotated[
    str, Path(alias="templateId", pattern=ID_PATTERN, max_length=100, examples=["tpl-0198c2d2"])
]


class YamlBody(ApiModel):
    """A template as YAML text."""

    yaml: Yaml = Field(examples=[EXAMPLE_YAML])


class YamlText(ApiModel):
    """YAML text."""

    yaml: str = Field(examples=[EXAMPLE_YAML])


class ConvertBody(ApiModel):
    """A template as YAML or as fields."""

    yaml: Yaml | None = Field(default=None, examples=[EXAMPLE_YAML])
    fields: TemplateFields | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> ConvertBody:
        if (self.yaml is None) == (self.fields is None):
            raise ValueError("give either yaml or fields")
        return self


@router.get("", summary="List templates")
async def list_templates(
    context: Context, search: NameSearch = None, limit: Limit = 50, cursor: Cursor = None
) -> Ok[Page[TemplateSummary]]:
    """Templates, newest first."""
    return ok(await templates.list_templates(context, search=search, limit=limit, cursor=cursor))


@router.post("", status_code=201, summary="Create a template")
async def create_template(context: Context, body: TemplateFields) -> Ok[Template]:
    """422 TPL_INVALID: details lists every problem. 409 TPL_NAME_TAKEN: the name exists."""
    return await _create(context, await templates.from_fields(context, body, context.parts.ids.new("tpl")))


@router.post("/yaml", status_code=201, summary="Create a template from YAML", operation_id="createTemplateFromYaml")
async def create_from_yaml(context: Context, body: YamlBody) -> Ok[Template]:
    """The same, from YAML text."""
    return await _create(context, await templates.from_yaml(context, body.yaml, context.parts.ids.new("tpl")))


@router.post("/convert", summary="Convert a template between fields and YAML")
async def convert_template(context: Context, body: ConvertBody) -> Ok[ConvertedTemplate]:
    """Validate a template and return it in both forms. Nothing is stored."""
    return ok(await templates.convert(context, yaml=body.yaml, fields=body.fields))


@router.get("/{templateId}", summary="Get a template")
async def get_template(context: Context, template_id: TemplateId) -> Ok[Template]:
    """Fields of a template."""
    return ok(await templates.read_template(context, template_id))


@router.get("/{templateId}/yaml", summary="Get a template as YAML")
async def get_template_yaml(context: Context, template_id: TemplateId) -> Ok[YamlText]:
    """A template as YAML."""
    return ok(YamlText(yaml=await templates.read_yaml(context, template_id)))


@router.put("/{templateId}", summary="Update a template")
async def update_template(context: Context, template_id: TemplateId, body: TemplateFields) -> Ok[Template]:
    """Existing workflows are not changed."""
    return await _update(context, await templates.from_fields(context, body, template_id))


@router.put("/{templateId}/yaml", summary="Update a template from YAML", operation_id="updateTemplateFromYaml")
async def update_from_yaml(context: Context, template_id: TemplateId, body: YamlBody) -> Ok[Template]:
    """The same, from YAML text."""
    return await _update(context, await templates.from_yaml(context, body.yaml, template_id))


@router.delete("/{templateId}", summary="Delete a template")
async def delete_template(context: Context, template_id: TemplateId) -> Ok[Deleted]:
    """Existing workflows are not affected."""
    with error_prefix("TPL"):
        await usecases.delete_workflow_template(context.parts, template_id)
    return ok(Deleted(id=template_id))


async def check_name(context: WebContext, name: str, own_id: str | None = None) -> None:
    """Raise when another template has this name. The caller holds the name lock."""
    async with context.parts.store.reading() as tx:
        others = await tx.templates.list(limit=MAX_NAMES)
    if any(one.name == name and one.id != own_id for one in others):
        raise ApiError(409, "TPL_NAME_TAKEN", f"a template named {name} already exists: choose another name")


async def _create(context: WebContext, template: WorkflowTemplate) -> Ok[Template]:
    template = restore_secrets(template, None)
    async with workflow_state(context).name_lock:
        await check_name(context, template.name)
        with error_prefix("TPL"):
            await usecases.create_workflow_template(context.parts, template)
    return ok(await templates.read_template(context, template.id))


async def _update(context: WebContext, template: WorkflowTemplate) -> Ok[Template]:
    async with workflow_state(context).name_lock:
        before = await templates.find_template(context, template.id)
        await check_name(context, template.name, template.id)
        template = restore_secrets(template, before)
        template.version = before.version
        if template != before:
            with error_prefix("TPL"):
                await usecases.update_workflow_template(context.parts, template)
    return ok(await templates.read_template(context, template.id))
