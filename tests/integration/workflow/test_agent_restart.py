"""The agents of works after a restart: found again, told once, sent again where they died with their engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.workflow.domain.events import AgentStopped
from kingdom.workflow.store import StoreError
from tests.support.agents import let_go
from tests.support.workflow_ground import DONE, STARTED, WORK, Office, answered, of, open_office, task

WAITING = """
    tell(began={"session_id": "s-1"})
    tell(text="I am here")
    subprocess.Popen(["sleep", "60"], start_new_session=True)
    time.sleep(60)
"""


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with open_office(tmp_path) as opened:
        yield opened


async def test_a_run_that_lives_is_found_again_and_not_begun_twice(office: Office) -> None:
    gate = office.barracks.fifo()
    source = f"tell(text='I am here'); wait_at({str(gate)!r}); tell(finished={{'ok': True, 'text': 'once'}})"
    work = await office.hire("telling", office.telling(source), task())
    await office.ask(work)
    await office.heard_text()
    await office.client.close()
    office.restart()
    await office.client.recover([work])
    await office.ask(work)
    await asyncio.to_thread(let_go, gate)
    assert await office.hear() == answered("once")
    assert office.runs() == [f"{WORK}.task-1.1"]


async def test_a_run_that_ended_meanwhile_is_told_once(office: Office) -> None:
    gate, marker = office.barracks.fifo(), office.folder / "ended"
    source = (
        f"wait_at({str(gate)!r}); tell(finished={{'ok': True, 'text': 'once'}}); open({str(marker)!r}, 'w').close()"
    )
    work = await office.hire("telling", office.telling(source), task())
    await office.ask(work)
    await office.left("identity.json")
    await office.client.close()
    await asyncio.to_thread(let_go, gate)
    await office.left("exit.json")
    for _ in range(2):
        office.restart()
        work = await office.work()
        await office.client.recover([work])
        await office.ask(work)
        assert await office.hear() == answered("once")
        await office.quiet()
        await office.client.close()
    assert office.runs() == [f"{WORK}.task-1.1"]


async def test_a_run_that_died_with_its_engine_is_sent_again(office: Office) -> None:
    work = await office.hire("scripted", {"script": [{"say": "begun"}, {"wait": 60}]}, task())
    await office.ask(work)
    await office.heard_text("begun")
    await office.client.close()
    office.restart()
    work.engine_options = {"script": DONE}
    await office.client.recover([work])
    await asyncio.sleep(0.05)
    assert await office.told() == [], "it waits to be told what to ask"
    await office.ask(work)
    assert await office.hear() == answered()
    assert office.runs() == [f"{WORK}.task-1.1", f"{WORK}.task-1.1.2"]


async def test_a_query_that_brings_every_engine_down_fails_in_the_end(office: Office) -> None:
    work = await office.hire("scripted", {"script": [{"say": "begun"}, {"wait": 60}]}, task())
    for _ in range(4):
        await office.client.recover([work])
        await office.ask(work)
        office.heard.clear()
        await office.heard_text("begun")
        await office.client.close()
        office.restart()
    await office.client.recover([work])
    await office.ask(work)
    ((kind, payload),) = await office.hear()
    assert kind == "QueryFailed"
    assert str(payload["error"]).startswith("killed: it ended and nobody saw how")
    assert len(office.runs()) == 4


async def test_a_query_that_was_never_begun_is_begun_now(office: Office) -> None:
    work = await office.hire("scripted", {"script": DONE}, task())
    await office.client.recover([work])
    assert office.runs() == []
    await office.ask(work)
    assert await office.hear() == answered()


async def test_another_engine_stops_what_the_former_one_began(office: Office) -> None:
    work = await office.hire("telling", office.telling(WAITING), task())
    await office.ask(work)
    await office.heard_text()
    await office.client.close()
    assert office.alive()
    office.restart()
    await office.client.stop(WORK)
    assert office.alive() == set()
    assert await office.hear() == of(AgentStopped(WORK))


async def test_an_outage_of_the_store_loses_nothing(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    work = await office.hire("scripted", {"script": DONE}, task(), starting=True)
    await office.client.start(work)
    real, failures = office.store.transaction, iter(range(2))

    def failing() -> Any:
        if next(failures, None) is not None:
            raise StoreError("the disk is full")
        return real()

    monkeypatch.setattr(office.store, "transaction", failing)
    await office.ask(work)
    assert await office.hear(3) == [*STARTED, *answered()]
    await office.quiet()
    assert len(await office.told()) == 3
