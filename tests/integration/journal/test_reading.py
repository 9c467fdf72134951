"""Reading: each line once and in order, whatever happens to the files meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from kingdom.base.locks import try_lock, unlock
from kingdom.journal import Cursor, InvalidCursor, Journal, Problem, Reader, UnknownEvent, logfiles, rotate
from kingdom.journal.catalog import TaskStarted
from kingdom.journal.logfiles import LogFile
from kingdom.journal.reader import watch_log

DAY = datetime(2026, 2, 8, 1, tzinfo=UTC)


class Court:
    """A log, somebody who writes to it, and readers that come and go."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "events.log"
        self.cursor = folder / "chamberlain.cursor"
        self.journal = Journal(self.log, clock=lambda: self.now.timestamp())
        self.now = DAY
        self.problems: list[Problem] = []
        self._open: list[Reader] = []

    def emit(self, *ids: str) -> None:
        for task_id in ids:
            self.journal.emit(TaskStarted(task_id), "gen-a")

    def rotate(self) -> Path:
        done = rotate(self.log, self.now, max_bytes=1)
        assert done is not None
        return done.file

    def reader(self, **options: object) -> Reader:
        reader = Reader(self.log, self.cursor, report=self.problems.append, sync=False, **options)  # type: ignore[arg-type]
        self._open.append(reader)
        return reader

    def close(self) -> None:
        self.journal.close()
        for reader in self._open:
            reader.close()


@pytest.fixture
def court(tmp_path: Path) -> Iterator[Court]:
    court = Court(tmp_path)
    yield court
    assert court.problems == [], "a problem that the test did not expect"
    court.close()


def ids(reader: Reader) -> list[str]:
    return [entry.fields["task_id"] for entry in reader.read()]


def test_what_is_written_is_read_once(court: Court):
    reader = court.reader()
    assert ids(reader) == []
    court.emit("1", "2")
    assert ids(reader) == ["1", "2"]
    assert ids(reader) == []
    court.emit("3")
    assert ids(reader) == ["3"]


def test_lines_and_records_are_other_ways_to_read_the_same(court: Court):
    court.emit("1", "2")
    court.rotate()
    court.emit("3")
    assert b"\n".join(court.reader().read_lines()) + b"\n" == b"".join(
        file.read_bytes() for file in (court.log.with_name("events-20260208.log"), court.log)
    )
    records = [record for batch in court.reader().read_records() for record in batch]
    assert [record["data"]["task_id"] for record in records] == ["1", "2", "3"]


def test_a_restarted_reader_goes_on_behind_the_last_commit(court: Court):
    court.emit("1", "2", "3")
    first = court.reader()
    lines = first.read()
    next(lines)
    next(lines)
    first.commit()
    next(lines)
    assert ids(court.reader()) == ["3"]
    assert ids(court.reader()) == ["3"]


def test_a_commit_in_the_middle_of_a_loop_counts_the_line_in_hand(court: Court):
    court.emit("1", "2", "3")
    reader = court.reader()
    for entry in reader.read():
        if entry.fields["task_id"] == "2":
            reader.commit()
            break
    assert ids(reader) == ["3"]
    assert ids(court.reader()) == ["3"]


def test_the_cursor_may_be_kept_together_with_what_was_made_of_the_lines(court: Court):
    court.emit("1", "2", "3")
    reader = Reader(court.log)
    for entry in reader.read():
        if entry.fields["task_id"] == "2":
            break
    kept = json.loads(json.dumps({"seen": 2, "cursor": reader.cursor.to_dict()}))
    with Reader(court.log, cursor=Cursor.from_dict(kept["cursor"])) as again:
        assert ids(again) == ["3"]
    with pytest.raises(ValueError, match="needs a cursor_path"):
        reader.commit()
    reader.close()


def test_the_old_file_is_read_to_its_end_before_the_new_one(court: Court):
    court.emit("1")
    reader = court.reader()
    assert ids(reader) == ["1"]
    court.emit("2")
    court.rotate()
    court.emit("3")
    court.rotate()
    court.emit("4")
    assert ids(reader) == ["2", "3", "4"]


