"""A mirror that is killed at a step: ``python -m tests.support.mirror_victim SOURCE TOPIC TARGET STREAM STEP``.

Prints "done" if it comes to an end before.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from kingdom.bus import Mirror, connect
from kingdom.bus.transports.kafka import _mirror
from tests.support.relay_victim import Killing


async def main(source: str, topic: str, target: str, stream: str, step: int) -> None:
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
    print("done")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5])))
