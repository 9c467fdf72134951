"""A month of a court that is left alone, hour by hour under a clock of its own, with everything that goes wrong."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.support.chamberlains import Watched
from tests.support.simulated_court import SimulatedCourt, date_logs, disk_use, full_disk

ZONE = ZoneInfo("Europe/Berlin")
FIRST = date(2026, 3, 12)  # the clock goes forward on the 29th
DAYS = 31
SEED = 20260312
WEEK = timedelta(days=8)  # what is kept for seven days, until the next cleaning
ROLLUPS_BYTES = 1_200_000  # of a month; after that they stay as large
SYSTEM = "timezone: Europe/Berlin\nchannel: '#court'\nbudget: {daily_usd: 40, warning_percent: 80}"


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory where the machine has such a place: a month of waiting for the disk would be long."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None, prefix="kingdom-month-") as name:
        yield Path(name)


class Month:
    """The script."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.court = SimulatedCourt(watched, SEED)
        self.sizes: dict[date, tuple[int, int]] = {}
        self.away = False  # the chamberlain

    async def step(self, minutes: float, *, disk_is_full: bool = False) -> None:
        watched = self.watched
        watched.now += minutes * 60
        if not disk_is_full:
            await self.court.live()
            date_logs(watched)
        if self.away:
            return
        if self.court.random.random() < 0.03:
            await watched.restart()
        if disk_is_full:
            with full_disk():
                await watched.tick()
        else:
            await watched.tick()

    async def steps(self, count: int, minutes: float = 30, *, disk_is_full: bool = False) -> None:
        for _ in range(count):
            await self.step(minutes, disk_is_full=disk_is_full)

    async def until(self, day: int, hour: int = 0) -> None:
        """Nothing special until that hour of a day of the script, the first being 0."""
        moment = datetime.combine(FIRST + timedelta(days=day), datetime.min.time(), tzinfo=ZONE)
        end = moment.timestamp() + hour * 3600
        while self.watched.now < end:
            await self.step(min(60.0, (end - self.watched.now) / 60))
        self.sizes[FIRST + timedelta(days=day)] = disk_use(self.watched)

    async def run(self) -> None:
        machine, court = self.watched.machine, self.court
        await self.until(4, 12)
        machine.memory = 96.0  # two hours of red
        await self.steps(4)
        machine.memory = 10.0
        await self.until(8, 14)
        machine.disk = 99.0  # an hour in which nothing can be written
        await self.steps(6, 10, disk_is_full=True)
        machine.disk = 10.0
        await self.until(12, 12)
        await self._king_dies()
        await self.until(15, 12)
        await self._script(["failed"] * 3 + ["success"], general="gen-pr")
        await self.until(16, 12)
        await self._script(["timeout", "success"] * 6, general="gen-doc")
        await self.until(18, 12)
        court.cost = 35.0  # 30 March: dear work
        await self._script(["success"])
        await self._script(["success"])
        court.cost = None
        await self.until(21, 20)
        self.away = True
        await self.until(23, 12)
        self.away = False
        await self.watched.restart()
        await self.until(25, 15)
        self.watched.now -= 3600  # somebody set the clock back
        await self.until(DAYS)
        court.arrivals = 0.0
        while court.busy:
            await self.step(30)
        await self.until(DAYS, 12)

    async def _king_dies(self) -> None:
        court = self.court
        court.king_pid, arrivals, court.arrivals = None, court.arrivals, 0.0
        await court.detect()
        await self.steps(35, 1)
        court.king_pid, court.arrivals = 11, arrivals
        await self.steps(3, 1)

    async def _script(self, outcomes: list[str], general: str | None = None) -> None:
        """Tasks that end as the script says, one after the other, all of one general, within the hour."""
        court = self.court
        usual, court.arrivals, court.discards = (court.arrivals, court.discards), 0.0, 0.0
        while court.busy:
            await self.step(30)
        court.outcomes = list(outcomes)
        for _ in outcomes:
            await court.detect()
            await court.dispatch()
            for work in court.work:
                if general is not None:
                    work.task = work.task.model_copy(update={"target_general": general})
                work.ends = self.watched.now + 1
            await self.step(2)
        assert not court.busy
        assert not court.outcomes
        court.arrivals, court.discards = usual