def test_a_reader_that_was_away_during_several_rotations_finds_all_of_them(court: Court):
    court.emit("1", "2")
    reader = court.reader()
    next(reader.read())
    reader.commit()
    for number in range(3, 15):
        court.rotate()
        court.emit(str(number))
        court.now += timedelta(hours=-30 if number == 7 else 7)
    assert ids(court.reader()) == [str(number) for number in range(2, 15)]


def test_closed_files_are_read_while_nobody_has_written_since(court: Court):
    court.emit("1")
    reader = court.reader()
    court.emit("2")
    court.rotate()
    court.log.unlink()  # as if the rotator had been killed before it made the new file
    assert ids(reader) == ["1", "2"]
    reader.commit()
    fresh = court.reader()
    assert ids(fresh) == []
    court.emit("3")
    assert ids(reader) == ["3"]
    assert ids(fresh) == ["3"]


def test_a_writer_that_is_late_for_the_rotation_is_heard(court: Court):
    """It looked at the name, was stopped, and wrote when the file had lost its name."""
    court.emit("1")
    late = os.open(court.log, os.O_WRONLY | os.O_APPEND)
    assert try_lock(late)
    reader = court.reader()
    line = court.log.read_bytes().replace(b'"1"', b'"late"')
    court.rotate()
    court.emit("2")
    assert ids(reader) == ["1", "2"]
    for number in range(3, 6):
        court.rotate()
        court.emit(str(number))
        assert ids(reader) == [str(number)]
    reader.commit()
    os.write(late, line)
    assert ids(court.reader()) == ["late"], "also after a restart"
    unlock(late)
    assert ids(reader) == ["late"]
    assert len(reader.cursor.files) == 2, "the file is let go of when its lock was free"
    os.close(late)


def test_a_writer_s_lines_stay_in_order_when_it_moves_to_the_new_file_while_we_look(
    court: Court, monkeypatch: pytest.MonkeyPatch
):
    court.emit("1")
    late = os.open(court.log, os.O_WRONLY | os.O_APPEND)
    assert try_lock(late)
    line = court.log.read_bytes().replace(b'"1"', b'"2"')
    reader = court.reader()
    court.rotate()
    assert ids(reader) == ["1"]
    looks = []
    real = LogFile.size

    def size(file: LogFile) -> int:
        found = real(file)
        looks.append(file)
        if len(looks) == 1:  # between the first look and the second one
            os.write(late, line)
            os.close(late)
            court.emit("3")
        return found

    monkeypatch.setattr(LogFile, "size", size)
    assert ids(reader) + ids(reader) == ["2", "3"]


def test_one_that_writes_without_the_lock_is_heard_until_the_next_rotation(court: Court):
    court.emit("1")
    with court.log.open("ab") as shell:
        line = court.log.read_bytes()
        reader = court.reader()
        assert ids(reader) == ["1"]
        court.rotate()
        court.emit("2")
        assert ids(reader) == ["2"]
        shell.write(line.replace(b'"1"', b'"late"'))
        shell.flush()
        assert ids(reader) == ["late"]


def test_a_line_that_is_not_whole_yet_waits(court: Court):
    court.emit("1")
    line = court.log.read_bytes().replace(b'"1"', b'"slow"')
    reader = court.reader()
    assert ids(reader) == ["1"]
    with court.log.open("ab") as slow:
        for byte in range(len(line)):
            slow.write(line[byte : byte + 1])
            slow.flush()
            if byte % 7 == 0:
                reader.commit()
                reader = court.reader()
            assert ids(reader) == (["slow"] if byte == len(line) - 1 else [])


def test_the_unfinished_last_line_of_a_closed_file_is_reported_and_passed(court: Court):
    court.emit("1")
    with court.log.open("ab") as file:
        file.write(b'{"ts":')
    reader = court.reader()
    assert ids(reader) == ["1"]
    closed = court.rotate()
    court.emit("2")
    assert ids(reader) == ["2"]
    (problem,) = court.problems
    assert (problem.kind, problem.offset, closed.stat().st_size - problem.offset) == ("torn", problem.offset, 6)
    court.problems.clear()
    assert ids(reader) == []


