"""Hours without git host, engine, model and disk; ``python -m tests.chaos --only outage`` is the long form."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.chaos.outage import run_outages
from tests.chaos.processes import Violation


def seed() -> int:
    return int(os.environ.get("CHAOS_SEED") or random.randrange(1_000_000))


@pytest.mark.timeout(300)
@pytest.mark.walk
@pytest.mark.parametrize("hours", [0.5, 6])
async def test_what_was_away_for_hours_fails_no_event_and_is_told_once(tmp_path: Path, hours: float) -> None:
    chosen = seed()
    try:
        tally = await run_outages(tmp_path, chosen, hours)
    except Violation as violation:
        pytest.fail(f"seed {chosen}: {violation}")
    print(tally)
    assert tally.events >= 4 * hours
    assert tally.soldiers > tally.events, "the model was asked in vain"
