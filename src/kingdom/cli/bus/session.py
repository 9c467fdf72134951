"""From a URL to an open bus for the length of one command."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from kingdom.cli.output import Failure

if TYPE_CHECKING:
    from kingdom.bus import BusError, EventBus

T = TypeVar("T")

_PATIENCE: Final = 5.0  # seconds to try a store that is away: somebody is waiting for the answer


def on_bus(url: str, action: Callable[[EventBus], Awaitable[T]]) -> T:
    """Run ``action`` with the bus at ``url``; an error of the bus becomes a :class:`Failure`."""
    import asyncio

    from kingdom.bus import BusError, connect

    async def run() -> T:
        async with connect(url, connect_timeout=_PATIENCE) as bus:
            return await action(bus)

    try:
        return asyncio.run(run())
    except BusError as error:
        raise failure_of(error) from error


def failure_of(error: BusError) -> Failure:
    """The failure that tells of a bus error; its code is the error's name, as ``NOT_SET_UP``."""
    return Failure(re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).upper(), str(error))
