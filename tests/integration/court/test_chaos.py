"""The campaign against a whole court in short, and what it found, each as the smallest story that shows it."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kingdom.court.general.reports import store_results, stored_result
from tests.chaos.court.campaign import CourtCampaign, queues_on
from tests.chaos.processes import Violation
from tests.support.generals import posted
from tests.support.kings import Realm, looks
from tests.support.stopping import StoppableBus, Stopped, Stopper, stoppable_files


@pytest.mark.walk
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("transport", "kills"), [("files", 8), ("postgresql", 3)])
def test_nothing_is_lost_or_done_twice_when_a_whole_court_is_killed_again_and_again(
    tmp_path: Path, transport: str, kills: int
) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.randrange(1_000_000))
    repeat = f"python -m tests.chaos --transport {transport} --only court --kills {kills} --seed {seed}"
    print(f"seed {seed}; repeat with: {repeat}")
    try:
        with queues_on(transport, tmp_path) as queues:
            tally = CourtCampaign(tmp_path, seed, queues=queues).run(kills)
    except Violation as violation:
        pytest.fail(f"seed {seed}: {violation}\nrepeat with: {repeat}")
    print(tally)
    assert tally.kills == kills
    assert tally.events > 10, "hardly anything was put in: the campaign attacked an idle court"


@pytest.fixture
async def realm(tmp_path: Path) -> AsyncIterator[Realm]:
    realm = Realm(tmp_path)
    realm.install()
    async with realm.open():
        yield realm


async def test_a_run_killed_together_with_the_king_is_tried_again_and_its_event_ends_well(realm: Realm) -> None:
    event_id = await realm.event()
    king = realm.king()
    await king.start()
    await looks(king)
    await king.stop()
    await realm.work(status="killed")

    king = realm.king()
    await king.start()
    await looks(king)  # his first look reads the result and also checks that no task is lost
    assert realm.where(event_id) == ("dispatched", "dispatched")
    (again,) = await realm.work()
    await looks(king)
    assert realm.where(event_id) == ("completed", "completed")
    assert again.event_id == event_id
    assert realm.said() == ["thread_start", "thread_update"]
    await king.stop()


async def test_a_king_killed_anywhere_leaves_each_line_in_the_journal_once(tmp_path: Path) -> None:
    point, stopped = 0, True
    while stopped:
        point += 1
        realm = Realm(tmp_path / str(point))
        realm.install()
        async with realm.open():
            await realm.event()
            stopper = Stopper(point)
            with stoppable_files(stopper):
                first = realm.king(bus=StoppableBus(realm.bus, stopper))
                try:
                    await first.start()
                    await looks(first)
                    await realm.work()
                    await looks(first)
                    stopped = False
                except Stopped:
                    stopped = True
            second = realm.king()
            await second.start()
            await looks(second)
            await realm.work()
            await looks(second)
            told = [(kind, str(fields)) for kind, fields in realm.journal()]
        assert len(told) == len(set(told)), f"stopped {stopper.trail[-1]}: {told}"
        assert {"event.dispatched", "task.created"} <= {kind for kind, _ in told}
    assert point > 10, "there were hardly any points to stop at"


async def test_a_result_that_is_closed_again_after_a_restart_is_in_the_journal_once(tmp_path: Path) -> None:
    async with posted(tmp_path) as post:
        task = await post.task()
        await post.finish(task)
        general = post.general()
        quarters = general._context
        result = stored_result(quarters, task.id)
        assert result is not None
        await store_results(quarters, result)
        await general.stop()
        journal = (post.home.logs / "events.log").read_text()
        assert journal.count('"task.completed"') == 1
        assert (post.home.logs / "tasks.log").read_text().count(task.id) == 1
