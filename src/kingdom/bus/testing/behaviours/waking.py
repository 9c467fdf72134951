"""Waking up: a hint that saves the wait for the next poll."""
# ruff: noqa: D102 - the names of the tests are the documentation

from __future__ import annotations

import asyncio
import contextlib

import pytest

from kingdom.bus.eventbus import EventBus
from kingdom.bus.testing.behaviours.base import Behaviours, event
from kingdom.bus.testing.harness import Harness


class Waking(Behaviours):
    """``subscribe``."""

    async def test_publishing_wakes_who_waits_on_the_same_bus(self, harness: Harness, stream: str) -> None:
        await _must_wake(harness, harness.bus, harness.bus, stream)

    async def test_publishing_wakes_who_waits_on_another_bus(self, harness: Harness, stream: str) -> None:
        await _must_wake(harness, await harness.open(), harness.bus, stream)

    async def test_every_subscriber_of_a_stream_is_woken(self, harness: Harness, stream: str) -> None:
        _needs_wakes(harness)
        first, second = asyncio.Event(), asyncio.Event()
        undo = harness.bus.subscribe(stream, first.set), harness.bus.subscribe(stream, second.set)
        assert await _woken_by_publishing(harness.bus, stream, first)
        assert await _woken_by_publishing(harness.bus, stream, second)
        for unsubscribe in undo:
            unsubscribe()

    async def test_unsubscribing_one_leaves_the_others_subscribed(self, harness: Harness, stream: str) -> None:
        _needs_wakes(harness)
        woken = asyncio.Event()
        harness.bus.subscribe(stream, lambda: None)()
        keep = harness.bus.subscribe(stream, woken.set)
        harness.bus.subscribe(stream, lambda: None)()
        assert await _woken_by_publishing(harness.bus, stream, woken)
        keep()

    async def test_a_bus_that_is_closed_wakes_nobody_and_harms_nobody(self, harness: Harness, stream: str) -> None:
        other = await harness.open()
        woken = asyncio.Event()
        undo = other.subscribe(stream, woken.set)
        await other.close()
        woken.clear()
        await harness.bus.publish(stream, event())
        undo()
        assert not woken.is_set()


async def _must_wake(harness: Harness, subscriber: EventBus, publisher: EventBus, stream: str) -> None:
    _needs_wakes(harness)
    woken = asyncio.Event()
    undo = subscriber.subscribe(stream, woken.set)
    assert await _woken_by_publishing(publisher, stream, woken), "publishing woke nobody in ten seconds"
    undo()


async def _woken_by_publishing(publisher: EventBus, stream: str, woken: asyncio.Event) -> bool:
    """Publish until it wakes: a subscription may take a moment to be known to the store."""
    for _ in range(10):
        await publisher.publish(stream, event())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await woken.wait()
                return True
    return False


def _needs_wakes(harness: Harness) -> None:
    if not harness.wakes:
        pytest.skip("this transport has no wake-ups: its workers poll")
