"""The ports between the envoy and the places where people are.

A class that is one says so by deriving from it: what it has nothing to say about is done here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kingdom.court.models import Message


class NotNow(Exception):
    """A message cannot be said at the moment, which is not its fault: it costs no attempt."""

    def __init__(self, after: float, why: str) -> None:
        super().__init__(why)
        self.after = after  # seconds


class Voice(Protocol):
    """Says messages to people."""

    async def say(self, message: Message) -> None:
        """Say it. Returns once it is out; raises when it could not be said, and it is tried again later.

        When it is only too early, or nobody can be reached at all, it raises :class:`NotNow`.
        """

    async def said(self, message_id: str) -> bool:
        """Whether a message is known to be out: asked for those that a former attempt may have said already."""

    def lane(self, message: Message) -> str:
        """Messages of one lane are said in their order: one that has to wait holds up those behind it."""
        return message.id

    def turn(self, message: Message) -> float:
        """Take the turn of a message: 0, or the seconds after which to ask again."""
        del message
        return 0.0

    async def tidy(self) -> None:
        """What is to be done now and then. Called on every look."""
        return

    def report(self) -> Mapping[str, Any]:
        """What the heartbeat tells about it."""
        return {}

    async def close(self) -> None:
        """Let go of everything."""
        return


class Ears(Protocol):
    """Hears what people answer."""

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Begin to listen; ``wake`` is called when there is something. Returns the undo."""

    async def pass_on(self) -> None:
        """Turn what was heard into events, durably."""

    def report(self) -> Mapping[str, Any]:
        """What the heartbeat tells about it."""
        return {}

    async def close(self) -> None:
        """Let go of everything."""
        return