@pytest.mark.walk
@pytest.mark.timeout(180)
async def test_a_month_with_everything_that_goes_wrong(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(folder, SYSTEM)
    watched.now = datetime.combine(FIRST, datetime.min.time(), tzinfo=ZONE).timestamp()
    async with watched.open():
        month = Month(watched)
        await month.run()
        check_reports(month)
        check_alerts(month)
        await check_leftovers(month)


def check_reports(month: Month) -> None:
    """Every day has one report, and each adds up with what the court did."""
    folder = month.watched.home.logs / "analysis"
    reports = {path.stem[7:]: json.loads(path.read_text()) for path in folder.glob("report-*.json")}
    wanted = {(FIRST + timedelta(days=number)) for number in range(DAYS)}
    assert set(reports) == {day.isoformat() for day in wanted}
    for day in wanted:
        expected, report = month.court.days[day], reports[day.isoformat()]
        counts = expected.types
        assert report["tasks"] == {
            "created": counts["task.created"],
            "completed": counts["task.completed"],
            "failed": counts["task.failed"],
            "cancelled": 0,
            "needs_human": 0,
        }, day
        assert report["soldiers"] == {"spawned": counts["soldier.spawned"], "timeout": counts["soldier.timeout"]}, day
        averages = {name: sum(seconds) / len(seconds) for name, seconds in expected.seconds.items()}
        assert report["avg_duration_seconds"] == pytest.approx(averages, abs=0.51), day
        assert float(report["cost"]["usd"]) == pytest.approx(expected.cost, abs=0.006), day
    sent = [message["context"]["report"] for message in month.court.said if message["type"] == "report"]
    assert [report["date"] for report in sent] == sorted(reports), "each once, in order"
    assert sent == [reports[report["date"]] for report in sent]


def check_alerts(month: Month) -> None:
    """People were told of each thing once when it began and once when it was over, and of nothing else."""
    contexts = [message["context"] for message in month.court.said if "alert" in message["context"]]
    assert [(context["alert"], context["state"]) for context in contexts] == [
        ("health", "red"),  # the processors
        ("health", "over"),
        ("health", "red"),  # the disk
        ("health", "over"),
        ("silent:king", "silent"),
        ("stale", "waiting"),
        ("silent:king", "over"),
        ("stale", "over"),
        ("failures:gen-pr", "failing"),
        ("failures:gen-pr", "over"),
        ("timeouts", "many"),
        ("timeouts", "over"),
        ("tokens:court", "warning"),
        ("tokens:court", "critical"),
        ("tokens:court", "over"),
    ]
    heard = month.court.heard
    levels = [(fields["from"], fields["to"]) for kind, fields in heard if kind == "system.health_changed"]
    assert levels == [
        ("green", "red"),
        ("red", "green"),
        ("green", "red"),
        ("red", "green"),
        ("green", "yellow"),  # timeouts
        ("yellow", "green"),
    ]
    tokens = [(fields["from"], fields["to"]) for kind, fields in heard if kind == "system.token_status_changed"]
    assert tokens == [("ok", "warning"), ("warning", "critical"), ("critical", "ok")]
    restarted = [fields for kind, fields in heard if kind == "recovery.session_restarted"]
    assert [fields["target"] for fields in restarted] == ["king"]
    assert [kind for kind, _ in heard if kind in ("soldier.killed", "system.session_orphaned")] == []
    resets = [fields["date"] for kind, fields in heard if kind == "system.token_budget_reset"]
    assert len(resets) == len(set(resets)) == DAYS - 1, "each midnight once; one passed while nobody watched"


async def check_leftovers(month: Month) -> None:
    """Nothing is open, nothing is older than it may be, and what lies there is what a week leaves behind."""
    watched = month.watched
    depths = await watched.services.bus.depth()
    assert all(depth.pending + depth.processing + depth.dead == 0 for depth in depths.values())
    now, root = watched.now, watched.home.root
    kept = {"state/results": 8, "state/prompts": 4, "logs/sessions": 8, "queue/events/completed": 8, "logs": 8}
    for place, days in kept.items():
        ages = [(now - path.stat().st_mtime) / 86400 for path in (root / place).glob("[!.]*") if path.is_file()]
        if place.startswith("queue"):
            assert ages, "something is kept"
        assert max(ages, default=0) < days, place
    for day, (count, size) in month.sizes.items():
        lately = [
            counts.types["event.detected"] for when, counts in month.court.days.items() if day - WEEK <= when <= day
        ]
        month_long = [counts.types["event.detected"] for when, counts in month.court.days.items() if when <= day]
        assert count < 15 * sum(lately) + sum(month_long) + 200, f"files on {day}"
        assert size < 14_000 * sum(lately) + 100_000 + ROLLUPS_BYTES, f"bytes on {day}"
