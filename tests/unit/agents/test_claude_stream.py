"""What the lines of Claude Code mean: recordings of the real program, and lines nobody would print."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kingdom.agents.engines.claude import ClaudeReader
from kingdom.agents.port import AgentEvent, Began, Finished, Heartbeat, RateLimit, Text, Tokens, ToolUse, Usage
from tests.support import hostile_lines
from tests.support.hostile_lines import any_pace
from tests.support.orders import read_all, recorded

SESSION = "11111111-1111-4111-8111-111111111111"


def said(name: str) -> list[AgentEvent]:
    return [event for event in read_all(ClaudeReader(), recorded(name)) if event != Heartbeat()]


def line(**document: Any) -> bytes:
    return json.dumps(document).encode() + b"\n"


def assistant(message_id: str, output: int, *content: dict[str, Any], **more: Any) -> bytes:
    usage = {"input_tokens": 100, "output_tokens": output}
    return line(type="assistant", message={"id": message_id, "usage": usage, "content": list(content)}, **more)


def test_a_task_is_told_from_its_beginning_to_its_end() -> None:
    events = said("claude_task.jsonl")
    assert events[0] == Began(session_id=SESSION, model="claude-opus-5-5")
    assert [event for event in events if isinstance(event, Text)] == [Text("I write it first."), Text("All done.")]
    assert [event for event in events if isinstance(event, ToolUse)] == [
        ToolUse("Write", "notes.txt"),
        ToolUse("Bash", "git add notes.txt git status --short"),
    ]
    assert events[-1] == Finished(ok=True, text="All done.")


def test_the_total_is_that_of_the_result_line() -> None:
    usage = said("claude_task.jsonl")[-2]
    assert isinstance(usage, Usage)
    assert usage.tokens == Tokens(input=200, output=20, cache_read=14, cache_write=6)
    assert usage.cost_usd is not None
    assert round(usage.cost_usd, 6) == 0.001233


def test_a_message_that_comes_in_several_lines_is_counted_once() -> None:
    usages = [event for event in said("claude_task.jsonl") if isinstance(event, Usage)]
    assert [usage.tokens.input for usage in usages] == [100, 100, 100, 200, 200]
    assert [usage.turns for usage in usages[:-1]] == [1, 1, 1, 2]


def test_output_that_is_not_counted_yet_is_guessed_from_what_can_be_seen() -> None:
    reader = ClaudeReader()
    events = read_all(reader, [assistant("m1", 1, {"type": "text", "text": "x" * 4000})])
    usage = next(event for event in events if isinstance(event, Usage))
    assert 1000 <= usage.tokens.output < 1050


def test_a_resumed_conversation_costs_only_what_this_run_adds() -> None:
    """The program's ``total_cost_usd`` has grown by then: it is the whole conversation's."""
    lines = recorded("claude_resumed.jsonl")
    whole = json.loads(lines[-1])
    usage = said("claude_resumed.jsonl")[-2]
    assert isinstance(usage, Usage)
    assert usage.tokens == Tokens(input=100, output=10, cache_read=7, cache_write=3)
    assert usage.cost_usd is not None
    assert usage.cost_usd < whole["total_cost_usd"] / 2


def test_an_older_version_without_usage_by_result_is_taken_at_its_totals() -> None:
    ended = line(
        type="result",
        subtype="success",
        is_error=False,
        result="ok",
        num_turns=3,
        total_cost_usd=0.5,
        usage={"input_tokens": 7, "output_tokens": 2},
    )
    assert read_all(ClaudeReader(), [ended])[0] == Usage(Tokens(7, 2), cost_usd=0.5, turns=3)


def test_a_spent_window_is_a_rate_limit_with_the_time_it_ends() -> None:
    events = said("claude_window_spent.jsonl")
    limits = [event for event in events if isinstance(event, RateLimit)]
    assert limits == [RateLimit("rejected", 1794723024.0, "five_hour")] * 2
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert not finished.ok
    assert finished.error is not None
    assert "5-hour limit" in finished.error


def test_too_many_requests_are_a_rate_limit_of_unknown_length() -> None:
    events = said("claude_too_many_requests.jsonl")
    assert events[-2] == RateLimit("rejected")
    assert isinstance(events[-1], Finished)
    assert not events[-1].ok


def test_the_words_of_older_versions_about_a_limit_are_known() -> None:
    ended = line(type="result", subtype="success", is_error=True, result="Claude AI usage limit reached|1794723024")
    events = read_all(ClaudeReader(), [ended])
    assert RateLimit("rejected", 1794723024.0) in events


def test_a_window_that_is_nearly_spent_is_a_warning_and_overage_goes_on() -> None:
    near = line(type="rate_limit_event", rate_limit_info={"status": "allowed_warning", "resetsAt": 1794723024})
    paid = line(type="rate_limit_event", rate_limit_info={"status": "rejected", "isUsingOverage": True})
    fine = line(type="rate_limit_event", rate_limit_info={"status": "allowed"})
    reader = ClaudeReader()
    assert read_all(reader, [near, paid, fine]) == [
        RateLimit("warning", 1794723024.0),
        RateLimit("warning"),
        Heartbeat(),
    ]


def test_success_with_an_error_flag_is_a_failure() -> None:
    events = said("claude_bad_key.jsonl")
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert not finished.ok
    assert finished.error == "Invalid API key · Fix external API key"
    (refused,) = [event for event in events if isinstance(event, RateLimit)]
    assert refused.reason is not None, "it waits until somebody corrects the key"
    assert refused.reason.startswith("claude refuses its key or login (401: Invalid API key")
    assert not any(isinstance(event, Text) for event in events)


@pytest.mark.parametrize(
    ("status", "words"), [(529, "overloaded or away (529"), (503, "(503"), (None, "cannot be reached")]
)
def test_a_service_that_fails_is_no_failure_of_the_work(status: int | None, words: str) -> None:
    reader = ClaudeReader()
    error = "Connection error." if status is None else "API Error: Overloaded"
    line = {"type": "result", "subtype": "success", "is_error": True, "terminal_reason": "api_error", "result": error}
    events = reader.feed(json.dumps({**line, "api_error_status": status}).encode())
    (limit,) = [event for event in events if isinstance(event, RateLimit)]
    assert limit.status == "rejected"
    assert words in str(limit.reason)


def test_what_it_retries_with_is_known_when_a_timer_ends_it() -> None:
    reader = ClaudeReader()
    line = {
        "type": "system",
        "subtype": "api_retry",
        "attempt": 3,
        "error_status": 401,
        "error": "authentication_error",
    }
    (event,) = reader.feed(json.dumps(line).encode())
    assert isinstance(event, RateLimit)
    assert "refuses its key" in str(event.reason)


def test_an_error_of_the_work_that_only_quotes_an_outage_is_a_failure() -> None:
    reader = ClaudeReader()
    said = "I could not finish: the tests say connection refused, and the server is overloaded"
    line = {"type": "result", "subtype": "error_during_execution", "is_error": True, "result": said}
    assert not any(isinstance(event, RateLimit) for event in reader.feed(json.dumps(line).encode()))


def test_what_the_program_notes_for_its_developers_is_not_shown() -> None:
    line: dict[str, object] = {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "errors": ["[ede_diagnostic] result_type=user last_content_type=n/a stop_reason=tool_use"],
    }
    finished = ClaudeReader().feed(json.dumps(line).encode())[-1]
    assert isinstance(finished, Finished)
    assert finished.error == "error_during_execution"
    line["errors"] = [*line["errors"], "no disk"]  # type: ignore[misc]
    finished = ClaudeReader().feed(json.dumps(line).encode())[-1]
    assert isinstance(finished, Finished)
    assert finished.error == "no disk"


def test_a_session_that_is_not_there_is_a_failure_with_its_reason() -> None:
    finished = said("claude_no_such_session.jsonl")[-1]
    assert isinstance(finished, Finished)
    assert finished.error == "No conversation found with session ID: 11111111-1111-4111-8111-111111111112"


def test_structured_output_is_handed_on() -> None:
    ended = line(type="result", subtype="success", is_error=False, result="", structured_output={"status": "success"})
    assert read_all(ClaudeReader(), [ended])[-1] == Finished(ok=True, structured={"status": "success"})


def test_what_a_subagent_says_is_counted_and_not_told() -> None:
    spoken = assistant("m1", 5, {"type": "text", "text": "inner voice"}, parent_tool_use_id="toolu_1")
    assert [type(event) for event in read_all(ClaudeReader(), [spoken])] == [Usage]


def test_a_conversation_begins_once() -> None:
    first = line(type="system", subtype="init", session_id="s1", model="m")
    events = read_all(ClaudeReader(), [first, first])
    assert events == [Began("s1", "m"), Heartbeat()]


def test_other_lines_are_signs_of_life_and_torn_ones_say_nothing() -> None:
    reader = ClaudeReader()
    assert reader.feed(b"[SandboxDebug] something\n") == (Heartbeat(),)
    assert reader.feed(line(type="system", subtype="hook_started")) == (Heartbeat(),)
    assert reader.feed(b"[1, 2]\n") == (Heartbeat(),)
    assert reader.feed(b'{"type": "assistant", "message": {"con') == ()
    assert reader.feed(b"\n") == ()


def test_a_line_of_five_mebibytes_is_read() -> None:
    events = read_all(ClaudeReader(), [assistant("m1", 1, {"type": "text", "text": "x" * (5 << 20)})])
    assert Text("x" * (5 << 20)) in events


def test_nesting_without_end_is_a_torn_line() -> None:
    assert ClaudeReader().feed(b'{"type":' + b"[" * 100_000) == ()


def test_half_a_character_does_not_get_through() -> None:
    events = ClaudeReader().feed(b'{"type":"assistant","message":{"content":[{"type":"text","text":"a\\ud800b"}]}}')
    assert events == [Text("a?b")]


NAMES = [
    *("type", "subtype", "message", "content", "usage", "id", "result", "is_error", "rate_limit_info", "status"),
    *("resetsAt", "errors", "num_turns", "model_usage_since_last_result", "total_cost_usd", "structured_output"),
    *("session_id", "parent_tool_use_id", "input", "input_tokens", "costUSD"),
]
TYPES = ["assistant", "result", "rate_limit_event", "system"]


@any_pace
@given(hostile_lines.lines(NAMES))
def test_no_bytes_make_it_raise(lines: list[bytes]) -> None:
    assert all(isinstance(event, AgentEvent) for event in read_all(ClaudeReader(), lines))


@any_pace
@given(st.sampled_from(TYPES), hostile_lines.objects(NAMES), hostile_lines.objects(NAMES))
def test_no_value_of_a_known_line_makes_it_raise(kind: str, outer: dict[str, Any], inner: dict[str, Any]) -> None:
    document = {**outer, "type": kind, "subtype": "init", "message": {**inner, "id": "m", "content": [inner]}}
    assert all(isinstance(event, AgentEvent) for event in ClaudeReader().feed(json.dumps(document).encode()))
