"""Room for agents: so many run at the same time, the others wait their turn."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from kingdom.workflow.domain.errors import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE: Final = "KINGDOM_WORKFLOW_AGENTS"
_USUAL: Final = 8  # an agent takes some hundred MiB and, now and then, a core


class InvalidSetting(WorkflowError):
    """A setting that makes no sense."""

    code = "USR_SETTING"


class Room:
    """Places for agents, given in the order they were asked for."""

    def __init__(self, places: int = _USUAL) -> None:
        self._free = places
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Wait for a place."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # it was given while we gave up
            else:
                self._waiting.remove(turn)
            raise

    def enter_anyway(self) -> None:
        """Take a place whether there is one or not: for an agent that runs already."""
        self._free -= 1

    def leave(self) -> None:
        """Give a place back."""
        self._free += 1
        while self._free > 0 and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                self._free -= 1
                turn.set_result(None)


def places_of(environ: Mapping[str, str]) -> int:
    """How many agents may run at once, as the environment says; raises :class:`InvalidSetting`."""
    word = environ.get(VARIABLE, "")
    if not word:
        return _USUAL
    if not word.isdecimal() or int(word) < 1:
        raise InvalidSetting(f"{VARIABLE}={word!r:.40} makes no sense: how many agents may run at once, such as 8")
    return int(word)
