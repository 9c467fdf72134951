"""``kingdom workflow watch``: works, tasks, agent output and cost, live, from any process."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kingdom.cli import output
from kingdom.cli.options import json_lines_option, store_option, workflow_argument, workflow_home_option
from kingdom.cli.parsing import command
from kingdom.cli.session import engines_of, find_workflow_home, open_workflow_store, run_async

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kingdom.workflow.agent_records import TranscriptLine
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.overview import WorkflowOverview
    from kingdom.workflow.ports import StoredEvent, WorkflowStore

_POLL_SECONDS: Final = 0.3  # between two looks at the transcripts, which send no notifications
_EVENTS_PER_PAGE: Final = 500
_RESTING_STATUSES: Final = frozenset({"CREATED", "READY", "PAUSED", "FAILED", "COMPLETED", "CANCELLED"})


@dataclass(frozen=True, slots=True)
class WorkflowFrame:
    """The state of a workflow at one moment, and what happened since the frame before."""

    overview: WorkflowOverview
    events: list[StoredEvent] = field(default_factory=list)
    said: list[TranscriptLine] = field(default_factory=list)
    cost_usd: float = 0.0
    tokens: int = 0
    cost_by_work: dict[str, float] = field(default_factory=dict)

    @property
    def resting(self) -> bool:
        """Whether nothing more happens until a user acts."""
        return self.overview.workflow.status in _RESTING_STATUSES and not self.overview.workflow.landing


@command()
@workflow_argument
@click.option("--wait", is_flag=True, help="Continue while it rests, until it is completed or cancelled.")
@workflow_home_option
@store_option
@json_lines_option
def watch(workflow: str, wait: bool, home: Path | None, store: str | None, json: bool) -> None:
    """Watch a workflow until it ends, pauses or fails.

    Shows works, tasks, agent output and cost. Ctrl-C only stops watching. Exits 0 when the workflow is completed or
    waits for a person, 1 when it failed or was cancelled.
    """
    place = find_workflow_home(home, store)
    raise click.exceptions.Exit(run_async(lambda: _watch(place, workflow, wait=wait, json=json)))


async def _watch(place: WorkflowHome, word: str, *, wait: bool, json: bool) -> int:
    from kingdom.cli.workflow.names import find_workflow
    from kingdom.cli.workflow.view import choose_view

    async with open_workflow_store(place) as store:
        async with store.reading() as tx:
            workflow = await find_workflow(tx, word)
        stream = watch_frames(place, store, workflow.id)
        async with contextlib.aclosing(stream):
            with choose_view(json=json) as view:
                async for frame in stream:
                    view.show(frame)
                    if frame.resting and (frame.overview.workflow.is_over or not wait):
                        return exit_code(frame.overview)
    return 0  # it was deleted


def exit_code(overview: WorkflowOverview) -> int:
    """Return 0 for a workflow that is completed, or rests with no failed work; otherwise 1."""
    workflow: Workflow = overview.workflow
    bad = workflow.status in ("FAILED", "CANCELLED") or any(work.status == "FAILED" for work in overview.works)
    return output.FAILED if bad and workflow.status != "COMPLETED" else 0


async def watch_frames(
    place: WorkflowHome, store: WorkflowStore, workflow_id: str, *, after: int = 0
) -> AsyncGenerator[WorkflowFrame]:
    """Yield a frame at once, after each event, and at short intervals. Ends when the workflow is deleted.

    Frames contain the events after number ``after``, and the agent output of active and later runs.
    """
    import asyncio

    from kingdom.workflow.agent_records import TranscriptReader, WorkflowLedger
    from kingdom.workflow.overview import WorkflowOverview
    from kingdom.workflow.store.transactions import STREAM

    listening = TranscriptReader(place.runs, place.sessions, engines_of(place))
    spending = WorkflowLedger(place.ledger, workflow_id)
    woken = asyncio.Event()
    undo = store.bus.subscribe(STREAM, woken.set)
    try:
        first = True
        while True:
            async with store.reading() as tx:
                workflow = await tx.workflows.find(workflow_id)
                overview = None if workflow is None else await WorkflowOverview.read(tx, workflow)
            if overview is None:
                return
            # Read after the state, so that the frame has every event that led to it.
            events = await _all_events(store, workflow_id, after)
            after = events[-1].sequence if events else after
            said = listening.read_on(work.id for work in overview.works)
            if first:
                said = [one for one in said if one.run_id.startswith(_open_run_prefixes(overview))]
            first = False
            spent = spending.read_on()
            open_runs = [usage for run, usage in listening.usage.items() if run not in spending.run_ids]
            yield WorkflowFrame(
                overview,
                events,
                said,
                spent.cost_usd + sum(usage.cost_usd or 0.0 for usage in open_runs),
                spent.tokens + sum(usage.tokens.total for usage in open_runs),
                dict(spent.by_work),
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await woken.wait()
            woken.clear()
    finally:
        undo()


def _open_run_prefixes(overview: WorkflowOverview) -> tuple[str, ...]:
    """Return the prefixes of the ids of runs that have not ended. One may have begun since the overview was read.

    A task at which the workflow rests goes on with its next attempt.
    """
    rests = overview.workflow.status in _RESTING_STATUSES
    return tuple(
        f"{work.id}.{task.id}.{task.attempt + (rests and task.status == 'RUNNING')}"
        for work in overview.works
        for task in work.tasks
        if task.status in ("RUNNING", "PENDING")
    )


async def _all_events(store: WorkflowStore, workflow_id: str, after: int) -> list[StoredEvent]:
    found: list[StoredEvent] = []
    while page := await store.events(workflow_id, after, _EVENTS_PER_PAGE):
        found += page
        after = page[-1].sequence
    return found
