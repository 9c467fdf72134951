"""The shortened campaign against the engine of workflows; ``python -m tests.chaos --only workflow`` is the full one."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.chaos.processes import Violation
from tests.chaos.workflow.campaign import WorkflowCampaign
from tests.chaos.workflow.stories import STORIES
from tests.chaos.workflow.walk import LIFE, Walker
from tests.chaos.zygote import Zygote

pytestmark = [pytest.mark.walk, pytest.mark.timeout(600)]
KILLS = 4
EVERY = 30  # points; the full campaign has them all


@pytest.mark.parametrize("story", STORIES)
def test_wherever_the_engine_is_killed_the_next_one_comes_to_the_same_end(story: str, tmp_path: Path) -> None:
    first = random.Random(os.environ.get("CHAOS_SEED")).randrange(EVERY)
    print(f"{story}: every {EVERY}th point from {first}")
    with Zygote(tmp_path, LIFE) as zygote:
        walked = Walker(tmp_path, zygote, story).walk(lambda number: number % EVERY == first)
    print(walked)
    assert walked.points.total() >= 2


def test_workflows_under_load_survive_kills_at_random_instants(tmp_path: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.randrange(1_000_000))
    repeat = f"python -m tests.chaos --only workflow --kills {KILLS} --seed {seed}"
    try:
        tally = WorkflowCampaign(tmp_path, seed).run(KILLS)
    except Violation as violation:
        pytest.fail(f"seed {seed}: {violation}\nrepeat with: {repeat}")
    print(tally)
    assert tally.kills == KILLS
    assert tally.workflows > len(STORIES)
