"""The king's book: what was written is found again, what was torn is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.court.king import write_ahead_log as books
from kingdom.court.king.cases import Case, Cases, PendingQuestion
from kingdom.court.king.write_ahead_log import LogEntry, WriteAheadLog


def case(root: str, **more: object) -> Case:
    fields = {
        "task": f"task-{root}",
        "general": "gen-pr",
        "type": "x.y",
        "priority": "low",
        "title": "t",
        "thread": "t",
    }
    return Case(root=root, **{**fields, **more})  # type: ignore[arg-type]


def test_entries_are_folded_into_the_cases_in_hand(tmp_path: Path) -> None:
    book = WriteAheadLog(tmp_path / "king")
    assert book.open().found is False
    book.rewrite([case("a")])
    asked = case("b", asked=PendingQuestion("red \ud800?", None, 7.5), events=["b", "c"])
    book.append(LogEntry(cases={"b": asked.to_dict()}))
    book.append(LogEntry(cases={"a": None}, done={"a": "failed"}))
    book.close()
    opened = WriteAheadLog(tmp_path / "king").open()
    assert opened.found
    assert opened.cases == {"b": asked}
    assert opened.last == LogEntry(cases={"a": None}, done={"a": "failed"})


@pytest.mark.parametrize("tail", [b'{"cases"', b'{"cases":{"a":null}}', b"\xff\xfe"])
def test_a_line_without_its_end_counts_for_nothing(tmp_path: Path, tail: bytes) -> None:
    book = WriteAheadLog(tmp_path)
    book.rewrite([case("a")])
    book.close()
    with (tmp_path / ".book").open("ab") as file:
        file.write(tail)
    assert list(book.open().cases) == ["a"]


@pytest.mark.parametrize("line", [b"{}x\n", b"[]\n", b'{"cases":{"z":{"root":1}}}\n', b'{"unknown":1}\n', b"\xff\n"])
def test_a_line_that_makes_no_sense_hides_no_other(tmp_path: Path, line: bytes) -> None:
    book = WriteAheadLog(tmp_path)
    book.rewrite([case("a")])
    book.close()
    after = LogEntry(cases={"b": case("b").to_dict()}).line()
    with (tmp_path / ".book").open("ab") as file:
        file.write(line + after)
    assert sorted(book.open().cases) == ["a", "b"]


def test_a_long_book_is_to_be_written_anew_and_is_short_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "REWRITE_BYTES", 2000)
    book = WriteAheadLog(tmp_path)
    book.rewrite([])
    entries = 0
    while not book.long:
        book.append(LogEntry(done={"evt-x-1": None}))
        entries += 1
    assert entries > 10
    book.rewrite([case("a")])
    assert not book.long
    assert book.open().cases == {"a": case("a")}


def test_nothing_is_written_before_the_old_book_was_dealt_with(tmp_path: Path) -> None:
    book = WriteAheadLog(tmp_path)
    with pytest.raises(RuntimeError):
        book.append(LogEntry())


def test_cases_are_counted_while_their_task_is_queued_or_running(tmp_path: Path) -> None:
    cases = Cases()
    one = case("a", subject="acme/web#1")
    cases.put(one)
    cases.put(case("b"))
    assert (cases.active_count, cases.active_of("gen-pr"), len(cases)) == (2, 2, 2)
    one.asked = PendingQuestion("?", None, 0.0)
    cases.put(one)
    assert (cases.active_count, cases.active_of("gen-pr"), len(cases)) == (1, 1, 2)
    assert cases.of_subject("acme/web#1") == [one]
    one.next_task("task-2")
    one.asked = None
    cases.put(one)
    assert cases.of_task("task-a") is one
    assert cases.of_task("task-2") is one
    assert cases.active_count == 2
    assert cases.close("a") is one
    assert cases.close("a") is None
    assert cases.of_task("task-a") is cases.of_task("task-2") is None
    assert cases.of_subject("acme/web#1") == []
    assert cases.active_count == 1
