"""The journal is searched from its newest line backwards, across rotations, a part at a time."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kingdom.court import journal_search
from kingdom.court.journal_search import JournalFilter, search_journal

NOON = datetime(2026, 2, 7, 12, tzinfo=UTC).timestamp()


def line(number: int, kind: str = "task.started", actor: str = "gen-pr", **data: object) -> str:
    ts = datetime.fromtimestamp(NOON + number, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    fields = {"task_id": f"task-20260207-{number:03d}", **data}
    return json.dumps({"ts": ts, "type": kind, "actor": actor, "data": fields}, ensure_ascii=False)


def ids(path: Path, wanted: JournalFilter | None = None, limit: int = 100) -> list[str]:
    """The numbers of all matches, read page by page."""
    found, before = [], None
    while True:
        page = search_journal(path, wanted or JournalFilter(), limit, before)
        found += [str(entry.fields["task_id"])[-3:].lstrip("0") or "0" for entry in page.entries]
        if (before := page.following) is None:
            return found


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Twelve lines in three files, with a broken one and an unfinished one."""
    path = tmp_path / "events.log"
    (tmp_path / "events-20260205.log").write_text("".join(f"{line(n)}\n" for n in range(4)))
    (tmp_path / "events-20260206.log").write_text("".join(f"{line(n)}\n" for n in range(4, 8)) + "not JSON\n")
    path.write_text("".join(f"{line(n)}\n" for n in range(8, 12)) + line(12))
    return path


@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("block", [7, 100, 1 << 18])
def test_all_lines_are_found_newest_first_however_they_are_cut(
    journal: Path, limit: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_search, "_BLOCK_BYTES", block)
    assert ids(journal, limit=limit) == [str(n) for n in range(11, -1, -1)]


def test_a_search_goes_on_where_a_rotation_moved_the_file(journal: Path) -> None:
    first = search_journal(journal, JournalFilter(), 2)
    journal.rename(journal.with_name("events-20260207.log"))
    journal.write_text(f"{line(13)}\n")
    following = search_journal(journal, JournalFilter(), 3, first.following)
    assert [entry.fields["task_id"] for entry in following.entries] == [
        "task-20260207-009", "task-20260207-008", "task-20260207-007",
    ]  # fmt: skip


def test_types_actors_words_and_times_narrow_it(journal: Path) -> None:
    with journal.open("w") as file:
        file.write(f"{line(20, 'task.failed', 'gen-a', error='Größe falsch')}\n")
        file.write(
            f"{line(21, 'task.completed', 'gen-b', status='success')}\n{line(22, 'event.detected', 'sentinel')}\n"
        )
    assert ids(journal, JournalFilter(types=["task.*"], since=NOON + 20)) == ["21", "20"]
    assert ids(journal, JournalFilter(types=["task.failed"])) == ["20"]
    assert ids(journal, JournalFilter(actors=["gen-b", "sentinel"])) == ["22", "21"]
    assert ids(journal, JournalFilter(text="GRÖSSE gen-a")) == ["20"]
    assert ids(journal, JournalFilter(text="task-20260207-021")) == ["21"]
    assert ids(journal, JournalFilter(since=NOON + 6, until=NOON + 21)) == ["20", "7", "6"]
    assert ids(journal, JournalFilter(task="task-20260207-003")) == ["3"]


def test_one_call_reads_a_bounded_part_and_says_where_to_go_on(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_search, "MAX_SEARCHED_BYTES", 250)
    page = search_journal(journal, JournalFilter(text="task-20260207-001"), 10)
    assert page.entries == []
    assert page.following is not None
    assert ids(journal, JournalFilter(text="task-20260207-001")) == ["1"]


def test_a_search_of_the_last_minutes_does_not_read_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.log"
    path.write_text("".join(f"{line(n)}\n" for n in range(2000)) + "not JSON\n" + f"{line(5000)}\n")
    monkeypatch.setattr(journal_search, "MAX_SEARCHED_BYTES", path.stat().st_size // 4)
    page = search_journal(path, JournalFilter(since=NOON + 4990), 10)
    assert len(page.entries) == 1
    assert page.following is None


def test_a_missing_journal_is_empty(tmp_path: Path) -> None:
    assert ids(tmp_path / "events.log") == []
