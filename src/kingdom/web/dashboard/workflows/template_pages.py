"""Templates: the list, and one in a form or as YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nicegui import ui

from kingdom.web.api.work.templates import YamlBody, create_from_yaml, delete_template, update_from_yaml
from kingdom.web.asked import asked
from kingdom.web.dashboard.building import Column, Table, button, card, confirm, empty, link, tag, told
from kingdom.web.dashboard.refreshing import Pulse
from kingdom.web.dashboard.registry import page
from kingdom.web.dashboard.shell import head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.workflows.editing import make_editor
from kingdom.web.dashboard.workflows.fields import search_box
from kingdom.web.dashboard.workflows.saying import address
from kingdom.web.envelope import Ok, Page
from kingdom.web.views.templates import Template, TemplateSummary, list_templates, read_template, read_yaml

if TYPE_CHECKING:
    from kingdom.web.dashboard.workflows.editing import PlanEditor

_PAGE: Final = 50


@page("/templates", title="nav.templates", nav="templates")
async def templates(visit: Visit, search: str = "", cursor: str = "") -> None:
    """The plans workflows are made from."""
    words = visit.words
    with head(words("nav.templates")):
        link(words("sources.title"), "/repositories", "k-quiet-link")
        button(words("template.new"), lambda: ui.navigate.to("/templates/new"), kind="primary", icon="add")
    search_box(words("template.search"), search, lambda text: address("templates", search=text), "k-filters")
    with card(words("nav.templates"), flush=True) as (body, _):
        pass
    pages = tag("nav", "k-row k-pages", aria_label=words("pages.label"))
    columns: list[Column[TemplateSummary]] = [
        Column(words("plan.name"), lambda one: one.name, target=lambda one: address("templates", one.id)),
        Column(words("template.works"), lambda one: ", ".join(one.works), classes="k-clip k-hide-narrow", width="30%"),
        Column(words("template.tasks"), lambda one: str(one.tasks), classes="k-num"),
        Column(words("plan.description"), lambda one: one.description, classes="k-clip k-muted", width="40%"),
    ]

    async def load() -> Page[TemplateSummary]:
        return await list_templates(visit.context, search=search or None, limit=_PAGE, cursor=cursor or None)

    def draw(found: Page[TemplateSummary]) -> None:
        if found.items:
            Table(words("nav.templates"), lambda one: one.id, columns).show(found.items)
        else:
            empty(words("template.none"), words("template.none.hint"), "kingdom template add FILE")
        pages.clear()
        with pages:
            if cursor:
                link(words("pages.first"), address("templates", search=search))
            if found.next_cursor:
                link(words("pages.next"), address("templates", search=search, cursor=found.next_cursor))

    await Pulse(visit, lambda event: event.type.startswith("WorkflowTemplate")).panel(body, load, draw)


@page("/templates/new", title="template.new", nav="templates")
async def new_template(visit: Visit) -> None:
    """A template that is not there yet."""
    words = visit.words
    actions = head(words("template.new"), above=(words("nav.templates"), "/templates"))
    editor = await make_editor(visit, None)

    async def save() -> None:
        made = await editor.tried(lambda yaml: create_from_yaml(visit.context, asked(YamlBody, yaml=yaml)))
        if made is not None:
            ui.navigate.to(address("templates", made.data.id))

    with actions:
        button(words("act.save"), save, kind="primary", icon="check")


@page("/templates/{template_id}", title="nav.templates", nav="templates")
async def template(visit: Visit, template_id: str) -> None:
    """A template, to be changed, deleted, or made a workflow from."""
    words = visit.words
    found = await read_template(visit.context, template_id)
    actions = head(found.name, above=(words("nav.templates"), "/templates"))
    editor = await make_editor(visit, await read_yaml(visit.context, template_id))

    async def delete() -> None:
        question = words("template.ask.delete", name=found.name)
        detail = words("template.ask.delete.detail")
        if await confirm(visit, question, detail=detail, yes=words("act.delete"), danger=True) and await told(
            visit, lambda: delete_template(visit.context, template_id), words("template.did.delete")
        ):
            ui.navigate.to("/templates")

    with actions:
        target = address("workflows", "new", template=template_id)
        button(words("workflow.new"), lambda: ui.navigate.to(target), icon="play_arrow")
        button(words("act.delete"), delete, kind="danger", icon="delete")
        button(words("act.save"), lambda: _save(visit, template_id, editor), kind="primary", icon="check")


async def _save(visit: Visit, template_id: str, editor: PlanEditor) -> None:
    async def act(yaml: str) -> Ok[Template]:
        return await update_from_yaml(visit.context, template_id, asked(YamlBody, yaml=yaml))

    if await editor.tried(act) is not None:
        ui.notify(visit.words("template.did.save"), type="positive")
