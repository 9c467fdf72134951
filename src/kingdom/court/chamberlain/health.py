"""The health of the court: green, yellow, orange or red, from resource readings, with hysteresis.

A resource enters a level as soon as its reading reaches the threshold. It leaves the level at once when the reading is
``hysteresis_points`` below, and otherwise after ``calm_ticks`` ticks in a row below the threshold.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from kingdom.court.chamberlain.config import LEVELS, Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kingdom.court.chamberlain.config import HealthSection, LevelSection


_MIN_CPU_SAMPLE_SECONDS: Final = 1.0  # CPU usage over a shorter time is not significant


class ResourceReader(Protocol):
    """Source of resource readings."""

    def read(self) -> Mapping[str, float]:
        """Return the percentage in use, by metric: ``cpu_percent``, ``memory_percent``, ``disk_percent``.

        A metric that cannot be read is left out.
        """


class MachineResources:
    """Readings of this machine, and of the disk of the home."""

    def __init__(self, home: Path) -> None:
        import psutil

        self._home = str(home)
        psutil.cpu_percent(interval=None)  # the first call only starts the measurement
        self._read_at = time.monotonic()

    def read(self) -> dict[str, float]:
        """Return the percentage in use; for the CPU, the average since the last reading."""
        import psutil

        readings = {"memory_percent": psutil.virtual_memory().percent}
        if time.monotonic() - self._read_at >= _MIN_CPU_SAMPLE_SECONDS:
            readings["cpu_percent"] = psutil.cpu_percent(interval=None)
            self._read_at = time.monotonic()
        with contextlib.suppress(OSError):
            readings["disk_percent"] = psutil.disk_usage(self._home).percent
        return {metric: round(value, 1) for metric, value in readings.items()}


@dataclass(slots=True)
class ResourceGauge:
    """The level of one resource."""

    level: Level = "green"
    calm: int = 0  # ticks in a row below the threshold of the level

    def update(self, value: float, limits: LevelSection, section: HealthSection) -> bool:
        """Take a reading; return whether the level rose."""
        raw = level_of(value, limits)
        if _rank(raw) >= _rank(self.level):
            rose = raw != self.level
            self.level, self.calm = raw, 0
            return rose
        held = level_of(value + section.hysteresis_points, limits)
        self.calm += 1
        if _rank(held) < _rank(self.level):
            self.level, self.calm = held, 0
        if self.calm >= section.calm_ticks:
            self.level, self.calm = raw, 0
        return False


@dataclass(frozen=True, slots=True)
class ThresholdCrossed:
    """A resource has reached a threshold."""

    metric: str
    value: float
    threshold: float


@dataclass(slots=True)
class CourtHealth:
    """The level of the court, and the reason."""

    level: Level = "green"
    reason: str = ""
    gauges: dict[str, ResourceGauge] = field(default_factory=dict)

    def update(
        self, readings: Mapping[str, float], section: HealthSection, others: Mapping[str, Level]
    ) -> list[ThresholdCrossed]:
        """Take the readings of one tick; ``others`` are further reasons, each with its level."""
        warned = []
        for metric, value in readings.items():
            limits: LevelSection = getattr(section, metric)
            gauge = self.gauges.setdefault(metric, ResourceGauge())
            if gauge.update(value, limits, section):
                warned.append(ThresholdCrossed(metric, value, limits.threshold(gauge.level)))
        levels: dict[str, Level] = {metric: gauge.level for metric, gauge in self.gauges.items()}
        worst = worst_level([*levels.values(), *others.values()])
        reasons = [
            f"{metric}: {readings[metric]:g}" for metric in levels if metric in readings and levels[metric] == worst
        ]
        reasons += [reason for reason, level in others.items() if level == worst]
        self.level = worst
        self.reason = ", ".join(reasons) if worst != "green" else "all resources are calm"
        return warned

    def to_dict(self) -> dict[str, Any]:
        gauges = {metric: {"level": gauge.level, "calm": gauge.calm} for metric, gauge in self.gauges.items()}
        return {"level": self.level, "reason": self.reason, "gauges": gauges}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        gauges = {metric: ResourceGauge(item["level"], item["calm"]) for metric, item in document["gauges"].items()}
        return cls(document["level"], document["reason"], gauges)


def level_of(value: float, limits: LevelSection) -> Level:
    """Return the level of a single reading, without hysteresis."""
    return next(level for level in reversed(LEVELS) if level == "green" or value >= limits.threshold(level))


def worst_level(levels: Iterable[Level]) -> Level:
    """Return the worst level; green when there is none."""
    return max(levels, key=_rank, default="green")


def at_least(level: Level, least: Level) -> bool:
    """Whether a level is as bad as ``least`` or worse."""
    return _rank(level) >= _rank(least)


def _rank(level: Level) -> int:
    return LEVELS.index(level)
