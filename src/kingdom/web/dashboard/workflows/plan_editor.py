"""The plan editor (form or YAML), and the page that changes the plan of a workflow."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nicegui import ui

from kingdom.base.yamlfile import YamlProblem
from kingdom.web.api.plan_changes import PlanBody, PlanChangeResult, change_plan
from kingdom.web.dashboard.components import button, confirm, empty, labelled, tag, text
from kingdom.web.dashboard.formats import page_url
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.workflows.actions import WorkflowActions
from kingdom.web.dashboard.workflows.plan_draft import PlanDraft, draft_of
from kingdom.web.dashboard.workflows.plan_form import PlanChoices, PlanForm
from kingdom.web.envelope import parse_body
from kingdom.web.errors import as_api_error
from kingdom.web.views.sources import engine_names
from kingdom.web.views.workflows import read_plan, read_workflow
from kingdom.workflow.template_file import KnownNames
from kingdom.workflow.templates import SourceIds, parse_template, read_source_ids, write_template

if TYPE_CHECKING:
    from kingdom.web.views.workflows import WorkInfo
    from kingdom.workflow.domain.workflow import WorkflowTemplate


# Editing a plan: in a form or as YAML, from one to the other and back, with every mistake told.


T = TypeVar("T")
log = logging.getLogger("kingdom.web")
_YAML_NAME: Final = "template"  # stands before the line numbers of mistakes, here and in the views
_LINE_PATTERN: Final = re.compile(rf"{_YAML_NAME}:(\d+): ")


async def make_editor(visit: Visit, yaml: str | None, works: Sequence[WorkInfo] = ()) -> PlanEditorPanel:
    """An editor for a plan, or for a new one; ``works`` are those of the workflow whose plan it is."""
    sources = await read_source_ids(visit.context.parts.store)
    known = KnownNames(engines=frozenset(engine_names(visit.context)))
    editor = PlanEditorPanel(visit, yaml, sources, known, works)
    await editor.begin()
    return editor


class PlanEditorPanel:
    """On a page; made where it is to stand."""

    def __init__(
        self, visit: Visit, yaml: str | None, sources: SourceIds, known: KnownNames, works: Sequence[WorkInfo]
    ) -> None:
        self._visit = visit
        self._sources = sources
        self._known = known
        self._works = works
        words = visit.words
        with tag("div", "k-tabs k-editor-tabs", role="tablist", aria_label=words("plan.views")):
            self._tabs = {
                False: _tab(words("plan.form"), self._to_form),
                True: _tab(words("plan.yaml"), self._to_yaml),
            }
        self._problems = tag("div", "k-problems", role="alert")
        self._form_place = tag("div")
        self._text = ui.textarea(value=yaml or "").props("outlined autogrow spellcheck=false").classes("k-field k-yaml")
        labelled(self._text, words("plan.yaml"))
        self._as_yaml = yaml is not None

    async def begin(self) -> None:
        """Show the plan: in the form, if it can be read."""
        if not self._as_yaml:
            self._draw(PlanDraft())
            return
        await self._to_form()
        if self._as_yaml:  # it cannot be read, as when an engine it names is gone
            self._choose(as_yaml=True)

    def yaml(self) -> str | None:
        """The plan as YAML, as the visitor left it; None when it has mistakes, which are shown."""
        try:
            return str(self._text.value or "") if self._as_yaml else self._form.draft.text()
        except YamlProblem as problem:
            self.tell(problem.problems)
            return None

    def tell(self, problems: Sequence[str]) -> None:
        """Show what is wrong, above the plan; nothing for no problem."""
        self._problems.clear()
        if problems:
            with self._problems, tag("ul"):
                for problem in problems:
                    text(self._placed(problem), "k-wrap", name="li")

    def _placed(self, problem: str) -> str:
        """A problem with its line, where there are lines to be seen."""
        found = _LINE_PATTERN.match(problem)
        if found is None:
            return problem
        rest = problem[found.end() :]
        return self._visit.words("plan.line", number=found[1], problem=rest) if self._as_yaml else rest

    async def tried(self, act: Callable[[str], Awaitable[T]]) -> T | None:
        """Do something with the plan as YAML; None when it has mistakes or was refused: why, is shown."""
        yaml = self.yaml()
        if yaml is None:
            return None
        try:
            done = await act(yaml)
        except Exception as error:  # whatever it was, the visitor learns of it, and the log has the rest
            told = as_api_error(error)
            if told.status >= 500:
                log.exception("%s", self._visit.path)
            self.tell([str(detail) for detail in told.details] or str(told).splitlines())
            return None
        self.tell([])
        return done

    def _draw(self, draft: PlanDraft) -> None:
        choices = PlanChoices(
            sorted(self._sources.repositories), sorted(self._sources.mcp_servers), sorted(self._known.engines or ())
        )
        self._form_place.clear()
        with self._form_place:
            self._form = PlanForm(self._visit, draft, choices, of_workflow=bool(self._works))
        self._choose(as_yaml=False)

    async def _to_form(self) -> None:
        if not self._as_yaml:
            return
        try:
            plan = await self._parsed(str(self._text.value or ""))
        except YamlProblem as problem:
            self.tell(problem.problems)
            return
        self.tell([])
        self._draw(draft_of(plan, self._sources, self._works))

    async def _to_yaml(self) -> None:
        if self._as_yaml or (found := self.yaml()) is None:
            return
        problems: Sequence[str] = ()
        try:
            found = await asyncio.to_thread(write_template, await self._parsed(found), self._sources)
        except YamlProblem as problem:  # it is shown as it is: there it can be mended as well
            problems = problem.problems
        self._choose(as_yaml=True)
        self.tell(problems)
        self._text.set_value(found)

    async def _parsed(self, yaml: str) -> WorkflowTemplate:
        """The plan that is written there; a long one takes seconds to be read. Raises :class:`YamlProblem`."""
        return await asyncio.to_thread(parse_template, yaml, _YAML_NAME, _YAML_NAME, self._sources, self._known)

    def _choose(self, *, as_yaml: bool) -> None:
        self._as_yaml = as_yaml
        self._form_place.set_visibility(not as_yaml)
        self._text.set_visibility(as_yaml)
        for which, shown in self._tabs.items():
            shown.props["aria-selected"] = str(which is as_yaml).lower()


def _tab(words: str, on_click: Callable[[], Any]) -> ui.button:
    made = button(words, on_click)
    made.props["role"] = "tab"
    return made


# Changing what is left of a workflow's plan.


@page("/workflows/{workflow_id}/plan", title="plan.title", nav="workflows")
async def plan_page(visit: Visit, workflow_id: str) -> None:
    """Works and tasks that are not done can be changed, added, taken out and put in another order."""
    words = visit.words
    full = await read_workflow(visit.context, workflow_id)
    actions = page_head(words("plan.title"), above=(full.name, page_url("workflows", workflow_id)))
    if "modify" not in full.allowed:
        state = words.of("workflow.status", full.status)
        empty(words("plan.notnow", status=state), words("plan.notnow.hint"), page=True)
        if "pause" in full.allowed:
            hand = WorkflowActions(visit, workflow_id, full.name, lambda: ui.navigate.to(visit.path))
            button(words("act.pause"), hand.pause, kind="primary", icon="pause").classes("k-state-link")
        return
    text(words("plan.about"), "k-muted", name="p")
    editor = await make_editor(visit, await read_plan(visit.context, workflow_id), full.works)
    with actions:
        button(words("plan.apply"), lambda: _apply(visit, workflow_id, editor), kind="primary", icon="check")


async def _apply(visit: Visit, workflow_id: str, editor: PlanEditorPanel) -> None:
    words = visit.words

    async def change(yaml: str, *, dry_run: bool) -> PlanChangeResult:
        return (await change_plan(visit.context, workflow_id, parse_body(PlanBody, yaml=yaml, dry_run=dry_run))).data

    found = await editor.tried(lambda yaml: change(yaml, dry_run=True))
    if found is None:
        return
    if not found.changes:
        ui.notify(words("plan.same"))
        return
    question = words("plan.ask", count=len(found.changes))
    if not await confirm(visit, question, detail="\n".join(found.changes), yes=words("plan.apply")):
        return
    if await editor.tried(lambda yaml: change(yaml, dry_run=False)) is not None:
        ui.navigate.to(page_url("workflows", workflow_id))
