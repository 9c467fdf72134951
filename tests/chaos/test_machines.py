"""The shortened campaign against machines; ``python -m tests.chaos --only machines`` runs the full ones."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest

from tests.chaos.processes import Violation
from tests.chaos.workflow.machines import MachinesCampaign
from tests.support.namespaces import why_not_possible

pytestmark = [pytest.mark.walk, pytest.mark.timeout(600)]
FAULTS = 8


def test_workflows_go_on_whatever_happens_to_the_machines_that_run_them() -> None:
    if (reason := why_not_possible()) is not None:
        pytest.skip(reason)
    seed = int(os.environ.get("CHAOS_SEED") or random.randrange(1_000_000))
    # Not below pytest's own folder: PostgreSQL runs as a user of its own when we are root.
    with tempfile.TemporaryDirectory(prefix="kingdom-chaos-") as folder:
        Path(folder).chmod(0o755)
        try:
            tally = MachinesCampaign(Path(folder), seed).run(FAULTS)
        except Violation as violation:
            repeat = f"python -m tests.chaos --only machines --kills {FAULTS} --seed {seed}"
            pytest.fail(f"seed {seed}: {violation}\nrepeat with: {repeat}")
    print(tally)
    assert tally.faults.total() == FAULTS
