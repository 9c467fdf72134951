"""The catalog of internal events is the specification's, word for word, and emitters are held to it."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from kingdom.journal import CATALOG, InvalidEvent, InvalidLine, JournalEvent, UnknownEvent, catalog, parse
from kingdom.journal.catalog import SystemHealthChanged, TaskCompleted, TaskFailed, TaskStarted
from kingdom.journal.lines import MAX_LINE_BYTES, compose, encode_data, format_ts

SPECIFIED = {
    "event.detected": ("sentinel", ["event_id", "source", "event_type"]),
    "event.dispatched": ("king", ["event_id", "task_id", "target_general"]),
    "event.discarded": ("king", ["event_id", "event_type", "reason"]),
    "task.created": ("king", ["task_id", "event_type", "target_general", "priority"]),
    "task.started": ("general", ["task_id"]),
    "task.completed": ("general", ["task_id", "status", "duration_seconds"]),
    "task.failed": ("general", ["task_id", "error", "retry_count"]),
    "task.needs_human": ("general", ["task_id", "question"]),
    "task.resumed": ("king", ["task_id", "original_task_id"]),
    "soldier.spawned": ("general", ["task_id", "soldier_id"]),
    "soldier.completed": ("general", ["task_id", "soldier_id", "status"]),
    "soldier.timeout": ("general", ["task_id", "soldier_id", "timeout_seconds"]),
    "soldier.killed": ("chamberlain", ["soldier_id", "reason"]),
    "system.health_changed": ("chamberlain", ["from", "to", "reason"]),
    "system.heartbeat_missed": ("chamberlain", ["target", "last_seen", "threshold_seconds"]),
    "system.session_orphaned": ("chamberlain", ["soldier_id", "task_id"]),
    "system.resource_warning": ("chamberlain", ["metric", "value", "threshold"]),
    "system.token_status_changed": ("chamberlain", ["from", "to", "daily_cost_usd"]),
    "system.token_budget_reset": ("chamberlain", ["date", "previous_cost"]),
    "system.startup": ("system", ["version"]),
    "system.shutdown": ("system", ["reason"]),
    "recovery.session_restarted": ("chamberlain", ["target", "pid"]),
    "recovery.session_killed": ("chamberlain", ["soldier_id", "reason"]),
    "recovery.log_rotated": ("chamberlain", ["file", "size_mb"]),
    "recovery.files_cleaned": ("chamberlain", ["deleted_count"]),
    "recovery.sessions_cleaned": ("chamberlain", ["removed_count"]),
    "message.sent": ("envoy", ["msg_id", "task_id", "channel"]),
    "message.human_response": ("envoy", ["task_id", "thread_ts"]),
}

OURS = {  # not in the specification
    "task.cancelled",
    "task.not_landed",
    "soldier.ended",
    "soldier.refused",
    "system.document_invalid",
    "system.general_disabled",
    "system.general_enabled",
    "system.person_acted",
}

EXAMPLES = """
{"ts": "2026-02-07T10:00:00Z", "type": "event.detected", "actor": "sentinel", "data": {"event_id": "evt-github-12345", "source": "github", "event_type": "github.pr.review_requested"}}
{"ts": "2026-02-07T10:00:00Z", "type": "task.completed", "actor": "gen-pr", "data": {"task_id": "task-20260207-001", "status": "success", "duration_seconds": 180}}
{"ts": "2026-02-07T10:00:00Z", "type": "task.failed", "actor": "gen-pr", "data": {"task_id": "task-20260207-002", "error": "Permission denied", "retry_count": 2}}
{"ts": "2026-02-07T10:00:00Z", "type": "soldier.timeout", "actor": "gen-pr", "data": {"task_id": "task-20260207-002", "soldier_id": "soldier-1707300180-5678", "timeout_seconds": 1800}}
{"ts": "2026-02-07T10:00:00Z", "type": "system.health_changed", "actor": "chamberlain", "data": {"from": "green", "to": "yellow", "reason": "cpu_percent: 72"}}
{"ts": "2026-02-07T10:00:00Z", "type": "system.heartbeat_missed", "actor": "chamberlain", "data": {"target": "gen-pr", "last_seen": "2026-02-07T09:55:00Z", "threshold_seconds": 120}}
{"ts": "2026-02-07T10:00:00Z", "type": "system.token_status_changed", "actor": "chamberlain", "data": {"from": "ok", "to": "warning", "daily_cost_usd": "215.40"}}
{"ts": "2026-02-07T10:00:00Z", "type": "system.token_budget_reset", "actor": "chamberlain", "data": {"date": "2026-02-08", "previous_cost": "285.60"}}
{"ts": "2026-02-07T10:00:00Z", "type": "recovery.session_restarted", "actor": "chamberlain", "data": {"target": "sentinel", "pid": 12345}}
{"ts": "2026-02-07T10:00:00Z", "type": "message.sent", "actor": "envoy", "data": {"msg_id": "msg-20260207-001", "task_id": "task-20260207-001", "channel": "#kingdom"}}
""".strip().splitlines()  # noqa: E501


def line(**changes: Any) -> str:
    document = {"ts": "2026-02-07T10:00:00Z", "type": "task.started", "actor": "gen-pr", "data": {"task_id": "t1"}}
    return json.dumps({key: value for key, value in (document | changes).items() if value is not ...})


def test_the_catalog_has_every_type_of_the_specification_with_its_fields_and_its_actor():
    assert [name for name in CATALOG if name not in OURS] == list(SPECIFIED)
    assert CATALOG.keys() >= OURS
    for name, (actor, keys) in SPECIFIED.items():
        spec = CATALOG[name]
        assert (name, spec.actors[0], [field.key for field in spec.fields]) == (name, actor, keys)
        assert spec.meaning
        assert spec.category in catalog.CATEGORIES


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_examples_of_the_specification_are_understood_and_written_back_alike(text: str):
    entry = parse(text)
    assert isinstance(entry, JournalEvent)
    document = json.loads(text)
    assert json.loads(entry.to_json()) == document
    spec = CATALOG[entry.type]
    assert spec.data_from(document["data"]) == entry.data
    assert spec.actor_or_error(document["actor"]) == document["actor"]


def test_a_key_that_is_a_word_of_python_keeps_its_name_in_json():
    data = SystemHealthChanged(from_="green", to="yellow", reason="cpu_percent: 72")
    assert json.loads(encode_data(data)) == {"from": "green", "to": "yellow", "reason": "cpu_percent: 72"}


def test_data_cannot_be_changed_afterwards():
    with pytest.raises(FrozenInstanceError):
        TaskStarted("t1").task_id = "t2"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TaskStarted(7), "task.started: task_id must be text, not 7"),  # type: ignore[arg-type]
        (lambda: TaskFailed("t", "e", 2.5), "task.failed: retry_count must be a whole number, not 2.5"),  # type: ignore[arg-type]
        (lambda: TaskFailed("t", "e", True), "task.failed: retry_count must be a whole number, not True"),
        (lambda: TaskCompleted("t", "success", "3"), "duration_seconds must be a number, not '3'"),  # type: ignore[arg-type]
        (
            lambda: encode_data(TaskCompleted("t", "s", float("nan"))),
            "duration_seconds must be a finite number, not nan",
        ),
        (lambda: CATALOG["task.started"].data_from({}), "without task_id; its fields are task_id"),
        (lambda: CATALOG["task.started"].data_from({"task_id": "t", "x": 1}), "with unknown x; its fields are task_id"),
        (lambda: CATALOG["task.started"].actor_or_error("king"), "actor must be gen-<name>, not 'king'"),
        (lambda: CATALOG["task.started"].actor_or_error(None), "actor must be gen-<name>, not None"),
        (lambda: CATALOG["task.started"].actor_or_error('gen-"}'), "actor must be gen-<name>"),
        (lambda: CATALOG["task.created"].actor_or_error("gen-pr"), "actor must be king, not 'gen-pr'"),
        (lambda: catalog.CATALOG["event.detected"].actor_or_error("gen-pr"), "actor must be sentinel or envoy or king"),
    ],
)
def test_an_emitter_that_is_wrong_is_told_which_field_and_what_is_allowed(make: Any, words: str):
    with pytest.raises(InvalidEvent) as caught:
        make()
    assert words in str(caught.value)


def test_fields_that_nobody_knows_survive_reading():
    text = line(data={"task_id": "t1", "colour": "red"}, host="a")
    entry = parse(text)
    assert isinstance(entry, JournalEvent)
    assert (entry.data, entry.extra, entry.attributes) == (TaskStarted("t1"), {"colour": "red"}, {"host": "a"})
    assert entry.fields == {"task_id": "t1", "colour": "red"}
    assert json.loads(entry.to_json()) == json.loads(text)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"type": "task.dreamt"}, "task.dreamt is not in the catalog"),
        ({"data": {}}, "task.started: no task_id in data"),
        ({"data": {"task_id": 5}}, "task.started: task_id must be text, not 5"),
        ({"data": ...}, "task.started: no task_id in data"),
    ],
)
def test_what_the_catalog_does_not_describe_is_read_all_the_same(changes: dict[str, Any], reason: str):
    text = line(**changes)
    entry = parse(text.encode())
    assert isinstance(entry, UnknownEvent)
    assert entry.reason == reason
    assert json.loads(entry.to_json()) == {"data": {}, **json.loads(text)}


def test_a_reader_does_not_mind_who_signed():
    assert isinstance(parse(line(actor="somebody new")), JournalEvent)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ('{"ts":"2026', "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "a JSON object, not list"),
        (line(ts=...), "no ts"),
        (line(type=...), "no type"),
        (line(actor=None), "actor must be text, not None"),
        (line(data=[1]), "data must be an object"),
        (line(ts="yesterday"), "ts 'yesterday' is not an ISO 8601 time"),
    ],
)
def test_what_is_no_event_is_refused_with_the_reason(text: str | bytes, reason: str):
    with pytest.raises(InvalidLine, match=reason):
        parse(text)


@pytest.mark.parametrize("text", ["한글 \u2028 line\nbreak", "half \ud800 of a pair", "nul \0", '"quoted"\\'])
def test_any_text_becomes_one_line_and_comes_back(text: str):
    written = compose(format_ts(1_770_458_400.9), "task.failed", "gen-pr", encode_data(TaskFailed("t", text, 0)))
    assert written.count(b"\n") == 1
    assert written.endswith(b"}\n")
    entry = parse(written)
    assert (entry.ts, entry.fields["error"]) == ("2026-02-07T10:00:00Z", text)


@pytest.mark.parametrize("letter", ["x", "한", "\0", "😀"])
def test_a_text_that_is_too_long_is_cut_and_says_so(letter: str):
    data = encode_data(TaskFailed("t", letter * 2_000_000, 3))
    written = compose(format_ts(0), "task.failed", "gen-pr", data)
    assert len(written) <= MAX_LINE_BYTES
    entry = parse(written)
    assert entry.fields["error"] == letter * 10_000 + "… [cut: 2,000,000 characters in all]"
    assert (entry.fields["task_id"], entry.fields["retry_count"]) == ("t", 3)
