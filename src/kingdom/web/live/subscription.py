"""Subscriptions: which events a client receives, and how far it has received them. No event is lost or repeated.

A subscription to the whole feed reads the hub's buffer, and older events from the feed on disk. A subscription to a
workflow uses the workflow's own numbers and reads older events from the store, which has all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from kingdom.web.envelope import not_found
from kingdom.web.live.event import FeedEvent, event_message
from kingdom.web.live.feed import is_contiguous
from kingdom.web.live.feeder import source_event

if TYPE_CHECKING:
    from kingdom.web.live.hub import Hub

_BATCH_EVENTS: Final = 200


@dataclass(frozen=True, slots=True)
class SubscriptionReset:
    """The requested events are not available: the client must reload the state. Events continue after ``number``."""

    oldest: int
    number: int
    workflow_id: str | None = None


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One event for one client: its number in the subscription, and the message."""

    number: int
    message: str


class TypeFilter:
    """Matches event types by name, or by prefix and ``*``. Empty: matches all."""

    def __init__(self, wanted: Collection[str] = ()) -> None:
        self._all = not wanted
        self._names = frozenset(name for name in wanted if not name.endswith("*"))
        self._beginnings = tuple(name[:-1] for name in wanted if name.endswith("*"))

    def __contains__(self, kind: str) -> bool:
        return self._all or kind in self._names or kind.startswith(self._beginnings)


class LiveSubscription(Protocol):
    """A subscription of one client."""

    workflow_id: str | None
    close: Callable[[], None]
    """Ends the subscription."""

    @property
    def number(self) -> int:
        """The number with which a client resumes after everything delivered so far."""

    async def take(self) -> Sequence[OutgoingMessage] | SubscriptionReset | None:
        """Return the next messages; None if there are none now. An empty list: no event matched, call again."""


class FeedSubscription:
    """A subscription to all events, with the numbers of the feed."""

    def __init__(self, hub: Hub, number: int, types: TypeFilter, wake: Callable[[], None]) -> None:
        self.workflow_id: str | None = None
        self._hub = hub
        self._number = number
        self._types = types
        self.close = hub.wake_for(None, wake)

    @property
    def number(self) -> int:
        """The feed number up to which everything was delivered."""
        return self._number

    async def take(self) -> Sequence[OutgoingMessage] | SubscriptionReset | None:
        """Return the next messages."""
        events = self._hub.recent(self._number, _BATCH_EVENTS)
        if events is None:
            events = await self._older()
            if events is None:
                self._number = self._hub.head
                return SubscriptionReset(self._hub.feed.oldest, self._number)
        if not events:
            return None
        self._number = events[-1].sequence
        return [OutgoingMessage(event.sequence, event.message) for event in events if event.type in self._types]

    async def _older(self) -> Sequence[FeedEvent] | None:
        """Read older events from the feed; None if some are missing or the number was never assigned."""
        if self._number > self._hub.head:
            return None
        events = await self._hub.feed.after(self._number, _BATCH_EVENTS)
        # Events that another process stored and that are not delivered here yet are left out: they come later.
        events = [event for event in events if event.sequence <= self._hub.head]
        return events if events and is_contiguous(events, self._number) else None


class WorkflowSubscription:
    """A subscription to one workflow, with its own numbers."""

    def __init__(self, hub: Hub, workflow_id: str, number: int, types: TypeFilter, wake: Callable[[], None]) -> None:
        self.workflow_id: str | None = workflow_id
        self._owner = workflow_id
        self._hub = hub
        self._number = number
        self._types = types
        self._at: int | None = None  # feed number up to which the hub was read; None: read the store first
        self.close = hub.wake_for(workflow_id, wake)

    @property
    def number(self) -> int:
        """The workflow number up to which everything was delivered."""
        return self._number

    async def take(self) -> Sequence[OutgoingMessage] | SubscriptionReset | None:
        """Return the next messages."""
        if self._at is not None:
            events = self._hub.recent(self._at, _BATCH_EVENTS)
            if events is not None:
                return self._live(events)
            self._at = None
        # Take the head before reading the store: events that the store lacks come from the hub after it.
        head = self._hub.head
        seen = await self._hub.store.events(self._owner, self._number, _BATCH_EVENTS)
        if not seen:
            self._at = head
            return ()
        items = []
        for event in seen:
            self._number = event.sequence
            if event.type in self._types:
                items.append(
                    OutgoingMessage(
                        event.sequence, event_message(event.sequence, self._owner, source_event(event).body())
                    )
                )
        return items

    def _live(self, events: Sequence[FeedEvent]) -> Sequence[OutgoingMessage] | None:
        if not events:
            return None
        items = []
        for event in events:
            self._at = event.sequence
            if event.workflow_id != self._owner or event.workflow_sequence is None:
                continue
            if event.workflow_sequence <= self._number:  # already read from the store
                continue
            if event.workflow_sequence > self._number + 1:  # the feed started later or restarted: read the store
                self._at = None
                break
            self._number = event.workflow_sequence
            if event.type in self._types:
                items.append(OutgoingMessage(self._number, event_message(self._number, self._owner, event.body)))
        return items


async def subscribe(
    hub: Hub, workflow_id: str | None, number: int | None, types: Collection[str], wake: Callable[[], None]
) -> tuple[LiveSubscription, SubscriptionReset | None]:
    """Create a subscription after a number; None: only new events, 0: all stored events.

    Also returns a reset if the number does not belong to this feed or workflow. Raises
    :class:`kingdom.web.envelope.ApiError` if the workflow does not exist.
    """
    wanted = TypeFilter(types)
    if workflow_id is None:
        return _subscribe_to_feed(hub, number, wanted, wake)
    last = await hub.store.last_event_number(workflow_id)
    if last == 0:
        raise not_found("WFL", "workflow", workflow_id)
    if number is not None and number > last:
        return WorkflowSubscription(hub, workflow_id, last, wanted, wake), SubscriptionReset(1, last, workflow_id)
    return WorkflowSubscription(hub, workflow_id, last if number is None else number, wanted, wake), None


def _subscribe_to_feed(
    hub: Hub, number: int | None, wanted: TypeFilter, wake: Callable[[], None]
) -> tuple[LiveSubscription, SubscriptionReset | None]:
    oldest = hub.feed.oldest
    if number is None:
        number = hub.head
    elif number == 0:
        number = min(oldest - 1, hub.head)
    elif not oldest - 1 <= number <= hub.head:
        return FeedSubscription(hub, hub.head, wanted, wake), SubscriptionReset(oldest, hub.head)
    return FeedSubscription(hub, number, wanted, wake), None
