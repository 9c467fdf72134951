"""The seen index: exact over processes, and fast with a hundred thousand entries."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kingdom.court.errors import InvalidId
from kingdom.court.sentinel.events import SeenIndex

DAY = 86400.0
NOW = 1_770_000_000.0


def test_what_was_added_is_known_to_every_later_process(tmp_path: Path) -> None:
    SeenIndex(tmp_path / "seen").add(["evt-github-1", "evt-github-2"], NOW)
    seen = SeenIndex(tmp_path / "seen")
    assert seen.knows("evt-github-1", NOW)
    assert not seen.knows("evt-github-3", NOW)
    assert len(seen) == 2
    assert {path.stat().st_size for path in (tmp_path / "seen").iterdir()} == {0}


def test_what_another_process_adds_meanwhile_is_known_at_once(tmp_path: Path) -> None:
    seen = SeenIndex(tmp_path)
    assert not seen.knows("evt-github-1", NOW)
    (tmp_path / "evt-github-1").touch()
    assert seen.knows("evt-github-1", NOW)


def test_an_entry_that_is_still_met_is_renewed_once_a_day(tmp_path: Path) -> None:
    seen = SeenIndex(tmp_path)
    seen.add(["evt-github-1"], NOW)
    seen.knows("evt-github-1", NOW + DAY / 2)
    assert (tmp_path / "evt-github-1").stat().st_mtime == NOW
    seen.knows("evt-github-1", NOW + 2 * DAY)
    assert (tmp_path / "evt-github-1").stat().st_mtime == NOW + 2 * DAY


def test_what_the_chamberlain_removed_is_forgotten_after_a_day(tmp_path: Path) -> None:
    seen = SeenIndex(tmp_path)
    seen.add(["evt-github-1", "evt-github-2"], NOW)
    (tmp_path / "evt-github-1").unlink()
    assert seen.knows("evt-github-1", NOW)
    assert not seen.knows("evt-github-1", NOW + 2 * DAY)
    assert len(seen) == 1


def test_an_id_that_is_a_path_is_refused(tmp_path: Path) -> None:
    seen = SeenIndex(tmp_path / "seen")
    for hostile in ("evt-github-../../x", "../x", ""):
        with pytest.raises(InvalidId):
            seen.add([hostile], NOW)
        with pytest.raises(InvalidId):
            seen.knows(hostile, NOW)


@pytest.mark.walk
def test_a_hundred_thousand_entries_are_read_once_and_asked_without_touching_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100_000):
        os.close(os.open(tmp_path / f"evt-github-{number}", os.O_CREAT | os.O_WRONLY))
    seen, scans, scandir = SeenIndex(tmp_path), list[object](), os.scandir

    def counted(path: Path) -> object:
        scans.append(path)
        return scandir(path)

    monkeypatch.setattr("kingdom.court.sentinel.events.os.scandir", counted)
    assert seen.knows("evt-github-7", NOW)
    monkeypatch.setattr(Path, "exists", lambda _: pytest.fail("asked the disk"))
    monkeypatch.setattr("kingdom.court.sentinel.events.os.utime", lambda *_: None)
    assert all(seen.knows(f"evt-github-{number}", NOW) for number in range(0, 100_000, 10))
    assert len(seen) == 100_000
    assert len(scans) == 1
