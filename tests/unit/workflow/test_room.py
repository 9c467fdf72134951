"""Room for agents: how many run at once, and who is next."""

from __future__ import annotations

import asyncio

import pytest

from kingdom.workflow.adapters.slots import (
    LEASE_VARIABLE,
    SLOTS_VARIABLE,
    AgentSlots,
    InvalidSetting,
    agent_slots_from,
    lease_seconds_from,
)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_comes_when_all_places_are_taken_waits_and_the_first_to_wait_is_the_next() -> None:
    room, order = AgentSlots(2), []

    async def come(name: str) -> None:
        await room.enter()
        order.append(name)

    tasks = [asyncio.create_task(come(name)) for name in "abcd"]
    await settle()
    assert order == ["a", "b"]
    room.leave()
    await settle()
    assert order == ["a", "b", "c"]
    room.leave()
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c", "d"]


async def test_who_gives_up_waiting_keeps_nobody_from_a_place() -> None:
    room = AgentSlots(1)
    await room.enter()
    first, second = (asyncio.create_task(room.enter()) for _ in range(2))
    await settle()
    first.cancel()
    room.leave()
    await asyncio.wait_for(second, 5)
    room.leave()
    await asyncio.wait_for(room.enter(), 5)


async def test_a_place_that_was_given_to_somebody_who_gave_up_goes_to_the_next() -> None:
    room = AgentSlots(1)
    await room.enter()
    first, second = (asyncio.create_task(room.enter()) for _ in range(2))
    await settle()
    room.leave()
    first.cancel()
    await asyncio.wait_for(second, 5)
    assert first.cancelled() or first.done()


async def test_who_runs_already_counts_even_where_there_is_no_room() -> None:
    room = AgentSlots(1)
    room.enter_over_limit()
    room.enter_over_limit()
    waiting = asyncio.create_task(room.enter())
    room.leave()
    await settle()
    assert not waiting.done()
    room.leave()
    await asyncio.wait_for(waiting, 5)


def test_the_environment_says_how_many_there_are() -> None:
    assert (agent_slots_from({}), agent_slots_from({SLOTS_VARIABLE: "3"})) == (8, 3)
    for word in ("0", "-1", "many", "1.5"):
        with pytest.raises(InvalidSetting, match="agents that may run at once"):
            agent_slots_from({SLOTS_VARIABLE: word})


def test_the_length_of_a_lease_is_a_setting() -> None:
    assert (lease_seconds_from({}), lease_seconds_from({LEASE_VARIABLE: "5"})) == (60.0, 5.0)
    for word in ("0", "1", "-3", "1.5", "soon"):
        with pytest.raises(InvalidSetting, match="2 or more, such as 60"):
            lease_seconds_from({LEASE_VARIABLE: word})
