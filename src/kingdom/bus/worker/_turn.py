"""How long handlers may keep the event loop to themselves."""

from __future__ import annotations

import asyncio
from typing import Final

_LONGEST: Final = 32  # events


class Turn:
    """Counts the events that end while the loop comes to nothing else.

    Handlers that never wait for anything would go through a whole batch in one step of the loop. The next claim would
    be sent when they are through with it rather than while they are at it, and whoever else is in the loop would wait.
    """

    def __init__(self) -> None:
        self._ended = 0

    def is_over(self) -> bool:
        """Count one event; whether whoever handled it should let others run now."""
        if not self._ended:
            asyncio.get_running_loop().call_soon(self._begin)
        self._ended += 1
        return self._ended >= _LONGEST

    def _begin(self) -> None:
        self._ended = 0
