"""One event's life, killed before each of its system calls in turn: a fresh process finds everything as promised."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import strace
from tests.chaos.faults import SYNCS
from tests.chaos.grounds import TRANSPORTS
from tests.chaos.sites import open_site
from tests.chaos.walk import walk

pytestmark = [pytest.mark.walk, pytest.mark.timeout(600)]
# A walk that found fewer points than this has not looked at what the transport does.
FEWEST = {"files": 30, "sqlite": 40, "postgresql": 20}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_crash_point_of_publish_claim_and_done(transport: str, tmp_path: Path) -> None:
    with open_site(transport, tmp_path) as site:
        result = walk(site, "done")
    print(result)
    assert result.points.total() >= FEWEST[transport], f"the walk was too short to mean anything: {result}"
    # Nothing changes in a sync, so that a stop before it equals one before the call that follows.
    assert not [name for name in result.missed if not name.endswith(SYNCS)], f"calls were not reached: {result}"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_crash_point_of_publishing_three_events_in_one_call(transport: str, tmp_path: Path) -> None:
    with open_site(transport, tmp_path) as site:
        result = walk(site, "done", events=3, only="publish")
    print(result)
    assert result.points.total() >= 3, f"the walk was too short to mean anything: {result}"
    assert not [name for name in result.missed if not name.endswith(SYNCS)], f"calls were not reached: {result}"


@pytest.mark.parametrize("transport", ["files", "sqlite"])
@pytest.mark.parametrize("events", [1, 3])
def test_every_crash_point_of_publishing_without_an_event_loop(events: int, transport: str, tmp_path: Path) -> None:
    with open_site(transport, tmp_path) as site:
        result = walk(site, "sync", events=events, only="publish")
    print(result)
    assert result.points.total() >= 3, f"the walk was too short to mean anything: {result}"
    assert not [name for name in result.missed if not name.endswith(SYNCS)], f"calls were not reached: {result}"


@pytest.mark.skipif(not strace.available(), reason="strace is not installed: the other tests use the stopper already")
@pytest.mark.parametrize("transport", ["files", "sqlite"])
def test_the_injected_stopper_walks_where_strace_cannot(transport: str, tmp_path: Path) -> None:
    with open_site(transport, tmp_path) as site:
        result = walk(site, "done", use_strace=False)
    print(result)
    assert result.points.total() >= 20, f"the walk was too short to mean anything: {result}"


@pytest.mark.parametrize(("life", "events"), [("requeue", 1), ("done", 2)])
def test_every_crash_point_of_a_document_whose_status_agrees_with_its_directory(
    life: str, events: int, tmp_path: Path
) -> None:
    with open_site("documents", tmp_path) as site:
        result = walk(site, life, events=events)
    print(result)
    assert result.points.total() >= FEWEST["files"], f"the walk was too short to mean anything: {result}"
    assert not [name for name in result.missed if not name.endswith(SYNCS)], f"calls were not reached: {result}"
