"""What the lines of Codex mean: recordings of the real program, and lines nobody would print."""

from __future__ import annotations

import json
import os
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kingdom.agents.engines.codex import CodexReader, Rollout, is_limit, resets_at
from kingdom.agents.port import AgentEvent, Began, Finished, Heartbeat, RateLimit, Text, Tokens, ToolUse, Usage
from tests.support import hostile_lines
from tests.support.hostile_lines import any_pace
from tests.support.orders import RECORDINGS, read_all, recorded

THREAD = json.loads(recorded("codex_task.jsonl")[0])["thread_id"]


def local(day: int, hour: int, minute: int = 0, second: int = 0) -> float:
    """A time in November 2026 in the machine's own zone, as codex tells it."""
    return datetime(2026, 11, day, hour, minute, second).timestamp()  # noqa: DTZ001


NOON = local(15, 12)


def reader(home: Path = Path("/nonexistent")) -> CodexReader:
    return CodexReader(lambda thread_id: Rollout(home / "sessions", thread_id), model="gpt-x", clock=lambda: NOON)


def said(name: str, home: Path = Path("/nonexistent")) -> list[AgentEvent]:
    return [event for event in read_all(reader(home), recorded(name)) if event != Heartbeat()]


def with_rollout(folder: Path) -> Path:
    place = folder / "sessions" / "2026" / "11" / "15"
    place.mkdir(parents=True)
    shutil.copy(RECORDINGS / "codex_rollout.jsonl", place / f"rollout-2026-11-15T05-12-23-{THREAD}.jsonl")
    return folder


def test_a_task_is_told_from_its_beginning_to_its_end() -> None:
    assert said("codex_task.jsonl") == [
        Began(session_id=THREAD, model="gpt-x"),
        Text("I write it first."),
        ToolUse("exec", "/bin/bash -lc 'cat > notes.txt <<E hello E git add notes.txt'"),
        ToolUse("edit", "/repo/more.txt"),
        Text("All done."),
        Usage(Tokens(input=279, output=30, cache_read=21)),
        Finished(ok=True, text="All done."),
    ]


def test_a_resumed_conversation_costs_only_what_this_run_adds(tmp_path: Path) -> None:
    """Codex counts the whole conversation; its own record says where this run began."""
    usage = [event for event in said("codex_resumed.jsonl", with_rollout(tmp_path)) if isinstance(event, Usage)]
    assert usage[-1] == Usage(Tokens(input=93, output=10, cache_read=7), turns=1)


def test_the_record_tells_what_was_used_while_the_run_goes_on(tmp_path: Path) -> None:
    place = with_rollout(tmp_path)
    [record] = place.rglob("*.jsonl")
    lines = record.read_bytes().splitlines(keepends=True)
    rollout = Rollout(place / "sessions", THREAD)
    seen = []
    record.write_bytes(b"")
    for line in lines:
        with record.open("ab") as file:
            file.write(line[:-5])
        rollout.follow()  # half a line is left for later
        with record.open("ab") as file:
            file.write(line[-5:])
        rollout.follow()
        seen.append((rollout.used.total, rollout.turns))
    assert seen == [(0, 0), (110, 1), (220, 2), (330, 3), (330, 3), (0, 0), (110, 1), (110, 1)]


def test_of_a_run_that_was_ended_the_record_tells_what_its_output_did_not(tmp_path: Path) -> None:
    place = with_rollout(tmp_path)
    [record] = place.rglob("*.jsonl")
    whole = record.read_bytes()
    record.write_bytes(b"")  # it is written behind what is printed
    lines = recorded("codex_resumed.jsonl")
    cut_off = reader(place)
    assert not any(isinstance(event, Usage) for event in read_all(cut_off, lines[:-1]))
    record.write_bytes(whole)
    assert [*cut_off.end()] == [Usage(Tokens(input=93, output=10, cache_read=7), turns=1)]
    to_its_end = reader(place)
    read_all(to_its_end, lines)
    assert [*to_its_end.end()] == []


def test_a_record_that_is_not_there_is_nothing_used(tmp_path: Path) -> None:
    for thread_id in (THREAD, "../../*", "x" * 300):
        rollout = Rollout(tmp_path / "sessions", thread_id)
        rollout.follow()
        assert rollout.used == Tokens()


@pytest.mark.timeout(60)  # a pipe would block for ever, and the device has no end
@pytest.mark.parametrize("kind", ["pipe", "link", "device"])
def test_a_record_that_a_hostile_agent_replaced_is_not_read(tmp_path: Path, kind: str) -> None:
    place = with_rollout(tmp_path)
    [record] = place.rglob("*.jsonl")
    elsewhere = tmp_path / "elsewhere.jsonl"
    record.rename(elsewhere)
    if kind == "pipe":
        os.mkfifo(record)
    else:
        record.symlink_to("/dev/zero" if kind == "device" else elsewhere)
    rollout = Rollout(place / "sessions", THREAD)
    rollout.follow()
    assert rollout.used == Tokens()


