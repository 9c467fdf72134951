"""How a run ended, from what it said, what it left and how its process went."""

from __future__ import annotations

from typing import Any

import pytest

from kingdom.agents.contract import check_result
from kingdom.agents.port import AgentEvent, Caps, Finished, RateLimit, Text, Tokens, ToolUse, Usage
from kingdom.agents.usage import RunUsage
from kingdom.agents.verdict import ProcessExit, RunVerdict, StopReason, judge

DONE = check_result({"status": "success", "summary": "done"})
ASKS = check_result({"status": "needs_human", "question": "Which?"})
CLEAN = ProcessExit(code=0)


def verdict(
    *events: AgentEvent,
    ending: ProcessExit = CLEAN,
    stop: StopReason | None = None,
    result: dict[str, Any] | str | None = None,
    exit_code_decides: bool = False,
) -> RunVerdict:
    account = RunUsage(None, None)
    for event in events:
        account.take(event)
    return judge(account, ending, stop, result, exit_code_decides=exit_code_decides)


def test_the_result_file_counts_more_than_structured_output_and_that_more_than_words() -> None:
    finished = Finished(ok=True, text="words", structured={"status": "skipped", "summary": "structured"})
    assert verdict(finished, result=DONE).result == DONE
    assert verdict(finished).status == "skipped"
    said = verdict(Finished(ok=True, text="words")).result
    assert said is not None
    assert said["summary"] == "words"


def test_success_with_an_error_flag_is_a_failure() -> None:
    assert verdict(Finished(ok=False, error="API error"), result=DONE) == RunVerdict("failed", DONE, "API error")
    flagged = check_result({"status": "success", "error": "but the tests fail"})
    assert verdict(Finished(ok=True), result=flagged).status == "failed"


def test_a_question_stands_even_when_the_engine_says_it_failed() -> None:
    assert verdict(Finished(ok=False, error="x"), result=ASKS).status == "needs_human"


def test_ending_well_without_a_word_is_a_failure_unless_the_exit_code_decides() -> None:
    silent = verdict(result=DONE)
    assert silent.status == "failed"
    assert "without saying that it was done" in str(silent.error)
    assert verdict(result=DONE, exit_code_decides=True).status == "success"
    assert verdict(Text("last words"), exit_code_decides=True).result == check_result(
        {"status": "success", "summary": "last words"}
    )


def test_a_result_of_success_does_not_hide_an_exit_code() -> None:
    failed = verdict(result=DONE, ending=ProcessExit(code=3, errors="boom"), exit_code_decides=True)
    assert (failed.status, failed.error) == ("failed", "exit code 3: boom")


def test_an_unusable_result_file_is_a_failure_with_its_reason() -> None:
    assert verdict(Finished(ok=True), result="the result file is not JSON") == RunVerdict(
        "failed", None, "the result file is not JSON"
    )


@pytest.mark.parametrize(
    "ending",
    [ProcessExit(signal=9), ProcessExit(code=143), ProcessExit(seen=False), ProcessExit(code=0, stopped="SIGHUP")],
)
def test_an_end_by_another_hand_is_killed(ending: ProcessExit) -> None:
    assert verdict(Text("working"), ending=ending, result=DONE).status == "killed"


def test_what_was_done_before_an_end_by_another_hand_is_done() -> None:
    assert verdict(Finished(ok=True), ending=ProcessExit(signal=9), result=DONE).status == "success"


def test_a_run_that_nobody_watched_and_took_too_long_is_a_timeout() -> None:
    unrenewed = verdict(ending=ProcessExit(signal=2, stopped="lease"))
    assert (unrenewed.status, unrenewed.error) == ("killed", "its engine did not renew its lease in time")
    late = verdict(ending=ProcessExit(signal=9, stopped="ceiling"))
    assert (late.status, late.timer) == ("timeout", "total")


def test_a_rejection_by_the_rate_limit_is_its_own_outcome() -> None:
    rejected = RateLimit("rejected", 123.0, "five_hour")
    assert verdict(rejected, Finished(ok=False, error="limit")).status == "rate_limited"
    assert verdict(rejected, stop=StopReason("timeout", "silent", "silence")).status == "rate_limited"
    assert verdict(rejected, ToolUse("Bash"), Finished(ok=False, error="x")).status == "failed"
    assert verdict(rejected, Finished(ok=True)).status == "success"
    assert verdict(rejected, stop=StopReason("killed", "cancelled")).status == "killed"


def test_what_we_ended_has_our_reason() -> None:
    assert verdict(stop=StopReason("timeout", "silent", "silence"), ending=ProcessExit(signal=2)) == RunVerdict(
        "timeout", None, "silent", "silence"
    )
    assert verdict(Finished(ok=True), stop=StopReason(None, "hung"), ending=ProcessExit(signal=9)).status == "success"
    assert verdict(Finished(ok=True), stop=StopReason("killed", "cancelled"), result=DONE).status == "killed"


def test_a_program_that_could_not_be_started_is_a_failure() -> None:
    failed = verdict(ending=ProcessExit(code=127, start_error="No such file or directory: /x"))
    assert (failed.status, failed.error) == (
        "failed",
        "the program could not be started: No such file or directory: /x",
    )


def test_words_no_text_column_takes_do_not_reach_the_summary() -> None:
    said = verdict(Finished(ok=True, text="a\0b\ud800c")).result
    assert said is not None
    assert said["summary"] == "ab?c"


def test_costs_come_from_the_engine_or_the_price_list() -> None:
    account = RunUsage("claude-sonnet-4-5-20250929", None)
    assert (account.cost_usd, account.cost_source) == (None, "none")
    account.take(Usage(Tokens(input=1_000_000), None, 1))
    assert (account.cost_usd, account.cost_source, account.price_known) == (3.0, "estimate", True)
    account.take(Usage(Tokens(input=1_000_000), 2.5, 1))
    assert (account.cost_usd, account.cost_source) == (2.5, "stream")
    account.take(Finished(ok=True))
    assert account.cost_source == "result"


def test_each_cap_is_told_in_words() -> None:
    account = RunUsage("unknown-model", None)
    account.take(Usage(Tokens(output=1000), None, 5))
    assert account.over(Caps(turns=5, tokens=1000, cost_usd=1.0)) is None
    assert account.over(Caps(turns=4)) == "it is over its cap: 5 turns used, 4 allowed"
    assert account.over(Caps(tokens=999)) == "it is over its cap: 1000 tokens used, 999 allowed"
    assert account.over(Caps(cost_usd=0.01)) == "it is over its cap: 0.075 US dollars used, 0.01 allowed"
    assert not account.price_known