BAD = [b"garbage", b'{"ts":"2026-02-07T10:0', b"\xff\xfe\x00", b"[1,2]", b"5", b'{"a":[1', b"2]}", b"{}"]


@pytest.mark.parametrize("bad", [*([line] for line in BAD), BAD])
def test_a_line_that_is_no_event_is_reported_and_skipped(court: Court, bad: list[bytes]):
    court.emit("1")
    with court.log.open("ab") as file:
        file.write(b"\n".join([*bad, b"", b"  ", b""]))
    court.emit("2")
    assert ids(court.reader()) == ["1", "2"]
    assert [problem.kind for problem in court.problems] == ["not-event"] * len(bad)
    first = court.problems[0]
    assert first.offset == court.log.read_bytes().index(bad[0])
    assert f"{court.log}, byte {first.offset}: " in str(first)
    court.problems.clear()
    records = [record for batch in court.reader().read_records() for record in batch]
    assert [record["data"]["task_id"] for record in records if record] == ["1", "2"]
    assert len(court.problems) == len([line for line in bad if line != b"{}"])
    court.problems.clear()


def test_a_line_of_ten_megabytes_is_reported_and_skipped_whole_or_growing(court: Court):
    court.emit("1")
    reader = court.reader()
    assert ids(reader) == ["1"]
    with court.log.open("ab") as file:
        for _ in range(10):
            file.write(b"x" * 1024 * 1024)
            file.flush()
            assert ids(reader) == []
        file.write(b"\n")
    court.emit("2")
    for each in (reader, court.reader()):
        court.problems.clear()
        assert ids(each)[-1:] == ["2"]
        (problem,) = court.problems
        assert (problem.kind, problem.offset) == ("too-long", len(court.log.read_bytes().split(b"\n")[0]) + 1)
        assert "10,485,760 bytes" in problem.detail
    court.problems.clear()


