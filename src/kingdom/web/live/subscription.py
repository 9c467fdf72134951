"""What one client wants to hear, and how far it has heard: nothing is left out, nothing comes twice.

A subscription to everything reads the shared memory of the hub, and what is older from the feed on disk. One to a
workflow counts by the workflow's own numbers: what is older comes from the store, which has all of it.
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

_BATCH_EVENTS: Final = 200  # events


@dataclass(frozen=True, slots=True)
class SubscriptionReset:
    """What a client asks for cannot be had: it is to read the state anew. Events go on behind ``number``."""

    oldest: int
    number: int
    workflow_id: str | None = None


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One event for one client: the number that the client counts by, and the whole message."""

    number: int
    message: str


class TypeFilter:
    """Which types of events are wanted: names, or their beginning and ``*``. None of them: all."""

    def __init__(self, wanted: Collection[str] = ()) -> None:
        self._all = not wanted
        self._names = frozenset(name for name in wanted if not name.endswith("*"))
        self._beginnings = tuple(name[:-1] for name in wanted if name.endswith("*"))

    def __contains__(self, kind: str) -> bool:
        return self._all or kind in self._names or kind.startswith(self._beginnings)


class LiveSubscription(Protocol):
    """Is asked for more whenever its client has room for it."""

    workflow_id: str | None
    close: Callable[[], None]
    """For when it is not wanted any more."""

    @property
    def number(self) -> int:
        """What a client comes back with that has got everything up to here."""

    async def take(self) -> Sequence[OutgoingMessage] | SubscriptionReset | None:
        """What comes next; None when there is nothing more now. An empty list: nothing of interest, ask again."""


class FeedSubscription:
    """To everything that happens, by the numbers of the feed."""

    def __init__(self, hub: Hub, number: int, types: TypeFilter, wake: Callable[[], None]) -> None:
        self.workflow_id: str | None = None
        self._hub = hub
        self._number = number
        self._types = types
        self.close = hub.wake_for(None, wake)

    @property
    def number(self) -> int:
        """The number of the feed up to which everything was given."""
        return self._number

    async def take(self) -> Sequence[OutgoingMessage] | SubscriptionReset | None:
        """What comes next."""
        frames = self._hub.recent(self._number, _BATCH_EVENTS)
        if frames is None:
            frames = await self._older()
            if frames is None:
                self._number = self._hub.head
                return SubscriptionReset(self._hub.feed.oldest, self._number)
        if not frames:
            return None
        self._number = frames[-1].sequence
        return [OutgoingMessage(frame.sequence, frame.message) for frame in frames if frame.type in self._types]

    async def _older(self) -> Sequence[FeedEvent] | None:
        """What the feed has; None when something is missing in between, or the number is none we gave."""
        if self._number > self._hub.head:
            return None
        frames = await self._hub.feed.after(self._number, _BATCH_EVENTS)
        # What another process has kept already and we have not been told of stays out: it comes in its turn.
        frames = [frame for frame in frames if frame.sequence <= self._hub.head]
        return frames if frames and is_contiguous(frames, self._number) else None


class WorkflowSubscription:
    """To one workflow, by its own numbers."""

    def __init__(self, hub: Hub, workflow_id: str, number: int, types: TypeFilter, wake: Callable[[], None]) -> None:
        self.workflow_id: str | None = workflow_id
        self._owner = workflow_id
        self._hub = hub
        self._number = number
        self._types = types
        self._at: int | None = None  # how far the hub was heard; None: the store has to be read first
        self.close = hub.wake_for(workflow_id, wake)

    @property
    def number(self) -> int:
        """The number of the workflow up to which everything was given."""
        return self._number

    async def take(self) -> Sequence[OutgoingMessage] | SubscriptionReset | None:
        """What comes next."""
        if self._at is not None:
            frames = self._hub.recent(self._at, _BATCH_EVENTS)
            if frames is not None:
                return self._live(frames)
            self._at = None
        # The head is taken before the store is read: what the store does not have yet, the hub tells after this.
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

    def _live(self, frames: Sequence[FeedEvent]) -> Sequence[OutgoingMessage] | None:
        if not frames:
            return None
        items = []
        for frame in frames:
            self._at = frame.sequence
            if frame.workflow_id != self._owner or frame.workflow_sequence is None:
                continue
            if frame.workflow_sequence <= self._number:  # it came from the store
                continue
            if frame.workflow_sequence > self._number + 1:  # the feed began later, or begins anew: the store has it
                self._at = None
                break
            self._number = frame.workflow_sequence
            if frame.type in self._types:
                items.append(OutgoingMessage(self._number, event_message(self._number, self._owner, frame.body)))
        return items


async def subscribe(
    hub: Hub, workflow_id: str | None, number: int | None, types: Collection[str], wake: Callable[[], None]
) -> tuple[LiveSubscription, SubscriptionReset | None]:
    """A subscription behind a number: None is now, 0 everything there is.

    With it comes what the client has to be told at once: that its number is none of this feed or workflow. Raises
    :class:`kingdom.web.envelope.ApiError` for a workflow that does not exist.
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
