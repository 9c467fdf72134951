"""The page that creates a workflow from a template."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from nicegui import background_tasks, ui

from kingdom.web.api.workflows import WorkflowBody, create_workflow
from kingdom.web.dashboard.components import (
    button,
    empty,
    forget_draft,
    labelled,
    link,
    run_and_notify,
    tag,
    text,
    with_draft,
)
from kingdom.web.dashboard.formats import page_url
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.workflows.widgets import labelled_field, text_area, text_field
from kingdom.web.envelope import parse_body
from kingdom.web.views.templates import Template, list_templates, read_template
from kingdom.workflow.templates import read_source_ids

if TYPE_CHECKING:
    from kingdom.workflow.templates import SourceIds


_VARIABLE_PATTERN: Final = re.compile(r"\{\{\s*([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
_BUILT_IN_VARIABLES: Final = frozenset({"workflow", "work", "task", "reports", "answers"})
ISSUE_KEY: Final = "issue.key"
"""Entered in its own field, not among the variables."""


def query_variables(queries: Iterable[str]) -> list[str]:
    """Return the variable names in ``{{ name.part }}``, in order, without those the workflow itself provides."""
    found = {name: None for query in queries for name in _VARIABLE_PATTERN.findall(query)}
    return [name for name in found if name.split(".")[0] not in _BUILT_IN_VARIABLES]


def nest_values(values: Mapping[str, str]) -> dict[str, Any]:
    """Convert ``{"issue.title": "…"}`` to ``{"issue": {"title": "…"}}``, without empty values."""
    made: dict[str, Any] = {}
    for name, value in values.items():
        if not value.strip():
            continue
        *path, last = name.split(".")
        place = made
        for part in path:
            deeper = place.setdefault(part, {})
            if not isinstance(deeper, dict):  # {{ a }} and {{ a.b }} in one plan: the longer one wins
                deeper = place[part] = {}
            place = deeper
        place.setdefault(last, value)
    return made


log = logging.getLogger("kingdom.web")
_MAX_TEMPLATES: Final = 500


@page("/workflows/new", title="workflow.new", nav="workflows", operation="createWorkflow")
async def new_workflow_page(visit: Visit, template: str = "") -> None:
    """The page that creates a workflow from a template."""
    words = visit.words
    page_head(words("workflow.new"), above=(words("nav.workflows"), "/workflows"))
    found = (await list_templates(visit.context, limit=_MAX_TEMPLATES)).items
    if not found:
        empty(words("template.none"), words("template.none.hint"), page=True)
        link(words("template.new"), "/templates/new", "k-state-link")
        return
    chosen = await read_template(visit.context, template or found[0].id)
    draft = f"workflow/new/{chosen.id}"
    with tag("div", "k-card k-pad k-form k-column", data_draft_form=draft):
        _choose(visit, {one.id: one.name for one in found}, chosen.id)
        if chosen.description:
            text(chosen.description, "k-muted k-wrap", name="div")
        _NewWorkflowForm(visit, draft, chosen, await read_source_ids(visit.context.parts.store))


def _choose(visit: Visit, templates: dict[str, str], chosen: str) -> None:
    def go() -> None:
        ui.navigate.to(page_url("workflows", "new", template=choosing.value))

    templates.setdefault(chosen, chosen)
    label = visit.words("workflow.template")
    with labelled_field(label):
        choosing = ui.select(templates, value=chosen, on_change=go)
    labelled(choosing.props("outlined dense").classes("k-field"), label)


class _NewWorkflowForm:
    """The fields of a new workflow besides its template."""

    def __init__(self, visit: Visit, draft: str, template: Template, sources: SourceIds) -> None:
        self._visit = visit
        self._draft = draft
        self._words = words = visit.words
        self._template = template
        self._git_ids = dict(sources.repositories)
        self.name = template.name
        self.issue_key = ""
        self.description = template.description
        self.variables: dict[str, str] = {}
        text_field(words("plan.name"), self, "name", draft=f"{draft}/name")
        text_field(words("workflow.issue"), self, "issue_key", draft=f"{draft}/issue")
        text_area(words("plan.description"), self, "description", draft=f"{draft}/description")
        self._variables()
        self._repositories()
        with tag("div", "k-row k-wrapping"):
            button(words("workflow.create.start"), lambda: self._create(start=True), kind="primary", icon="play_arrow")
            button(words("workflow.create"), lambda: self._create(start=False))

    def _variables(self) -> None:
        queries = [task.query for work in self._template.works for task in work.tasks]
        names = [name for name in query_variables(queries) if name != ISSUE_KEY]
        if not names:
            return
        text(self._words("workflow.variables"), "k-label", name="div")
        for name in names:
            self._variable(name)

    def _variable(self, name: str) -> None:
        with labelled_field(name):
            typing: ui.textarea = ui.textarea(on_change=lambda: self.variables.update({name: typing.value or ""}))
        field = labelled(typing.props("outlined dense autogrow").classes("k-field"), name)
        with_draft(field, f"{self._draft}/variable.{name}")

    def _repositories(self) -> None:
        names = {git_id: name for name, git_id in self._git_ids.items()}
        chosen = [names[ref.git_id] for ref in self._template.git_refs if ref.git_id in names]
        label = self._words("plan.repositories")
        with labelled_field(label, "" if self._git_ids else self._words("plan.repositories.none")):
            self._chosen = ui.select(sorted(self._git_ids), value=chosen, multiple=True)
        labelled(self._chosen.props("outlined dense use-chips").classes("k-field"), label)

    def _refs(self) -> list[dict[str, str | None]]:
        bases = {ref.git_id: ref.base for ref in self._template.git_refs}
        ids = [self._git_ids[name] for name in self._chosen.value or ()]
        return [{"git_id": git_id, "base": bases.get(git_id)} for git_id in ids]

    async def _create(self, *, start: bool) -> None:
        made: list[Any] = []

        async def act() -> None:
            body = parse_body(
                WorkflowBody,
                template_id=self._template.id,
                name=self.name.strip() or None,
                issue_key=self.issue_key.strip() or None,
                description=self.description,
                variables=nest_values(self.variables),
                git_refs=self._refs(),
            )
            made.append((await create_workflow(self._visit.context, body)).data)

        if not await run_and_notify(self._visit, act, self._words("workflow.did.create"), "createWorkflow"):
            return
        await forget_draft(self._draft)
        workflow_id = made[0].id
        if start:
            # not awaited: cloning the repositories may take minutes
            background_tasks.create(_start_workflow(self._visit, workflow_id), name=f"start {workflow_id}")
        ui.navigate.to(page_url("workflows", workflow_id))


async def _start_workflow(visit: Visit, workflow_id: str) -> None:
    """Start a new workflow in the background; its page shows the progress."""
    try:
        async with visit.acts("startWorkflow", workflow_id=workflow_id):
            await visit.context.control.execute("StartWorkflow", workflow_id)
    except Exception:
        log.exception("cannot start the new workflow %s", workflow_id)
