"""Commands that control workflows: start, resume, pause, cancel, rm, engine."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kingdom.cli import output
from kingdom.cli.options import JsonOption, StoreOption, WorkflowArgument, WorkflowHomeOption, YesOption
from kingdom.cli.session import find_workflow_home, open_workflow_parts, open_workflow_store, run_reporting_errors

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kingdom.client import Client
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.engine import WorkflowEngine
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.ports import StoredEvent, WorkflowStore


# The web server that runs for a place, if one does: it is asked instead of the store, and answers when it is done.


_COMMAND_SECONDS: Final = 120.0  # seconds: agents may have to be stopped first


def send_to_server(place: WorkflowHome, kind: str, workflow_id: str, **arguments: Any) -> bool:
    """Have the server carry a command out; False when there is none, or none that answers.

    Raises :class:`~kingdom.cli.output.CommandError` when it refuses.
    """
    from kingdom.cli.output import CommandError
    from kingdom.client import Refused, ServerAway

    client = _server_client(place)
    if client is None:
        return False
    with client:
        try:
            _SERVER_CALLS[kind](client, workflow_id, arguments)
        except ServerAway:
            return False
        except Refused as refusal:
            raise CommandError(refusal.code, str(refusal)) from refusal
    return True


def _server_client(place: WorkflowHome) -> Client | None:
    from kingdom.web.record import running_server

    root = place.root.parent
    if running_server(root) is None or place.store != type(place)(place.root).store:
        return None  # a store of the caller's own choice need not be the server's
    from kingdom.client import Client, NoServer, find_server

    try:
        return Client(*find_server(root), timeout=_COMMAND_SECONDS)
    except NoServer:  # it has just stopped
        return None


def _resume_on_server(client: Client, workflow_id: str, arguments: dict[str, Any]) -> None:
    checkpoint = arguments.get("checkpoint_id")
    client.resume_workflow(workflow_id, {"retry": bool(arguments.get("retry")), "checkpointId": checkpoint})


_SERVER_CALLS: Final[dict[str, Callable[[Client, str, dict[str, Any]], object]]] = {
    "StartWorkflow": lambda client, workflow_id, _: client.start_workflow(workflow_id),
    "ResumeWorkflow": _resume_on_server,
    "PauseWorkflow": lambda client, workflow_id, _: client.pause_workflow(workflow_id),
    "CancelWorkflow": lambda client, workflow_id, _: client.cancel_workflow(workflow_id),
    "DeleteWorkflow": lambda client, workflow_id, _: client.delete_workflow(workflow_id),
}


# ``kingdom workflow start|resume|pause|cancel|rm``: what is done to a workflow, from any process.
#
# Only an engine stops agents and resets trees. When a web server runs for the place, or an engine on the store, it is
# asked; else this process is the engine for as long as it takes.


_COMMAND_SECONDS: Final = 120.0  # seconds for an engine to stop agents

DetachOption = Annotated[
    bool, typer.Option("--detach", "-d", help="Leave it to the engine that runs (kingdom workflow engine), and return.")
]
JsonLinesOption = Annotated[bool, typer.Option("--json", help="Print events and agent output as JSON lines.")]


def start(
    workflow: WorkflowArgument,
    detach: DetachOption = False,
    home: WorkflowHomeOption = None,
    store: StoreOption = None,
    json: JsonLinesOption = False,
) -> None:
    """Start a workflow and show it at work until it ends, pauses or fails.

    When an engine runs already it is handed over to that one, and Ctrl-C only stops looking. Else this process is the
    engine, and Ctrl-C pauses the workflow.
    """
    _run_command(find_workflow_home(home, store), "StartWorkflow", workflow, None, {}, detach=detach, json=json)


def resume(
    workflow: WorkflowArgument,
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
    detach: DetachOption = False,
    home: WorkflowHomeOption = None,
    store: StoreOption = None,
    json: JsonLinesOption = False,
) -> None:
    """Go on with a workflow that is paused or failed, and show it at work as `start` does.

    Going back resets the repositories to the checkpoint; what that drops is kept under rescue refs first.
    """
    if retry and checkpoint is not None:
        raise output.usage_error("--retry goes on where it stopped, --from goes back: give one of them")
    arguments = {"retry": True} if retry else {}
    _run_command(
        find_workflow_home(home, store), "ResumeWorkflow", workflow, checkpoint, arguments, detach=detach, json=json
    )


def pause(
    workflow: WorkflowArgument, home: WorkflowHomeOption = None, store: StoreOption = None, json: JsonOption = False
) -> None:
    """Pause a workflow: its agents are stopped, then it rests until it is resumed."""
    found = run_reporting_errors(lambda: _execute(find_workflow_home(home, store), "PauseWorkflow", workflow))
    _print_outcome(found, f"paused: kingdom workflow resume {found.id} goes on", json=json)


def cancel(
    workflow: WorkflowArgument,
    yes: YesOption = False,
    home: WorkflowHomeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Cancel a workflow for good: its agents are stopped. Worktrees, branches and checkpoints stay."""
    output.confirm(f"Cancel {workflow}? It cannot be resumed.", yes=yes)
    found = run_reporting_errors(lambda: _execute(find_workflow_home(home, store), "CancelWorkflow", workflow))
    _print_outcome(found, f"cancelled: kingdom workflow rm {found.id} removes what it left", json=json)


