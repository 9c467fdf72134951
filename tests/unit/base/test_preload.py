"""Importing in a thread."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kingdom.base.preload import preload


def test_after_the_wait_everything_is_imported_that_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "preloaded"
    package.mkdir()
    (package / "__init__.py").write_text("from preloaded import first, second\n")
    (package / "first.py").write_text("from preloaded import second\n")
    (package / "second.py").write_text("")
    (package / "broken.py").write_text("raise OSError\n")
    monkeypatch.syspath_prepend(tmp_path)

    loaded = preload("preloaded.second", "preloaded.broken", "preloaded.nowhere", "preloaded.first")
    loaded()
    found = {name for name in sys.modules if name.startswith("preloaded")}
    for name in found:
        monkeypatch.delitem(sys.modules, name)
    assert found == {"preloaded", "preloaded.first", "preloaded.second"}
