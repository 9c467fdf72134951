"""The port between the envoy and the place where people are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from kingdom.court.models import Message


class Voice(Protocol):
    """Says messages to people."""

    async def say(self, message: Message) -> None:
        """Say it. Returns once it is out; raises when it could not be said, and it is tried again later."""

    async def said(self, message_id: str) -> bool:
        """Whether a message is known to be out: asked for those that a former process may have said already."""


class Ears(Protocol):
    """Hears what people answer."""

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Begin to listen; ``wake`` is called when there is something. Returns the undo."""

    async def pass_on(self) -> None:
        """Turn what was heard into events, durably."""
