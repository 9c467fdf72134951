"""``kingdom workflow start|resume|pause|cancel|rm``: what is done to a workflow, from any process.

Only an engine stops agents and resets trees. When a web server runs for the place, or an engine on the store, it is
asked; else this process is the engine for as long as it takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json, Yes
from kingdom.cli.workflow.options import HomeOption, StoreOption, WorkflowWord
from kingdom.cli.workflow.place import find_place
from kingdom.cli.workflow.session import opened, opened_parts, told

if TYPE_CHECKING:
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.home import WorkflowHome

_PATIENCE: Final = 120.0  # seconds for an engine to stop agents

Detach = Annotated[
    bool, typer.Option("--detach", "-d", help="Leave it to the engine that runs (kingdom workflow engine), and return.")
]
JsonLines = Annotated[bool, typer.Option("--json", help="Print events and agent output as JSON lines.")]


def start(
    workflow: WorkflowWord,
    detach: Detach = False,
    home: HomeOption = None,
    store: StoreOption = None,
    json: JsonLines = False,
) -> None:
    """Start a workflow and show it at work until it ends, pauses or fails.

    When an engine runs already it is handed over to that one, and Ctrl-C only stops looking. Else this process is the
    engine, and Ctrl-C pauses the workflow.
    """
    _run(find_place(home, store), "StartWorkflow", workflow, None, {}, detach=detach, json=json)


def resume(
    workflow: WorkflowWord,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="CHECKPOINT",
            help="Go back to this checkpoint (its id, or the name of its work); else to the last one.",
            show_default=False,
        ),
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Do not go back: try the task again at which it stopped.")
    ] = False,
    detach: Detach = False,
    home: HomeOption = None,
    store: StoreOption = None,
    json: JsonLines = False,
) -> None:
    """Go on with a workflow that is paused or failed, and show it at work as `start` does.

    Going back resets the repositories to the checkpoint; what that drops is kept under rescue refs first.
    """
    if retry and checkpoint is not None:
        raise output.misuse("--retry goes on where it stopped, --from goes back: give one of them")
    arguments = {"retry": True} if retry else {}
    _run(find_place(home, store), "ResumeWorkflow", workflow, checkpoint, arguments, detach=detach, json=json)


def pause(workflow: WorkflowWord, home: HomeOption = None, store: StoreOption = None, json: Json = False) -> None:
    """Pause a workflow: its agents are stopped, then it rests until it is resumed."""
    found = told(lambda: _carry_out(find_place(home, store), "PauseWorkflow", workflow))
    _say(found, f"paused: kingdom workflow resume {found.id} goes on", json=json)


def cancel(
    workflow: WorkflowWord, yes: Yes = False, home: HomeOption = None, store: StoreOption = None, json: Json = False
) -> None:
    """Cancel a workflow for good: its agents are stopped. Worktrees, branches and checkpoints stay."""
    output.confirm(f"Cancel {workflow}? It cannot be resumed.", yes=yes)
    found = told(lambda: _carry_out(find_place(home, store), "CancelWorkflow", workflow))
    _say(found, f"cancelled: kingdom workflow rm {found.id} removes what it left", json=json)


def rm(
    workflow: WorkflowWord, yes: Yes = False, home: HomeOption = None, store: StoreOption = None, json: Json = False
) -> None:
    """Delete a workflow that does not run, with its worktrees, workspaces and reports."""
    output.confirm(f"Delete {workflow} with its worktrees and reports?", yes=yes)
    found = told(lambda: _carry_out(find_place(home, store), "DeleteWorkflow", workflow))
    _say(found, "deleted", json=json)


def _run(
    place: WorkflowHome,
    kind: str,
    word: str,
    checkpoint: str | None,
    arguments: dict[str, Any],
    *,
    detach: bool,
    json: bool,
) -> None:
    import asyncio

    from kingdom.cli.workflow.running import Wish, run
    from kingdom.cli.workflow.server import asked_of_server
    from kingdom.cli.workflow.watch_view import choose_view

    async def action() -> int:
        workflow, given = await _named(place, word, checkpoint)
        wish = Wish(kind, workflow.id, {**arguments, **given})
        if detach and await asyncio.to_thread(asked_of_server, place, kind, workflow.id, **wish.arguments):
            code = 0
        else:
            code = await run(place, wish, choose_view(json=json), detach=detach)
        if detach and not json:
            output.say(f"{workflow.id} runs: kingdom workflow watch {workflow.id}")
        return code

    raise typer.Exit(told(action))


async def _named(place: WorkflowHome, word: str, checkpoint: str | None) -> tuple[Workflow, dict[str, Any]]:
    from kingdom.cli.workflow.finding import find_checkpoint, find_workflow

    async with opened(place) as store, store.reading() as tx:
        workflow = await find_workflow(tx, word)
        if checkpoint is None:
            return workflow, {}
        return workflow, {"checkpoint_id": (await find_checkpoint(tx, workflow, checkpoint)).id}


async def _carry_out(place: WorkflowHome, kind: str, word: str) -> Workflow:
    import asyncio

    from kingdom.cli.workflow.server import asked_of_server
    from kingdom.workflow.commands import answer, ask
    from kingdom.workflow.lease import Lease, StoreTaken
    from kingdom.workflow.serving import carriers

    workflow, _ = await _named(place, word, None)
    if await asyncio.to_thread(asked_of_server, place, kind, workflow.id):
        return workflow
    async with opened_parts(place) as parts:
        lease = Lease(parts.store)
        try:
            await lease.take()
        except StoreTaken:
            bus = parts.store.bus
            await answer(bus, await ask(bus, kind, workflow.id), _PATIENCE)
            return workflow
        try:
            await carriers(parts)[kind](workflow.id)
        finally:
            await lease.release()
    return workflow


def _say(workflow: Workflow, words: str, *, json: bool) -> None:
    if json:
        output.emit({"id": workflow.id, "name": workflow.name, "did": words.partition(":")[0]})
    else:
        output.say(f"{workflow.name} is {words}")
