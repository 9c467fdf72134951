"""Changing what is left of a workflow's plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from kingdom.web.api.work.modifying import PlanBody, PlanChanged, change_plan
from kingdom.web.asked import asked
from kingdom.web.dashboard.building import button, confirm, empty, text
from kingdom.web.dashboard.registry import page
from kingdom.web.dashboard.shell import head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.workflows.acting import Hand
from kingdom.web.dashboard.workflows.editing import make_editor
from kingdom.web.dashboard.workflows.saying import address
from kingdom.web.views.workflows import read_plan, read_workflow

if TYPE_CHECKING:
    from kingdom.web.dashboard.workflows.editing import PlanEditor


@page("/workflows/{workflow_id}/plan", title="plan.title", nav="workflows")
async def plan(visit: Visit, workflow_id: str) -> None:
    """Works and tasks that are not done can be changed, added, taken out and put in another order."""
    words = visit.words
    full = await read_workflow(visit.context, workflow_id)
    actions = head(words("plan.title"), above=(full.name, address("workflows", workflow_id)))
    if "modify" not in full.allowed:
        state = words.of("workflow.status", full.status)
        empty(words("plan.notnow", status=state), words("plan.notnow.hint"), page=True)
        if "pause" in full.allowed:
            hand = Hand(visit, workflow_id, full.name, lambda: ui.navigate.to(visit.path))
            button(words("act.pause"), hand.pause, kind="primary", icon="pause").classes("k-state-link")
        return
    text(words("plan.about"), "k-muted", name="p")
    editor = await make_editor(visit, await read_plan(visit.context, workflow_id), full.works)
    with actions:
        button(words("plan.apply"), lambda: _apply(visit, workflow_id, editor), kind="primary", icon="check")


async def _apply(visit: Visit, workflow_id: str, editor: PlanEditor) -> None:
    words = visit.words

    async def change(yaml: str, *, dry_run: bool) -> PlanChanged:
        return (await change_plan(visit.context, workflow_id, asked(PlanBody, yaml=yaml, dry_run=dry_run))).data

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
        ui.navigate.to(address("workflows", workflow_id))
