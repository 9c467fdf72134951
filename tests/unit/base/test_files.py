"""Durable files: written in whole, in the order that survives a power cut, and found to have changed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kingdom.base.files import (
    ChangeDetector,
    create_file,
    encode_json,
    read_cached,
    read_json,
    read_object,
    temporary_prefix,
    write_atomic,
    write_json,
    write_once,
)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The system calls that change a file, in order."""
    seen: list[str] = []

    def spy(name: str) -> None:
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, **options: (seen.append(name), real(*args, **options))[1])

    for name in ("write", "fsync", "rename", "link"):
        spy(name)
    return seen


def test_a_durable_write_syncs_the_file_before_the_rename_and_the_directory_after_it(
    tmp_path: Path, calls: list[str]
) -> None:
    write_atomic(tmp_path / "state", "text")
    assert calls == ["write", "fsync", "rename", "fsync"]
    assert (tmp_path / "state").read_text() == "text"
    assert os.listdir(tmp_path) == ["state"]


def test_a_write_that_need_not_be_durable_syncs_nothing(tmp_path: Path, calls: list[str]) -> None:
    write_atomic(tmp_path / "state", b"bytes", durable=False)
    assert calls == ["write", "rename"]


def test_a_failed_write_leaves_the_old_content_and_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomic(tmp_path / "state", "old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(tmp_path / "state", "new")
    assert os.listdir(tmp_path) == ["state"]
    assert (tmp_path / "state").read_text() == "old"


def test_the_mode_holds_from_the_first_moment(tmp_path: Path) -> None:
    write_atomic(tmp_path / "secret", "x", mode=0o600)
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_of_two_who_write_once_the_first_succeeds(tmp_path: Path) -> None:
    assert write_once(tmp_path / "once", "first")
    assert not write_once(tmp_path / "once", "second")
    assert (tmp_path / "once").read_text() == "first"
    assert os.listdir(tmp_path) == ["once"]


def test_a_new_file_must_be_new(tmp_path: Path) -> None:
    create_file(tmp_path / "new", "x")
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "new", "y")


def test_a_relative_path_is_written_in_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_atomic("state", "x")
    assert (tmp_path / "state").read_text() == "x"


@pytest.mark.parametrize("document", [{}, {"a": 1}, {"a": [1, {"b": "끝"}], "c": None}, {"half": "\ud800"}])
def test_documents_are_read_as_they_were_written(tmp_path: Path, document: dict[str, object]) -> None:
    write_json(tmp_path / "state.json", document)
    assert read_json(tmp_path / "state.json") == document
    assert encode_json(document).endswith(b"}\n")


@pytest.mark.parametrize("content", ["", "{", "[]", "7", '"text"'])
def test_what_is_no_object_is_an_empty_one(tmp_path: Path, content: str) -> None:
    (tmp_path / "state.json").write_text(content)
    assert read_object(tmp_path / "state.json") == {}
    assert read_object(tmp_path / "missing.json") == {}


def test_changes_are_detected(tmp_path: Path) -> None:
    path = tmp_path / "config"
    changes = ChangeDetector(path)
    assert changes.changed()
    assert changes.missing
    assert not changes.changed()
    write_atomic(path, "one")
    assert changes.changed()
    assert changes.found
    assert not changes.changed()
    write_atomic(path, "two")
    changes.accept()
    assert not changes.changed()
    path.unlink()
    assert changes.changed()
    assert changes.missing


def test_a_cached_text_is_read_again_when_it_changed(tmp_path: Path) -> None:
    path = tmp_path / "prompt"
    path.write_text("one")
    assert [read_cached(path), read_cached(path)] == ["one", "one"]
    write_atomic(path, "two")
    assert read_cached(path) == "two"
    with pytest.raises(FileNotFoundError):
        read_cached(tmp_path / "missing")


def test_every_temporary_name_is_another() -> None:
    assert temporary_prefix() != temporary_prefix()
