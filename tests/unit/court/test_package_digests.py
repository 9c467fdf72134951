"""The digests of packages: a package is read again when, and only when, one of its files changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kingdom.court.home import Home
from kingdom.court.machines import registry
from kingdom.court.machines.registry import _Digests
from tests.support.machines import install


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    for name in ("gen-a", "gen-b"):
        install(home, name)
    return home


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The packages that were packed, one entry for each time."""
    names: list[str] = []
    pack = registry._pack

    def noting(folder: Path) -> Any:
        names.append(folder.name)
        return pack(folder)

    monkeypatch.setattr(registry, "_pack", noting)
    return names


def test_only_a_package_that_changed_is_packed_again(
    home: Home, packed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_SETTLED_SECONDS", -1.0)
    digests = _Digests()
    first = digests.of_all(home)
    assert packed == ["gen-a", "gen-b"]
    assert digests.of_all(home) == first
    assert packed == ["gen-a", "gen-b"]

    (home.general("gen-b") / "more.txt").write_text("more")
    second = digests.of_all(home)
    assert packed == ["gen-a", "gen-b", "gen-b"]
    assert (second["gen-a"], second["gen-b"] != first["gen-b"]) == (first["gen-a"], True)

    (home.general("gen-b") / "more.txt").unlink()
    assert digests.of_all(home) == first
    (home.general("gen-a") / "prompt.md").chmod(0o755)
    assert digests.of_all(home)["gen-a"] != first["gen-a"]


def test_a_package_that_changed_just_now_is_packed_again(home: Home, packed: list[str]) -> None:
    """Two changes within the grain of the file system's clock cannot be told apart by their times."""
    digests = _Digests()
    digests.of_all(home)
    digests.of_all(home)
    assert packed == ["gen-a", "gen-b"] * 2


def test_a_package_that_cannot_be_packed_has_none(home: Home) -> None:
    (home.general("gen-a") / "away").symlink_to("/")
    found = _Digests().of_all(home)
    assert found["gen-a"] is None
    assert found["gen-b"] is not None
