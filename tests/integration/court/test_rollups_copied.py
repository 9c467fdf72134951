"""The copy of the roll-ups, with which the next machine that leads the court goes on."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from kingdom.court.home import Home
from kingdom.court.machines.own_lead import OwnLead, write_lead
from kingdom.court.machines.replica import shared_files
from kingdom.court.rollups.store import DAY, HOUR, RollupStore, rollups_copy_path
from kingdom.journal import rotate
from tests.support.chamberlains import Watched
from tests.support.rolled import WAITING, Rolled


@pytest.fixture
def rolled(tmp_path: Path) -> Rolled:
    return Rolled(tmp_path / "home")


def test_the_next_machine_that_leads_goes_on_with_the_roll_ups(rolled: Rolled, tmp_path: Path) -> None:
    rolled.ends("gen-pr", 10.0)
    rolled.spend("run-1", 0.5)
    assert rotate(rolled.home.journal, datetime.fromtimestamp(rolled.now, UTC), max_bytes=1)
    rolled.record(tasks=WAITING)
    for old in rolled.home.logs.glob("events-*.log"):
        old.unlink()  # as after its retention
    rolled.now += DAY
    rolled.fails("gen-pr")
    rolled.copy()
    rolled.fails("gen-pr")  # after the copy

    other = _taken_over(rolled, tmp_path / "other")
    other.record(tasks=WAITING)
    other.ends("gen-pr", 10.0)
    other.record(tasks=WAITING)
    found = other.ask(7 * DAY).total
    assert (found.completed, found.failed, found.cost_usd) == (2, 2, 0.5)

    other.now += 3 * HOUR
    other.ends("gen-pr", 10.0)
    other.copy()
    other.recorder.close()
    rolled.now = other.now
    for name in ("events.log", "rollups.copy"):
        there = next(other.home.root.rglob(name))
        shutil.copyfile(there, rolled.home.root / there.relative_to(other.home.root))
    rolled.recorder.close()
    rolled.record(tasks=WAITING)
    assert (rolled.ask(7 * DAY).total.completed, rolled.ask(7 * DAY).total.failed) == (3, 2)


def test_own_roll_ups_that_are_newer_than_the_copy_stay(rolled: Rolled) -> None:
    rolled.ends("gen-pr", 10.0)
    rolled.copy()
    rolled.now += 60
    rolled.fails("gen-pr")
    rolled.record(tasks=WAITING)
    rolled.journal.close()
    rolled.home.journal.unlink()
    rolled.recorder.close()
    rolled.record(tasks=WAITING)
    assert (rolled.ask(HOUR).total.completed, rolled.ask(HOUR).total.failed) == (1, 1)


@pytest.mark.parametrize("damage", [b"", b"not a database at all, but longer than its header" * 40])
def test_a_damaged_copy_is_not_used(rolled: Rolled, caplog: pytest.LogCaptureFixture, damage: bytes) -> None:
    rolled.ends("gen-pr", 10.0)
    rolled.copy()
    rolled.recorder.close()
    rollups_copy_path(rolled.home).write_bytes(damage)
    rolled.record(tasks=WAITING)
    assert rolled.ask(HOUR).total.completed == 1
    assert ("the copy of the roll-ups is not used" in caplog.text) == bool(damage)


def test_a_copy_that_is_ahead_of_the_journal_of_the_next_machine_counts_each_line_once(
    rolled: Rolled, tmp_path: Path
) -> None:
    for number in range(5):
        rolled.ends("gen-pr", 10.0)
        rolled.spend(f"run-{number}", 0.5)
    rolled.copy()
    other = _taken_over(rolled, tmp_path / "other")
    for path in (other.home.journal, *other.home.ledger.iterdir()):  # the last lines did not reach it
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))
    other.record(tasks=WAITING)
    other.recorder.close()  # it stops before anything new happens
    for number in range(3):
        other.fails("gen-pr")
        other.spend(f"other-{number}", 0.5)
    other.record(tasks=WAITING)
    found = other.ask(HOUR).total
    assert (found.completed, found.failed, found.cost_usd) == (5, 3, 4.0)


class _Saved:
    """The lead of a machine beside which another stands by: what is saved, and the copy at that time."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.saved: list[tuple[str, bool]] = []
        self.problem: Exception | None = None

    async def save(self, *paths: Path) -> None:
        if self.problem is not None:
            raise self.problem
        copied = rollups_copy_path(self._home).exists()
        self.saved += [(path.name, copied) for path in paths]


@contextlib.asynccontextmanager
async def _shared_court(root: Path) -> AsyncIterator[tuple[Watched, _Saved]]:
    async with Watched(root).open() as court:
        write_lead(court.home, OwnLead(True, "seat", 1, shared=True, until=float("inf")))
        lead = _Saved(court.home)
        court.services.lead = lead  # type: ignore[assignment]
        yield court, lead


async def test_the_journal_is_saved_for_the_next_machine_before_the_copy_that_has_a_position_in_it(
    tmp_path: Path,
) -> None:
    async with _shared_court(tmp_path / "home") as (court, lead):
        court.emit("task.completed", "gen-pr", task_id="t", status="success", duration_seconds=9.0)
        await court.tick()
        assert lead.saved == [("events.log", False), ("ledger", False)]
        first = rollups_copy_path(court.home).stat().st_ino
        await court.tick(HOUR - 60)
        assert rollups_copy_path(court.home).stat().st_ino == first, "no second copy within the hour"
        await court.tick(60)
        assert rollups_copy_path(court.home).stat().st_ino != first


@pytest.mark.parametrize("where", ["database", "disk"])
async def test_a_copy_that_fails_is_tried_again_an_hour_later_and_journals_expire_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    tries: list[float] = []
    async with _shared_court(tmp_path / "home") as (court, lead):
        if where == "database":
            lead.problem = OSError("the database is away")
        real = RollupStore.write_copy

        def write_copy(store: RollupStore, path: Path) -> None:
            tries.append(court.now)
            if len(tries) < 3:
                raise sqlite3.OperationalError("database or disk is full")
            real(store, path)

        monkeypatch.setattr(RollupStore, "write_copy", write_copy)
        court.configure("retention: {logs_days: 1}\n")
        old = court.home.logs / "events-20260101.log"
        old.write_text("")
        os.utime(old, (court.now - 5 * DAY,) * 2)
        for _ in range(30):
            await court.tick(120)
        assert not old.exists()
        assert caplog.text.count("copy of the roll-ups: ") == 1
        assert court.chamberlain.report()["health"] == "green"
        lead.problem = None
        await court.tick(HOUR)
        await court.tick(HOUR)
        if where == "database":
            await court.tick(HOUR)
        assert [round(later - before) >= HOUR for before, later in pairwise(tries)] == [True, True]
        assert rollups_copy_path(court.home).exists()
        assert caplog.text.count("copy of the roll-ups: ") == (1 if where == "disk" else 2)


def _taken_over(leader: Rolled, root: Path) -> Rolled:
    """Another machine with the shared files of the one that led."""
    leader.recorder.close()
    other = Rolled(root, leader.zone)
    other.now = leader.now
    for path, _ in shared_files(leader.home):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(leader.home.root / path, root / path)
    return other
