"""A general in a court on several machines: which tasks it leaves to others, how it reports, when it must stop.

In a court on one machine all of this does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.times import epoch_seconds
from kingdom.court.errors import InvalidId
from kingdom.court.general.errors import TaskRefused
from kingdom.court.general.workspace import repository_url
from kingdom.court.machines.capacity import SoldierSlots, machine_state
from kingdom.court.machines.exchange import fetch_former_results, fetch_results, publish_results, worker_name
from kingdom.court.machines.listing import clones_elsewhere
from kingdom.court.models import FOLLOW_UP_FIELD, continued_task, repository_of
from kingdom.gitops import GitError
from kingdom.gitops.names import check_url
from kingdom.gitops.repository import REPO

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from kingdom.bus import Delivery
    from kingdom.bus.delivery import Record
    from kingdom.court.general.context import GeneralContext
    from kingdom.court.models import Result, Task

STOP_MARGIN_SECONDS: Final = 10.0  # in which soldiers end, when their leases could not be renewed
STICKY_SECONDS: Final = 60.0  # a task that continues another waits this long for the machine of that one
CLONE_SECONDS: Final = 15.0  # a task waits this long for a machine with a clone, if its general asks for that


class SharedMachine:
    """The machine of one general."""

    def __init__(self, context: GeneralContext) -> None:
        section = context.system.machine
        self._context = context
        self.name = None if section is None else section.name
        self.worker = worker_name(context.name, self.name)
        self.slots = SoldierSlots(context.home, None if section is None else section.soldiers)
        self._lease_end: asyncio.TimerHandle | None = None
        self._first_seen: dict[str, float] = {}  # when, by the monotonic clock, for the tasks that wait

    def choose(self, found: Sequence[Record], room: int) -> list[str]:
        """Return the ids of the tasks to claim, and reserve their slots."""
        if self.name is None:
            return [record.envelope.event_id for record in found[:room]]
        if machine_state(self._context.home) != "active":
            return []
        elsewhere = self._clones_elsewhere() if found else set()
        waiting = {record.envelope.event_id for record in found}
        self._first_seen = {task: at for task, at in self._first_seen.items() if task in waiting}
        usable = [record.envelope.event_id for record in found if not self._is_left_to_others(record, elsewhere)]
        return usable[: self.slots.reserve(min(room, len(usable)))]

    def _is_left_to_others(self, record: Record, elsewhere: AbstractSet[str]) -> bool:
        """Whether another machine may claim a task first; after some seconds any machine may."""
        document, now = record.envelope.payload, time.monotonic()
        created = epoch_seconds(document.get("created_at")) or 0.0
        # The clock of this machine may be hours behind that of the machine that made the task.
        waited = max(self._context.clock() - created, now - self._first_seen.setdefault(record.envelope.event_id, now))
        if waited < STICKY_SECONDS and self._continues_elsewhere(document):
            return True
        return waited < CLONE_SECONDS and bool(elsewhere) and self._repository_key(document) in elsewhere

    def _continues_elsewhere(self, document: Mapping[str, Any]) -> bool:
        """Whether a task continues one of another machine, which has the conversation and the worktree."""
        before = continued_task(document.get("type"), document.get("payload"), document.get(FOLLOW_UP_FIELD))
        try:
            return isinstance(before, str) and not self._context.home.soldier_id(before).exists()
        except InvalidId:
            return False  # refused when the task is prepared

    def _clones_elsewhere(self) -> set[str]:
        """Return the clones that other machines have and this one has not, if the general cares about that."""
        context = self._context
        if self.name is None or context.manifest.affinity != "repository" or not context.manifest.fetch_repo:
            return set()
        there = clones_elsewhere(context.home, self.name, context.name, context.clock())
        return {name for name in there if not (context.home.clones / name / REPO).exists()}

    def _repository_key(self, document: Mapping[str, Any]) -> str | None:
        """Return the name of the folder that a clone of a task's repository has."""
        context, event = self._context, document.get("event")
        named = document.get("repo") or (event.get("repo") if isinstance(event, dict) else None)
        payload = document.get("payload")
        named = named or (repository_of(payload) if isinstance(payload, dict) else None)
        try:
            url = repository_url(named, context.base_url) if named else context.default_url
            return None if url is None else check_url(url, allow_local=True).key
        except (TaskRefused, GitError):
            return None  # refused when the task is prepared

    @property
    def removed(self) -> bool:
        """Whether a person has removed this machine from the court."""
        return self.name is not None and machine_state(self._context.home) in ("removed", "left")

    async def fetch_results(self, tasks: Sequence[Task]) -> None:
        """Bring the results that other machines have reported for these tasks, and for those that they continue."""
        if self.name is None:
            return
        await fetch_results(self._context.bus, self._context.home, [task.id for task in tasks])
        for task in tasks:
            if (before := task.continues) is not None:
                with contextlib.suppress(InvalidId):  # refused when the task is prepared
                    await fetch_former_results(self._context.bus, self._context.home, before)

    async def lost(self, deliveries: Sequence[Delivery], lease: float) -> list[Delivery]:
        """Return those that another machine has taken over; the leases of the others are renewed."""
        if self.name is None or not deliveries:
            return []
        return await self._context.bus.extend(deliveries, lease)

    async def report_results(self, results: Sequence[Result]) -> None:
        """Report results to the machine that leads, before their tasks are settled."""
        if self.name is not None:
            await publish_results(self._context.bus, self._context.home, self.name, results)

    def watch_leases(self, lease: float, stop: Callable[[], None]) -> None:
        """Call ``stop`` shortly before the leases end, unless they are renewed and this is called again.

        Without other machines nobody takes a task over: its soldier works on while the database is away.
        """
        if self.name is not None:
            self.close()
            self._lease_end = asyncio.get_running_loop().call_later(lease - STOP_MARGIN_SECONDS, stop)

    def close(self) -> None:
        """Stop watching."""
        if self._lease_end is not None:
            self._lease_end.cancel()
            self._lease_end = None
