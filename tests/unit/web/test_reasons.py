"""Reasons of the court and of workflows, which are stored in English, in the words of the visitor."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kingdom.court.attention import AttentionItem
from kingdom.court.budget import BudgetLimit
from kingdom.court.home import Home
from kingdom.court.king.admission import HealthGate, Holds
from kingdom.web.dashboard.shell import attention_text
from kingdom.web.dashboard.words import translations
from kingdom.web.dashboard.words.ko_reasons import REASONS

KO, EN = translations("ko"), translations("en")
ENGLISH = re.compile(r"[a-z]{4,}")


@pytest.mark.parametrize(
    ("text", "korean"),
    [
        ("all 4 soldiers are at work (concurrency.max_soldiers)", "병사 4명이 모두 일하고 있습니다"),
        ("gen-pr is at its limit of 2 at once", "gen-pr 장군이 동시 작업 한도 2개에 도달했습니다"),
        ("acme/shop#7 has a task already: task-20260207-001 of gen-pr, which waits for an answer", "(답변 대기)"),
        ("acme/shop#7 has a task already: task-20260207-001 of gen-pr", "gen-pr 장군의 task-20260207-001"),
        (
            "the daily budget of gen-pr is 90 tokens: 80 tokens spent, 0 tokens reserved, this run may take 20 tokens",
            "gen-pr 장군의 일일 예산 90 tokens: 80 tokens 사용, 0 tokens 예약, 이번 실행에 20 tokens 예상",
        ),
        ("$9.00 of the monthly budget of $10.00 spent", "월 예산 $10.00 중 $9.00 사용"),
        (
            "daily budget: $2.50 of $10.00; monthly budget: $3 of $9",
            "일일 예산 $10.00 중 $2.50 사용; 월 예산 $9 중 $3 사용",
        ),
        ("failed: no such file", "실패: no such file"),
        ("review after build {x}", "build {x} 단계 뒤의 검토"),
        (
            "task do of work build failed after 3 tries: a\nb",
            "build 단계의 태스크 do: 3번 시도한 뒤 실패했습니다: a\nb",
        ),
        ("king is failed (exit code 1): logs/system.log has more", "king 역할: "),
        ("nobody knows this reason", "nobody knows this reason"),
    ],
)
def test_a_reason_is_told_in_korean_and_stays_as_it_is_in_english(text: str, korean: str) -> None:
    assert korean in KO.reason(text)
    assert EN.reason(text) == text


def test_every_pattern_names_the_fields_of_its_text() -> None:
    for pattern, words in REASONS:
        assert set(re.findall(r"\{(\w+)\}", words)) == set(re.compile(pattern).groupindex), pattern


def test_what_the_king_holds_back_for_has_words(tmp_path: Path) -> None:
    home = Home(tmp_path)
    gate, health = HealthGate(home), home.role("chamberlain") / "health.json"
    health.parent.mkdir(parents=True)
    told = []
    for document in (
        {"level": "red", "ts": 1000.0, "reason": "all resources are calm"},
        {"level": "green", "ts": 1.0},
        {},
    ):
        health.write_text(json.dumps(document))
        told.append(gate.refusal("gen-pr", "low", 1000.0))
    holds = Holds()
    for number in range(60):
        holds.add(f"gen-{number} is at its limit of 1 at once", ["evt-1"])
    told += list(holds.report())
    assert len(told) == 54
    for reason in told:
        assert reason is not None
        left = re.sub(r"gen-\d+|health\.json", "", KO.reason(reason))
        assert not ENGLISH.search(left), left


def test_what_limits_the_court_is_told_with_its_reason_in_korean() -> None:
    name = BudgetLimit(None, "daily", "usd", 10.0).name
    item = AttentionItem("held", reason=f"the {name} is $9: $8 spent, $0 reserved, this run may take $2", count=3)
    assert "일일 예산 $9: $8 사용" in attention_text(KO, item)
