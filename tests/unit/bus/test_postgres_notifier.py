"""When other processes are told of new events: by the publishes themselves, as far as they go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kingdom.bus.transports.postgresql._publisher import Notice, Notifier

STREAM = "orders"
PLACED, PAID = frozenset({"OrderPlaced"}), frozenset({"OrderPaid"})
TOLD = "orders\tOrderPlaced"


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
    assert notifications.collect(STREAM, PLACED, time.monotonic()) == Notice(TOLD, frozenset())
    await notifications.close()
    assert wire.told == []


async def test_what_no_publish_came_after_is_told_by_a_timer() -> None:
    notifications, wire = notifier()
    assert notifications.collect(STREAM, PLACED, time.monotonic()) == Notice(TOLD, frozenset())
    assert notifications.collect(STREAM, PLACED, time.monotonic()) is None  # too soon
    notifications.owe(STREAM, PLACED)
    await wire.heard()
    await notifications.close()
    assert wire.told == [TOLD]


async def test_the_next_publish_in_time_takes_what_is_owed_upon_itself() -> None:
    notifications, wire = notifier()
    notifications.owe(STREAM, PLACED)
    assert notifications.collect(STREAM, PAID, time.monotonic()) == Notice("orders\tOrderPaid\tOrderPlaced", PLACED)
    await notifications.close()
    assert wire.told == []


async def test_a_debt_given_back_is_paid() -> None:
    notifications, wire = notifier()
    notifications.owe(STREAM, PLACED)
    assert notifications.collect(STREAM, PAID, time.monotonic()) == Notice("orders\tOrderPaid\tOrderPlaced", PLACED)
    notifications.owe(STREAM, PLACED)  # the publish that should have carried it failed
    await wire.heard()
    await notifications.close()
    assert wire.told == [TOLD]


async def test_other_news_is_told_at_once_and_what_is_owed_at_the_end() -> None:
    notifications, wire = notifier()
    notifications.tell(STREAM)
    await wire.heard()
    notifications.owe("payments", None)
    await notifications.close()
    assert wire.told == [STREAM, "payments"]


@pytest.mark.parametrize(
    ("number", "length", "named"), [(100, 20, True), (41, 190, True), (42, 190, False), (500, 1, True), (501, 1, False)]
)
async def test_types_are_named_if_they_fit(number: int, length: int, named: bool) -> None:
    notifications, _ = notifier()
    many = frozenset(f"Order{one}".ljust(length, "x") for one in range(number))
    payload = "\t".join([STREAM, *sorted(many)]) if named else STREAM
    assert notifications.collect(STREAM, many, time.monotonic()) == Notice(payload, frozenset())
    assert len(payload) < 8000


async def test_a_notification_of_any_type_names_none() -> None:
    notifications, wire = notifier()
    notifications.owe(STREAM, PLACED)
    notifications.tell(STREAM)
    await notifications.close()
    assert wire.told == [STREAM]


async def test_a_type_with_the_separator_in_it_is_not_named() -> None:
    notifications, _ = notifier()
    assert notifications.collect(STREAM, frozenset({"a\tb"}), time.monotonic()) == Notice(STREAM, frozenset())
