"""What is left out of the search for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kingdom.base import garbage
from kingdom.base.garbage import exclude_current, exclude_loaded


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage, "_excluded", False)
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_what_a_server_loads_later_is_left_out_too() -> None:
    exclude_current()
    before, loaded = gc.get_freeze_count(), [[number] for number in range(10_000)]
    exclude_loaded()
    assert gc.get_freeze_count() - before >= len(loaded)


def test_a_process_that_left_nothing_out_stays_as_it_is() -> None:
    exclude_loaded()
    assert gc.get_freeze_count() == 0