def test_a_usage_limit_is_a_rate_limit_with_the_time_it_ends() -> None:
    events = said("codex_usage_limit.jsonl")
    limit, finished = events[-2:]
    assert isinstance(limit, RateLimit)
    assert limit.status == "rejected"
    assert limit.resets_at is not None
    assert limit.resets_at > NOON
    assert isinstance(finished, Finished)
    assert not finished.ok


def test_too_many_requests_are_a_rate_limit_of_unknown_length() -> None:
    assert said("codex_too_many_requests.jsonl")[-2] == RateLimit("rejected")


def test_an_error_that_is_tried_again_is_not_the_end() -> None:
    events = said("codex_tries_again.jsonl")
    assert [event for event in events if isinstance(event, Finished)] == events[-1:]
    (limit,) = [event for event in events if isinstance(event, RateLimit)]
    assert "overloaded or away" in str(limit.reason), "and its task waits until the service is back"


def test_a_failure_has_its_reason() -> None:
    finished = said("codex_bad_key.jsonl")[-1]
    assert isinstance(finished, Finished)
    assert not finished.ok
    assert finished.error is not None
    assert "401 Unauthorized: bad key" in finished.error
    (refused,) = [event for event in said("codex_bad_key.jsonl") if isinstance(event, RateLimit)]
    assert str(refused.reason).startswith("codex refuses its key or login (401: ")


@pytest.mark.parametrize(
    ("message", "when"),
    [
        ("try again at 6:12 PM.", local(15, 18, 12)),
        ("try again at 6:12 AM.", local(16, 6, 12)),
        ("try again at 12:05 AM.", local(16, 0, 5)),
        ("try again at Nov 17th, 2026 6:12 AM.", local(17, 6, 12)),
        ("try again in 2 days 3 hours 5 minutes.", local(17, 15, 5)),
        ("Please try again in 20s.", local(15, 12, 0, 20)),
        ("try again at Feb 31st, 2026 6:12 AM.", None),
        ("try again at 26:99 AM.", None),
        ("try again later.", None),
    ],
)
def test_the_time_a_limit_lifts_is_read_from_its_words(message: str, when: float | None) -> None:
    assert resets_at(f"You've hit your usage limit, {message}", NOON) == when


def test_a_spent_quota_is_no_limit_that_lifts_by_itself() -> None:
    assert is_limit("exceeded retry limit, last status: 429 Too Many Requests")
    assert not is_limit("Quota exceeded. Check your plan and billing details.")


def test_other_lines_are_signs_of_life_and_torn_ones_say_nothing() -> None:
    it = reader()
    assert it.feed(b"warning: something\n") == (Heartbeat(),)
    assert it.feed(b'{"type":"turn.started"}\n') == (Heartbeat(),)
    assert it.feed(b'{"type":"item.completed","item":{"id') == ()
    assert it.feed(b"") == ()


NAMES = [
    *("type", "id", "text", "command", "changes", "path", "server", "tool", "query", "item", "usage", "error"),
    *("message", "thread_id", "input_tokens", "payload", "info", "total_token_usage"),
]
TYPES = ["thread.started", "item.started", "item.completed", "turn.completed", "turn.failed", "error", "other"]
KINDS = ["agent_message", "command_execution", "file_change", "mcp_tool_call", "web_search", "error"]


@any_pace
@given(hostile_lines.lines(NAMES))
def test_no_bytes_make_it_raise(lines: list[bytes]) -> None:
    assert all(isinstance(event, AgentEvent) for event in read_all(reader(), lines))


@any_pace
@given(st.sampled_from(TYPES), st.sampled_from(KINDS), hostile_lines.objects(NAMES))
def test_no_value_of_a_known_line_makes_it_raise(kind: str, item: str, values: dict[str, Any]) -> None:
    document = {"item": {**values, "type": item}, "usage": values, "error": values, **values, "type": kind}
    assert all(isinstance(event, AgentEvent) for event in reader().feed(json.dumps(document).encode()))


@any_pace
@given(
    st.from_regex(r"try again (at|in) ([A-Z][a-z]{2} \d{1,2}th, \d{4} )?\d{1,3}:\d\d [AP]M|try again in \d+ ?[dhms]")
)
def test_no_words_make_the_reading_of_a_time_raise(message: str) -> None:
    assert isinstance(resets_at(message, NOON), float | None)


@any_pace
@given(hostile_lines.lines(NAMES))
def test_no_record_makes_it_raise(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    home = with_rollout(tmp_path_factory.mktemp("codex"))
    [record] = home.rglob("*.jsonl")
    record.write_bytes(b"\n".join(line + b' "token_count"' for line in lines))
    rollout = Rollout(home / "sessions", THREAD)
    rollout.follow()
    assert rollout.used == Tokens()