@pytest.mark.parametrize("loads", [orjson.loads, json.loads])
@pytest.mark.parametrize("value", ["NaN", r'"\ud800"', "-Infinity", '"\u2028"', "[[[]]]"])
def test_records_do_not_depend_on_the_decoder(
    court: Court, loads: Callable[[bytes], Any], value: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kingdom.journal.reader._loads_fast", loads)
    line = f'{{"ts":"2026-02-07T10:00:00Z","type":"a.b","actor":"c","data":{{"value":{value}}}}}\n'
    court.log.write_text(line * 3)
    records = [record for batch in court.reader().read_records() for record in batch]
    assert [repr(record) for record in records] == [repr(json.loads(line))] * 3


def test_an_event_keeps_whole_numbers_of_any_length(court: Court):
    data = '{"task_id":"1","number":123456789012345678901234567890}'
    court.log.write_text(f'{{"ts":"2026-02-07T10:00:00Z","type":"a.b","actor":"c","data":{data}}}\n')
    (entry,) = court.reader().read()
    assert entry.fields["number"] == 123456789012345678901234567890


def test_unknown_types_come_through(court: Court):
    court.log.write_text('{"ts":"2026-02-07T10:00:00Z","type":"a.b","actor":"c","data":{"task_id":"1"}}\n')
    (entry,) = court.reader().read()
    assert isinstance(entry, UnknownEvent)


def test_a_new_reader_may_begin_behind_what_is_there(court: Court):
    assert ids(court.reader(start="newest")) == []
    court.emit("1")
    court.rotate()
    court.emit("2")
    with court.log.open("ab") as file:
        file.write(b"x" * 3_000_000 + b"\n" + b'{"ts":"2026-02-07T10:00:00Z","type"')
        file.flush()
        reader = court.reader(start="newest")
        assert ids(reader) == []
        file.write(b':"a.b","actor":"c","data":{"task_id":"3"}}\n')
    assert ids(reader) == ["3"]


def test_a_file_that_was_emptied_is_read_from_its_start(court: Court):
    court.emit("1", "2")
    reader = court.reader()
    assert ids(reader) == ["1", "2"]
    reader.commit()
    os.truncate(court.log, 0)
    court.emit("3")
    assert ids(reader) == ["3"]
    assert ids(court.reader()) == ["3"]
    assert [problem.kind for problem in court.problems] == ["shrunk", "gone"]
    court.problems.clear()


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("torn", [False, True])
def test_a_file_that_lost_lines_which_were_read_is_read_from_its_end(court: Court, copied: bool, torn: bool):
    """A power cut took them, or the machine with the reader has not got them from the one that wrote them."""
    court.emit(*"12345")
    reader = court.reader()
    assert ids(reader) == [*"12345"]
    reader.commit()
    content = court.log.read_bytes()
    left = b"".join(content.splitlines(keepends=True)[:3]) + (b'{"ts":"2026' if torn else b"")
    court.journal.close()
    if copied:
        court.log.unlink()
    court.log.write_bytes(left)
    again = court.reader()
    assert ids(again) == []
    court.emit("6")
    assert ids(again) == ["6"]
    kinds = [problem.kind for problem in court.problems]
    assert kinds == (["shrunk", "not-event"] if torn else ["shrunk"])
    court.problems.clear()


def test_a_file_removed_before_its_end_is_reported_and_the_rest_is_read(court: Court):
    court.emit("1", "2")
    reader = court.reader()
    next(reader.read())
    reader.commit()
    lost = court.rotate()
    court.emit("3")
    court.rotate()
    court.emit("4")
    lost.unlink()
    assert ids(court.reader()) == ["3", "4"]
    (problem,) = court.problems
    assert problem.kind == "gone"
    court.problems.clear()
    assert ids(reader) == ["2", "3", "4"], "one that has it open reads it to its end"


@pytest.mark.parametrize("read_before", [0, 1])
def test_an_inode_that_was_given_to_another_file_is_not_taken_for_the_old_one(court: Court, read_before: int):
    court.emit(*["1"] * read_before)
    court.log.touch()
    reader = court.reader()
    assert ids(reader) == ["1"] * read_before
    reader.commit()
    court.emit("2")
    court.rotate().unlink()
    court.emit("3")
    court.rotate()
    court.emit("4")
    place = json.loads(court.cursor.read_text())
    place["files"][0]["inode"] = court.log.stat().st_ino
    court.cursor.write_text(json.dumps(place))
    assert ids(court.reader()) == ["3", "4"]
    assert [problem.kind for problem in court.problems] == ["gone"]
    court.problems.clear()


@pytest.mark.parametrize("read_before", [0, 1, 9])  # nothing yet, less and more than what a file is recognised by
def test_a_rotation_while_a_reader_opens_its_files_repeats_nothing(
    court: Court, monkeypatch: pytest.MonkeyPatch, read_before: int
):
    before = [str(number) for number in range(read_before)]
    court.emit(*before or ["0"])
    first = court.reader()
    if before:
        assert ids(first) == before
    else:
        first._files.extend()  # it has opened the file and taken no line of it
    first.commit()
    real, rotated = logfiles.take_snapshot, []

    def snapshot(path: Path) -> logfiles.LogSnapshot | None:
        """The log is rotated, and written to, when the reader knows its files and has not opened them."""
        seen = real(path)
        if not rotated:
            rotated.append(court.rotate())
            court.emit("new")
        return seen

    monkeypatch.setattr(logfiles, "take_snapshot", snapshot)
    assert ids(court.reader()) == (["new"] if before else ["0", "new"])
    assert rotated


@pytest.mark.parametrize("read", [1, 5])  # less and more than the bytes that a file is recognised by
def test_a_copied_directory_is_read_on_from_the_same_place(court: Court, tmp_path: Path, read: int):
    court.emit(*map(str, range(10)))
    reader = court.reader()
    for entry in reader.read():
        if entry.fields["task_id"] == str(read - 1):
            break
    reader.commit()
    court.rotate()
    court.emit("10")
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in [*tmp_path.glob("*.log"), court.cursor]:
        shutil.copy(file, copy)
    with Reader(copy / "events.log", copy / court.cursor.name, report=court.problems.append) as again:
        assert ids(again) == [str(number) for number in range(read, 11)]


def test_a_log_renamed_by_another_tool_is_found_by_its_inode(court: Court):
    court.emit("1", "2")
    reader = court.reader()
    next(reader.read())
    reader.commit()
    court.log.rename(court.log.with_name("events.log.1"))
    court.emit("3")
    assert ids(court.reader()) == ["2", "3"]
    assert ids(reader) == ["2", "3"]


PLACE = '{"inode":1,"offset":-1,"head":"","sealed":false}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 2}',
        '{"version":1,"after":null,"files":[{"inode":1}]}',
        '{"version":1,"after":5,"files":[]}',
        f'{{"version":1,"after":null,"files":[{PLACE}]}}',
    ],
)
def test_a_damaged_cursor_is_a_clear_error_and_nothing_is_read_twice_by_mistake(court: Court, text: str):
    court.cursor.write_text(text)
    with pytest.raises(InvalidCursor, match=r"chamberlain\.cursor is damaged .* remove it to read the journal again"):
        court.reader()


