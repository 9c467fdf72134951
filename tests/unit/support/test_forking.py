"""Processes that tests fork: what they need was imported before, whatever else the process of the tests has loaded."""

from __future__ import annotations

import sys

import pytest

import bench.harness  # noqa: F401 - which asks the same server for something else
from tests.support.forking import PRELOADED, fate


@pytest.mark.parametrize("module", PRELOADED)
def test_a_forked_process_has_what_it_needs(module: str) -> None:
    assert fate(_end_with_whether_loaded, module) == 0


def _end_with_whether_loaded(module: str) -> None:
    sys.exit(module not in sys.modules)
