"""What is kept how long, what is never removed, and when it is done."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from kingdom.court.chamberlain.cleanup import Cleanup, is_journal_read
from kingdom.court.chamberlain.config import RetentionSection
from kingdom.court.models import Event, Message, Task
from kingdom.court.queues import EVENTS, MESSAGES, TASKS, put_documents
from kingdom.journal import rotate
from tests.support.chamberlains import Watched

DAY = 86400.0
UTC_ZONE = ZoneInfo("UTC")


@pytest.fixture
async def court(tmp_path: Path) -> AsyncIterator[Watched]:
    async with Watched(tmp_path).open() as watched:
        yield watched


async def clean(court: Watched, section: RetentionSection | None = None) -> int:
    return sum([removed async for removed in cleaning(court, section).run()])


async def planned(court: Watched, section: RetentionSection | None = None) -> dict[str, str]:
    return {item.path: item.why async for item in cleaning(court, section).plan()}


def cleaning(court: Watched, section: RetentionSection | None = None) -> Cleanup:
    warned: list[tuple[str, str]] = []
    court.warned = warned  # type: ignore[attr-defined]
    return Cleanup(
        court.home,
        court.services.bus,
        court.barracks,
        section or RetentionSection(),
        court.now,
        lambda about, message: warned.append((about, message)),
    )


def files(court: Watched, *folders: str) -> set[str]:
    root = court.home.root
    found = (path for folder in folders for path in (root / folder).rglob("*") if not path.is_dir())
    return {str(path.relative_to(root)) for path in found}


def moment(court: Watched) -> datetime:
    return datetime.fromtimestamp(court.now, UTC)


async def test_each_kind_of_file_goes_when_its_time_is_over_and_not_before(court: Watched) -> None:
    kinds = {
        "state/results/task-20260101-00{}.json": 7,
        "state/results/task-20260101-00{}-raw.json": 7,
        "state/results/task-20260101-00{}-soldier-id": 7,
        "state/results/task-20260101-00{}-session-id": 7,
        "state/prompts/task-20260101-00{}.md": 3,
        "logs/sessions/soldier-1-{}.json": 7,
        "logs/sessions/soldier-1-{}.err": 7,
        "logs/events-2026010{}.log": 7,
        "state/sentinel/seen/evt-github-{}": 30,
        "logs/analysis/report-2024-01-0{}.json": 400,
    }
    for name, days in kinds.items():
        court.old(name.format(1), days + 0.01)
        court.old(name.format(2), days - 0.01)
    for name, days in {"system": 7.01, "tasks": 6.99, "metrics": 7.01}.items():
        court.old(f"logs/{name}.log.old", days)
    other = ("state/results/notes.txt", "logs/system.log", "state/king/task-seq", "logs/sessions/.hidden", "state/x/y")
    for name in other:
        court.old(name, 1000)
    folders = [
        court.old("state/soldiers/soldier-1-1/identity.json", 9).parent,
        court.old("workspace/.handover/task-20260101-001/result.json", 9).parent,
    ]
    for folder in folders:
        os.utime(folder, (court.now - 9 * DAY,) * 2)
    plan = await planned(court)
    expected = {name.format(1) for name in kinds} | {"logs/system.log.old", "logs/metrics.log.old"}
    assert set(plan) == expected | {"state/soldiers/soldier-1-1", "workspace/.handover/task-20260101-001"}
    assert plan["state/prompts/task-20260101-001.md"] == "prompts: 3.0 days old, kept 3"
    assert await clean(court) == len(plan)
    left = files(court, "state", "logs")
    assert not expected & left
    assert {name.format(2) for name in kinds} | {"logs/tasks.log.old", *other} <= left
    assert not any(folder.exists() for folder in folders)


async def test_what_was_left_half_written_goes_after_a_day(court: Watched) -> None:
    old, new = court.old("state/results/.tmp-7-x.json", 1.1), court.old("state/prompts/.tmp-7-x.md", 0.9)
    of_a_role, own = court.old("state/king/.tmp-7-task-seq", 1.1), court.old("state/king/task-seq", 90)
    assert await clean(court) == 2
    assert [path.exists() for path in (old, new, of_a_role, own)] == [False, True, False, True]


async def test_finished_documents_leave_the_queues_and_others_stay_whatever_their_age(court: Watched) -> None:
    bus, at = court.services.bus, moment(court)
    events = [Event(id=f"evt-github-{n}", type="a.b", source="github", created_at=at) for n in range(3)]
    tasks = [
        Task(id=f"task-20260207-00{n}", event_id=f"evt-github-{n}", target_general="gen-pr", type="x", created_at=at)
        for n in range(3)
    ]
    messages = [Message(id=f"msg-20260207-00{n}", type="report", content="x", created_at=at) for n in range(3)]
    await put_documents(bus, [*events, *tasks, *messages])
    for stream in (EVENTS, TASKS, MESSAGES):
        first, second = await bus.claim(stream, worker="w", limit=2, lease=400 * DAY)
        await bus.settle(done=[first])
        assert second.attempt == 1
    before = files(court, "queue")
    court.now += 6.9 * DAY
    assert await planned(court) == {}
    assert await clean(court) == 0
    court.now += 0.2 * DAY
    gone = {
        "queue/events/completed/evt-github-0.json",
        "queue/tasks/completed/task-20260207-000.json",
        "queue/messages/sent/msg-20260207-000.json",
    }
    assert set(await planned(court)) == gone
    assert await clean(court) == 3
    court.now += 300 * DAY
    assert await clean(court) == 0
    assert {path for path in before if path.endswith(".json") and "/." not in path} - files(court, "queue") == gone


async def test_everything_of_a_task_whose_question_is_open_stays(court: Watched) -> None:
    bus, at = court.services.bus, moment(court)
    event = Event(id="evt-github-1", type="a.b", source="github", created_at=at)
    asked, answered = (
        Task(id=f"task-20260207-00{n}", event_id=cause, target_general="gen-pr", type="x", created_at=at)
        for n, cause in ((1, "evt-github-1"), (2, "evt-github-2"))
    )
    await put_documents(bus, [event, asked, answered])
    held_event = await bus.claim(EVENTS, worker="king", lease=400 * DAY)
    held = await bus.claim(TASKS, worker="gen-pr", limit=2)
    await bus.settle(done=[(held[0], "needs_human"), held[1]])
    for task in (asked, answered):
        court.home.results.mkdir(parents=True, exist_ok=True)
        for name in (f"{task.id}.json", f"{task.id}-session-id", f"{task.id}-soldier-id"):
            court.old(f"state/results/{name}", 0, f"soldier-{task.id}")
        court.old(f"state/prompts/{task.id}.md", 0)
        court.old(f"logs/sessions/soldier-{task.id}.json", 0)
    court.now += 60 * DAY
    plan = await planned(court)
    assert not [path for path in plan if "001" in path], "of the open one nothing goes"
    assert {path for path in plan if path.startswith(("state", "logs"))} == {
        "state/results/task-20260207-002.json",
        "state/results/task-20260207-002-session-id",
        "state/results/task-20260207-002-soldier-id",
        "state/prompts/task-20260207-002.md",
        "logs/sessions/soldier-task-20260207-002.json",
    }
    assert [path for path in plan if path.startswith("queue/tasks")] == [f"queue/tasks/completed/{answered.id}.json"]
    await clean(court)
    assert not files(court, "state/prompts") - {"state/prompts/task-20260207-001.md"}
    assert files(court, "queue/tasks/completed") == {"queue/tasks/completed/task-20260207-001.json"}
    await bus.settle(done=held_event)
    court.now += 1
    await clean(court)
    assert files(court, "state/results", "state/prompts", "logs/sessions", "queue/tasks/completed") == set()


async def test_a_question_of_a_schedule_stays_while_the_king_has_it_in_hand(court: Watched) -> None:
    bus, at = court.services.bus, moment(court)
    task = Task(id="task-20260207-001", event_id="schedule-x", target_general="gen-pr", type="x", created_at=at)
    await put_documents(bus, [task])
    await bus.settle(done=[(held, "needs_human") for held in await bus.claim(TASKS, worker="gen-pr")])
    result = court.old("state/results/task-20260207-001.json", 0, json.dumps({"status": "needs_human"}))
    book = court.old("state/king/.book", 0, '{"cases":{"schedule-x":{"task":"task-20260207-001"}}}\n')
    court.now += 30 * DAY
    await clean(court)
    assert result.exists()
    book.write_text("")
    await clean(court)
    assert not result.exists()


async def test_the_log_of_a_soldier_that_runs_stays(court: Watched) -> None:
    kept, gone = court.old("logs/sessions/soldier-1-1.json", 30), court.old("logs/sessions/soldier-1-2.json", 30)
    court.barracks.add("soldier-1-1", 0)
    await clean(court)
    assert (kept.exists(), gone.exists()) == (True, False)


async def test_links_are_not_followed_and_nothing_outside_the_home_is_touched(court: Watched, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    victim = outside / "task-20260101-001.md"
    victim.write_text("mine")
    os.utime(victim, (0, 0))
    (court.home.state / "prompts").symlink_to(outside)
    court.home.results.mkdir(parents=True)
    link = court.home.results / "task-20260101-001.json"
    link.symlink_to(victim)
    os.utime(link, (0, 0), follow_symlinks=False)
    soldier = court.old("state/soldiers/soldier-1-1/x", 90).parent
    (soldier / "out").symlink_to(outside)
    os.utime(soldier, (0, 0))
    assert await clean(court) == 1
    assert victim.read_text() == "mine"
    assert link.is_symlink(), "not a file: left alone"
    assert not soldier.exists()
    said = "\n".join(message for _, message in court.warned)  # type: ignore[attr-defined]
    assert "prompts is a link" in said
    assert "task-20260101-001.json is not a file" in said


async def test_what_may_not_be_removed_is_told_of_and_the_rest_goes_on(
    court: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, gone = court.old("state/prompts/task-20260101-001.md", 90), court.old("logs/sessions/s.json", 90)
    unlink = os.unlink

    def refuse(name: str, **options: int) -> None:
        if name == stuck.name:
            raise PermissionError(errno.EACCES, "Permission denied")
        unlink(name, **options)

    monkeypatch.setattr(os, "unlink", refuse)  # for root, who may do everything, no folder is read-only
    assert await clean(court) == 1
    assert (stuck.exists(), gone.exists()) == (True, False)
    assert any("cannot be removed" in message for _, message in court.warned)  # type: ignore[attr-defined]


async def test_a_folder_with_the_name_of_a_file_is_told_of_and_the_rest_goes_on(court: Watched) -> None:
    folder = court.home.prompts / "task-20260101-001.md"
    folder.mkdir(parents=True)
    os.utime(folder, (0, 0))
    gone = court.old("state/prompts/task-20260101-002.md", 90)
    assert await clean(court) == 1
    assert (folder.exists(), gone.exists()) == (True, False)
    assert (
        "clean state/prompts/task-20260101-001.md",
        "state/prompts/task-20260101-001.md is not a file: it is left alone",
    ) in (
        court.warned  # type: ignore[attr-defined]
    )


async def test_a_file_that_is_written_again_between_the_look_and_the_removal_stays(court: Watched) -> None:
    from kingdom.court.chamberlain.retention import find_expired, remove_expired, retention_rules

    path = court.old("state/prompts/task-20260101-001.md", 90)
    rule = next(rule for rule in retention_rules(RetentionSection()) if rule.name == "prompts")
    found = list(find_expired(court.home.root, rule, court.now, lambda *_: None))
    os.utime(path, (court.now, court.now))
    assert remove_expired(court.home.root, rule, found, court.now, lambda *_: None) == 0
    assert path.exists()


async def test_cleaning_is_at_three_and_made_up_when_it_was_missed(court: Watched) -> None:
    await court.tick()  # 10:00: the first look of all makes up for the night before

    def prompt() -> Path:
        return court.old("state/prompts/task-20260101-001.md", 5)

    path = prompt()
    await court.tick(16 * 3600)  # 02:00
    assert path.exists()
    await court.tick(3600)  # 03:00
    assert not path.exists()
    path = prompt()
    await court.tick(3600)
    assert path.exists(), "once a day"
    court.now += 3 * DAY
    await court.restart()
    await court.tick()
    assert not path.exists()
    cleaned = court.events("recovery.files_cleaned")
    assert [item["deleted_count"] for item in cleaned][:1] == [1]


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [("Europe/Berlin", "2026-03-29", 2), ("Europe/Berlin", "2026-10-25", 4), ("America/Santiago", "2026-09-06", 2)],
)
async def test_the_days_of_a_clock_change_have_one_cleaning_each(
    tmp_path: Path, zone: str, day: str, hours: int
) -> None:
    async with Watched(tmp_path, f"timezone: {zone}").open() as court:
        midnight = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).timestamp()
        court.now = midnight - 3600
        await court.restart()
        await court.tick()
        cleanings = []
        for quarter in range(4 * 26):
            court.now = midnight + quarter * 900
            court.old("state/prompts/task-20260101-001.md", 5)
            await court.tick()
            if not (court.home.prompts / "task-20260101-001.md").exists():
                cleanings.append(quarter / 4)
        assert cleanings[0] == hours, "three o'clock local time"
        assert len([at for at in cleanings if at < 23]) == 1


async def test_closed_files_of_the_journal_stay_until_they_were_read(court: Watched) -> None:
    await court.tick()
    court.emit("task.started", "gen-pr", task_id="t")
    court.now += DAY
    done = rotate(court.home.journal, datetime.fromtimestamp(court.now, UTC))
    assert done is not None
    os.utime(done.file, (court.now - 8 * DAY,) * 2)
    section = RetentionSection()
    court.now += 8 * DAY
    assert not is_journal_read(court.home, section, court.now), "the chamberlain was away since"
    async for _ in cleaning(court).run(with_journal=False):
        pass
    assert done.file.exists()
    await court.restart()
    await court.tick()
    assert is_journal_read(court.home, section, court.now)
    assert not done.file.exists()
    assert court.chamberlain.report()["health"] == "green"
    days = json.loads((court.home.role("chamberlain") / "memory.json").read_text())["tally"]["days"]
    assert sum(day["types"].get("task.started", 0) for day in days.values()) == 1, "read first, then removed"
