"""What the campaign against a whole court found, each as the smallest story that shows it, and the campaign in short."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.kings import Realm, looks


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
