"""Making a workflow from a template."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from nicegui import background_tasks, ui

from kingdom.web.api.work.workflows import WorkflowBody, create_workflow
from kingdom.web.asked import asked
from kingdom.web.dashboard.building import button, empty, labelled, link, tag, text, told
from kingdom.web.dashboard.registry import page
from kingdom.web.dashboard.shell import head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.workflows.fields import area, field, line
from kingdom.web.dashboard.workflows.saying import address
from kingdom.web.dashboard.workflows.variables import ISSUE_KEY, nested, variables_of
from kingdom.web.views.templates import Template, list_templates, read_template
from kingdom.workflow.sources import read_sources

if TYPE_CHECKING:
    from kingdom.workflow.templates import Sources

log = logging.getLogger("kingdom.web")
_MOST: Final = 500  # templates to choose from


@page("/workflows/new", title="workflow.new", nav="workflows")
async def new_workflow(visit: Visit, template: str = "") -> None:
    """Choose a template, say what it is about, start."""
    words = visit.words
    head(words("workflow.new"), above=(words("nav.workflows"), "/workflows"))
    found = (await list_templates(visit.context, limit=_MOST)).items
    if not found:
        empty(words("template.none"), words("template.none.hint"), page=True)
        link(words("template.new"), "/templates/new", "k-state-link")
        return
    chosen = await read_template(visit.context, template or found[0].id)
    with tag("div", "k-card k-pad k-form k-column"):
        _choose(visit, {one.id: one.name for one in found}, chosen.id)
        if chosen.description:
            text(chosen.description, "k-muted k-wrap", name="div")
        _Form(visit, chosen, await read_sources(visit.context.parts.store))


def _choose(visit: Visit, templates: dict[str, str], chosen: str) -> None:
    def go() -> None:
        ui.navigate.to(address("workflows", "new", template=choosing.value))

    templates.setdefault(chosen, chosen)
    label = visit.words("workflow.template")
    with field(label):
        choosing = ui.select(templates, value=chosen, on_change=go)
    labelled(choosing.props("outlined dense").classes("k-field"), label)


class _Form:
    """What a workflow needs to know beside its template."""

    def __init__(self, visit: Visit, template: Template, sources: Sources) -> None:
        self._visit = visit
        self._words = words = visit.words
        self._template = template
        self._git_ids = dict(sources.repositories)
        self.name = template.name
        self.issue_key = ""
        self.description = template.description
        self.variables: dict[str, str] = {}
        line(words("plan.name"), self, "name")
        line(words("workflow.issue"), self, "issue_key")
        area(words("plan.description"), self, "description")
        self._variables()
        self._repositories()
        with tag("div", "k-row k-wrapping"):
            button(words("workflow.create.start"), lambda: self._create(start=True), kind="primary", icon="play_arrow")
            button(words("workflow.create"), lambda: self._create(start=False))

    def _variables(self) -> None:
        queries = [task.query for work in self._template.works for task in work.tasks]
        names = [name for name in variables_of(queries) if name != ISSUE_KEY]
        if not names:
            return
        text(self._words("workflow.variables"), "k-label", name="div")
        for name in names:
            self._variable(name)

    def _variable(self, name: str) -> None:
        with field(name):
            typing: ui.textarea = ui.textarea(on_change=lambda: self.variables.update({name: typing.value or ""}))
        labelled(typing.props("outlined dense autogrow").classes("k-field"), name)

    def _repositories(self) -> None:
        names = {git_id: name for name, git_id in self._git_ids.items()}
        chosen = [names[ref.git_id] for ref in self._template.git_refs if ref.git_id in names]
        label = self._words("plan.repositories")
        with field(label, "" if self._git_ids else self._words("plan.repositories.none")):
            self._chosen = ui.select(sorted(self._git_ids), value=chosen, multiple=True)
        labelled(self._chosen.props("outlined dense use-chips").classes("k-field"), label)

    def _refs(self) -> list[dict[str, str | None]]:
        bases = {ref.git_id: ref.base for ref in self._template.git_refs}
        ids = [self._git_ids[name] for name in self._chosen.value or ()]
        return [{"git_id": git_id, "base": bases.get(git_id)} for git_id in ids]

    async def _create(self, *, start: bool) -> None:
        made: list[Any] = []

        async def act() -> None:
            body = asked(
                WorkflowBody,
                template_id=self._template.id,
                name=self.name.strip() or None,
                issue_key=self.issue_key.strip() or None,
                description=self.description,
                variables=nested(self.variables),
                git_refs=self._refs(),
            )
            made.append((await create_workflow(self._visit.context, body)).data)

        if not await told(self._visit, act, self._words("workflow.did.create")):
            return
        workflow_id = made[0].id
        if start:
            # not waited for: its repositories may have to be cloned first
            background_tasks.create(_begin(self._visit, workflow_id), name=f"start {workflow_id}")
        ui.navigate.to(address("workflows", workflow_id))


async def _begin(visit: Visit, workflow_id: str) -> None:
    """Start a workflow; the visitor is on its page by now, which shows what comes of it."""
    try:
        await visit.context.control.carry("StartWorkflow", workflow_id)
    except Exception:
        log.exception("workflow %s, just made, could not be started", workflow_id)
