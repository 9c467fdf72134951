"""What the roles of a court last reported: open questions, alerts, what is held back and why.

Heartbeats stay on their machine. The machine that leads keeps what people are shown of them in
``state/role-reports.json``, which is copied with the other files of the court whenever it changes. Machines that run
generals only may not read those files: they get levels and counts, with the sign of life of the machine that leads.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from pydantic import ConfigDict, Field

from kingdom.base.files import read_object, write_json
from kingdom.base.text import one_line
from kingdom.court.attention import held_count
from kingdom.court.king.admission import HealthGate
from kingdom.court.machines.own_lead import known_leader
from kingdom.court.packages.installed import held_tasks
from kingdom.court.problems import API_CONFIG

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.court.home import Home

_MAX_SAMPLES: Final = 3  # tasks that are named for each reason of a hold
_MAX_REASONS: Final = 20  # of the generals of one machine, in its sign of life
_MAX_REASON_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class RoleReports:
    """What people are shown of the heartbeats of a court."""

    holds: dict[str, Any] = field(default_factory=dict)
    """Count and a few ids, by reason."""
    asking: list[str] = field(default_factory=list)
    """The tasks with an open question."""
    deadlines: dict[str, str] = field(default_factory=dict)
    """Until when the king waits for the answer, by task."""
    alert_texts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CourtSummary:
    """The state of a court in levels and counts: what every machine may know."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    health: Annotated[str, Field(examples=["green"])]
    budget: Annotated[str, Field(examples=["ok"])]
    questions: Annotated[int, Field(description="Open questions.")]
    alerts: int
    held: Annotated[int, Field(description="Events and tasks that are held back.")]


def read_role_reports(home: Home) -> RoleReports:
    """Return what the roles of the court last reported, on this machine or on the one that leads."""
    if known_leader(home) is not None:  # heartbeats here are of the time in which this machine led
        found = read_object(_path(home))
        return RoleReports(
            _mapping(found.get("holds")),
            _texts(found.get("asking")),
            _mapping(found.get("deadlines")),
            _mapping(found.get("alert_texts")),
        )
    king = read_object(home.heartbeat("king"))
    return RoleReports(
        _mapping(king.get("holds")) | held_by_generals(home),
        _texts(king.get("asking")),
        _mapping(king.get("deadlines")),
        _mapping(read_object(home.heartbeat("chamberlain")).get("alert_texts")),
    )


def keep_role_reports(home: Home) -> None:
    """Write the file for machines that stand by, if it says something else. Called on the machine that leads."""
    document = asdict(read_role_reports(home))
    if read_object(_path(home)) != document:
        write_json(_path(home), document, durable=False)


def summarize(home: Home, now: float) -> CourtSummary:
    """Return the summary of the court on the machine that leads."""
    found = read_role_reports(home)
    return CourtSummary(
        HealthGate(home).level(now)[0],
        budget_level(home),
        len(found.asking),
        len(found.alert_texts),
        sum(map(held_count, found.holds.values())),
    )


def budget_level(home: Home) -> str:
    """Return the level that the chamberlain wrote for the court."""
    found = read_object(home.role("chamberlain") / "tokens.json").get("status")
    return found if found in ("warning", "critical") else "ok"


def held_by_generals(home: Home) -> dict[str, Any]:
    """Return what the generals of this machine hold back: count and a few ids, by general and reason."""
    return {
        one_line(reason, _MAX_REASON_CHARS): {"count": len(tasks), "tasks": tasks[:_MAX_SAMPLES]}
        for reason, tasks in [*held_tasks(home).items()][:_MAX_REASONS]
    }


def reported_holds(value: Any) -> dict[str, Any]:
    """Return what :func:`held_by_generals` said on another machine, which may be in the wrong hands."""
    found = {}
    for reason, one in [*_mapping(value).items()][:_MAX_REASONS]:
        if isinstance(one, dict) and isinstance(one.get("count"), int):
            tasks = [one_line(task) for task in _texts(one.get("tasks"))[:_MAX_SAMPLES]]
            found[one_line(str(reason), _MAX_REASON_CHARS)] = {"count": one["count"], "tasks": tasks}
    return found


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _texts(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _path(home: Home) -> Path:
    return home.state / "role-reports.json"
