"""Actions on a workflow, with confirmation dialogs and notifications."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from nicegui import ui

from kingdom.web.api.workflow_results import restore_workflow_rescue
from kingdom.web.api.workflows import (
    ForkBody,
    TemplateOfWorkflowBody,
    create_template_from_workflow,
    fork_workflow,
    land_workflow,
)
from kingdom.web.dashboard.components import button, confirm, dialog_box, labelled, run_and_notify, tag, text
from kingdom.web.dashboard.formats import page_url
from kingdom.web.envelope import parse_body
from kingdom.workflow.usecases.follow_up import follow_up_name

if TYPE_CHECKING:
    from kingdom.web.dashboard.visit import Visit


class WorkflowActions:
    """Actions of a visitor on one workflow, with confirmation dialogs. ``after`` runs after each action."""

    def __init__(self, visit: Visit, workflow_id: str, name: str, after: Callable[[], None]) -> None:
        self._visit = visit
        self._words = visit.words
        self._workflow = workflow_id
        self._name = name
        self._after = after

    async def start(self) -> None:
        """Start the workflow. Cloning its repositories may take a while; the page shows the progress."""
        await self._execute("StartWorkflow", self._words("workflow.did.start"))

    async def pause(self) -> None:
        """Pause the workflow: stop its agents."""
        await self._execute("PauseWorkflow", self._words("workflow.did.pause"))

    async def answer(self, given: str) -> bool:
        """Answer the question of an agent. Returns whether it was done."""
        return await self._execute("AnswerWorkflow", self._words("workflow.did.answer"), text=given)

    async def follow_up(self, said: str, work: str | None) -> bool:
        """Have an agent go on with what the visitor says. Returns whether it was done."""
        async with self._visit.context.parts.store.reading() as tx:
            name = await follow_up_name(tx, self._workflow, said)
        did = self._words("workflow.did.follow")
        return await self._execute("FollowUpWorkflow", did, text=said, work=work, name=name)

    async def retry(self) -> None:
        """Resume at the task where the workflow stopped."""
        await self._execute("ResumeWorkflow", self._words("workflow.did.resume"), retry=True)

    async def resume(self) -> None:
        """Resume from the last checkpoint; works after it restart."""
        question = self._words("workflow.ask.resume")
        if await confirm(self._visit, question, detail=self._words("workflow.ask.back"), yes=self._words("act.resume")):
            await self._execute("ResumeWorkflow", self._words("workflow.did.resume"), discard=True)

    async def resume_from(self, checkpoint_id: str, work: str) -> bool:
        """Resume from a checkpoint. Returns whether it was done."""
        question = self._words("workflow.ask.from", work=work)
        detail = self._words("workflow.ask.back")
        if not await confirm(self._visit, question, detail=detail, yes=self._words("act.resume"), danger=True):
            return False
        return await self._execute(
            "ResumeWorkflow", self._words("workflow.did.from", work=work), checkpoint_id=checkpoint_id
        )

    async def hold_at(self, checkpoint_id: str, work: str) -> bool:
        """Go back to a checkpoint and stay paused there. Returns whether it was done."""
        question = self._words("workflow.ask.hold", work=work)
        detail = self._words("workflow.ask.back")
        if not await confirm(self._visit, question, detail=detail, yes=self._words("checkpoint.hold"), danger=True):
            return False
        done = self._words("workflow.did.hold", work=work)
        return await self._execute("ResumeWorkflow", done, checkpoint_id=checkpoint_id, hold=True)

    async def land(self) -> None:
        """Push the result and open a pull request, after confirmation."""
        question, detail = self._words("workflow.ask.land"), self._words("workflow.ask.land.detail")
        if not await confirm(self._visit, question, detail=detail, yes=self._words("act.land")):
            return

        async def act() -> None:
            await land_workflow(self._visit.context, self._workflow)

        await self._run(act, self._words("workflow.did.land"), "landWorkflow")
        self._after()

    async def restore(self, rescue_id: str) -> None:
        """Bring the files of a rescue back, after confirmation."""
        question, detail = self._words("rescue.ask"), self._words("rescue.ask.detail")
        if not await confirm(self._visit, question, detail=detail, yes=self._words("rescue.restore")):
            return

        async def act() -> None:
            await restore_workflow_rescue(self._visit.context, self._workflow, rescue_id)

        await self._run(act, self._words("rescue.did"), "restoreWorkflowRescue")
        self._after()

    async def cancel(self) -> None:
        """Cancel the workflow."""
        question = self._words("workflow.ask.cancel", name=self._name)
        detail = self._words("workflow.ask.cancel.detail")
        if await confirm(self._visit, question, detail=detail, yes=self._words("act.cancel"), danger=True):
            await self._execute("CancelWorkflow", self._words("workflow.did.cancel"))

    async def give_up_landing(self) -> None:
        """Have a completed workflow that waits for its remote not be landed."""
        question = self._words("workflow.ask.not_land", name=self._name)
        detail = self._words("workflow.ask.not_land.detail")
        if await confirm(self._visit, question, detail=detail, yes=self._words("act.not_land"), danger=True):
            await self._execute("CancelWorkflow", self._words("workflow.did.not_land"))

    async def delete(self) -> None:
        """Delete the workflow."""
        question = self._words("workflow.ask.delete", name=self._name)
        detail = self._words("workflow.ask.delete.detail")
        if await confirm(
            self._visit, question, detail=detail, yes=self._words("act.delete"), danger=True
        ) and await self._execute("DeleteWorkflow", self._words("workflow.did.delete")):
            ui.navigate.to("/workflows")

    async def fork(self, checkpoint_id: str, work: str) -> None:
        """Fork the workflow from a checkpoint under a new name, and open the fork."""
        name = await ask_for_name(
            self._visit,
            self._words("workflow.ask.fork", work=work),
            self._words("workflow.ask.fork.detail"),
            f"{self._name}-fork",
            self._words("act.fork"),
        )
        if name is None:
            return
        made: list[str] = []

        async def act() -> None:
            body = parse_body(ForkBody, checkpoint_id=checkpoint_id, name=name)
            made.append((await fork_workflow(self._visit.context, self._workflow, body)).data.id)

        if await self._run(act, self._words("workflow.did.fork"), "forkWorkflow"):
            ui.navigate.to(page_url("workflows", made[0]))

    async def keep(self) -> None:
        """Save the plan as a template, and open it."""
        question, detail = self._words("workflow.ask.keep"), self._words("workflow.ask.keep.detail")
        name = await ask_for_name(self._visit, question, detail, self._name, self._words("act.save"))
        if name is None:
            return
        made: list[str] = []

        async def act() -> None:
            body = parse_body(TemplateOfWorkflowBody, name=name)
            made.append((await create_template_from_workflow(self._visit.context, self._workflow, body)).data.id)

        if await self._run(act, self._words("template.did.save"), "createTemplateFromWorkflow"):
            ui.navigate.to(page_url("templates", made[0]))

    async def _execute(self, kind: str, done: str, **arguments: Any) -> bool:
        control = self._visit.context.control
        operation = operation_of_command(kind)
        did = await self._run(lambda: control.execute(kind, self._workflow, **arguments), done, operation)
        self._after()
        return did

    async def _run(self, act: Callable[[], Awaitable[object]], done: str, operation: str) -> bool:
        return await run_and_notify(self._visit, act, done, operation, workflow_id=self._workflow)


def operation_of_command(kind: str) -> str:
    """Return the operation of the API that sends a command to the engine: ``startWorkflow`` for ``StartWorkflow``."""
    return kind[0].lower() + kind[1:]


async def ask_for_name(visit: Visit, question: str, detail: str, value: str, yes: str) -> str | None:
    """Ask for a name in a dialog. Returns None if the visitor cancels."""
    with dialog_box(question) as dialog:
        text(detail, "k-muted k-wrap", name="div")
        field = ui.input(value=value).props("outlined dense autofocus").classes("k-field")
        labelled(field, question)
        field.on("keydown.enter", lambda: dialog.submit(field.value))
        with tag("div", "k-dialog-actions"):
            button(visit.words("action.back"), lambda: dialog.submit(None))
            button(yes, lambda: dialog.submit(field.value), kind="primary")
    given = await dialog
    return str(given).strip() or None if given is not None else None
