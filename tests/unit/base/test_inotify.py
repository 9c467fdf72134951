"""The kernel's file notifications, as the transports use them."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.base import inotify
from kingdom.base.inotify import FileChange, FileWatcher

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is Linux's")


class Heard:
    """Collects changes, and lets a test wait for them."""

    def __init__(self) -> None:
        self.changes: list[FileChange] = []
        self._event = asyncio.Event()

    def __call__(self, changes: list[FileChange]) -> None:
        self.changes += changes
        self._event.set()

    async def until(self, mask: int, name: str = "") -> FileChange:
        async with asyncio.timeout(5):
            while True:
                for change in self.changes:
                    if change.mask & mask and change.name == name:
                        return change
                self._event.clear()
                await self._event.wait()


@pytest.fixture
async def watch() -> Iterator[FileWatcher]:
    made = FileWatcher(asyncio.get_running_loop())
    yield made
    made.close()


@linux_only
async def test_names_what_was_moved_into_a_directory(watch: FileWatcher, tmp_path: Path) -> None:
    box = tmp_path / "box"
    box.mkdir()
    heard = Heard()
    watch.add(box, inotify.MOVED_TO | inotify.CLOSE_WRITE, heard)
    (tmp_path / "a").write_text("x")
    (tmp_path / "a").rename(box / "b.json")
    (box / "c.json").write_text("x")
    await heard.until(inotify.CLOSE_WRITE, "c.json")
    assert [change.name for change in heard.changes] == ["b.json", "c.json"]


@linux_only
async def test_tells_of_a_watched_file_that_was_written(watch: FileWatcher, tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    file.touch()
    heard = Heard()
    watch.add(file, inotify.MODIFY, heard)
    with file.open("a") as out:
        out.write("line\n")
    assert (await heard.until(inotify.MODIFY)).name == ""


@linux_only
async def test_two_listeners_on_one_path_hear_what_each_asked_for(watch: FileWatcher, tmp_path: Path) -> None:
    writes, moves = Heard(), Heard()
    undo = watch.add(tmp_path, inotify.CLOSE_WRITE, writes)
    watch.add(tmp_path, inotify.MOVED_TO, moves)
    (tmp_path / "a").write_text("x")
    (tmp_path / "a").rename(tmp_path / "b")
    await moves.until(inotify.MOVED_TO, "b")
    assert {change.name for change in writes.changes} == {"a"}
    assert {change.name for change in moves.changes} == {"b"}
    undo()
    undo()
    (tmp_path / "c").write_text("x")
    (tmp_path / "c").rename(tmp_path / "d")
    await moves.until(inotify.MOVED_TO, "d")
    assert {change.name for change in writes.changes} == {"a"}


@linux_only
async def test_says_that_the_watched_file_is_gone(watch: FileWatcher, tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    file.touch()
    heard = Heard()
    undo = watch.add(file, inotify.MODIFY, heard)
    file.unlink()
    await heard.until(inotify.IGNORED)
    undo()
    file.touch()
    watch.add(file, inotify.MODIFY, heard)
    file.write_text("again")
    await heard.until(inotify.MODIFY)


@linux_only
async def test_signals_an_overflow_to_everyone(watch: FileWatcher, tmp_path: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 200_000:
        pytest.skip("the kernel's queue is too long to fill here")
    (tmp_path / "busy").mkdir()
    (tmp_path / "quiet").mkdir()
    busy, quiet = Heard(), Heard()
    watch.add(tmp_path / "busy", inotify.ATTRIB, busy)
    watch.add(tmp_path / "quiet", inotify.MOVED_TO, quiet)
    one, two = tmp_path / "busy" / "1", tmp_path / "busy" / "2"
    one.touch()
    two.touch()
    for _ in range(limit // 2 + 8):  # alternating: equal events in a row are merged by the kernel
        os.utime(one)
        os.utime(two)
    assert (await quiet.until(inotify.OVERFLOW)).mask & inotify.OVERFLOW
    assert (await busy.until(inotify.OVERFLOW)).mask & inotify.OVERFLOW


@linux_only
async def test_a_missing_path_is_an_error(watch: FileWatcher, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        watch.add(tmp_path / "nowhere", inotify.MODIFY, Heard())


async def test_does_nothing_where_there_is_no_inotify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inotify.sys, "platform", "darwin")
    watch = FileWatcher(asyncio.get_running_loop())
    assert not watch.available
    watch.add(tmp_path / "nowhere", inotify.MODIFY, Heard())()
    watch.close()
    watch.close()


@linux_only
async def test_close_lets_go_of_the_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    watch = FileWatcher(asyncio.get_running_loop())
    undo = watch.add(tmp_path, inotify.MODIFY, Heard())
    assert watch.available
    watch.close()
    undo()
    assert not watch.available
    for thread in threading.enumerate():
        if thread.name == "close-inotify":
            thread.join()
    assert len(os.listdir("/proc/self/fd")) == before


@linux_only
async def test_it_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(inotify.SWITCH, "off")
    watch = FileWatcher(asyncio.get_running_loop())
    assert not watch.available
    watch.add(tmp_path, inotify.CREATE, Heard())()
    watch.close()
    monkeypatch.setenv(inotify.SWITCH, "on")
    watch = FileWatcher(asyncio.get_running_loop())
    assert watch.available
    watch.close()
