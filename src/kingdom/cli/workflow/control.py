"""Commands that control workflows: start, resume, answer, pause, cancel, rm, engine.

Only an engine stops agents and resets worktrees. When an engine runs on the store, in whatever process, it receives the
command through the bus of the store. Otherwise this process is the engine for as long as the command takes.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import click

from kingdom.cli import output
from kingdom.cli.options import (
    json_lines_option,
    json_option,
    store_option,
    workflow_argument,
    workflow_home_option,
    yes_option,
)
from kingdom.cli.parsing import argument, command
from kingdom.cli.session import find_workflow_home, open_workflow_context, run_async
from kingdom.cli.workflow.changes import print_uncommitted
from kingdom.cli.workflow.names import find_point, find_workflow, workflow_word

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.engine import WorkflowEngine
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.ports import StoredEvent, WorkflowStore
    from kingdom.workflow.store.transactions import WorkflowTransaction

    Arguments = Callable[[WorkflowTransaction, Workflow], Awaitable[dict[str, Any]]]

_POLL_SECONDS: Final = 0.5
_EVENTS_PER_PAGE: Final = 500
_SHOWN_EVENTS: Final = (
    "Workflow", "WorkStarted", "WorkCompleted", "AgentError", "CheckpointCreated", "QueryFailed", "QuestionAsked",
)  # fmt: skip

detach_option = click.option(
    "--detach", "-d", is_flag=True, help="Leave it to the engine that runs (kingdom workflow engine), and return."
)


@command()
@workflow_argument
@detach_option
@workflow_home_option
@store_option
@json_lines_option
def start(workflow: str, detach: bool, home: Path | None, store: str | None, json: bool) -> None:
    """Start a workflow and show it until it ends, pauses or fails.

    When an engine runs already, that engine runs the workflow, and Ctrl-C only stops watching. Otherwise this process
    is the engine, and Ctrl-C pauses the workflow.
    """
    _run_command(find_workflow_home(home, store), "StartWorkflow", workflow, _given(), detach=detach, json=json)


@command()
@workflow_argument
@click.option(
    "--from",
    "checkpoint",
    metavar="CHECKPOINT",
    help="Go back to this checkpoint (its id, or the name of its work), or to the start.",
)
@click.option("--retry", is_flag=True, help="After a failure: do not go back, repeat the task at which it stopped.")
@click.option("--discard", is_flag=True, help="After a pause: drop what is not in a checkpoint yet.")
@click.option("--hold", is_flag=True, help="With --from or --discard: go back and stay paused, to change the plan.")
@detach_option
@workflow_home_option
@store_option
@json_lines_option
def resume(
    workflow: str,
    checkpoint: str | None,
    retry: bool,
    discard: bool,
    hold: bool,
    detach: bool,
    home: Path | None,
    store: str | None,
    json: bool,
) -> None:
    """Resume a paused or failed workflow, and show it like start.

    After a pause it goes on where it stopped, in the same conversation and with the files as they are. After a failure
    it goes on from the last checkpoint. Going back resets the repositories to the checkpoint. What this drops is kept
    under rescue refs.
    """
    if retry + discard + (checkpoint is not None) > 1:
        raise output.usage_error("--retry goes on where it stopped, --discard and --from go back: use only one of them")
    if hold and not discard and checkpoint is None:
        raise output.usage_error("--hold stays paused after going back: it needs --from CHECKPOINT or --discard")
    flags = {"retry": retry, "discard": discard, "hold": hold}

    async def arguments(tx: WorkflowTransaction, found: Workflow) -> dict[str, Any]:
        point = {} if checkpoint is None else {"checkpoint_id": await find_point(tx, found, checkpoint)}
        return {name: True for name, value in flags.items() if value} | point

    place = find_workflow_home(home, store)
    if discard and not json:
        run_async(lambda: print_uncommitted(place, workflow))
    _run_command(place, "ResumeWorkflow", workflow, arguments, detach=detach, json=json)


@command()
@workflow_argument
@argument("text", metavar="TEXT", help="The answer.")
@detach_option
@workflow_home_option
@store_option
@json_lines_option
def answer(workflow: str, text: str, detach: bool, home: Path | None, store: str | None, json: bool) -> None:
    """Answer an agent's question, and show the workflow like start.

    Its work goes on in the same conversation.
    """
    place = find_workflow_home(home, store)
    _run_command(place, "AnswerWorkflow", workflow, _given(text=text), detach=detach, json=json)


@command("follow-up")
@workflow_argument
@argument("text", metavar="TEXT", help="What to do next, or differently.")
@click.option(
    "--work",
    metavar="NAME",
    help="The work whose agent goes on. Default: the one that stopped, or else the last one that is done.",
)
@detach_option
@workflow_home_option
@store_option
@json_lines_option
def follow_up(
    workflow: str, text: str, work: str | None, detach: bool, home: Path | None, store: str | None, json: bool
) -> None:
    """Have the agent do more, or do it differently.

    It goes on in the same conversation and on the same branch, and is shown like start. A work that stopped repeats its
    task with your text. Behind a work that is done, a new one is added, also to a workflow that is completed or was
    landed.
    """
    if not text.strip():
        raise output.usage_error(f"say what to do: kingdom workflow follow-up {workflow} 'handle --quiet too'")
    chosen = {} if work is None else {"work": work}

    async def arguments(tx: WorkflowTransaction, found: Workflow) -> dict[str, Any]:
        from kingdom.workflow.usecases.follow_up import follow_up_name

        return {"text": text.strip(), "name": await follow_up_name(tx, found.id, text), **chosen}

    place = find_workflow_home(home, store)
    _run_command(place, "FollowUpWorkflow", workflow, arguments, detach=detach, json=json)


@command()
@workflow_argument
@workflow_home_option
@store_option
@json_option
def pause(workflow: str, home: Path | None, store: str | None, json: bool) -> None:
    """Pause a workflow and stop its agents."""
    found = _execute(home, store, "PauseWorkflow", workflow)
    _print_outcome(
        found, f"paused: kingdom workflow resume {workflow_word(found)} continues where it stopped", json=json
    )


@command()
@workflow_argument
@yes_option
@workflow_home_option
@store_option
@json_option
def cancel(workflow: str, yes: bool, home: Path | None, store: str | None, json: bool) -> None:
    """Cancel a workflow for good and stop its agents.

    Worktrees, branches and checkpoints stay. One that is completed and waits to be landed stays completed.
    """
    output.confirm(f"Cancel {workflow}? It cannot be resumed.", yes=yes)
    found = _execute(home, store, "CancelWorkflow", workflow)
    word = workflow_word(found)
    if found.land_again is not None:
        _print_outcome(found, f"not landed: kingdom workflow land {word} lands it after all", json=json)
    else:
        _print_outcome(found, f"cancelled: kingdom workflow rm {word} deletes its files", json=json)


@command()
@workflow_argument
@yes_option
@workflow_home_option
@store_option
@json_option
def rm(workflow: str, yes: bool, home: Path | None, store: str | None, json: bool) -> None:
    """Delete a workflow that is not running.

    Its worktrees, branches, checkpoints, rescues and reports are deleted with it: land first what you want to keep.
    """
    output.confirm(f"Delete {workflow} with its branches, checkpoints and reports?", yes=yes)
    found = _execute(home, store, "DeleteWorkflow", workflow)
    _print_outcome(found, "deleted", json=json)


@command()
@workflow_home_option
@store_option
def engine(home: Path | None, store: str | None) -> None:
    """Run the engine until Ctrl-C or SIGTERM.

    It continues every running workflow and executes the commands of other processes. Each store has at most one engine,
    unless engines of several machines share it (git.checkpoint_remote). Agents keep running when it stops: the next
    engine adopts them.
    """
    place = find_workflow_home(home, store)
    run_async(lambda: _run_engine(place))


def _given(**arguments: Any) -> Arguments:
    """Return the arguments of a command that need nothing of the store."""

    async def found(_: WorkflowTransaction, __: Workflow) -> dict[str, Any]:
        return arguments

    return found


def _run_command(
    place: WorkflowHome,
    kind: str,
    word: str,
    arguments: Arguments,
    *,
    detach: bool,
    json: bool,
) -> None:
    from kingdom.cli.workflow.runner import CommandRequest, hand_over, run_request
    from kingdom.cli.workflow.view import choose_view

    async def action() -> int:
        async with open_workflow_context(place) as context:
            async with context.store.reading() as tx:
                workflow = await find_workflow(tx, word)
                given = await arguments(tx, workflow)
            request = CommandRequest(kind, workflow.id, given, workflow_word(workflow))
            if not detach:
                return await run_request(place, context, request, choose_view(json=json))
            await hand_over(place, context.store, request)
            if not json:
                output.say(f"{workflow.name} runs: kingdom workflow watch {workflow_word(workflow)}")
            return 0

    raise click.exceptions.Exit(run_async(action))


def _execute(home: Path | None, store: str | None, kind: str, word: str) -> Workflow:
    """Execute a command in the engine that runs, or here when there is none."""
    from kingdom.cli.workflow.runner import CommandRequest, execute

    place = find_workflow_home(home, store)

    async def action() -> Workflow:
        async with open_workflow_context(place) as context:
            async with context.store.reading() as tx:
                workflow = await find_workflow(tx, word)
            await execute(context, CommandRequest(kind, workflow.id, {}, workflow_word(workflow)))
            return workflow

    return run_async(action)


def _print_outcome(workflow: Workflow, text: str, *, json: bool) -> None:
    if json:
        output.print_json({"id": workflow.id, "name": workflow.name, "did": text.partition(":")[0]})
    else:
        output.say(f"{workflow.name} is {text}")


async def _run_engine(place: WorkflowHome) -> None:
    from kingdom.bus.urls import redact_url
    from kingdom.cli.workflow.runner import stop_signals
    from kingdom.workflow.engine import run_engine

    async with open_workflow_context(place) as context:
        with stop_signals() as stop:
            async with run_engine(context) as running:
                output.say(
                    f"the engine runs on {redact_url(context.store.bus.url)}: "
                    "start workflows with kingdom workflow start ID --detach, stop the engine with Ctrl-C"
                )
                await _print_events(context.store, running, stop)
    output.say("the engine has stopped")


async def _print_events(store: WorkflowStore, running: WorkflowEngine, stop: asyncio.Event) -> None:
    """Print what happens to workflows until the engine is stopped or breaks."""
    import asyncio

    broken = asyncio.ensure_future(running.wait())
    position = await store.last_event_number(None)
    names: dict[str, str] = {}
    try:
        while not stop.is_set() and not broken.done():
            for event in await store.events(None, position, _EVENTS_PER_PAGE):
                position = event.position
                if event.type.startswith(_SHOWN_EVENTS):
                    await _learn_names(store, event, names)
                    output.say(_event_text(event, names))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await stop.wait()
        if broken.done():
            broken.result()
    finally:
        broken.cancel()


async def _learn_names(store: WorkflowStore, event: StoredEvent, names: dict[str, str]) -> None:
    """Add the names of the workflow of an event and of its works, by id, if they are not known yet."""
    from kingdom.workflow.overview import names_by_id

    if event.workflow_id in names and event.payload.get("workId", event.workflow_id) in names:
        return
    async with store.reading() as tx:
        workflow = await tx.workflows.find_alone(event.workflow_id)
        if workflow is not None:
            names |= {workflow.id: workflow.name, **names_by_id(await tx.works.of_workflow(workflow.id))}


def _event_text(event: StoredEvent, names: dict[str, str]) -> str:
    said = [value for key, value in event.payload.items() if key in ("reason", "error", "workId")]
    more = " ".join(names.get(str(value), str(value)) for value in said)
    whose = names.get(event.workflow_id, event.workflow_id)
    return f"{event.occurred_at.astimezone():%H:%M:%S} {whose} {event.type} {more}".rstrip()
