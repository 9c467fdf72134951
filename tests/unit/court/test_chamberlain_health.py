"""Levels of health: when one begins, when it is left, and what is said about it."""

from __future__ import annotations

import pytest

from kingdom.court.chamberlain.config import HealthSection, LevelSection
from kingdom.court.chamberlain.health import CourtHealth

LIMITS = LevelSection(yellow=70, orange=80, red=90)
SECTION = HealthSection(calm_ticks=3, cpu_percent=LIMITS, memory_percent=LIMITS, disk_percent=LIMITS)


def levels(*values: float) -> list[str]:
    health, seen = CourtHealth(), []
    for value in values:
        health.update({"cpu_percent": value}, SECTION, {})
        seen.append(health.level)
    return seen


@pytest.mark.parametrize(
    ("value", "level"),
    [(0, "green"), (69.9, "green"), (70, "yellow"), (79.9, "yellow"), (80, "orange"), (90, "red"), (100, "red")],
)
def test_a_level_begins_at_its_threshold(value: float, level: str) -> None:
    assert levels(value) == [level]


def test_a_level_is_left_at_once_only_well_below_its_threshold() -> None:
    assert levels(72, 66, 71, 65, 64.9) == ["yellow", "yellow", "yellow", "yellow", "green"]
    assert levels(95, 84.9, 74.9, 64.9) == ["red", "orange", "yellow", "green"]
    assert levels(95, 20) == ["red", "green"]


def test_just_below_its_threshold_a_level_is_left_after_enough_calm_looks_in_a_row() -> None:
    assert levels(72, 68, 68, 68) == ["yellow", "yellow", "yellow", "green"]
    assert levels(72, 68, 68, 70, 68, 68, 68) == [*["yellow"] * 6, "green"]


def test_the_worst_resource_decides_and_is_named() -> None:
    health = CourtHealth()
    warned = health.update({"cpu_percent": 72, "memory_percent": 10, "disk_percent": 91}, SECTION, {})
    assert (health.level, health.reason) == ("red", "disk_percent: 91")
    assert [(item.metric, item.value, item.threshold) for item in warned] == [
        ("cpu_percent", 72, 70),
        ("disk_percent", 91, 90),
    ]
    assert health.update({"cpu_percent": 73, "disk_percent": 92}, SECTION, {}) == [], "a warning is said once per rise"


def test_other_reasons_raise_the_level_too() -> None:
    health = CourtHealth()
    health.update({"cpu_percent": 10}, SECTION, {"soldier.timeout: 6 in an hour": "yellow"})
    assert (health.level, health.reason) == ("yellow", "soldier.timeout: 6 in an hour")
    health.update({"cpu_percent": 85}, SECTION, {"soldier.timeout: 6 in an hour": "yellow"})
    assert (health.level, health.reason) == ("orange", "cpu_percent: 85")


def test_a_resource_that_cannot_be_read_keeps_its_level() -> None:
    health = CourtHealth()
    health.update({"disk_percent": 95, "cpu_percent": 1}, SECTION, {})
    health.update({"cpu_percent": 1}, SECTION, {})
    assert health.level == "red"


def test_health_survives_a_round_trip() -> None:
    health = CourtHealth()
    health.update({"cpu_percent": 72}, SECTION, {})
    health.update({"cpu_percent": 68}, SECTION, {})
    assert CourtHealth.from_dict(health.to_dict()) == health


def test_a_busy_processor_alone_never_holds_normal_work() -> None:
    health = CourtHealth()
    health.update({"cpu_percent": 100.0}, HealthSection(), {})
    assert health.level == "yellow"


def test_levels_that_do_not_rise_are_refused() -> None:
    with pytest.raises(ValueError, match="yellow < orange < red must hold, not 90, 80"):
        LevelSection(yellow=90, orange=80, red=None)
