"""One life with an I/O error or no space at each write and sync: publish says so, nothing half-written shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import strace
from tests.chaos.faults import walk_faults
from tests.chaos.sites import open_site

pytestmark = [
    pytest.mark.walk,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not strace.available(), reason="strace is not installed: faults cannot be injected"),
]


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("transport", ["files", "sqlite"])
def test_an_error_at_every_write_and_sync(transport: str, error: str, tmp_path: Path) -> None:
    with open_site(transport, tmp_path) as site:
        whole = walk_faults(site, "done", error)
        together = walk_faults(site, "done", error, events=3, only="publish")
    print(whole, together, sep="\n")
    assert whole.points.total() >= 10, f"the walk was too short to mean anything: {whole}"
    assert together.points.total() >= 3, f"the walk was too short to mean anything: {together}"
    expected = "StorageFull" if error == "ENOSPC" else "TransportUnavailable"
    assert whole.raised[expected], "no fault ever reached the caller"
    assert together.raised[expected], "no fault ever reached the caller"


@pytest.mark.parametrize(("error", "expected"), [("ENOSPC", "StorageFull"), ("EIO", "TransportUnavailable")])
@pytest.mark.parametrize("transport", ["files", "sqlite"])
def test_an_error_while_publishing_without_an_event_loop(
    transport: str, error: str, expected: str, tmp_path: Path
) -> None:
    with open_site(transport, tmp_path) as site:
        results = [walk_faults(site, "sync", error, events=events, only="publish") for events in (1, 3)]
    print(*results, sep="\n")
    for result in results:
        assert result.points.total() >= 3, f"the walk was too short to mean anything: {result}"
        assert result.raised[expected], "no fault ever reached the caller"


def test_a_connection_that_breaks_at_any_message_is_made_anew(tmp_path: Path) -> None:
    with open_site("postgresql", tmp_path) as site:
        result = walk_faults(site, "done", "ECONNRESET")
    print(result)
    assert result.points.total() >= 20, f"the walk was too short to mean anything: {result}"