def rm(
    workflow: WorkflowArgument,
    yes: YesOption = False,
    home: WorkflowHomeOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Delete a workflow that does not run, with its worktrees, workspaces and reports."""
    output.confirm(f"Delete {workflow} with its worktrees and reports?", yes=yes)
    found = run_reporting_errors(lambda: _execute(find_workflow_home(home, store), "DeleteWorkflow", workflow))
    _print_outcome(found, "deleted", json=json)


def _run_command(
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

    from kingdom.cli.workflow.runner import CommandRequest, run_request
    from kingdom.cli.workflow.view import choose_view

    async def action() -> int:
        workflow, given = await _find_named(place, word, checkpoint)
        wish = CommandRequest(kind, workflow.id, {**arguments, **given})
        if detach and await asyncio.to_thread(send_to_server, place, kind, workflow.id, **wish.arguments):
            code = 0
        else:
            code = await run_request(place, wish, choose_view(json=json), detach=detach)
        if detach and not json:
            output.say(f"{workflow.id} runs: kingdom workflow watch {workflow.id}")
        return code

    raise typer.Exit(run_reporting_errors(action))


async def _find_named(place: WorkflowHome, word: str, checkpoint: str | None) -> tuple[Workflow, dict[str, Any]]:
    from kingdom.cli.workflow.names import find_checkpoint, find_workflow

    async with open_workflow_store(place) as store, store.reading() as tx:
        workflow = await find_workflow(tx, word)
        if checkpoint is None:
            return workflow, {}
        return workflow, {"checkpoint_id": (await find_checkpoint(tx, workflow, checkpoint)).id}


async def _execute(place: WorkflowHome, kind: str, word: str) -> Workflow:
    import asyncio

    from kingdom.workflow.commands import send_command, wait_for_command
    from kingdom.workflow.engine import EngineAlreadyRunning, EngineLease, command_handlers

    workflow, _ = await _find_named(place, word, None)
    if await asyncio.to_thread(send_to_server, place, kind, workflow.id):
        return workflow
    async with open_workflow_parts(place) as parts:
        lease = EngineLease(parts.store)
        try:
            await lease.take()
        except EngineAlreadyRunning:
            bus = parts.store.bus
            await wait_for_command(bus, await send_command(bus, kind, workflow.id), _COMMAND_SECONDS)
            return workflow
        try:
            await command_handlers(parts)[kind](workflow.id)
        finally:
            await lease.release()
    return workflow


def _print_outcome(workflow: Workflow, words: str, *, json: bool) -> None:
    if json:
        output.print_json({"id": workflow.id, "name": workflow.name, "did": words.partition(":")[0]})
    else:
        output.say(f"{workflow.name} is {words}")


# ``kingdom workflow engine``: an engine as a service.


_POLL_SECONDS: Final = 0.5
_EVENTS_PER_PAGE: Final = 500
_SHOWN_EVENTS: Final = ("Workflow", "WorkStarted", "WorkCompleted", "AgentError", "CheckpointCreated", "QueryFailed")


def engine(home: WorkflowHomeOption = None, store: StoreOption = None) -> None:
    """Run the engine until Ctrl-C or SIGTERM: it goes on with every workflow that runs, and does what is asked for.

    There is one for each store. Agents outlive it: the next engine takes them over.
    """
    place = find_workflow_home(home, store)
    run_reporting_errors(lambda: _run_engine(place))


async def _run_engine(place: WorkflowHome) -> None:
    from kingdom.bus.eventbus import redact_url
    from kingdom.cli.workflow.runner import stop_signals
    from kingdom.workflow.engine import run_engine

    async with open_workflow_parts(place) as parts:
        with stop_signals() as stop:
            async with run_engine(parts) as running:
                output.say(
                    f"the engine runs on {redact_url(parts.store.bus.url)}: "
                    "kingdom workflow start ID --detach, Ctrl-C stops it"
                )
                await _print_events(parts.store, running, stop)
    output.say("the engine has stopped")


async def _print_events(store: WorkflowStore, running: WorkflowEngine, stop: asyncio.Event) -> None:
    """Say what happens to workflows, until it is time to stop or the engine breaks."""
    import asyncio

    from kingdom.workflow.overview import last_event_number

    broken = asyncio.ensure_future(running.wait())
    position = await last_event_number(store, None)
    try:
        while not stop.is_set() and not broken.done():
            for event in await store.events(None, position, _EVENTS_PER_PAGE):
                position = event.position
                if event.type.startswith(_SHOWN_EVENTS):
                    output.say(_event_text(event))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await stop.wait()
        if broken.done():
            broken.result()
    finally:
        broken.cancel()


def _event_text(event: StoredEvent) -> str:
    more = " ".join(str(value) for key, value in event.payload.items() if key in ("reason", "error", "workId"))
    return f"{event.occurred_at.astimezone():%H:%M:%S} {event.workflow_id} {event.type} {more}".rstrip()
