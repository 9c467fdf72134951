"""A mirror that is killed at a step. For a process of its own: it kills itself, or ends."""

from __future__ import annotations

import asyncio
from typing import Any

from kingdom.bus import Mirror, connect
from kingdom.bus.transports.kafka import _mirror
from tests.support.relay_victim import Killing


def run(source: str, topic: str, target: str, stream: str, step: int) -> None:
    asyncio.run(_run(source, topic, target, stream, step))


async def _run(source: str, topic: str, target: str, stream: str, step: int) -> None:
    count = [step]
    _mirror.SESSION_SECONDS = 1.0  # the next one does not wait long
    async with connect(source) as kafka, connect(target) as bus:
        mirror = Mirror(kafka, [topic], bus, stream, group=topic, batch=7, signals=False)
        follow = mirror._source.follow

        async def killing_follow(*arguments: Any) -> Any:
            return Killing(await follow(*arguments), count)

        mirror._source.follow = killing_follow  # type: ignore[method-assign]
        mirror._target = Killing(mirror._target, count)  # type: ignore[assignment]
        await mirror.run(once=True)
