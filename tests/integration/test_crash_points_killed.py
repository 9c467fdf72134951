"""One event's life, killed before each of its system calls in turn: a fresh process finds everything as promised."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos import strace
from tests.chaos.grounds import TRANSPORTS
from tests.chaos.sites import open_site
from tests.chaos.walk import walk

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
# A walk that found fewer points than this has not looked at what the transport does.
FEWEST = {"files": 15, "sqlite": 15, "postgresql": 15}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_crash_point_of_publish_claim_and_done(transport: str, tmp_path: Path) -> None:
    with open_site(transport, tmp_path) as site:
        walked = [walk(site, "done", events=1), walk(site, "done", events=3)]
    print(*walked, sep="\n")
    for result in walked:
        assert result.points.total() >= FEWEST[transport], f"the walk was too short to mean anything: {result}"


@pytest.mark.skipif(not strace.available(), reason="strace is not installed: the other test used the stopper already")
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_injected_stopper_walks_where_strace_cannot(transport: str, tmp_path: Path) -> None:
    with open_site(transport, tmp_path) as site:
        result = walk(site, "done", use_strace=False)
    print(result)
    assert result.points.total() >= 10, f"the walk was too short to mean anything: {result}"
