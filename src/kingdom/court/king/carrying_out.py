"""Doing what an entry of the book says. Every part may be done again: the bus takes each id once."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kingdom.bus.errors import InvalidEnvelope
from kingdom.court.journal_tail import untold
from kingdom.court.models import Event, Message, Task
from kingdom.court.queues import put
from kingdom.journal import JournalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kingdom.bus import Delivery
    from kingdom.court.king.book import Entry
    from kingdom.court.king.schedules import Schedules
    from kingdom.court.loop import Services

log = logging.getLogger("kingdom.court.king")
D = TypeVar("D", Task, Message, Event)


@dataclass(slots=True)
class Orders:
    """An entry, with its documents as what they are."""

    entry: Entry
    tasks: list[Task] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @classmethod
    def of(cls, entry: Entry) -> Self:
        """The orders of an entry that was read from the book."""
        return cls(
            entry,
            [Task.model_validate(document) for document in entry.tasks],
            [Message.model_validate(document) for document in entry.messages],
            [Event.model_validate(document) for document in entry.events],
        )


class Hands:
    """Carries out orders."""

    def __init__(self, services: Services, schedules: Schedules, held: dict[str, Delivery]) -> None:
        self._bus = services.bus
        self._journal = services.journal
        self._journal_path = services.home.journal
        self._schedules = schedules
        self._held = held
        self.refused: dict[str, str] = {}  # tasks the queue does not take, and why

    async def carry_out(self, orders: Orders, *, again: bool = False) -> None:
        """Do all of it. ``again``: perhaps some of it was done before."""
        entry = orders.entry
        if entry.slots:
            self._schedules.store(entry.slots)
        # First: that a task was made is written down before anybody can start it.
        if not again:
            self._tell(entry.journal)
        elif await self._untold(orders):
            self._tell(untold(self._journal_path, entry.journal))
        await self._publish(orders.tasks)
        await self._publish(orders.events)
        await self._publish(orders.messages)
        await self._bus.settle(
            done=[(self._held.pop(event_id), out) for event_id, out in entry.done.items() if event_id in self._held]
        )

    async def _publish(self, documents: list[D]) -> None:
        try:
            await put(self._bus, documents)
        except InvalidEnvelope:
            for document in documents:  # one that is too large must not stop the others
                try:
                    await put(self._bus, [document])
                except InvalidEnvelope as error:
                    log.warning("%s is not taken by its queue: %s", document.id, error)
                    self.refused[document.id] = str(error)

    async def _untold(self, orders: Orders) -> bool:
        """Whether the journal may lack the lines of an entry: a task that is there was told of before."""
        for task in orders.tasks:
            if await self._bus.find(task.id) is None:
                return True
        return not orders.tasks and any(event_id in self._held for event_id in orders.entry.done)

    def _tell(self, lines: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        for name, data in lines:
            try:
                self._journal.emit(name, "king", data)
            except JournalError as error:  # work goes on without its diary
                log.warning("the journal does not take %s: %s", name, error)
