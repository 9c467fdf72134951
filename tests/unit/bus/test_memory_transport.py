"""What is the memory transport's own; its promises are those of the conformance suite."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kingdom.bus import Envelope, connect, publish_sync
from kingdom.bus.errors import NotSetUp


async def test_a_store_without_a_name_is_private_and_a_named_one_shared() -> None:
    async with connect("memory:") as one, connect("memory:") as other:
        await one.setup()
        with pytest.raises(NotSetUp, match="setup"):
            await other.depth()
    async with connect("memory:shared-by-test") as one, connect("memory:shared-by-test") as other:
        await one.setup()
        await one.publish("s", Envelope(type="T", event_id="a"))
        assert [item.event_id for item in await other.claim("s", worker="w")] == ["a"]


async def test_a_publish_from_another_thread_wakes_the_subscriber_in_its_own_loop() -> None:
    async with connect("memory:threads-of-test") as bus:
        await bus.setup()
        awake, seen = asyncio.Event(), []

        def wake() -> None:
            seen.append(threading.current_thread())
            awake.set()

        undo = bus.subscribe("s", wake)
        await asyncio.to_thread(publish_sync, "s", Envelope(type="T"), url="memory:threads-of-test")
        async with asyncio.timeout(10):
            await awake.wait()
        undo()
        undo()
    assert set(seen) == {threading.current_thread()}


async def test_what_is_delivered_is_a_copy() -> None:
    payload = {"items": [1]}
    async with connect("memory:") as bus:
        await bus.setup()
        await bus.publish("s", Envelope(type="T", payload=payload))
        payload["items"].append(2)
        (first,) = await bus.claim("s", worker="w")
        first.envelope.payload["items"].append(3)
        await bus.release([first])
        (second,) = await bus.claim("s", worker="w")
    assert second.envelope.payload == {"items": [1]}


async def test_the_doctor_says_that_nothing_is_durable() -> None:
    async with connect("memory:") as bus:
        assert [check.level for check in await bus.doctor()] == ["warning"]
