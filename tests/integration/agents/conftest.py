"""Where agents of these tests work."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(on_disk: None) -> Iterator[Path]:
    """A folder on the disk."""
    with tempfile.TemporaryDirectory(prefix="kingdom-agents-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
