"""A relay that is killed at a step. For a process of its own: it kills itself, or ends.

A step is the moment before or after a call to the database or to Kafka.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from kingdom.bus import Relay, connect

_STEPS = ("share", "read", "send", "mark", "fail", "leave", "publish", "commit", "claim", "settle")


class Killing:
    """Passes calls on, and kills the process at the step whose number is given."""

    def __init__(self, inner: Any, count: list[int]) -> None:
        self._inner = inner
        self._count = count

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in _STEPS:
            return found

        async def stepped(*args: Any, **kwargs: Any) -> Any:
            self._step()
            result = await found(*args, **kwargs)
            self._step()
            return result

        return stepped

    def _step(self) -> None:
        if self._count[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._count[0] -= 1


def run(source: str, target: str, stream: str, step: int) -> None:
    asyncio.run(_run(source, target, stream, step))


async def _run(source: str, target: str, stream: str, step: int) -> None:
    count = [step]
    async with connect(source) as outbox, connect(target) as kafka:
        relay = Relay(outbox, kafka, [stream], batch=8, signals=False)
        relay._outbox = Killing(relay._outbox, count)
        sender = await relay._target.relay_sender(None)

        async def killing_sender(router: object) -> Any:
            return Killing(sender, count)

        relay._target.relay_sender = killing_sender  # type: ignore[method-assign]
        await relay.run(once=True)
