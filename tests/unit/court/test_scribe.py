"""State files written durably, for many at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.court.batch_writer import BatchWriter


@pytest.fixture
def scribe() -> Iterator[BatchWriter]:
    made = BatchWriter()
    yield made
    made.close()


async def test_files_are_written_whole_and_their_folders_made(scribe: BatchWriter, tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text("before")
    await scribe.write((old, "after"), (tmp_path / "new" / "folder" / "b.md", b"bytes"))
    assert old.read_text() == "after"
    assert (tmp_path / "new" / "folder" / "b.md").read_bytes() == b"bytes"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["old.json", "b.md"]


@pytest.mark.parametrize("count", [5, 100], ids=["file by file", "the whole file system at once"])
async def test_many_who_write_at_the_same_time(scribe: BatchWriter, tmp_path: Path, count: int) -> None:
    paths = [tmp_path / str(number % 3) / f"{number}.json" for number in range(count)]
    await asyncio.gather(*(scribe.write((path, path.name)) for path in paths))
    assert [path.read_text() for path in paths] == [path.name for path in paths]
    assert list(tmp_path.rglob(".tmp-*")) == []


async def test_a_file_that_cannot_be_written_keeps_no_other_from_being(scribe: BatchWriter, tmp_path: Path) -> None:
    in_the_way = tmp_path / "folder"
    (in_the_way / "inside").mkdir(parents=True)
    done = await asyncio.gather(
        scribe.write((tmp_path / "a", "a")),
        scribe.write((in_the_way, "not a folder")),
        scribe.write((tmp_path / "b", "b")),
        return_exceptions=True,
    )
    assert [type(one) for one in done] == [type(None), IsADirectoryError, type(None)]
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "folder"]


async def test_files_of_one_call_appear_in_their_order(
    scribe: BatchWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    rename = os.rename
    monkeypatch.setattr(os, "rename", lambda old, new: (seen.append(Path(new).name), rename(old, new)))
    await scribe.write(*((tmp_path / name, name) for name in ("prompt", "note", "soldier")))
    assert seen == ["prompt", "note", "soldier"]
