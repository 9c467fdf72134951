"""Splitting what a program prints into lines."""

from __future__ import annotations

from pathlib import Path

from kingdom.agents.transcript import FileTail, LineSplitter, read_end


def test_lines_come_out_whole_however_they_arrive() -> None:
    lines = LineSplitter()
    assert lines.feed(b"one\ntw") == [b"one"]
    assert lines.feed(b"o\n\nthr") == [b"two", b""]
    assert lines.feed(b"ee") == []
    assert lines.rest() == b"three"
    assert lines.rest() == b""


def test_a_line_that_is_too_long_is_skipped_and_the_next_is_not() -> None:
    lines = LineSplitter(max_line=10)
    assert lines.feed(b"0123456") == []
    assert lines.feed(b"789ab") == []
    assert lines.feed(b"cdef\nnext\n") == [None, b"next"]
    assert lines.feed(b"0123456789\n") == [b"0123456789"]


def test_a_tail_reads_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = FileTail(path)
    assert tail.read() == b""
    with path.open("ab") as file:
        file.write(b"x" * 300_000)
    assert [len(tail.read()), len(tail.read()), len(tail.read())] == [262_144, 37_856, 0]
    tail.close()
    tail.close()
    split = FileTail(path)
    assert [len(split.read(until=100)), len(split.read(until=100))] == [100, 262_144]
    split.close()


def test_the_end_of_a_file_is_text(tmp_path: Path) -> None:
    path = tmp_path / "err"
    assert read_end(path) == ""
    path.write_bytes(b"x" * 1000 + b"\0\xff the end\n")
    assert read_end(path, 12) == "x\ufffd the end"
