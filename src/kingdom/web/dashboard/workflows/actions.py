"""What people do with a workflow: asked for where it drops something, told when it is done or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nicegui import ui

from kingdom.web.api.workflows import ForkBody, TemplateOfWorkflowBody, create_template_from_workflow, fork_workflow
from kingdom.web.dashboard.components import button, confirm, labelled, run_and_notify, tag, text
from kingdom.web.dashboard.formats import page_url
from kingdom.web.envelope import parse_body

if TYPE_CHECKING:
    from kingdom.web.dashboard.visit import Visit


class WorkflowActions:
    """Acts on one workflow for the visitor of a page; ``after`` is called when something was done."""

    def __init__(self, visit: Visit, workflow_id: str, name: str, after: Callable[[], None]) -> None:
        self._visit = visit
        self._words = visit.words
        self._workflow = workflow_id
        self._name = name
        self._after = after

    async def start(self) -> None:
        """Have it started. Its repositories may have to be cloned: the page shows how far it is."""
        await self._carry("StartWorkflow", self._words("workflow.did.start"))

    async def pause(self) -> None:
        """Have its agents stopped."""
        await self._carry("PauseWorkflow", self._words("workflow.did.pause"))

    async def retry(self) -> None:
        """Go on where it stopped."""
        await self._carry("ResumeWorkflow", self._words("workflow.did.resume"), retry=True)

    async def resume(self) -> None:
        """Go on from the last checkpoint; what was begun since is begun anew."""
        question = self._words("workflow.ask.resume")
        if await confirm(self._visit, question, detail=self._words("workflow.ask.back"), yes=self._words("act.resume")):
            await self._carry("ResumeWorkflow", self._words("workflow.did.resume"))

    async def resume_from(self, checkpoint_id: str, work: str) -> bool:
        """Go back to a checkpoint, and on from there; True when it was done."""
        question = self._words("workflow.ask.from", work=work)
        detail = self._words("workflow.ask.back")
        if not await confirm(self._visit, question, detail=detail, yes=self._words("act.resume"), danger=True):
            return False
        return await self._carry(
            "ResumeWorkflow", self._words("workflow.did.from", work=work), checkpoint_id=checkpoint_id
        )

    async def cancel(self) -> None:
        """Stop it for good."""
        question = self._words("workflow.ask.cancel", name=self._name)
        detail = self._words("workflow.ask.cancel.detail")
        if await confirm(self._visit, question, detail=detail, yes=self._words("act.cancel"), danger=True):
            await self._carry("CancelWorkflow", self._words("workflow.did.cancel"))

    async def delete(self) -> None:
        """Forget it."""
        question = self._words("workflow.ask.delete", name=self._name)
        detail = self._words("workflow.ask.delete.detail")
        if await confirm(
            self._visit, question, detail=detail, yes=self._words("act.delete"), danger=True
        ) and await self._carry("DeleteWorkflow", self._words("workflow.did.delete")):
            ui.navigate.to("/workflows")

    async def fork(self, checkpoint_id: str, work: str) -> None:
        """A second workflow from a checkpoint; the visitor names it and is taken there."""
        name = await ask_for_name(
            self._visit,
            self._words("workflow.ask.fork", work=work),
            self._words("workflow.ask.fork.detail"),
            f"{self._name} (fork)",
            self._words("act.fork"),
        )
        if name is None:
            return
        made: list[str] = []

        async def act() -> None:
            body = parse_body(ForkBody, checkpoint_id=checkpoint_id, name=name)
            made.append((await fork_workflow(self._visit.context, self._workflow, body)).data.id)

        if await run_and_notify(self._visit, act, self._words("workflow.did.fork")):
            ui.navigate.to(page_url("workflows", made[0]))

    async def keep(self) -> None:
        """Its plan as a template."""
        question, detail = self._words("workflow.ask.keep"), self._words("workflow.ask.keep.detail")
        name = await ask_for_name(self._visit, question, detail, self._name, self._words("act.save"))
        if name is None:
            return
        made: list[str] = []

        async def act() -> None:
            body = parse_body(TemplateOfWorkflowBody, name=name)
            made.append((await create_template_from_workflow(self._visit.context, self._workflow, body)).data.id)

        if await run_and_notify(self._visit, act, self._words("template.did.save")):
            ui.navigate.to(page_url("templates", made[0]))

    async def _carry(self, kind: str, done: str, **arguments: Any) -> bool:
        control = self._visit.context.control
        did = await run_and_notify(self._visit, lambda: control.carry(kind, self._workflow, **arguments), done)
        self._after()
        return did


async def ask_for_name(visit: Visit, question: str, detail: str, value: str, yes: str) -> str | None:
    """Ask for a name in a dialog; None when the visitor thinks better of it."""
    with ui.dialog() as dialog, ui.card().classes("k-dialog"):
        dialog.props["aria-label"] = question
        text(question, name="h2")
        text(detail, "k-muted k-wrap", name="div")
        field = ui.input(value=value).props("outlined dense autofocus").classes("k-field")
        labelled(field, question)
        field.on("keydown.enter", lambda: dialog.submit(field.value))
        with tag("div", "k-dialog-actions"):
            button(visit.words("action.back"), lambda: dialog.submit(None))
            button(yes, lambda: dialog.submit(field.value), kind="primary")
    try:
        given = await dialog
    finally:
        dialog.delete()
    return str(given).strip() or None if given is not None else None
