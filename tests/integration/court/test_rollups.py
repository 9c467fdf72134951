"""Roll-ups: what the journal and the ledger say, by minute, quarter, hour and day, also when their lines are gone."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest

from kingdom.bus.delivery import Depth
from kingdom.court import backup, restore
from kingdom.court.chamberlain.cleanup import is_journal_read
from kingdom.court.chamberlain.config import RetentionSection
from kingdom.court.home import Home
from kingdom.court.rollups.queries import read_history, step_of
from kingdom.court.rollups.reading import RollupRecorder, journal_position
from kingdom.court.rollups.store import DAY, HOUR, MINUTE, QUARTER, RollupsUnavailable, rollups_path
from kingdom.journal import rotate
from tests.support.chamberlains import START, Watched
from tests.support.rolled import SEOUL, Rolled


@pytest.fixture
def rolled(tmp_path: Path) -> Rolled:
    return Rolled(tmp_path / "home")


def test_every_range_tells_of_the_same_tasks(rolled: Rolled) -> None:
    for seconds in (10.0, 20.0, 300.0):
        rolled.ends("gen-pr", seconds)
    rolled.fails("gen-doc")
    rolled.journal.emit("event.detected", "sentinel", {"event_id": "e", "source": "s", "event_type": "t"})
    rolled.record()
    for span, step in ((HOUR, MINUTE), (DAY, QUARTER), (7 * DAY, HOUR), (30 * DAY, DAY), (90 * DAY, DAY)):
        found = rolled.ask(span)
        assert found.step_seconds == step
        assert (found.total.completed, found.total.failed, found.total.success_rate) == (3, 1, 0.75)
        assert found.total.p50_seconds == pytest.approx(20, rel=0.02)
        assert found.total.p95_seconds == pytest.approx(300, rel=0.02)
        assert sum(point.tasks.completed for point in found.points) == 3
        assert sum(point.events for point in found.points) == 1
        assert list(found.generals) == ["gen-doc", "gen-pr"]
        assert span / step <= len(found.points) <= span / step + 1


def test_one_general_is_asked_for(rolled: Rolled) -> None:
    rolled.ends("gen-pr", 10.0)
    rolled.fails("gen-doc")
    rolled.spend("run-1", 0.5, "gen-pr")
    rolled.spend("run-2", 0.25, "gen-doc")
    rolled.record()
    found = rolled.ask(DAY, "gen-doc")
    assert (found.total.completed, found.total.failed, found.total.cost_usd) == (0, 1, 0.25)
    assert list(found.generals) == ["gen-doc"]
    assert (found.total.p50_seconds, found.total.success_rate) == (None, 0.0)


def test_cost_is_told_by_general_and_by_model_and_a_repeated_line_once(rolled: Rolled) -> None:
    rolled.spend("run-1", 0.1)
    rolled.spend("run-1", 0.1)
    rolled.spend("run-2", 0.2, "gen-doc", None)
    rolled.record()
    rolled.spend("run-2", 0.2, "gen-doc", None)
    rolled.spend("run-3", 0.1)
    with (rolled.home.ledger / "2026-02.jsonl").open("a") as file:
        file.write('{"ts": "2026-02-07T10:00:00Z", "run_id": "torn')
    rolled.record()
    found = rolled.ask(DAY)
    assert {name: (one.cost_usd, one.runs) for name, one in found.models.items()} == {
        "opus": (0.2, 2),
        "claude": (0.2, 1),
    }
    assert {name: one.cost_usd for name, one in found.generals.items()} == {"gen-pr": 0.2, "gen-doc": 0.2}
    assert found.points[-1].cost_by_general == {"gen-doc": 0.2, "gen-pr": 0.2}
    assert (found.total.cost_usd, found.total.tokens, found.total.runs) == (0.4, 3000, 3)


def test_the_age_of_a_queue_is_the_highest_of_a_step(rolled: Rolled) -> None:
    rolled.record(tasks=Depth(pending=2, oldest_pending_seconds=40.0))
    rolled.now += 30
    rolled.record(tasks=Depth(pending=1, oldest_pending_seconds=5.0), events=Depth())
    rolled.now += 60
    rolled.record(tasks=Depth())
    ages = [point.queue_age_seconds for point in rolled.ask(HOUR).points if point.queue_age_seconds]
    assert ages == [{"events": 0.0, "tasks": 40.0}, {"tasks": 0.0}]
    assert rolled.ask(30 * DAY).points[-1].queue_age_seconds == {"events": 0.0, "tasks": 40.0}


def test_days_are_those_of_the_court(rolled: Rolled) -> None:
    midnight = datetime(2026, 2, 8, tzinfo=SEOUL).timestamp()
    for rolled.now in (midnight - 60, midnight):
        rolled.ends("gen-pr", 10.0)
    rolled.now = midnight + DAY
    rolled.record()
    days = {point.start: point.tasks.completed for point in rolled.ask(30 * DAY).points if point.tasks.completed}
    assert days == {"2026-02-06T15:00:00.000Z": 1, "2026-02-07T15:00:00.000Z": 1}


def test_days_of_another_time_zone_are_counted_where_they_began(rolled: Rolled) -> None:
    rolled.ends("gen-pr", 10.0)
    rolled.record()
    rolled.now += 3 * DAY
    rolled.zone = ZoneInfo("America/New_York")
    found = rolled.ask(30 * DAY)
    assert (found.total.completed, sum(point.tasks.completed for point in found.points)) == (1, 1)


def test_what_rotation_and_retention_removed_is_still_told(rolled: Rolled) -> None:
    for _ in range(3):
        rolled.ends("gen-pr", 10.0)
    rolled.record()
    rolled.now += DAY
    rotate(rolled.home.journal, datetime.fromtimestamp(rolled.now, UTC), max_bytes=10**9)
    rolled.ends("gen-pr", 20.0)
    rolled.record()
    for path in rolled.home.logs.glob("events-*.log"):
        path.unlink()
    rolled.now += 60 * DAY
    rolled.recorder.close()
    rolled.recorder = RollupRecorder(rolled.home, SEOUL)
    rolled.ends("gen-pr", 30.0)
    rolled.record()
    assert rolled.ask(90 * DAY).total.completed == 5
    assert rolled.ask(30 * DAY).total.completed == 1


def test_fine_steps_are_dropped_and_days_are_kept(rolled: Rolled) -> None:
    rolled.ends("gen-pr", 10.0)
    rolled.record()
    rolled.now += 36 * DAY
    rolled.record()
    with sqlite3.connect(rollups_path(rolled.home)) as store:
        assert [row[0] for row in store.execute("SELECT step FROM counts")] == [DAY]
        assert [row[0] for row in store.execute("SELECT step FROM durations")] == [DAY]
    store.close()
    rolled.now += 400 * DAY
    rolled.record()
    assert rolled.ask(900 * DAY).total.completed == 0


@pytest.mark.parametrize(
    ("age", "span", "step"),
    [(0, HOUR, MINUTE), (DAY, HOUR, QUARTER), (5 * DAY, HOUR, HOUR), (50 * DAY, HOUR, DAY), (0, 900 * DAY, DAY)],
)
def test_an_older_period_is_told_in_coarser_steps(age: float, span: float, step: int) -> None:
    assert step_of(START - age - span, START - age, START) == step


def test_an_empty_or_reversed_period_is_one_step(rolled: Rolled) -> None:
    found = read_history(rollups_path(rolled.home), SEOUL, START, START + DAY, START - DAY)
    assert len(found.points) == 1
    assert found.total.created == 0


def test_lines_that_are_not_events_are_passed_over(rolled: Rolled) -> None:
    odd = [
        "[]", "{}", "x", '{"ts":"now","type":"task.failed","actor":"a","data":{}}',
        '{"ts":"2026-02-07T10:00:00Z","type":"task.created","actor":"king","data":{}}',
        '{"ts":"2026-02-07T10:00:00Z","type":"task.failed","actor":7,"data":{}}',
        '{"ts":"2026-02-07T10:00:00Z","type":["task.failed"],"actor":"a","data":{}}',
        '{"ts":"2026-02-07T10:00:00Z","type":"task.completed","actor":"a","data":null}',
        '{"ts":"2026-02-07T10:00:00Z","type":"task.failed","actor":"\\ud800","data":{}}',
    ]  # fmt: skip
    rolled.home.journal.write_text("\n".join(odd) + "\n")
    rolled.ends("gen-pr", 10.0)
    rolled.record()
    found = rolled.ask(DAY)
    assert found.generals["gen-pr"].completed == 1
    assert found.total.failed == 1, "of a name that is no text, replaced"


def test_a_damaged_file_is_set_aside_and_the_journal_counted_again(rolled: Rolled) -> None:
    rolled.ends("gen-pr", 10.0)
    rolled.record()
    rolled.recorder.close()
    path = rollups_path(rolled.home)
    path.write_bytes(b"not a database at all" * 400)
    rolled.record()
    assert path.with_name("rollups.db.damaged").exists()
    assert rolled.ask(DAY).total.completed == 1


def test_a_file_of_a_later_version_is_left_alone(rolled: Rolled) -> None:
    rolled.record()
    rolled.ends("gen-pr", 10.0)
    rolled.record()
    rolled.recorder.close()
    with sqlite3.connect(rollups_path(rolled.home)) as store:
        store.execute("PRAGMA user_version = 99")
    store.close()
    with pytest.raises(RollupsUnavailable, match="later version of Kingdom"):
        rolled.recorder.record(rolled.now)
    with pytest.raises(RollupsUnavailable, match="later version of Kingdom"):
        rolled.ask(DAY)


def test_without_a_file_there_is_nothing_to_tell(rolled: Rolled) -> None:
    assert rolled.ask(HOUR).total.created == 0
    assert journal_position(rolled.home) is None


def test_roll_ups_in_a_backup_know_no_more_than_its_journal(
    rolled: Rolled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolled.home.config.mkdir()
    (rolled.home.config / "system.yaml").write_text("")
    for _ in range(3):
        rolled.ends("gen-pr", 10.0)
    rolled.record()  # the file stays open, with a log of its own

    @contextlib.contextmanager
    def stopped(home: Home) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(seconds=0.0)
        rolled.ends("gen-pr", 20.0)  # when the court goes on, before the databases are copied
        rolled.record()

    monkeypatch.setattr(backup, "_stopped", stopped)
    made = backup.make_backup(rolled.home, tmp_path / "court.tar.gz")
    assert rolled.ask(DAY).total.completed == 4
    rolled.recorder.close()
    rolled.home.root.rename(tmp_path / "lost")
    restore.restore_backup(Path(made.path), rolled.home.root)
    assert not rollups_path(rolled.home).with_name("rollups.db-wal").exists()
    assert rolled.ask(DAY).total.completed == 3
    rolled.ends("gen-pr", 30.0)
    rolled.record()
    assert rolled.ask(DAY).total.completed == 4, "each line of the restored journal, once"


async def test_the_chamberlain_records_and_keeps_journals_until_they_are_rolled_up(tmp_path: Path) -> None:
    async with Watched(tmp_path / "home").open() as court:
        data = {"task_id": "t", "status": "success", "duration_seconds": 9.0}
        court.emit("task.completed", "gen-pr", **data)
        court.spend(0.5, 100)
        await court.tick()
        found = read_history(rollups_path(court.home), ZoneInfo("UTC"), court.now)
        assert (found.total.completed, found.total.cost_usd) == (1, 0.5)
        assert set(found.points[-1].queue_age_seconds) >= {"events", "tasks"}
        section = RetentionSection(logs_days=1)
        assert is_journal_read(court.home, section, court.now)
        with sqlite3.connect(rollups_path(court.home)) as store:  # as if it had read nothing yet
            place = json.dumps({"version": 1, "after": None, "files": []})
            store.execute("UPDATE positions SET place = ? WHERE source = 'journal'", (place,))
        store.close()
        assert not is_journal_read(court.home, section, court.now + 10 * DAY)
