"""A disk that is really full: publishing is refused, nothing half-written shows, with room again all is delivered."""

from __future__ import annotations

import pytest

from tests.chaos.disks import NotPermitted
from tests.chaos.fulldisk import fill_and_free, ground_on_small_disk
from tests.chaos.grounds import TRANSPORTS

pytestmark = [pytest.mark.walk, pytest.mark.timeout(120)]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_full_disk_refuses_and_keeps_what_it_accepted(transport: str) -> None:
    try:
        with ground_on_small_disk(transport) as (ground, disk):
            published = fill_and_free(ground, disk)
    except NotPermitted as reason:
        pytest.skip(str(reason))
    assert published > 10, "the disk was full before anything was published: this proves nothing"
