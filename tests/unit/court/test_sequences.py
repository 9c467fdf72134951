"""Ids of tasks and messages: in order, and none twice, whatever happens to the file and the clock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from kingdom.court.home import Home
from kingdom.court.queues import IdSequences

NOON = datetime(2026, 2, 7, 12, tzinfo=UTC).timestamp()
DAY = 86400.0


class Clock:
    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_numbers_count_up_from_one_and_begin_anew_each_day(tmp_path: Path) -> None:
    clock = Clock()
    draw = IdSequences(Home(tmp_path), clock)
    assert draw.tasks() == ["task-20260207-001"]
    assert draw.tasks(2) == ["task-20260207-002", "task-20260207-003"]
    assert draw.messages() == ["msg-20260207-001"]
    assert (tmp_path / "state/king/task-seq").read_text() == "20260207:3\n"
    clock.now += DAY
    assert draw.tasks() == ["task-20260208-001"]
    assert draw.tasks(0) == []


def test_there_is_no_highest_number(tmp_path: Path) -> None:
    draw = IdSequences(Home(tmp_path), Clock())
    assert draw.tasks(1200)[-1] == "task-20260207-1200"


def test_a_clock_set_back_goes_on_in_the_later_day(tmp_path: Path) -> None:
    clock = Clock()
    draw = IdSequences(Home(tmp_path), clock)
    draw.tasks(5)
    clock.now -= DAY
    assert draw.tasks() == ["task-20260207-006"]


def test_a_lost_or_damaged_file_gives_no_id_again(tmp_path: Path) -> None:
    draw = IdSequences(Home(tmp_path), Clock())
    for folder, name in (
        ("queue/tasks/pending", "task-20260207-004.json"),
        ("queue/tasks/completed", "task-20260206-900.json"),
        ("state/results", "task-20260207-017-raw.json"),
        ("queue/messages/sent", "msg-20260207-002.json"),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).touch()
    assert draw.tasks() == ["task-20260207-018"]
    (tmp_path / "state/king/task-seq").write_bytes(b"\xff\x00")
    assert draw.messages() == ["msg-20260207-003"]
    assert draw.tasks() == ["task-20260207-018"]  # nobody made a file of the first one


def test_many_at_once_never_draw_the_same(tmp_path: Path) -> None:
    def draw(_: int) -> list[str]:
        return IdSequences(Home(tmp_path), Clock()).messages(3)

    with ThreadPoolExecutor(8) as pool:
        drawn = [msg for ids in pool.map(draw, range(40)) for msg in ids]
    assert sorted(drawn) == [f"msg-20260207-{number:03d}" for number in range(1, 121)]
