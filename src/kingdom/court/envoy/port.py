"""The interfaces to the places where people read and reply, and implementations that combine several.

Implementations derive from these protocols and inherit the defaults of the methods that they do not need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kingdom.court.models import Message


class TryLater(Exception):
    """A message cannot be sent at the moment, for reasons outside the message. It does not count as an attempt."""

    def __init__(self, after: float, why: str) -> None:
        super().__init__(why)
        self.after = after  # seconds


class MessageSender(Protocol):
    """Sends messages to people."""

    async def send(self, message: Message) -> None:
        """Send a message. Returns when it is sent; if it raises, the message is tried again later.

        Raises :class:`TryLater` if it is too early, or if the service cannot be reached at all.
        """

    async def was_sent(self, message_id: str) -> bool:
        """Return whether a message is known to be sent. Called if a former attempt may have sent it."""

    def ordering_key(self, message: Message) -> str:
        """Return the ordering key: messages with the same key are sent in order, so one that waits blocks the rest."""
        return message.id

    def reserve_slot(self, message: Message) -> float:
        """Reserve the right to send now; return 0, or the seconds after which to ask again."""
        del message
        return 0.0

    async def maintain(self) -> None:
        """Do periodic work. Called on every tick."""
        return

    def report(self) -> Mapping[str, Any]:
        """Return this sender's part of the heartbeat."""
        return {}

    async def close(self) -> None:
        return


class ReplyListener(Protocol):
    """Receives what people write."""

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Start to listen, and call ``wake`` when something was received. Returns a function that stops it."""

    async def process_received(self) -> None:
        """Turn what was received into events, durably."""

    def report(self) -> Mapping[str, Any]:
        """Return this listener's part of the heartbeat."""
        return {}

    async def close(self) -> None:
        return


class MultiSender(MessageSender):
    """Sends each message with all senders. The first one decides on rate and order."""

    def __init__(self, first: MessageSender, *others: MessageSender) -> None:
        self._first = first
        self._all = (first, *others)

    async def send(self, message: Message) -> None:
        """Send it with each sender that has not sent it yet: if one failed before, the others do not repeat it."""
        for sender in self._all:
            if not await sender.was_sent(message.id):
                await sender.send(message)

    async def was_sent(self, message_id: str) -> bool:
        return all([await sender.was_sent(message_id) for sender in self._all])

    def ordering_key(self, message: Message) -> str:
        return self._first.ordering_key(message)

    def reserve_slot(self, message: Message) -> float:
        return self._first.reserve_slot(message)

    async def maintain(self) -> None:
        for sender in self._all:
            await sender.maintain()

    def report(self) -> Mapping[str, Any]:
        return {key: value for sender in self._all for key, value in sender.report().items()}

    async def close(self) -> None:
        for sender in self._all:
            await sender.close()


class MultiListener(ReplyListener):
    """Listens with several listeners at once."""

    def __init__(self, *listeners: ReplyListener) -> None:
        self._all = listeners

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        stops = [listener.listen(wake) for listener in self._all]

        def undo() -> None:
            for one in stops:
                one()

        return undo

    async def process_received(self) -> None:
        for listener in self._all:
            await listener.process_received()

    def report(self) -> Mapping[str, Any]:
        return {key: value for listener in self._all for key, value in listener.report().items()}

    async def close(self) -> None:
        for listener in self._all:
            await listener.close()
