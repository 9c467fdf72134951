"""The health of the machine."""

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


# What the machine has left.


_MIN_CPU_SAMPLE_SECONDS: Final = 1.0  # seconds: the processors' use in less time says nothing


class ResourceReader(Protocol):
    """Where the readings come from."""

    def read(self) -> Mapping[str, float]:
        """Percent in use, by metric: ``cpu_percent``, ``memory_percent``, ``disk_percent``.

        A metric that cannot be read is left out.
        """


class MachineResources:
    """This machine, and the disk that the home is on."""

    def __init__(self, home: Path) -> None:
        import psutil

        self._home = str(home)
        psutil.cpu_percent(interval=None)  # the first call has nothing to compare with
        self._read_at = time.monotonic()

    def read(self) -> dict[str, float]:
        """Percent in use; of the processors, on average since the last reading."""
        import psutil

        readings = {"memory_percent": psutil.virtual_memory().percent}
        if time.monotonic() - self._read_at >= _MIN_CPU_SAMPLE_SECONDS:
            readings["cpu_percent"] = psutil.cpu_percent(interval=None)
            self._read_at = time.monotonic()
        with contextlib.suppress(OSError):
            readings["disk_percent"] = psutil.disk_usage(self._home).percent
        return {metric: round(value, 1) for metric, value in readings.items()}


# Green, yellow, orange, red: from readings to one level that does not flutter.
#
# A resource rises to a level as soon as it is over the level's threshold. It leaves the level at once when it is well
# below (``hysteresis_points``), and otherwise after ``calm_ticks`` looks in a row below the threshold.


@dataclass(slots=True)
class ResourceGauge:
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
class ThresholdCrossed:
    """A resource rose over a threshold."""

    metric: str
    value: float
    threshold: float


@dataclass(slots=True)
class CourtHealth:
    """The level of the whole, and why."""

    level: Level = "green"
    reason: str = ""
    gauges: dict[str, ResourceGauge] = field(default_factory=dict)

    def look(
        self, readings: Mapping[str, float], section: HealthSection, others: Mapping[str, Level]
    ) -> list[ThresholdCrossed]:
        """Take the readings of one look; ``others`` are reasons beside the resources, with the level they ask for."""
        warned = []
        for metric, value in readings.items():
            limits: LevelSection = getattr(section, metric)
            gauge = self.gauges.setdefault(metric, ResourceGauge())
            if gauge.look(value, limits, section):
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
        """As JSON."""
        gauges = {metric: {"level": gauge.level, "calm": gauge.calm} for metric, gauge in self.gauges.items()}
        return {"level": self.level, "reason": self.reason, "gauges": gauges}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """What :meth:`to_dict` gave."""
        gauges = {metric: ResourceGauge(item["level"], item["calm"]) for metric, item in document["gauges"].items()}
        return cls(document["level"], document["reason"], gauges)


def level_of(value: float, limits: LevelSection) -> Level:
    """The level of a reading by itself."""
    return next(level for level in reversed(LEVELS) if level == "green" or value >= limits.threshold(level))


def worst_level(levels: Iterable[Level]) -> Level:
    """The worst of them; green when there is none."""
    return max(levels, key=_rank, default="green")


def at_least(level: Level, least: Level) -> bool:
    """Whether a level is as bad as ``least``, or worse."""
    return _rank(level) >= _rank(least)


def _rank(level: Level) -> int:
    return LEVELS.index(level)
