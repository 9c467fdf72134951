"""A busy day of GitHub, Jira and Slack in short; ``python -m tests.chaos --only day`` is the whole of it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.chaos.day import BusyDay, Size
from tests.chaos.processes import Violation


@pytest.mark.timeout(300)
async def test_a_busy_day_is_told_exactly_and_asks_no_more_than_it_has_to(tmp_path: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.randrange(1_000_000))
    size = Size().part(20)
    try:
        tally = await BusyDay(tmp_path / "home", seed, size).run()
    except Violation as violation:
        pytest.fail(f"seed {seed}: {violation}")
    print(tally)
    assert tally.events > size.notifications
    # A look at each list a minute; for each notification a subject, its story, its comments, and the note "read".
    assert tally.requests["GitHub"] < 2 * size.minutes + 5 * size.notifications
    assert tally.requests["Jira"] < 2 * size.minutes + size.changes


def test_tickets_that_are_moved_in_the_same_minute_stay_apart(tmp_path: Path) -> None:
    day = BusyDay(tmp_path / "home", seed=1)
    for number in range(3):
        day.jira.create(f"SHOP-{number}")
    day._troubles = {5: ["move"] * 8}
    day._trouble(5)
    assert len(day.jira.issues) == 3
    assert len(day.expected) == 8
