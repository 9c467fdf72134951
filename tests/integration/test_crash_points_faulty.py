"""One life with an I/O error or no space at each write and sync: publish says so, nothing half-written shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos import strace
from tests.chaos.faults import CALLS, walk_faults
from tests.chaos.sites import open_site

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not strace.available(), reason="strace is not installed: faults cannot be injected"),
]


@pytest.mark.parametrize(("transport", "error"), list(CALLS))
def test_an_error_at_every_write_and_sync(transport: str, error: str, tmp_path: Path) -> None:
    with open_site(transport, tmp_path) as site:
        results = [walk_faults(site, "done", error, events=events) for events in (1, 3)]
    print(*results, sep="\n")
    for result in results:
        assert result.points.total() >= 5, f"the walk was too short to mean anything: {result}"
    if transport != "postgresql":  # there the transport reconnects, and the caller need not know
        assert any(result.raised for result in results), "no fault ever reached the caller"
