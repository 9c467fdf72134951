"""Green, yellow, orange, red: from readings to one level that does not flutter.

A resource rises to a level as soon as it is over the level's threshold. It leaves the level at once when it is well
below (``hysteresis_points``), and otherwise after ``calm_ticks`` looks in a row below the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from kingdom.court.chamberlain.config import LEVELS, Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kingdom.court.chamberlain.config import HealthSection, LevelSection


@dataclass(slots=True)
class Gauge:
    """The level of one resource."""

    level: Level = "green"
    calm: int = 0  # looks in a row below where the level begins

    def look(self, value: float, limits: LevelSection, section: HealthSection) -> bool:
        """Take a reading; True when the level rose."""
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
class Warned:
    """A resource rose over a threshold."""

    metric: str
    value: float
    threshold: float


@dataclass(slots=True)
class Health:
    """The level of the whole, and why."""

    level: Level = "green"
    reason: str = ""
    gauges: dict[str, Gauge] = field(default_factory=dict)

    def look(self, readings: Mapping[str, float], section: HealthSection, others: Mapping[str, Level]) -> list[Warned]:
        """Take the readings of one look; ``others`` are reasons beside the resources, with the level they ask for."""
        warned = []
        for metric, value in readings.items():
            limits: LevelSection = getattr(section, metric)
            gauge = self.gauges.setdefault(metric, Gauge())
            if gauge.look(value, limits, section):
                warned.append(Warned(metric, value, limits.threshold(gauge.level)))
        levels: dict[str, Level] = {metric: gauge.level for metric, gauge in self.gauges.items()}
        worst = highest([*levels.values(), *others.values()])
        reasons = [
            f"{metric}: {readings[metric]:g}" for metric in levels if metric in readings and levels[metric] == worst
        ]
        reasons += [reason for reason, level in others.items() if level == worst]
        self.level = worst
        self.reason = ", ".join(reasons) if worst != "green" else "all resources are calm"
        return warned

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        gauges = {metric: {"level": gauge.level, "calm": gauge.calm} for metric, gauge in self.gauges.items()}
        return {"level": self.level, "reason": self.reason, "gauges": gauges}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """What :meth:`to_dict` gave."""
        gauges = {metric: Gauge(item["level"], item["calm"]) for metric, item in document["gauges"].items()}
        return cls(document["level"], document["reason"], gauges)


def level_of(value: float, limits: LevelSection) -> Level:
    """The level of a reading by itself."""
    return next(level for level in reversed(LEVELS) if level == "green" or value >= limits.threshold(level))


def highest(levels: Iterable[Level]) -> Level:
    """The worst of them; green when there is none."""
    return max(levels, key=_rank, default="green")


def reaches(level: Level, least: Level) -> bool:
    """Whether a level is as bad as ``least``, or worse."""
    return _rank(level) >= _rank(least)


def _rank(level: Level) -> int:
    return LEVELS.index(level)
