"""``kingdom workflow watch``: works, tasks, agent output and cost, live, from any process."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kingdom.cli import output
from kingdom.cli.workflow.options import HomeOption, StoreOption, WorkflowWord
from kingdom.cli.workflow.place import engines_of, find_place
from kingdom.cli.workflow.session import opened, told

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.listening import Said
    from kingdom.workflow.overview import Overview
    from kingdom.workflow.ports import SeenEvent, Store

_LOOK: Final = 0.3  # seconds between looks at the transcripts, which nobody announces
_PAGE: Final = 500
_RESTING: Final = frozenset({"CREATED", "READY", "PAUSED", "FAILED", "COMPLETED", "CANCELLED"})


@dataclass(frozen=True, slots=True)
class Frame:
    """How a workflow stands at one moment, and what happened since the last one."""

    overview: Overview
    events: list[SeenEvent] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    cost_usd: float = 0.0
    tokens: int = 0
    cost_by_work: dict[str, float] = field(default_factory=dict)

    @property
    def resting(self) -> bool:
        """Whether nothing happens any more until somebody says so."""
        return self.overview.workflow.status in _RESTING


def watch(
    workflow: WorkflowWord,
    wait: Annotated[
        bool, typer.Option("--wait", help="Go on while it rests, until it is completed or cancelled.")
    ] = False,
    home: HomeOption = None,
    store: StoreOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print events and agent output as JSON lines.")] = False,
) -> None:
    """Watch a workflow until it ends, pauses or fails: works, tasks, agent output and cost. Ctrl-C only stops watching.

    Exits 0 when it is completed or waits for somebody, 1 when it failed or was cancelled.
    """
    place = find_place(home, store)
    raise typer.Exit(told(lambda: _watch(place, workflow, wait=wait, json=json)))


async def _watch(place: WorkflowHome, word: str, *, wait: bool, json: bool) -> int:
    from kingdom.cli.workflow.finding import find_workflow
    from kingdom.cli.workflow.watch_view import choose_view

    async with opened(place) as store:
        async with store.reading() as tx:
            workflow = await find_workflow(tx, word)
        stream = frames(place, store, workflow.id)
        async with contextlib.aclosing(stream):
            with choose_view(json=json) as view:
                async for frame in stream:
                    view.show(frame)
                    if frame.overview.workflow.is_over or (frame.resting and not wait):
                        return exit_code(frame.overview)
    return 0  # it was deleted


def exit_code(overview: Overview) -> int:
    """0 when all is well: it is completed, or rests and nothing of it failed."""
    workflow: Workflow = overview.workflow
    bad = workflow.status in ("FAILED", "CANCELLED") or any(work.status == "FAILED" for work in overview.works)
    return output.FAILED if bad and workflow.status != "COMPLETED" else 0


async def frames(place: WorkflowHome, store: Store, workflow_id: str, *, after: int = 0) -> AsyncGenerator[Frame]:
    """How a workflow stands: at once, whenever something happened, and every little while. Ends when it is deleted.

    Events are told from ``after`` on, and what agents say in the runs that are under way, and in later ones.
    """
    import asyncio

    from kingdom.workflow.listening import Listening
    from kingdom.workflow.overview import Overview
    from kingdom.workflow.spending import Spending
    from kingdom.workflow.store.transactions import STREAM

    listening = Listening(place.runs, place.sessions, engines_of(place))
    spending = Spending(place.ledger, workflow_id)
    woken = asyncio.Event()
    undo = store.bus.subscribe(STREAM, woken.set)
    try:
        first = True
        while True:
            async with store.reading() as tx:
                workflow = await tx.workflows.find(workflow_id)
                overview = None if workflow is None else await Overview.read(tx, workflow)
            if overview is None:
                return
            # Read after the state: all that led to it is told with it.
            events = await _all_events(store, workflow_id, after)
            after = events[-1].sequence if events else after
            said = listening.read_on(work.id for work in overview.works)
            if first:
                said = [one for one in said if one.run_id.startswith(_under_way(overview))]
            first = False
            spent = spending.read_on()
            open_runs = [usage for run, usage in listening.usage.items() if run not in spending.run_ids]
            yield Frame(
                overview,
                events,
                said,
                spent.cost_usd + sum(usage.cost_usd or 0.0 for usage in open_runs),
                spent.tokens + sum(usage.tokens.total for usage in open_runs),
                dict(spent.by_work),
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await woken.wait()
            woken.clear()
    finally:
        undo()


def _under_way(overview: Overview) -> tuple[str, ...]:
    """What the ids of the runs begin with that are under way."""
    return tuple(
        f"{work.id}.{task.id}.{task.attempt}"
        for work in overview.works
        for task in work.tasks
        if task.status == "RUNNING"
    )


async def _all_events(store: Store, workflow_id: str, after: int) -> list[SeenEvent]:
    found: list[SeenEvent] = []
    while page := await store.events(workflow_id, after, _PAGE):
        found += page
        after = page[-1].sequence
    return found
