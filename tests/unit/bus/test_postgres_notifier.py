"""When other processes are told of new events: by the publishes themselves, as far as they go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from kingdom.bus.transports.postgresql._publisher import Notifier

STREAM = "orders"


class Wire:
    """Connections that remember what was sent over them."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._something = asyncio.Event()

    async def heard(self) -> None:
        """Wait until something was sent."""
        async with asyncio.timeout(10):
            await self._something.wait()

    async def use(self, work: Callable[[Any], Awaitable[Any]]) -> None:
        await work(self)

    async def execute(self, sql: str, channel: str, stream: str) -> None:
        self.told.append(stream)
        self._something.set()


def notifier() -> tuple[Notifier, Wire]:
    wire = Wire()
    return Notifier(wire), wire  # type: ignore[arg-type]


async def test_the_first_publish_carries_the_notification_and_owes_nothing() -> None:
    notifications, wire = notifier()
    assert notifications.collect(STREAM, time.monotonic()) is False
    await notifications.close()
    assert wire.told == []


async def test_what_no_publish_came_after_is_told_by_a_timer() -> None:
    notifications, wire = notifier()
    assert notifications.collect(STREAM, time.monotonic()) is False
    assert notifications.collect(STREAM, time.monotonic()) is None  # too soon
    notifications.owe(STREAM)
    await wire.heard()
    await notifications.close()
    assert wire.told == [STREAM]


async def test_the_next_publish_in_time_takes_what_is_owed_upon_itself() -> None:
    notifications, wire = notifier()
    notifications.owe(STREAM)
    assert notifications.collect(STREAM, time.monotonic()) is True
    await notifications.close()
    assert wire.told == []


async def test_a_debt_given_back_is_paid() -> None:
    notifications, wire = notifier()
    notifications.owe(STREAM)
    assert notifications.collect(STREAM, time.monotonic()) is True
    notifications.owe(STREAM)  # the publish that should have carried it failed
    await wire.heard()
    await notifications.close()
    assert wire.told == [STREAM]


async def test_other_news_is_told_at_once_and_what_is_owed_at_the_end() -> None:
    notifications, wire = notifier()
    notifications.tell(STREAM)
    await wire.heard()
    notifications.owe("payments")
    await notifications.close()
    assert wire.told == [STREAM, "payments"]
