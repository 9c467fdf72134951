"""The plan editor (form or YAML), and the page that changes the plan of a workflow."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nicegui import ui
from pydantic import ValidationError

from kingdom.base.yamlfile import YamlProblem
from kingdom.web.api.plan_changes import PlanBody, PlanChangeResult, change_plan
from kingdom.web.dashboard.components import button, confirm, empty, forget_draft, labelled, tag, text, with_draft
from kingdom.web.dashboard.formats import page_url
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.workflows.actions import WorkflowActions
from kingdom.web.dashboard.workflows.plan_draft import PlanDraft, draft_of
from kingdom.web.dashboard.workflows.plan_form import PlanChoices, PlanForm
from kingdom.web.dashboard.workflows.plan_problems import mark_fields, place_words, problem_words
from kingdom.web.envelope import parse_body
from kingdom.web.errors import as_api_error
from kingdom.web.views.sources import engine_names
from kingdom.web.views.workflows import read_plan, read_workflow
from kingdom.workflow.template_file import KnownNames
from kingdom.workflow.templates import SourceIds, parse_template, read_source_ids, write_template

if TYPE_CHECKING:
    from kingdom.web.views.workflows import WorkInfo
    from kingdom.workflow.domain.workflow import WorkflowTemplate


T = TypeVar("T")
log = logging.getLogger("kingdom.web")
_YAML_NAME: Final = "template"  # precedes line numbers in error messages, here and in the views
_KEEP_SECONDS: Final = 1.0  # between two looks at what has changed
_ANSWER_SECONDS: Final = 10.0  # for the browser to answer
_LINE_PATTERN: Final = re.compile(rf"{_YAML_NAME}:(\d+): ")


async def make_editor(visit: Visit, name: str, yaml: str | None, works: Sequence[WorkInfo] = ()) -> PlanEditorPanel:
    """Create an editor for a plan, or for a new one if ``yaml`` is None.

    ``name`` is that of the draft, which the browser keeps until it is saved. ``works`` are those of the workflow, if
    any.
    """
    sources = await read_source_ids(visit.context.parts.store)
    known = KnownNames(engines=frozenset(engine_names(visit.context)))
    with tag("div", data_draft_form=name):
        editor = PlanEditorPanel(visit, name, yaml, sources, known, works)
    await editor.begin()
    ui.timer(0, editor.restore, once=True)
    ui.timer(_KEEP_SECONDS, editor.keep)
    return editor


class PlanEditorPanel:
    def __init__(
        self,
        visit: Visit,
        name: str,
        yaml: str | None,
        sources: SourceIds,
        known: KnownNames,
        works: Sequence[WorkInfo],
    ) -> None:
        self._visit = visit
        self._name = name
        self._form: PlanForm | None = None
        self._kept: dict[str, Any] | None = None  # the draft that the browser has
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
        with_draft(labelled(self._text, words("plan.yaml")), f"{name}/yaml")
        self._as_yaml = yaml is not None

    async def begin(self) -> None:
        """Show the plan in the form if it is valid, else as YAML."""
        if not self._as_yaml:
            self._draw(PlanDraft())
            return
        await self._to_form()
        if self._as_yaml:  # not valid, for example because an engine no longer exists
            self._choose(as_yaml=True)

    async def restore(self) -> None:
        """Show the draft that the browser kept, if there is one."""
        await ui.context.client.connected()
        self._kept = self._snapshot()
        found = await ui.run_javascript(f"kingdomDrafts.read({json.dumps(self._name)})", timeout=_ANSWER_SECONDS)
        if not isinstance(found, dict) or found == self._kept:
            return
        if isinstance(found.get("yaml"), str):
            self._choose(as_yaml=True)
            self._text.set_value(found["yaml"])
        else:
            try:
                self._draw((PlanDraft() if self._form is None else self._form.draft).restored(found.get("form")))
            except ValidationError:  # of another version
                return
        self._kept = self._snapshot()
        ui.run_javascript(f"kingdomDrafts.restored({json.dumps(self._name)})")

    def keep(self) -> None:
        """Have the browser keep what has changed."""
        if self._kept is not None and (now := self._snapshot()) != self._kept:
            self._kept = now
            ui.run_javascript(f"kingdomDrafts.keep({json.dumps(self._name)}, {json.dumps(now)})")

    async def saved(self) -> None:
        """Have the browser forget the draft."""
        self._kept = self._snapshot()
        await forget_draft(self._name)

    def _snapshot(self) -> dict[str, Any]:
        if self._as_yaml or self._form is None:
            return {"yaml": str(self._text.value or "")}
        return {"form": self._form.draft.snapshot()}

    def yaml(self) -> str | None:
        """Return the plan as YAML; None if it has errors, which are shown."""
        try:
            return str(self._text.value or "") if self._as_yaml or self._form is None else self._form.draft.text()
        except YamlProblem as problem:
            self.show_problems(problem.problems)
            return None

    def show_wrong(self, problem: YamlProblem) -> None:
        """Show what is wrong with the plan: in the form each field is marked, and the first one gets the focus."""
        if self._as_yaml or self._form is None or not problem.wrong:
            self.show_problems(problem.problems)
            return
        words, draft = self._visit.words, self._form.draft
        places = [place_words(words, draft, one.path) for one in problem.wrong]
        messages = [problem_words(words, one) for one in problem.wrong]
        self.show_problems([": ".join(filter(None, both)) for both in zip(places, messages, strict=True)])
        mark_fields(words, draft, self._form.fields, problem.wrong)

    def show_problems(self, problems: Sequence[str]) -> None:
        """Show problems above the plan. No field is marked."""
        if self._form is not None:
            mark_fields(self._visit.words, self._form.draft, self._form.fields, ())
        self._problems.clear()
        if problems:
            with self._problems, tag("ul"):
                for problem in problems:
                    text(self._placed(problem), "k-wrap", name="li")

    def _placed(self, problem: str) -> str:
        """Add the line number to a problem if the YAML is shown."""
        found = _LINE_PATTERN.match(problem)
        if found is None:
            return problem
        rest = problem[found.end() :]
        return self._visit.words("plan.line", number=found[1], problem=rest) if self._as_yaml else rest

    async def run(self, act: Callable[[str], Awaitable[T]]) -> T | None:
        """Run an action with the plan as YAML. Returns None and shows the errors if it fails."""
        yaml = self.yaml()
        if yaml is None:
            return None
        try:
            if not self._as_yaml:
                await self._parsed(yaml)  # tells the fields that are wrong
            done = await act(yaml)
        except YamlProblem as wrong:
            self.show_wrong(wrong)
            return None
        except Exception as error:  # show every error to the visitor; log unexpected ones
            problem = as_api_error(error)
            if problem.status >= 500:
                log.exception("%s", self._visit.path)
            self.show_problems([str(detail) for detail in problem.details] or str(problem).splitlines())
            return None
        self.show_problems([])
        return done

    def _draw(self, draft: PlanDraft) -> None:
        choices = PlanChoices(
            sorted(self._sources.repositories), sorted(self._sources.mcp_servers), sorted(self._known.engines or ())
        )
        self._form_place.clear()
        with self._form_place:
            self._form = PlanForm(self._visit, draft, choices, of_workflow=bool(self._works), name=self._name)
        self._choose(as_yaml=False)

    async def _to_form(self) -> None:
        if not self._as_yaml:
            return
        try:
            plan = await self._parsed(str(self._text.value or ""))
        except YamlProblem as problem:
            self.show_problems(problem.problems)
            return
        self.show_problems([])
        self._draw(draft_of(plan, self._sources, self._works))

    async def _to_yaml(self) -> None:
        if self._as_yaml or (found := self.yaml()) is None:
            return
        problems: Sequence[str] = ()
        try:
            found = await asyncio.to_thread(write_template, await self._parsed(found), self._sources)
        except YamlProblem as problem:  # show the YAML unchanged, so that it can be corrected there
            problems = problem.problems
        self._choose(as_yaml=True)
        self.show_problems(problems)
        self._text.set_value(found)

    async def _parsed(self, yaml: str) -> WorkflowTemplate:
        """Parse the plan, in a thread because a long one takes seconds. Raises :class:`YamlProblem`."""
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


# ── Page ──


@page("/workflows/{workflow_id}/plan", title="plan.title", nav="workflows", operation="changeWorkflowPlan")
async def plan_page(visit: Visit, workflow_id: str) -> None:
    """The page that changes the plan of a workflow."""
    words = visit.words
    full = await read_workflow(visit.context, workflow_id)
    actions = page_head(words("plan.title"), above=(full.name, page_url("workflows", workflow_id)))
    if "modify" not in full.allowed:
        state = words.of("workflow.status", full.status)
        empty(words("plan.notnow", status=state), words("plan.notnow.hint"), page=True)
        if "pause" in full.allowed:
            commands = WorkflowActions(visit, workflow_id, full.name, lambda: ui.navigate.to(visit.path))
            button(words("act.pause"), commands.pause, kind="primary", icon="pause").classes("k-state-link")
        return
    text(words("plan.about"), "k-muted", name="p")
    plan = await read_plan(visit.context, workflow_id)
    editor = await make_editor(visit, f"plan/{workflow_id}", plan, full.works)
    with actions:
        button(words("plan.apply"), lambda: _apply(visit, workflow_id, editor), kind="primary", icon="check")


async def _apply(visit: Visit, workflow_id: str, editor: PlanEditorPanel) -> None:
    words = visit.words

    async def change(yaml: str, *, dry_run: bool) -> PlanChangeResult:
        return (await change_plan(visit.context, workflow_id, parse_body(PlanBody, yaml=yaml, dry_run=dry_run))).data

    found = await editor.run(lambda yaml: change(yaml, dry_run=True))
    if found is None:
        return
    if not found.changes:
        ui.notify(words("plan.same"))
        return
    question = words("plan.ask", count=len(found.changes))
    if not await confirm(visit, question, detail="\n".join(found.changes), yes=words("plan.apply")):
        return

    async def apply(yaml: str) -> PlanChangeResult:
        async with visit.acts("changeWorkflowPlan", workflow_id=workflow_id):
            return await change(yaml, dry_run=False)

    if await editor.run(apply) is not None:
        await editor.saved()
        ui.navigate.to(page_url("workflows", workflow_id))
