"""A general in a court on several machines: which tasks it leaves to others, how it reports, when it must stop.

In a court on one machine all of this does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from kingdom.base.times import epoch_seconds
from kingdom.court.errors import InvalidId
from kingdom.court.general.context import RESUME_TYPE
from kingdom.court.machines.capacity import SoldierSlots, machine_state
from kingdom.court.machines.exchange import fetch_results, publish_results, worker_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kingdom.bus import Delivery
    from kingdom.bus.delivery import Record
    from kingdom.court.general.context import GeneralContext
    from kingdom.court.models import Result, Task

STOP_MARGIN_SECONDS: Final = 10.0  # in which soldiers end, when their leases could not be renewed
STICKY_SECONDS: Final = 60.0  # a task that continues another waits this long for the machine of that one


class SharedMachine:
    """The machine of one general."""

    def __init__(self, context: GeneralContext) -> None:
        section = context.system.machine
        self._context = context
        self._name = None if section is None else section.name
        self.worker = worker_name(context.name, self._name)
        self.slots = SoldierSlots(context.home, None if section is None else section.soldiers)
        self._lease_end: asyncio.TimerHandle | None = None

    def choose(self, found: Sequence[Record], room: int) -> list[str]:
        """Return the ids of the tasks to claim, and reserve their slots."""
        if self._name is None:
            return [record.envelope.event_id for record in found[:room]]
        if machine_state(self._context.home) != "active":
            return []
        usable = [record.envelope.event_id for record in found if not self._is_left_to_others(record)]
        return usable[: self.slots.reserve(min(room, len(usable)))]

    def _is_left_to_others(self, record: Record) -> bool:
        """Whether a task continues one of another machine, which has the conversation and the worktree.

        That machine may claim it first; after some seconds any machine may.
        """
        document = record.envelope.payload
        if document.get("type") != RESUME_TYPE or not isinstance(document.get("payload"), dict):
            return False
        before = document["payload"].get("original_task_id")
        try:
            if not isinstance(before, str) or self._context.home.soldier_id(before).exists():
                return False
        except InvalidId:
            return False  # refused when the task is prepared
        created = epoch_seconds(document.get("created_at")) or 0.0
        return self._context.clock() - created < STICKY_SECONDS

    @property
    def removed(self) -> bool:
        """Whether a person has removed this machine from the court."""
        return self._name is not None and machine_state(self._context.home) in ("removed", "left")

    async def fetch_results(self, task: Task) -> None:
        """Bring the results that other machines have reported for this task, and for those that it continues."""
        if self._name is None:
            return
        for wanted in (task.id, task.payload.get("original_task_id")):
            if isinstance(wanted, str):
                with contextlib.suppress(InvalidId):  # refused when the task is prepared
                    await fetch_results(self._context.bus, self._context.home, wanted)

    async def lost(self, deliveries: Sequence[Delivery], lease: float) -> list[Delivery]:
        """Return those that another machine has taken over; the leases of the others are renewed."""
        if self._name is None or not deliveries:
            return []
        return await self._context.bus.extend(deliveries, lease)

    async def report_results(self, results: Sequence[Result]) -> None:
        """Report results to the machine that leads, before their tasks are settled."""
        if self._name is not None:
            await publish_results(self._context.bus, self._context.home, self._name, results)

    def watch_leases(self, lease: float, stop: Callable[[], None]) -> None:
        """Call ``stop`` shortly before the leases end, unless they are renewed and this is called again.

        Without other machines nobody takes a task over: its soldier works on while the database is away.
        """
        if self._name is not None:
            self.close()
            self._lease_end = asyncio.get_running_loop().call_later(lease - STOP_MARGIN_SECONDS, stop)

    def close(self) -> None:
        """Stop watching."""
        if self._lease_end is not None:
            self._lease_end.cancel()
            self._lease_end = None
