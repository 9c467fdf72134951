"""What the chamberlain sees, writes down and tells, look by look."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kingdom.court.models import Event, Task, timestamp
from kingdom.court.queues import EVENTS, TASKS, put_documents
from kingdom.court.supervisor.record import ProcessHandle, RoleRecord, SupervisorRecord
from tests.support.chamberlains import Watched


@pytest.fixture
async def court(tmp_path: Path) -> AsyncIterator[Watched]:
    watched = Watched(tmp_path, "channel: '#court'\nbudget: {daily_usd: 300}")
    async with watched.open():
        yield watched


def event(name: str, at: float) -> Event:
    moment = datetime.fromtimestamp(at, UTC)
    return Event(id=name, type="github.pr.opened", source="github", created_at=moment)


def task(name: str, at: float, event_id: str = "evt-github-1") -> Task:
    moment = datetime.fromtimestamp(at, UTC)
    return Task(id=name, event_id=event_id, target_general="gen-pr", type="review", created_at=moment)


# ── health ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_health_is_written_every_look_and_each_change_goes_into_the_journal_once(court: Watched) -> None:
    await court.tick()
    assert court.health() == "green"
    court.machine.cpu = 72
    for _ in range(3):
        await court.tick(30)
    court.machine.disk = 99
    for _ in range(3):
        await court.tick(30)
    court.machine.cpu = court.machine.disk = 5
    await court.tick(30)
    document = json.loads((court.home.role("chamberlain") / "health.json").read_text())
    assert document["level"] == "green"
    assert document["ts"] == datetime.fromtimestamp(court.now, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
    changes = court.events("system.health_changed")
    assert [(item["from"], item["to"], item["reason"]) for item in changes] == [
        ("green", "yellow", "cpu_percent: 72"),
        ("yellow", "red", "disk_percent: 99"),
        ("red", "green", "all resources are calm"),
    ]
    warnings = court.events("system.resource_warning")
    assert [(item["metric"], item["value"], item["threshold"]) for item in warnings] == [
        ("cpu_percent", 72, 70),
        ("disk_percent", 99, 98),
    ]
    assert court.alerts() == [("health", "red"), ("health", "over")], "yellow alone is nothing to wake people for"


async def test_an_alert_is_sent_once_also_across_restarts(court: Watched) -> None:
    court.machine.memory = 99
    for _ in range(3):
        await court.tick(30)
        await court.restart()
    assert court.alerts() == [("health", "red")]
    message = court.messages()[0]
    assert (message["type"], message["channel"], message["urgency"]) == ("notification", "#court", "urgent")
    assert message["content"] == "Health is red: memory_percent: 99"


async def test_many_timeouts_make_health_yellow_for_an_hour(court: Watched) -> None:
    for number in range(5):
        court.emit("soldier.timeout", "gen-pr", task_id="t", soldier_id=f"s{number}", timeout_seconds=1800)
    await court.tick(30)
    assert court.health() == "yellow"
    await court.tick(3000)
    assert court.alerts() == [("timeouts", "many")]
    await court.tick(600)
    assert court.health() == "green"
    assert court.alerts() == [("timeouts", "many"), ("timeouts", "over")]


# ── anomalies ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_three_failures_in_a_row_of_one_general_are_told_once(court: Watched) -> None:
    for number in range(2):
        court.emit("task.failed", "gen-pr", task_id=f"t{number}", error="no", retry_count=2)
    court.emit("task.failed", "gen-doc", task_id="t", error="no", retry_count=2)
    await court.tick(30)
    assert court.alerts() == []
    for number in range(3):
        court.emit("task.failed", "gen-pr", task_id=f"u{number}", error="no", retry_count=2)
        await court.tick(30)
    assert court.alerts() == [("failures:gen-pr", "failing")]
    assert court.messages()[0]["content"] == "gen-pr has failed 3 tasks in a row"
    court.emit("task.completed", "gen-pr", task_id="v", status="success", duration_seconds=5)
    await court.tick(30)
    assert court.alerts()[-1] == ("failures:gen-pr", "over")


async def test_an_event_that_nobody_takes_is_told_of_until_somebody_does(court: Watched) -> None:
    bus = court.services.bus
    await put_documents(bus, [event("evt-github-1", court.now), event("evt-github-2", court.now)])
    for name in ("evt-github-1", "evt-github-2", "evt-github-gone"):
        court.emit("event.detected", "sentinel", event_id=name, source="github", event_type="github.pr.opened")
    await court.tick(30 * 60)
    assert court.alerts() == []
    court.home.role("king").mkdir(parents=True, exist_ok=True)
    holds = {"many": {"count": 9, "events": []}, "gen-pr is at its limit": {"count": 2, "events": ["evt-github-1"]}}
    beat = {"ts": timestamp(court.now + 30), "pid": 100, "interval": 10, "holds": holds}
    court.home.heartbeat("king").write_text(json.dumps(beat))
    await court.tick(30)
    assert court.alerts() == [("stale", "waiting")]
    assert court.messages()[0]["content"] == (
        "2 event(s) not dispatched for over 30 min, the oldest is evt-github-1 (gen-pr is at its limit); king: alive"
    )
    court.emit("event.dispatched", "king", event_id="evt-github-1", task_id="t", target_general="gen-pr")
    await court.tick(30)
    assert len(court.alerts()) == 1, "one still waits"
    await bus.claim(EVENTS, worker="king", limit=10)  # and the line of the other was lost: the queue has the last word
    await court.tick(30)
    assert court.alerts() == [("stale", "waiting"), ("stale", "over")]


# ── heartbeats ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_silent_role_is_told_of_once_and_is_back_as_another_process(court: Watched) -> None:
    court.beat("king", pid=10)
    court.beat("envoy", pid=11)
    last_seen = court.now
    for _ in range(6):
        await court.tick(30)
        court.beat("envoy", pid=11)
    missed = court.events("system.heartbeat_missed")
    assert [(item["target"], item["threshold_seconds"]) for item in missed] == [("king", 120)]
    assert missed[0]["last_seen"] == datetime.fromtimestamp(last_seen, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    assert court.chamberlain.report()["silent"] == ["king"]
    court.beat("king", pid=12)
    await court.tick(30)
    assert court.events("recovery.session_restarted") == [
        {"type": "recovery.session_restarted", "target": "king", "pid": 12}
    ]
    assert court.alerts() == [("silent:king", "silent"), ("silent:king", "over")]


async def test_a_role_that_was_only_slow_is_back_without_a_restart(court: Watched) -> None:
    court.beat("king", pid=10)
    for _ in range(5):
        await court.tick(30)
    court.beat("king", pid=10)
    await court.tick(30)
    assert len(court.events("system.heartbeat_missed")) == 1
    assert court.events("recovery.session_restarted") == []
    assert court.alerts()[-1] == ("silent:king", "over")


async def test_a_role_that_can_only_touch_its_heartbeat_or_looks_seldom_is_not_silent(court: Watched) -> None:
    court.beat("king")
    court.home.heartbeat("envoy").parent.mkdir(parents=True)
    court.home.heartbeat("envoy").write_text(json.dumps({"ts": timestamp(court.now), "pid": 5, "interval": 300}))
    for _ in range(10):
        await court.tick(30)
        os.utime(court.home.heartbeat("king"), (court.now, court.now))
    assert court.events("system.heartbeat_missed") == []


async def test_heartbeats_of_before_a_pause_of_the_whole_court_accuse_nobody(court: Watched) -> None:
    court.beat("king")
    await court.tick(30)
    await court.tick(8 * 3600)  # the machine slept
    court.beat("king")
    await court.tick(30)
    await court.restart()
    court.now += 8 * 3600  # the court was down, and the chamberlain is up first
    await court.restart()
    await court.tick(10)
    court.beat("king")
    await court.tick(30)
    assert court.events("system.heartbeat_missed") == []


async def test_a_supervised_role_that_crashed_and_runs_again_is_told_of_once(court: Watched) -> None:
    record = supervised(court, king=10, sentinel=20)
    court.beat("king", pid=10)
    court.beat("sentinel", pid=20)
    await court.tick(30)
    court.beat("sentinel", pid=21)  # its manifest changed: the supervisor stopped it and started it again
    record.roles["sentinel"].process = ProcessHandle(21, None, "")
    record.roles["king"] = RoleRecord("waiting", None, None, 1, "killed by SIGSEGV", 1)
    record.write(court.home)
    await court.tick(30)
    assert court.events("recovery.session_restarted") == []
    record.roles["king"] = RoleRecord("running", ProcessHandle(11, None, ""), None, 1, "killed by SIGSEGV", 1)
    record.write(court.home)
    court.beat("king", pid=11)
    await court.tick(30)
    await court.restart()
    court.beat("king", pid=11)
    await court.tick(30)
    assert court.events("recovery.session_restarted") == [
        {"type": "recovery.session_restarted", "target": "king", "pid": 11}
    ]
    (told,) = [message for message in court.messages() if message["context"].get("alert") == "restarted:king"]
    assert told["content"] == "king crashed and was restarted: killed by SIGSEGV"


def supervised(court: Watched, **pids: int) -> SupervisorRecord:
    """A supervisor that runs, with these roles."""
    court.home.role("supervisor").mkdir(parents=True)
    roles = {name: RoleRecord("running", ProcessHandle(pid, None, "")) for name, pid in pids.items()}
    record = SupervisorRecord(ProcessHandle.of(os.getpid()), "", "processes", roles)
    record.write(court.home)
    return record


async def test_a_role_that_the_supervisor_started_and_that_never_spoke_is_silent(court: Watched) -> None:
    own = ProcessHandle.of(os.getpid())
    assert own is not None
    court.home.role("supervisor").mkdir(parents=True)
    SupervisorRecord(own, "", "processes", {"sentinel": RoleRecord("running")}).write(court.home)
    for _ in range(5):
        await court.tick(30)
    missed = court.events("system.heartbeat_missed")
    assert [(item["target"], item["last_seen"]) for item in missed] == [("sentinel", None)]


# ── soldiers ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_soldier_nobody_waits_for_is_ended_after_the_grace(court: Watched) -> None:
    bus = court.services.bus
    await put_documents(bus, [task("task-20260207-001", court.now)])
    held = await bus.claim(TASKS, worker="gen-pr", lease=10_000)
    court.emit("soldier.spawned", "gen-pr", task_id="task-20260207-001", soldier_id="soldier-1")
    court.barracks.add("soldier-1", court.now)
    await court.tick(30)
    sessions = court.home.role("chamberlain") / "sessions.json"
    assert json.loads(sessions.read_text())["soldier-1"]["task_id"] == "task-20260207-001"
    await bus.settle(done=held)
    for _ in range(10):
        await court.tick(30)
    assert court.barracks.stopped == []
    await court.tick(30)
    await court.tick(30)
    assert (court.barracks.stopped, court.barracks.killed) == (["soldier-1"], [])
    await court.tick(60)
    assert court.barracks.killed == ["soldier-1"], "it did not listen"
    court.barracks.found.clear()
    await court.tick(30)
    assert court.events("soldier.killed", "recovery.session_killed") == [
        {"type": "soldier.killed", "soldier_id": "soldier-1", "reason": "orphaned"},
        {"type": "recovery.session_killed", "soldier_id": "soldier-1", "reason": "orphaned"},
    ]
    assert court.events("recovery.sessions_cleaned")[-1]["removed_count"] == 1
    assert json.loads(sessions.read_text()) == {}


async def test_a_soldier_that_gets_too_old_is_ended_though_its_task_waits_for_it(court: Watched) -> None:
    court.configure("soldiers: {max_age_hours: 1}")
    await put_documents(court.services.bus, [task("task-20260207-001", court.now)])
    court.emit("soldier.spawned", "gen-pr", task_id="task-20260207-001", soldier_id="soldier-1")
    court.barracks.add("soldier-1", court.now)
    await court.tick(3600)
    assert court.barracks.stopped == []
    await court.tick(30)
    assert court.events("soldier.killed")[0]["reason"] == "over-age"


async def test_soldiers_that_are_not_the_courts_are_left_alone(court: Watched) -> None:
    court.barracks.add("somebody-elses", court.now - 90 * 86400)
    court.emit("soldier.spawned", "gen-x", task_id="workflow-step-7", soldier_id="soldier-w")
    court.barracks.add("soldier-w", court.now - 90 * 86400)
    for _ in range(20):
        await court.tick(30)
    assert (court.barracks.stopped, court.barracks.killed) == ([], [])


async def test_a_soldier_that_vanished_while_its_task_is_in_progress_is_orphaned(court: Watched) -> None:
    await put_documents(court.services.bus, [task("task-20260207-001", court.now)])
    court.emit("soldier.spawned", "gen-pr", task_id="task-20260207-001", soldier_id="soldier-1")
    court.barracks.add("soldier-1", court.now)
    await court.tick(30)
    court.barracks.add("soldier-1", court.now, running=False)
    await court.tick(30)
    assert court.events("system.session_orphaned") == [], "its general may be about to notice"
    await court.tick(300)
    assert court.events("system.session_orphaned") == [
        {"type": "system.session_orphaned", "soldier_id": "soldier-1", "task_id": "task-20260207-001"}
    ]
    assert court.barracks.killed == ["soldier-1"], "what it may have left behind"


async def test_a_soldier_that_ended_in_good_order_is_taken_off_the_record(court: Watched) -> None:
    await put_documents(court.services.bus, [task("task-20260207-001", court.now)])
    court.emit("soldier.spawned", "gen-pr", task_id="task-20260207-001", soldier_id="soldier-1")
    court.barracks.add("soldier-1", court.now)
    await court.tick(30)
    court.barracks.add("soldier-1", court.now, running=False, ended=True)
    await court.tick(30)
    assert court.events("system.session_orphaned") == []
    assert court.events("recovery.sessions_cleaned") == [{"type": "recovery.sessions_cleaned", "removed_count": 1}]


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_token_budget_goes_from_ok_to_critical_and_a_new_day_resets_it(court: Watched) -> None:
    await court.tick()
    for cost in (215.40, 30.0, 60.0):
        court.spend(cost)
        await court.tick(30)
        await court.tick(30)
    await court.tick(14 * 3600)  # past midnight
    await court.tick(30)
    changes = court.events("system.token_status_changed")
    assert [(item["from"], item["to"], item["daily_cost_usd"]) for item in changes] == [
        ("ok", "warning", "245.40"),
        ("warning", "critical", "305.40"),
        ("critical", "ok", "0.00"),
    ]
    assert court.events("system.token_budget_reset") == [
        {"type": "system.token_budget_reset", "date": "2026-02-08", "previous_cost": "305.40"}
    ]
    assert court.alerts() == [("tokens:court", "warning"), ("tokens:court", "critical"), ("tokens:court", "over")]
    tokens = json.loads((court.home.role("chamberlain") / "tokens.json").read_text())
    assert (tokens["status"], tokens["monthly_cost_usd"]) == ("ok", "305.40")


# ── reports ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_report_of_a_day_is_the_seeds_json_a_message_and_a_page(court: Watched) -> None:
    for number in range(4):
        court.emit(
            "task.created", "king", task_id=f"t{number}", event_type="x.y", target_general="gen-pr", priority="low"
        )
        court.emit("soldier.spawned", "gen-pr", task_id=f"t{number}", soldier_id=f"s{number}")
    for seconds in (400, 440):
        court.emit("task.completed", "gen-pr", task_id="t", status="success", duration_seconds=seconds)
    court.emit("task.failed", "gen-pr", task_id="t", error="no", retry_count=2)
    court.emit("task.needs_human", "gen-pr", task_id="t", question="?")
    court.emit("soldier.timeout", "gen-pr", task_id="t", soldier_id="s0", timeout_seconds=5)
    court.spend(12.5, tokens=1000)
    await court.tick(30)
    await court.tick(22 * 3600)  # 08:00 of the next day
    assert [message for message in court.messages() if message["type"] == "report"] == []
    await court.tick(3600)
    await court.tick(30)
    report = {
        "type": "daily_report",
        "date": "2026-02-07",
        "tasks": {"created": 4, "completed": 2, "failed": 1, "cancelled": 0, "needs_human": 1},
        "soldiers": {"spawned": 4, "timeout": 1},
        "avg_duration_seconds": {"gen-pr": 420},
        "cost": {"usd": "12.50", "tokens": 1000},
    }
    folder = court.home.logs / "analysis"
    assert json.loads((folder / "report-2026-02-07.json").read_text()) == report
    assert "| gen-pr | 4 | 2 | 1 | 0 | 1 | 1 | 420 s |" in (folder / "report-2026-02-07.md").read_text()
    sent = [message for message in court.messages() if message["type"] == "report"]
    assert [message["context"]["report"] for message in sent] == [report]
    assert "4 created, 2 completed, 1 failed, 0 cancelled, 1 asked a person" in sent[0]["content"]
    stats = json.loads((folder / "stats.json").read_text())
    assert stats["days"]["2026-02-07"]["generals"]["gen-pr"]["avg_duration_seconds"] == 420


async def test_reports_that_were_missed_are_made_up_for_days_on_which_something_happened(court: Watched) -> None:
    await court.tick()
    court.now += 86400
    court.emit("task.started", "gen-pr", task_id="t")
    court.now += 3 * 86400
    await court.restart()
    await court.tick()
    dates = [message["context"]["report"]["date"] for message in court.messages() if message["type"] == "report"]
    assert dates == ["2026-02-08", "2026-02-10"], (
        "nothing happened on the 7th and the 9th; the day before is always due"
    )


async def test_messages_are_in_the_language_of_the_court(tmp_path: Path) -> None:
    async with Watched(tmp_path, "locale: ko").open() as court:
        court.machine.memory = 99
        await court.tick()
        assert court.messages()[0]["content"] == "상태가 red입니다: memory_percent: 99"


# ── what is not as it should be ───────────────────────────────────────────────────────────────────────────────────


async def test_lines_that_are_not_events_are_passed_over_with_a_warning(
    court: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    with court.home.journal.open("ab") as file:
        file.write(b"not json\n" + b"[1,2]\n" + b'{"x":"' + b"y" * 10_000_000 + b'"}\n' + b"\xff\xfe\n" * 20)
    court.emit("task.started", "gen-pr", task_id="t")
    await court.tick()
    stats = json.loads((court.home.logs / "analysis" / "stats.json").read_text())
    assert sum(hour["spawned"] for hour in stats["hours"].values()) == 0
    assert stats["unreadable_lines"] == 23
    assert stats["days"]["2026-02-07"]["events"] == 0
    messages = [record.getMessage() for record in caplog.records]
    assert any("a line of 10,000,008 bytes was skipped" in message for message in messages)
    assert len(messages) < 10, "a broken file does not flood the log"


async def test_a_mistake_in_the_configuration_is_told_and_nothing_is_removed_by_defaults(
    court: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    court.configure("retention:\n  queue_days: -7\n  colour: red\n")
    kept = court.old("state/results/task-20250101-001.json", 400)
    await court.restart()
    await court.tick()
    await court.tick(30)
    assert kept.exists()
    assert court.alerts()[0][0] == "config"
    assert "chamberlain.yaml:2: retention.queue_days" in court.messages()[0]["content"]
    assert "unknown key 'retention.colour'" in court.messages()[0]["content"]
    assert sum("queue_days" in record.getMessage() for record in caplog.records) == 1, "said once"
    court.configure("retention: {queue_days: 7}")
    await court.tick(30)
    assert [state for _, state in court.alerts()][-1] == "over"
    assert not kept.exists()


async def test_a_folder_where_a_file_should_be_stops_nothing_else(
    court: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    for path in ("logs/metrics.log", "logs/analysis/stats.json", "state/chamberlain/health.json", "logs/system.log"):
        (court.home.root / path).mkdir(parents=True)
    (court.home.heartbeat("king")).mkdir(parents=True)
    court.machine.memory = 99
    await court.tick()
    await court.tick(30)
    assert court.events("system.health_changed")[0]["to"] == "red"
    assert (court.home.role("chamberlain") / "memory.json").is_file()
    assert (court.home.role("chamberlain") / "tokens.json").is_file()
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert any("system.log" in message for message in said)
    assert len(said) == len(set(said)), "each is said once"


async def test_logs_are_closed_by_day_and_by_size_and_it_is_written_down(court: Watched) -> None:
    court.configure("retention: {log_max_mb: 1}")
    (court.home.logs / "tasks.log").write_text("x" * 1_500_000)
    court.emit("task.started", "gen-pr", task_id="t")
    await court.tick()
    await court.tick(86400)
    rotated = court.events("recovery.log_rotated")
    assert (rotated[0]["file"], rotated[0]["size_mb"]) == ("tasks.log.old", 1.431)
    assert [item["file"] for item in rotated][1:] == ["events-20260207.log"]
    assert (court.home.logs / "events-20260207.log").exists()


async def test_the_logs_of_the_envoy_and_of_the_background_are_closed_by_size_too(court: Watched) -> None:
    court.configure("retention: {log_max_mb: 1}")
    message = "x" * 1_500_000
    (court.home.logs / "console.log").write_text(message)
    # Both outputs of the supervisor, and with them those of all roles.
    outputs = [(court.home.logs / "supervisor.log").open("ab", buffering=0) for _ in range(2)]
    outputs[0].write(message.encode())
    await court.tick()
    for output in outputs:
        output.write(b"and on\n")
        output.close()
    rotated = {item["file"] for item in court.events("recovery.log_rotated")}
    assert rotated == {"console.log.old", "supervisor.log.old"}
    assert (court.home.logs / "supervisor.log").read_text() == "and on\nand on\n"
    assert (court.home.logs / "supervisor.log.old").read_text() == message
    assert (court.home.logs / "console.log.old").read_text() == message
    assert not (court.home.logs / "console.log").exists()


async def test_a_memory_that_makes_no_sense_is_set_aside_and_the_journal_counted_anew(court: Watched) -> None:
    court.emit("task.failed", "gen-pr", task_id="t", error="no", retry_count=0)
    await court.tick()
    path = court.home.role("chamberlain") / "memory.json"
    path.write_text('{"version": 1, "told": 7}')
    await court.restart()
    await court.tick(30)
    assert path.with_name("memory.json.damaged").exists()
    assert json.loads(path.read_text())["tally"]["streaks"] == {"gen-pr": 1}


async def test_a_thread_mapping_that_stays_too_long_is_warned_of_once(
    court: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    folder = court.home.role("envoy")
    folder.mkdir(parents=True)
    old, new = court.now - 8 * 86400, court.now - 86400
    mappings = {
        "task-20260130-001": {"thread_ts": f"{old:.6f}", "channel": "C1"},
        "task-20260206-001": {"thread_ts": f"{new:.6f}", "channel": "C1"},
        "task-odd": ["?"],
    }
    (folder / "thread-mappings.json").write_text(json.dumps(mappings))
    for _ in range(3):
        await court.tick(30)
        await court.restart()
    said = [record.getMessage() for record in caplog.records if "still mapped" in record.getMessage()]
    assert said == ["the thread of task-20260130-001 is still mapped after 8 days: has its task ended?"]
