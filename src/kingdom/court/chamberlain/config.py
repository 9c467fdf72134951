"""``config/chamberlain.yaml``: thresholds, alerts, and how long things are kept."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import time
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from kingdom.base.files import ChangeDetector
from kingdom.base.yamlfile import YamlProblem, load_yaml
from kingdom.court.config_parts import ConfigSection

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.court.home import Home

FILE: Final = "chamberlain.yaml"
Level = Literal["green", "yellow", "orange", "red"]
LEVELS: Final[tuple[Level, ...]] = ("green", "yellow", "orange", "red")
_TIME_PATTERN: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")


def _time_of_day(value: Any) -> Any:
    if isinstance(value, time):
        return value
    if isinstance(value, str) and (match := _TIME_PATTERN.fullmatch(value)):
        return time(int(match[1]), int(match[2]))
    raise ValueError(f'{value!r:.40} is not a time of day: write it as "03:00"')


TimeOfDay = Annotated[time, BeforeValidator(_time_of_day), WithJsonSchema({"type": "string", "examples": ["03:00"]})]
Days = Annotated[float, Field(gt=0, le=36500)]
Percent = Annotated[float, Field(gt=0, le=100)]


class LevelSection(ConfigSection):
    """The percentages at which a resource makes the court yellow, orange or red; null: never."""

    yellow: Percent | None = 75.0
    orange: Percent | None = 90.0
    red: Percent | None = 95.0

    @model_validator(mode="after")
    def _rising(self) -> LevelSection:
        given = [value for value in (self.yellow, self.orange, self.red) if value is not None]
        if given != sorted(set(given)):
            raise ValueError(f"yellow < orange < red must hold, not {', '.join(f'{value:g}' for value in given)}")
        return self

    def threshold(self, level: Level) -> float:
        """Return the threshold of a level: 0 for green, infinity for a level that is set to null."""
        if level == "green":
            return 0.0
        value = {"yellow": self.yellow, "orange": self.orange, "red": self.red}[level]
        return math.inf if value is None else value


def _cpu_levels() -> LevelSection:
    """A busy CPU holds only low priority: soldiers are meant to use the CPU."""
    return LevelSection(yellow=70.0, orange=None, red=None)


def _disk_levels() -> LevelSection:
    """Disks are usually fuller than memory, and stay so for longer."""
    return LevelSection(yellow=85.0, orange=95.0, red=98.0)


class HealthSection(ConfigSection):
    """Thresholds of the health levels."""

    cpu_percent: LevelSection = Field(default_factory=_cpu_levels)
    memory_percent: LevelSection = Field(default_factory=LevelSection)
    disk_percent: LevelSection = Field(default_factory=_disk_levels)
    hysteresis_points: float = Field(default=5.0, ge=0, le=50)
    """A level is left at once when the reading is this far below its threshold."""
    calm_ticks: int = Field(default=10, ge=1, le=10_000)
    """Otherwise it is left after this many ticks in a row below the threshold."""


class HeartbeatSection(ConfigSection):
    """When a role counts as silent."""

    seconds: float = Field(default=120.0, ge=5)
    roles: dict[str, Annotated[float, Field(ge=5)]] = Field(default_factory=dict)
    """Other limits, by the name of the role."""

    def limit(self, role: str) -> float:
        """Return the number of seconds after which this role counts as silent."""
        return self.roles.get(role, self.seconds)


class SoldierSection(ConfigSection):
    """When a soldier is ended by force."""

    max_age_hours: float = Field(default=8.0, gt=0)
    """An older soldier is ended. Its general normally ends it long before, by the timers of its manifest."""
    grace_seconds: float = Field(default=300.0, ge=0)
    """How long a running soldier may have no open task, or a dead one stay on record, before it is cleaned up."""


class AnomalySection(ConfigSection):
    """Anomalies in the journal that people are alerted about."""

    failures_in_a_row: int = Field(default=3, ge=1)
    timeouts_per_hour: int = Field(default=5, ge=1)
    event_stale_minutes: float = Field(default=30.0, gt=0)


class AlertSection(ConfigSection):
    """Alerts to people."""

    health_from: Literal["yellow", "orange", "red"] = "orange"
    channel: str | None = None
    """The channel of alerts. None: the channel of system.yaml."""


class ReportSection(ConfigSection):
    """The daily report."""

    at: TimeOfDay = time(9, 0)


class RetentionSection(ConfigSection):
    """How long things are kept."""

    at: TimeOfDay = time(3, 0)
    log_max_mb: float = Field(default=100.0, gt=0)
    logs_days: Days = 7.0
    results_days: Days = 7.0
    queue_days: Days = 7.0
    prompts_days: Days = 3.0
    session_logs_days: Days = 7.0
    seen_days: Days = 30.0
    invalid_days: Days = 30.0
    """Invalid documents, and messages that could not be sent."""
    reports_days: Days = 400.0
    pull_requests_days: Days = 90.0
    """Who opened a pull request, after a task last worked on it."""
    workspace_days: Days = 14.0
    """Working folders of tasks, after they were last used."""

    @property
    def log_max_bytes(self) -> int:
        """The size in bytes at which a log is rotated."""
        return int(self.log_max_mb * 1024 * 1024)


class ChamberlainConfig(ConfigSection):
    """The whole file."""

    interval_seconds: float = Field(default=30.0, ge=1, le=3600)
    health: HealthSection = Field(default_factory=HealthSection)
    heartbeats: HeartbeatSection = Field(default_factory=HeartbeatSection)
    soldiers: SoldierSection = Field(default_factory=SoldierSection)
    anomalies: AnomalySection = Field(default_factory=AnomalySection)
    alerts: AlertSection = Field(default_factory=AlertSection)
    report: ReportSection = Field(default_factory=ReportSection)
    retention: RetentionSection = Field(default_factory=RetentionSection)


@dataclass(frozen=True, slots=True)
class LoadedChamberlainConfig:
    """The result of loading the file."""

    config: ChamberlainConfig
    problem: str | None = None
    sound: bool = True
    """False when these are the defaults because the file is invalid: then nothing may be removed."""


class ChamberlainConfigFile:
    """Reloads the file when it changes. While the file is invalid, the previous settings stay in effect."""

    def __init__(self, home: Home) -> None:
        self._path: Path = home.config / FILE
        self._changes = ChangeDetector(self._path)
        self._loaded: LoadedChamberlainConfig | None = None

    def load(self) -> LoadedChamberlainConfig:
        """Return the current settings."""
        if self._changes.changed() or self._loaded is None:
            self._loaded = self._read()
        return self._loaded

    def _read(self) -> LoadedChamberlainConfig:
        if self._changes.missing:
            return LoadedChamberlainConfig(ChamberlainConfig())
        try:
            return LoadedChamberlainConfig(load_yaml(self._path, ChamberlainConfig))
        except YamlProblem as error:
            before = self._loaded
            if before is None:
                return LoadedChamberlainConfig(ChamberlainConfig(), str(error), sound=False)
            return LoadedChamberlainConfig(before.config, str(error), before.sound)
