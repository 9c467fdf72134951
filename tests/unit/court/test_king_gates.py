"""Health as a gate: what may start at which level."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kingdom.court.home import Home
from kingdom.court.king.admission import HealthGate
from kingdom.court.models import timestamp
from tests.support.kings import NOON

LEVELS = {
    "green": {"high", "normal", "low"},
    "yellow": {"high", "normal"},
    "orange": {"high"},
    "red": set(),
}


def allowed(gate: HealthGate, now: float = NOON) -> set[str]:
    return {priority for priority in ("high", "normal", "low") if gate.refusal("gen-pr", priority, now) is None}


def write(home: Home, text: str) -> None:
    path = home.role("chamberlain") / "health.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


@pytest.mark.parametrize("level", LEVELS)
def test_the_worse_the_health_the_less_may_start(tmp_path: Path, level: str) -> None:
    home = Home(tmp_path)
    write(home, json.dumps({"level": level, "reason": "disk", "ts": timestamp(NOON)}))
    assert allowed(HealthGate(home)) == LEVELS[level]


def test_nobody_watching_means_green_and_a_watcher_gone_silent_means_orange(tmp_path: Path) -> None:
    home = Home(tmp_path)
    gate = HealthGate(home)
    assert allowed(gate) == LEVELS["green"]
    write(home, json.dumps({"level": "green", "ts": timestamp(NOON)}))
    assert allowed(gate, NOON + 299) == LEVELS["green"]
    assert allowed(gate, NOON + 301) == LEVELS["orange"]
    assert allowed(gate, NOON - 3600) == LEVELS["green"]  # a clock set back makes nothing old
    write(home, json.dumps({"level": "red", "reason": "memory", "ts": timestamp(NOON)}))
    assert allowed(gate, NOON + 301) == set()
    assert gate.refusal("gen-pr", "high", NOON) == "health is red (memory)"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"level": "blue", "ts": "2026-02-07T12:00:00Z"}', '{"level": "green"}']
)
def test_what_cannot_be_read_means_orange(tmp_path: Path, text: str) -> None:
    home = Home(tmp_path)
    write(home, text)
    assert allowed(HealthGate(home)) == LEVELS["orange"]
