"""The interfaces between the envoy and its messengers, and implementations that combine several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kingdom.court.models import Message


# The ports between the envoy and the places where people are.
#
# A class that is one says so by deriving from it: what it has nothing to say about is done here.


class TryLater(Exception):
    """A message cannot be said at the moment, which is not its fault: it costs no attempt."""

    def __init__(self, after: float, why: str) -> None:
        super().__init__(why)
        self.after = after  # seconds


class MessageSender(Protocol):
    """Says messages to people."""

    async def send(self, message: Message) -> None:
        """Say it. Returns once it is out; raises when it could not be said, and it is tried again later.

        When it is only too early, or nobody can be reached at all, it raises :class:`NotNow`.
        """

    async def was_sent(self, message_id: str) -> bool:
        """Whether a message is known to be out: asked for those that a former attempt may have said already."""

    def ordering_key(self, message: Message) -> str:
        """Messages of one lane are said in their order: one that has to wait holds up those behind it."""
        return message.id

    def reserve_slot(self, message: Message) -> float:
        """Take the turn of a message: 0, or the seconds after which to ask again."""
        del message
        return 0.0

    async def maintain(self) -> None:
        """What is to be done now and then. Called on every look."""
        return

    def report(self) -> Mapping[str, Any]:
        """What the heartbeat tells about it."""
        return {}

    async def close(self) -> None:
        """Let go of everything."""
        return


class ReplyListener(Protocol):
    """Hears what people answer."""

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Begin to listen; ``wake`` is called when there is something. Returns the undo."""

    async def process_received(self) -> None:
        """Turn what was heard into events, durably."""

    def report(self) -> Mapping[str, Any]:
        """What the heartbeat tells about it."""
        return {}

    async def close(self) -> None:
        """Let go of everything."""
        return


# Several places at once: each message is said in all of them, and answers come from any.


class MultiSender(MessageSender):
    """A message is said by all of them. The first sets the pace and the order."""

    def __init__(self, first: MessageSender, *others: MessageSender) -> None:
        self._first = first
        self._all = (first, *others)

    async def send(self, message: Message) -> None:
        """Say it wherever it was not said before: a voice that failed does not make the others repeat themselves."""
        for sender in self._all:
            if not await sender.was_sent(message.id):
                await sender.send(message)

    async def was_sent(self, message_id: str) -> bool:
        """Whether all have said it."""
        return all([await sender.was_sent(message_id) for sender in self._all])

    def ordering_key(self, message: Message) -> str:
        """The lane of the first."""
        return self._first.ordering_key(message)

    def reserve_slot(self, message: Message) -> float:
        """The turn of the first."""
        return self._first.reserve_slot(message)

    async def maintain(self) -> None:
        """Each does what it has to do."""
        for sender in self._all:
            await sender.maintain()

    def report(self) -> Mapping[str, Any]:
        """What they tell, together."""
        return {key: value for sender in self._all for key, value in sender.report().items()}

    async def close(self) -> None:
        """All let go."""
        for sender in self._all:
            await sender.close()


class MultiListener(ReplyListener):
    """What any of them hears is passed on."""

    def __init__(self, *ears: ReplyListener) -> None:
        self._all = ears

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Begin to listen everywhere."""
        undos = [ears.listen(wake) for ears in self._all]

        def undo() -> None:
            for one in undos:
                one()

        return undo

    async def process_received(self) -> None:
        """Pass on what was heard anywhere."""
        for ears in self._all:
            await ears.process_received()

    def report(self) -> Mapping[str, Any]:
        """What they tell, together."""
        return {key: value for ears in self._all for key, value in ears.report().items()}

    async def close(self) -> None:
        """All let go."""
        for ears in self._all:
            await ears.close()
