"""Schedules: each slot once, over restarts, midnight, gates and changes of the clock."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.files import write_json
from kingdom.court.king.king import King
from kingdom.court.models import timestamp
from tests.support.kings import Realm, looks

HOUR = 3600.0


def moment(text: str) -> float:
    return datetime.fromisoformat(f"2026-{text}:00").replace(tzinfo=UTC).timestamp()


@pytest.fixture
async def realm(tmp_path: Path) -> AsyncIterator[Realm]:
    async with Realm(tmp_path).open() as realm:
        realm.clock.now = moment("02-07T08:30")
        yield realm


def install(realm: Realm, **schedule: Any) -> None:
    realm.install("gen-briefing", schedules=[{"name": "morning", "cron": "0 9 * * *", **schedule}])


async def reigning(realm: Realm) -> King:
    king = realm.king()
    await king.start()
    await looks(king)
    return king


async def at(realm: Realm, king: King, text: str) -> list[str]:
    """Look at a time, end what was started, and say for which slots it was."""
    realm.clock.now = moment(text)
    await looks(king)
    done = await realm.work("gen-briefing")
    await looks(king)
    return [task.event_id.removeprefix("schedule-gen-briefing-morning-2026") for task in done]


async def test_a_slot_becomes_one_task_and_ends_in_a_report(realm: Realm) -> None:
    install(realm, task_type="briefing", payload={"about": "all"}, timezone="Asia/Seoul", cron="0 18 * * *")
    king = await reigning(realm)
    assert realm.tasks() == []
    assert await king.tick() == 30 * 60.0
    realm.clock.now = moment("02-07T09:00")
    await looks(king)
    (task,) = realm.tasks()
    assert task.event_id == "schedule-gen-briefing-morning-20260207T1800"
    assert (task.type, task.target_general) == ("briefing", "gen-briefing")
    assert task.payload == {"about": "all", "schedule": "morning", "slot": "2026-02-07T18:00+09:00"}
    await looks(king)
    assert len(realm.tasks()) == 1
    await realm.work("gen-briefing", summary="all is well")
    await looks(king)
    assert [(message.type, message.content) for message in realm.messages()] == [
        ("report", "gen-briefing finished morning\nall is well")
    ]
    assert [kind for kind, _ in realm.journal()] == ["task.created"]
    assert king.report()["active"] == 0


async def test_each_day_has_its_slot_whoever_is_king(realm: Realm) -> None:
    install(realm)
    king = await reigning(realm)
    assert await at(realm, king, "02-07T09:00") == ["0207T0900"]
    assert await at(realm, king, "02-07T23:59") == []
    king = await reigning(realm)
    assert await at(realm, king, "02-08T00:01") == []
    assert await at(realm, king, "02-08T09:00") == ["0208T0900"]
    king = await reigning(realm)
    assert await at(realm, king, "02-08T09:01") == []
    sent = json.loads((realm.home.role("king") / "schedule-sent.json").read_text())
    assert sent == {
        "gen-briefing/morning": {
            "times": "0 9 * * * UTC",
            "until": "2026-02-08T09:00:00.000Z",
            "due": None,
            "sent": "schedule-gen-briefing-morning-20260208T0900",
        }
    }


@pytest.mark.parametrize(("missed", "made"), [("run_once", ["0209T0900"]), ("skip", [])])
async def test_slots_missed_while_the_court_was_down(realm: Realm, missed: str, made: list[str]) -> None:
    install(realm, missed=missed)
    king = await reigning(realm)
    await king.stop()
    realm.clock.now = moment("02-09T20:00")
    king = await reigning(realm)
    assert await at(realm, king, "02-09T20:00") == made
    assert await at(realm, king, "02-10T09:00") == ["0210T0900"]


async def test_a_slot_that_may_not_start_is_held_over_a_restart_and_then_runs(realm: Realm) -> None:
    install(realm, missed="skip")
    health = realm.home.role("chamberlain") / "health.json"
    health.parent.mkdir(parents=True)
    king = await reigning(realm)
    write_json(health, {"level": "red", "ts": timestamp(moment("02-07T09:00"))})
    assert await at(realm, king, "02-07T09:00") == []
    ((reason, hold),) = king.report()["holds"].items()
    assert reason == "health is red"
    assert hold["events"] == ["schedule-gen-briefing-morning-20260207T0900"]
    king = await reigning(realm)
    assert await at(realm, king, "02-07T11:00") == []
    write_json(health, {"level": "green", "ts": timestamp(moment("02-07T11:30"))})
    assert await at(realm, king, "02-07T11:30") == ["0207T0900"]
    assert await at(realm, king, "02-07T11:31") == []


async def test_a_clock_set_back_an_hour_runs_no_slot_twice(realm: Realm) -> None:
    install(realm, cron="*/30 * * * *")
    king = await reigning(realm)
    assert await at(realm, king, "02-07T09:00") == ["0207T0900"]
    assert await at(realm, king, "02-07T08:00") == []
    assert await at(realm, king, "02-07T08:30") == []
    king = await reigning(realm)
    assert await at(realm, king, "02-07T09:00") == []
    assert await at(realm, king, "02-07T09:30") == ["0207T0930"]


async def test_a_clock_that_was_days_ahead_does_not_silence_a_schedule(realm: Realm) -> None:
    install(realm)
    king = await reigning(realm)
    assert await at(realm, king, "08-07T09:00") == ["0807T0900"]
    assert await at(realm, king, "02-07T09:30") == []
    assert await at(realm, king, "02-08T09:00") == ["0208T0900"]


async def test_new_times_count_from_the_change_on(realm: Realm) -> None:
    install(realm)
    king = await reigning(realm)
    assert await at(realm, king, "02-07T09:00") == ["0207T0900"]
    realm.clock.now = moment("02-07T20:00")
    install(realm, cron="0 12 * * *")
    assert await at(realm, king, "02-07T20:00") == []
    assert await at(realm, king, "02-08T12:00") == ["0208T1200"]


async def test_a_failed_run_of_a_schedule_is_told(realm: Realm) -> None:
    install(realm)
    king = await reigning(realm)
    realm.clock.now = moment("02-07T09:00")
    await looks(king)
    await realm.work("gen-briefing", status="failed", error="no network")
    await looks(king)
    (message,) = realm.messages()
    assert (message.type, message.urgency) == ("notification", "high")
    assert "no network" in message.content


@pytest.mark.parametrize("text", ["", "[1]", '{"gen-briefing/morning": 7}', '{"gen-briefing/morning": {"until": "x"}}'])
async def test_a_damaged_file_follow_up_ended_from_now(realm: Realm, text: str) -> None:
    install(realm)
    folder = realm.home.role("king")
    folder.mkdir(parents=True)
    (folder / "schedule-sent.json").write_text(text)
    king = await reigning(realm)
    assert await at(realm, king, "02-07T09:00") == ["0207T0900"]
