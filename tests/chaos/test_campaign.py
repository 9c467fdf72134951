"""The shortened crash campaign; ``make chaos`` runs the full one."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.chaos.engine import Campaign
from tests.chaos.grounds import CAMPAIGNS, KAFKA, KafkaGround, grounds
from tests.chaos.processes import Violation

pytestmark = [pytest.mark.walk, pytest.mark.timeout(600)]
KILLS = 8


@pytest.mark.parametrize("transport", CAMPAIGNS)
def test_nothing_is_lost_when_processes_are_killed_at_random_instants(transport: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.randrange(1_000_000))
    only = "--only kafka" if transport in KAFKA else f"--transport {transport} --only campaign"
    repeat = f"python -m tests.chaos {only} --kills {KILLS} --seed {seed}"
    print(f"seed {seed}; repeat with: {repeat}")
    with grounds(transport, tmp_path) as ground:
        try:
            tally = Campaign(ground, tmp_path, seed).run(KILLS)
        except Violation as violation:
            pytest.fail(f"seed {seed}: {violation}\nrepeat with: {repeat}")
    print(tally)
    assert tally.kills == KILLS
    assert tally.pauses == 2
    assert tally.crashes == (1 if transport in ("postgresql", *KAFKA) else 0)
    assert tally.full_disks == (isinstance(ground, KafkaGround) and ground.has_disks)
    assert tally.events > 50, "hardly anything was published: the campaign attacked an idle bus"
