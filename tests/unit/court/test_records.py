"""The records a general is given: what came of tasks since its last success, and who waits for an answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.files import write_json
from kingdom.court.activity import recent_activity
from kingdom.court.general.context import TaskContext, load_task_history
from kingdom.court.general.prompts import build_prompt, collect_prompt_data, read_template
from kingdom.court.home import Home
from kingdom.court.init_home import SHIPPED_GENERALS_DIR
from kingdom.court.models import Result, Task
from kingdom.court.packages.installed import load_general

NOW = datetime(2026, 2, 9, 8, 30, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.results.mkdir(parents=True)
    return home


def put(
    home: Home, number: int, hours_ago: float, general: str = "gen-pr", status: str = "success", **more: Any
) -> str:
    task_id = f"task-20260209-{number:03}"
    ended = NOW - timedelta(hours=hours_ago)
    result = Result(
        task_id=task_id,
        general=general,
        status=status,
        started_at=ended,
        ended_at=ended,
        **more,  # type: ignore[arg-type]
    )
    write_json(home.result(task_id), result.document(), durable=False)
    return task_id


def tasks(records: list[dict[str, Any]]) -> set[str]:
    return {record["task"] for record in records}


def test_only_what_ended_in_time_is_told_and_nothing_of_the_writer_itself(home: Home) -> None:
    kept = {put(home, 1, 1), put(home, 2, 23, status="failed", error="broke", retry_count=2, cost_usd=0.5)}
    put(home, 3, 25)
    put(home, 4, -1)
    put(home, 5, 2, general="gen-briefing", status="failed")
    records = recent_activity(home, "gen-briefing", NOW, 24, {})
    assert tasks(records["finished"]) == kept
    assert records["totals"] == {"gen-pr": {"success": 1, "failed": 1, "cost_usd": 0.5}}
    assert (records["from"], records["until"]) == ("2026-02-08T08:30:00.000Z", "2026-02-09T08:30:00.000Z")
    (failed,) = [record for record in records["finished"] if record["status"] == "failed"]
    assert (failed["error"], failed["tries"]) == ("broke", 3)


def test_it_begins_where_the_last_success_of_the_writer_ended(home: Home) -> None:
    put(home, 1, 10, general="gen-briefing")
    put(home, 2, 11)
    later = put(home, 3, 9)
    records = recent_activity(home, "gen-briefing", NOW, 96, {})
    assert tasks(records["finished"]) == {later}


def test_a_question_is_open_until_somebody_answered_however_old_it_is(home: Home) -> None:
    asked = {"question": {"text": "Which?"}, "status": "needs_human"}
    waiting = put(home, 1, 200, **asked)
    answered = put(home, 2, 5, **asked)
    resumed = put(home, 3, 1, original_task_id=answered)
    records = recent_activity(home, "gen-briefing", NOW, 24, {})
    assert tasks(records["waiting_for_a_person"]) == {waiting}
    assert records["waiting_for_a_person"][0]["question"] == "Which?"
    assert tasks(records["finished"]) == {resumed}


def test_what_cannot_be_read_is_left_out_and_long_text_is_cut(home: Home) -> None:
    kept = put(home, 1, 1, summary="x" * 10_000)
    (home.results / "task-20260209-002.json").write_text("{torn")
    (home.results / "task-20260209-003.json").write_text('{"status": "success"}')
    (home.results / f"{kept}-raw.json").write_text('{"status": "success"}')
    records = recent_activity(home, "gen-briefing", NOW, 24, {})
    assert tasks(records["finished"]) == {kept}
    assert len(records["finished"][0]["summary"]) == 400


def test_it_is_told_how_much_waits(home: Home) -> None:
    records = recent_activity(home, "gen-briefing", NOW, 24, {"events": 2, "tasks": 0})
    assert records["waiting_in_queues"] == {"events": 2, "tasks": 0}
    assert records["finished"] == []


def test_the_prompt_of_a_general_that_asks_for_them_has_the_records_as_data(home: Home) -> None:
    done = put(home, 1, 1, summary="Reviewed the parser {{ 7 * 7 }}")
    general = load_general(SHIPPED_GENERALS_DIR / "gen-briefing")
    task = Task(
        id="task-20260209-009",
        event_id="schedule-daily",
        target_general="gen-briefing",
        type="briefing.daily",
        created_at=NOW.replace(tzinfo=None),  # as somebody might write it by hand
    )
    briefing = collect_prompt_data(
        home,
        general.manifest,
        TaskContext(task, load_task_history(home, task)),
        folder=home.root,
        instructions_text="",
        resume=False,
        previous_error=None,
        omitted="",
        pull=None,
        waiting={},
    )
    prompt = build_prompt(read_template(general.prompt_path), briefing, general.manifest.prompt_max_bytes)
    assert done in prompt
    assert prompt.count("Reviewed the parser {{ 7 * 7 }}") == 1
