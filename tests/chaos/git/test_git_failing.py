"""A few of the points at which git fails; ``python -m tests.chaos --only git`` walks them all."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.chaos import strace
from tests.chaos.git.operations import OPERATIONS
from tests.chaos.git.walk import FAULTS, walk

pytestmark = [
    pytest.mark.walk,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not strace.available(), reason="strace is not installed"),
]
EVERY = 10  # points, for kills; the full campaign has them all


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_wherever_git_fails_the_next_try_comes_to_the_same_end(operation: str, fault: str, tmp_path: Path) -> None:
    every = EVERY if fault == "killed" else 3 * EVERY
    first = random.Random(os.environ.get("CHAOS_SEED")).randrange(EVERY)
    print(f"{operation}: every {every}th point from {first}")
    walked = walk(tmp_path, operation, fault, lambda number: number % every == first)
    print(walked)
    assert walked.met.total() >= 1
