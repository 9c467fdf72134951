from __future__ import annotations

import asyncio

from kingdom.bus import Delivery, Envelope
from kingdom.bus.worker_loops import HeldDeliveries


def deliveries(count: int) -> list[Delivery]:
    return [Delivery("s", Envelope("A"), 1, f"token-{number}", "w") for number in range(count)]


async def test_deliveries_are_taken_in_the_order_they_were_claimed() -> None:
    held, several = HeldDeliveries(), deliveries(3)
    held.add(several[:1])
    held.add(several[1:])
    assert [await held.take() for _ in several] == several
    assert held.running == set(several)
    assert held.unfinished == 3
    assert held.leased == set(several)


async def test_who_waits_for_a_delivery_gets_it() -> None:
    held, several = HeldDeliveries(), deliveries(3)
    takers = [asyncio.create_task(held.take()) for _ in range(3)]
    await asyncio.sleep(0)
    held.add(several)
    assert await asyncio.gather(*takers) == several


async def test_a_cancelled_taker_hands_its_turn_on() -> None:
    held, [only] = HeldDeliveries(), deliveries(1)
    first, second = asyncio.create_task(held.take()), asyncio.create_task(held.take())
    await asyncio.sleep(0)
    held.add([only])  # wakes the first
    first.cancel()
    assert await second is only


async def test_a_cancelled_taker_is_passed_over() -> None:
    held, [only] = HeldDeliveries(), deliveries(1)
    first, second = asyncio.create_task(held.take()), asyncio.create_task(held.take())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    held.add([only])
    assert await second is only


async def test_what_was_not_started_can_be_taken_back() -> None:
    held, several = HeldDeliveries(), deliveries(3)
    held.add(several)
    started = await held.take()
    assert held.drop_waiting() == several[1:]
    assert (held.leased, held.running, held.unfinished) == ({started}, {started}, 1)


async def test_a_lost_delivery_is_not_started_and_no_longer_renewed() -> None:
    held, several = HeldDeliveries(), deliveries(4)
    held.add(several)
    started = await held.take()
    held.forget([started, several[2]])
    assert list(held.waiting) == [several[1], several[3]]
    assert held.leased == {several[1], several[3]}
    assert held.running == {started}  # its handler cannot be undone; its verdict will be refused
