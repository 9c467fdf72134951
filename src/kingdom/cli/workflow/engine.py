"""``kingdom workflow engine``: an engine as a service."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from kingdom.cli import output
from kingdom.cli.workflow.options import HomeOption, StoreOption
from kingdom.cli.workflow.place import find_place
from kingdom.cli.workflow.session import opened_parts, told

if TYPE_CHECKING:
    import asyncio

    from kingdom.workflow.engine import Engine
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.ports import SeenEvent, Store

_LOOK: Final = 0.5
_PAGE: Final = 500
_TOLD: Final = ("Workflow", "WorkStarted", "WorkCompleted", "AgentError", "CheckpointCreated", "QueryFailed")


def engine(home: HomeOption = None, store: StoreOption = None) -> None:
    """Run the engine until Ctrl-C or SIGTERM: it goes on with every workflow that runs, and does what is asked for.

    There is one for each store. Agents outlive it: the next engine takes them over.
    """
    place = find_place(home, store)
    told(lambda: _serve(place))


async def _serve(place: WorkflowHome) -> None:
    from kingdom.bus.connecting import shown_url
    from kingdom.cli.workflow.running import stop_signals
    from kingdom.workflow.serving import serving

    async with opened_parts(place) as parts:
        with stop_signals() as stop:
            async with serving(parts) as running:
                output.say(
                    f"the engine runs on {shown_url(parts.store.bus.url)}: "
                    "kingdom workflow start ID --detach, Ctrl-C stops it"
                )
                await _tell(parts.store, running, stop)
    output.say("the engine has stopped")


async def _tell(store: Store, running: Engine, stop: asyncio.Event) -> None:
    """Say what happens to workflows, until it is time to stop or the engine breaks."""
    import asyncio

    from kingdom.workflow.last_number import last_number

    broken = asyncio.ensure_future(running.wait())
    position = await last_number(store, None)
    try:
        while not stop.is_set() and not broken.done():
            for event in await store.events(None, position, _PAGE):
                position = event.position
                if event.type.startswith(_TOLD):
                    output.say(_line(event))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await stop.wait()
        if broken.done():
            broken.result()
    finally:
        broken.cancel()


def _line(event: SeenEvent) -> str:
    more = " ".join(str(value) for key, value in event.payload.items() if key in ("reason", "error", "workId"))
    return f"{event.occurred_at.astimezone():%H:%M:%S} {event.workflow_id} {event.type} {more}".rstrip()