def test_a_commit_that_was_killed_leaves_the_old_place(court: Court):
    court.emit("1")
    reader = court.reader()
    assert ids(reader) == ["1"]
    reader.commit()
    court.cursor.with_name(f".{court.cursor.name}.new").write_text('{"vers')
    assert ids(court.reader()) == []
    court.emit("2")
    with Reader(court.log, court.cursor) as durable:
        assert ids(durable) == ["2"]
        durable.commit()
    assert ids(court.reader()) == []


def test_a_reader_holds_few_files_and_little_memory_however_much_there_is(court: Court):
    line = b'{"ts":"2026-02-07T10:00:00Z","type":"task.started","actor":"gen-a","data":{"task_id":"%d"}}\n'
    for number in range(16):
        court.log.write_bytes(b"".join(line % (number * 5_000 + each) for each in range(5_000)))
        court.rotate()
    reader = court.reader()
    open_before = len(os.listdir("/proc/self/fd"))
    tracemalloc.start()
    try:
        count = last = 0
        for batch in reader.read_records():
            assert int(batch[0]["data"]["task_id"]) == count
            count += len(batch)
            last = max(last, len(os.listdir("/proc/self/fd")))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 80_000
    assert last - open_before <= 4
    assert peak < 3_000_000, "of 7.6 MB"


# ── following ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_following_gives_what_is_there_and_then_each_line_as_it_comes(court: Court):
    court.emit("1")
    heard: asyncio.Queue[str] = asyncio.Queue()
    reader = court.reader()

    async def follow() -> None:
        # So long a pause that only the kernel's word can wake it in time.
        async for entry in reader.follow(poll=600):
            heard.put_nowait(entry.fields["task_id"])

    task = asyncio.create_task(follow())
    try:
        async with asyncio.timeout(30):
            assert await heard.get() == "1"
            for number in range(2, 6):
                court.emit(str(number))
                assert await heard.get() == str(number)
                court.rotate()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert heard.empty()


async def test_following_polls_where_the_kernel_says_nothing(court: Court, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kingdom.base.inotify.sys.platform", "darwin")
    events = court.reader().follow(poll=0.001)
    async with asyncio.timeout(30):
        court.emit("1")
        assert (await anext(events)).fields["task_id"] == "1"
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        court.emit("2")
        assert (await waiting).fields["task_id"] == "2"
    await events.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("moments", range(8))
async def test_whoever_waits_for_lines_can_be_stopped_at_any_moment_after_one(moments: int, tmp_path: Path) -> None:
    path = tmp_path / "events.log"
    begun = asyncio.Event()

    async def watch() -> None:
        async with watch_log(path, 60.0) as wait:
            begun.set()
            while True:
                await wait()

    task = asyncio.create_task(watch())
    await begun.wait()
    await asyncio.sleep(0)
    path.write_text("a line\n")
    for _ in range(moments):  # turns of the loop
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=10)
    assert task.cancelled()
