"""Reading transcripts in parts: whole lines only, from any byte on, while they grow."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.agents.engines import default_engines
from kingdom.agents.folder import RunFolder
from kingdom.agents.port import Order
from kingdom.court.home import Home
from kingdom.court.soldiers import (
    Soldier,
    SoldierIndex,
    TranscriptItem,
    TranscriptPage,
    find_soldier,
    read_transcript_page,
    soldiers_of_task,
    transcript_lines,
    transcript_part_before,
)

ENGINES = default_engines()


def enlist(home: Home, name: str = "soldier-1", task: str = "task-20260207-001", engine: str = "command") -> Soldier:
    folder = RunFolder(home.soldiers, name)
    folder.create()
    folder.write_order(Order(name, task, engine, "", home.root, home.root / "result.json"))
    home.sessions.mkdir(parents=True, exist_ok=True)
    soldier = find_soldier(home, name)
    assert soldier is not None
    return soldier


def page(soldier: Soldier, offset: int = 0, **options: int) -> TranscriptPage:
    return read_transcript_page(soldier, ENGINES, offset, **options)  # type: ignore[arg-type]


def texts(part: TranscriptPage) -> list[str]:
    return [item.text for item in part.items]


def test_parts_follow_each_other_without_a_gap(tmp_path: Path) -> None:
    soldier = enlist(Home(tmp_path))
    lines = [f"line {number} é" for number in range(100)]
    soldier.transcript.write_text("\n".join(lines) + "\n")
    found: list[str] = []
    offset = 0
    while (part := page(soldier, offset, most=50)).next_offset > offset:
        found += texts(part)
        offset = part.next_offset
    assert found == lines == list(transcript_lines(soldier, ENGINES))
    assert offset == part.size == soldier.transcript.stat().st_size


def test_a_line_that_is_being_written_waits_until_it_is_whole(tmp_path: Path) -> None:
    soldier = enlist(Home(tmp_path))
    soldier.transcript.write_text("whole\nha")
    part = page(soldier)
    assert (texts(part), part.next_offset) == (["whole"], 6)
    with soldier.transcript.open("a") as file:
        file.write("lf\n")
    assert texts(page(soldier, part.next_offset)) == ["half"]


def test_a_negative_offset_begins_at_the_first_whole_line_before_the_end(tmp_path: Path) -> None:
    soldier = enlist(Home(tmp_path))
    soldier.transcript.write_text("one\ntwo\nthree\n")
    assert texts(page(soldier, -6)) == ["three"]
    assert texts(page(soldier, -9)) == ["three"]
    assert texts(page(soldier, -10)) == ["two", "three"]
    assert texts(page(soldier, -1000)) == ["one", "two", "three"]


def test_an_offset_behind_the_end_brings_nothing_and_no_error(tmp_path: Path) -> None:
    soldier = enlist(Home(tmp_path))
    soldier.transcript.write_text("one\n")
    assert page(soldier, 10**12) == TranscriptPage([], 4, 4)


def test_a_line_longer_than_a_part_comes_whole(tmp_path: Path) -> None:
    soldier = enlist(Home(tmp_path))
    soldier.transcript.write_text("x" * 1000 + "\nafter\n")
    part = page(soldier, most=100)
    assert texts(part) == ["x" * 1000]
    assert texts(page(soldier, part.next_offset, most=100)) == ["after"]


def test_parts_are_read_backwards_without_a_gap(tmp_path: Path) -> None:
    soldier = enlist(Home(tmp_path))
    lines = [f"line {number} é" for number in range(100)]
    lines[40] = "x" * 1000
    soldier.transcript.write_text("\n".join(lines) + "\n")
    begin, found = soldier.transcript.stat().st_size, set[str]()
    while begin:
        before = transcript_part_before(soldier, begin, 50)
        part = page(soldier, before, most=50)
        assert before < begin <= part.next_offset
        found |= set(texts(part))
        begin = before
    assert found == set(lines)


def test_what_an_engine_says_is_understood_and_raw_lines_are_not(tmp_path: Path) -> None:
    soldier = enlist(Home(tmp_path), engine="scripted")
    soldier.transcript.write_text(
        '{"type": "text", "text": "hello"}\n{"type": "tooluse", "name": "Read", "detail": "x"}\n'
    )
    assert page(soldier).items == [TranscriptItem("text", "hello"), TranscriptItem("tooluse", "→ Read x")]
    (first, _) = read_transcript_page(soldier, ENGINES, 0, raw=True).items
    assert first == TranscriptItem("raw", '{"type": "text", "text": "hello"}')


def test_an_engine_nobody_has_any_more_is_shown_raw(tmp_path: Path) -> None:
    soldier = enlist(Home(tmp_path), engine="gone")
    soldier.transcript.write_text("whatever\n")
    assert page(soldier).items == [TranscriptItem("raw", "whatever")]


def test_a_transcript_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        page(enlist(Home(tmp_path)))


def test_the_roster_tells_who_is_at_work_and_looks_no_more_at_those_who_ended(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.results.mkdir(parents=True)
    roster = SoldierIndex(home)
    enlist(home, "soldier-1", engine="scripted")
    enlist(home, "soldier-2", engine="scripted")
    assert roster.at_work() == []  # no task says that one of them is on it
    home.soldier_id("task-20260207-001").write_text("soldier-2\n")
    (working,) = roster.at_work()
    assert (working.id, working.played, working.alive) == ("soldier-2", True, False)
    RunFolder(home.soldiers, "soldier-2").outcome.write_text("{}")
    assert roster.at_work() == []
    RunFolder(home.soldiers, "soldier-2").outcome.unlink()
    assert roster.at_work() == []


def test_the_roster_knows_who_came_and_who_was_taken_off(tmp_path: Path) -> None:
    home = Home(tmp_path)
    roster = SoldierIndex(home)
    assert roster.of_task("task-20260207-001") == []
    enlist(home, "soldier-1")
    enlist(home, "soldier-2", "task-20260207-002")
    RunFolder(home.soldiers, "soldier-3").create()  # its order is not written yet
    assert [one.id for one in roster.of_task("task-20260207-001")] == ["soldier-1"]
    RunFolder(home.soldiers, "soldier-3").write_order(
        Order("soldier-3", "task-20260207-001", "command", "", tmp_path, tmp_path / "result.json")
    )
    assert roster.of_task("task-20260207-001") == soldiers_of_task(home, "task-20260207-001")
    assert roster.ids_of(["task-20260207-001", "task-20260207-003"]) == {
        "task-20260207-001": ["soldier-1", "soldier-3"],
        "task-20260207-003": [],
    }
    RunFolder(home.soldiers, "soldier-1").order.unlink()
    home.soldiers.joinpath("soldier-1").rmdir()
    assert [one.id for one in roster.of_task("task-20260207-001")] == ["soldier-3"]
