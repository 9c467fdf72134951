"""Settings of an engine in the environment: how many agents run at once, and how long its lease lasts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Final

from kingdom.workflow.errors import WorkflowError
from kingdom.workflow.store.holds import DEFAULT_LEASE_SECONDS

SLOTS_VARIABLE: Final = "KINGDOM_WORKFLOW_AGENTS"
LEASE_VARIABLE: Final = "KINGDOM_WORKFLOW_LEASE"
_MIN_LEASE_SECONDS: Final = 2
_DEFAULT_SLOTS: Final = 8  # an agent takes some hundred MiB and, at times, a core


class InvalidSetting(WorkflowError):
    """An invalid value of an environment variable."""

    code = "USR_SETTING"


class AgentSlots:
    """Limits how many agents run at once; others wait in order."""

    def __init__(self, slots: int = _DEFAULT_SLOTS) -> None:
        self._free = slots
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Wait for a slot and take it."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # it was granted while we were cancelled
            else:
                self._waiting.remove(turn)
            raise

    def enter_over_limit(self) -> None:
        """Take a slot even if none is free: for an agent that runs already."""
        self._free -= 1

    def leave(self) -> None:
        """Release a slot."""
        self._free += 1
        while self._free > 0 and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                self._free -= 1
                turn.set_result(None)


def agent_slots_from(environ: Mapping[str, str]) -> int:
    """Return how many agents may run at once; raise :class:`InvalidSetting`."""
    word = environ.get(SLOTS_VARIABLE, "")
    if not word:
        return _DEFAULT_SLOTS
    if not word.isdecimal() or int(word) < 1:
        raise InvalidSetting(
            f"{SLOTS_VARIABLE}={word!r:.40} is invalid: set the number of agents that may run at once, such as 8"
        )
    return int(word)


def lease_seconds_from(environ: Mapping[str, str]) -> float:
    """Return how long the lease of an engine lasts that shares its store; raise :class:`InvalidSetting`."""
    word = environ.get(LEASE_VARIABLE, "")
    if not word:
        return DEFAULT_LEASE_SECONDS
    if not word.isdecimal() or int(word) < _MIN_LEASE_SECONDS:
        raise InvalidSetting(
            f"{LEASE_VARIABLE}={word!r:.40} is invalid: set the seconds, {_MIN_LEASE_SECONDS} or more, such as 60"
        )
    return float(word)
