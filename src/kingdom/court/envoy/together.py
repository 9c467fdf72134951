"""Several places at once: each message is said in all of them, and answers come from any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kingdom.court.envoy.port import Ears, Voice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kingdom.court.models import Message


class Voices(Voice):
    """A message is said by all of them. The first sets the pace and the order."""

    def __init__(self, first: Voice, *others: Voice) -> None:
        self._first = first
        self._all = (first, *others)

    async def say(self, message: Message) -> None:
        """Say it wherever it was not said before: a voice that failed does not make the others repeat themselves."""
        for voice in self._all:
            if not await voice.said(message.id):
                await voice.say(message)

    async def said(self, message_id: str) -> bool:
        """Whether all have said it."""
        return all([await voice.said(message_id) for voice in self._all])

    def lane(self, message: Message) -> str:
        """The lane of the first."""
        return self._first.lane(message)

    def turn(self, message: Message) -> float:
        """The turn of the first."""
        return self._first.turn(message)

    async def tidy(self) -> None:
        """Each does what it has to do."""
        for voice in self._all:
            await voice.tidy()

    def report(self) -> Mapping[str, Any]:
        """What they tell, together."""
        return {key: value for voice in self._all for key, value in voice.report().items()}

    async def close(self) -> None:
        """All let go."""
        for voice in self._all:
            await voice.close()


class AllEars(Ears):
    """What any of them hears is passed on."""

    def __init__(self, *ears: Ears) -> None:
        self._all = ears

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Begin to listen everywhere."""
        undos = [ears.listen(wake) for ears in self._all]

        def undo() -> None:
            for one in undos:
                one()

        return undo

    async def pass_on(self) -> None:
        """Pass on what was heard anywhere."""
        for ears in self._all:
            await ears.pass_on()

    def report(self) -> Mapping[str, Any]:
        """What they tell, together."""
        return {key: value for ears in self._all for key, value in ears.report().items()}

    async def close(self) -> None:
        """All let go."""
        for ears in self._all:
            await ears.close()
