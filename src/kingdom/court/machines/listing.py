"""The machines of a court as this machine last read them: ``state/link/machines.json``.

The role ``link`` writes the file every few seconds, so that whatever shows the court needs no connection for it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from pydantic import ConfigDict, Field

from kingdom.base.files import read_object, write_json
from kingdom.base.times import epoch_seconds
from kingdom.court.machines.capacity import load_machine, machine_state
from kingdom.court.machines.role_reports import CourtSummary, reported_holds
from kingdom.court.models import timestamp
from kingdom.court.problems import API_CONFIG, CourtProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from kingdom.court.home import Home
    from kingdom.court.packages.manifest import Manifest

ALIVE_SECONDS: Final = 60.0  # a machine that was not seen for this long counts as gone

_MAX_SKEW_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of the court, as it last reported."""

    name: str
    joined: bool
    joined_at: datetime | None
    silent_seconds: float
    """Since its last sign of life."""
    clock_skew: float
    """By how many seconds its clock is ahead of the database's."""
    state: str
    report: dict[str, Any] = field(default_factory=dict)
    leads: bool = False


@dataclass(frozen=True, slots=True)
class MachineSoldier:
    """A soldier that runs on a machine."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    id: str
    task_id: str
    general: str
    engine: str = ""
    started_at: float | None = None


@dataclass(frozen=True, slots=True)
class MachineState:
    """A machine of a court on several."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    name: Annotated[str, Field(examples=["builder-2"])]
    state: Annotated[
        str, Field(description="active, stopped (kingdom down), silent, leaving or removed", examples=["active"])
    ]
    here: Annotated[bool, Field(description="Whether it is the machine that answers.")]
    joined: Annotated[bool, Field(description="Whether it runs generals only.")]
    leads: Annotated[bool, Field(description="Whether it has the king, envoy, sentinel and chamberlain now.")]
    silent_seconds: Annotated[float, Field(description="Since its last sign of life.")]
    clock_skew_seconds: Annotated[float, Field(description="By how much its clock is ahead of the database's.")]
    version: str = ""
    generals: list[str] = field(default_factory=list)
    soldiers: list[MachineSoldier] = field(default_factory=list)
    labels: Annotated[list[str], Field(description="What generals may demand of it.", examples=[["gpu"]])] = field(
        default_factory=list
    )
    slots: Annotated[int | None, Field(description="How many soldiers may run there at once.")] = None
    load: float | None = None
    cores: int | None = None
    held: Annotated[dict[str, Any], Field(description="Why its generals hold tasks back: count and some ids.")] = field(
        default_factory=dict
    )
    court: Annotated[CourtSummary | None, Field(description="The state of the court, from the machine that leads.")] = (
        None
    )

    @property
    def duty(self) -> str:
        """What it does in the court, in a word or two."""
        return "generals" if self.joined else "led last" if self.led else "leads" if self.leads else "stands by"

    @property
    def runs(self) -> list[str]:
        """The generals that run there: none while it stands by."""
        return self.generals if self.joined or self.leads else []

    @property
    def led(self) -> bool:
        """Whether it led last and is gone, and no other machine has taken over."""
        return self.leads and self.state in ("stopped", "silent")


def describe_machine(machine: Machine, own: str) -> MachineState:
    """Return the state of a machine as the database has it."""
    report = machine.report
    return MachineState(
        machine.name,
        _shown_state(machine),
        machine.name == own,
        machine.joined,
        machine.leads,
        round(machine.silent_seconds, 1),
        round(machine.clock_skew, 3),
        str(report.get("version") or ""),
        [str(one) for one in _list(report.get("generals"))],
        [one for soldier in _list(report.get("soldiers")) if (one := _soldier(soldier)) is not None],
        [str(one) for one in _list(report.get("labels"))],
        _number(report.get("slots"), int),
        _number(report.get("load"), float),
        _number(report.get("cores"), int),
        reported_holds(report.get("held")),
        _summary(report.get("court")) if machine.leads else None,
    )


def save_machines(home: Home, machines: Iterable[Machine], now: float) -> None:
    """Write what the database says about the machines."""
    rows = [
        {"name": one.name, "joined": one.joined, "silent": one.silent_seconds, "clock_skew": one.clock_skew}
        | {"state": one.state, "report": one.report, "leads": one.leads}
        for one in machines
    ]
    home.role("link").mkdir(parents=True, exist_ok=True)
    write_json(_path(home), {"at": timestamp(now), "machines": rows}, durable=False)


def read_machines(home: Home, now: float) -> list[MachineState]:
    """Return the machines as they were last read; an empty list for a court on one machine."""
    section = load_machine(home)
    return [] if section is None else [describe_machine(one, section.name) for one in _last_read(home, now)]


def clones_elsewhere(home: Home, own: str, general: str, now: float) -> set[str]:
    """Return the clones of repositories, by the names of their folders, that other machines of a general have."""
    found: set[str] = set()
    for machine in _last_read(home, now):
        if (
            _shown_state(machine) == "active"
            and machine.name != own
            and (machine.joined or machine.leads)  # one that stands by takes no tasks
            and general in _list(machine.report.get("generals"))
        ):
            found |= set(map(str, _list(machine.report.get("clones"))))
    return found


def _last_read(home: Home, now: float) -> Iterator[Machine]:
    document = read_object(_path(home))
    age = max(now - (epoch_seconds(document.get("at")) or now), 0.0)
    for row in _list(document.get("machines")):
        with contextlib.suppress(KeyError, TypeError):
            yield Machine(
                row["name"],
                row["joined"],
                None,
                row["silent"] + age,
                row["clock_skew"],
                row["state"],
                row["report"],
                row["leads"],
            )


def machine_problems(machines: Iterable[MachineState]) -> Iterator[CourtProblem]:
    """Yield a leader that is gone, other machines that are gone without leaving, and those whose clock is wrong."""
    machines = [*machines]
    if (own := _cut_off(machines)) is not None:
        if own.state == "silent":  # a court that was stopped says so
            why = "it has not reached the database for a minute or longer: what the other machines do is not known here"
            yield CourtProblem(f"machine {own.name}", why)
        return
    for machine in machines:
        skew = machine.clock_skew_seconds
        if machine.state == "active" and abs(skew) > _MAX_SKEW_SECONDS:
            yield CourtProblem(
                f"machine {machine.name}",
                f"its clock is {abs(skew) / 60:,.0f} min {'ahead of' if skew > 0 else 'behind'} the database's, and "
                "its costs count on the days of its clock: set it, for example with NTP",
            )
        if machine.led and not machine.here:
            gone = "was stopped" if machine.state == "stopped" else "was not seen for a minute or longer"
            yield CourtProblem(
                f"machine {machine.name}",
                f"it led the court and {gone}: new events wait until kingdom up there, or on a machine that stands by "
                "(kingdom join --standby)",
            )
        elif machine.state == "silent" and not machine.here:
            yield CourtProblem(
                f"machine {machine.name}",
                f"it was not seen for a minute or longer; its tasks go to other machines. Look at it, or run "
                f"kingdom machines remove {machine.name}",
            )


def own_problem(home: Home) -> Iterator[CourtProblem]:
    """Yield that this machine is none of the court any more."""
    section, state = load_machine(home), machine_state(home)
    if section is None or state not in ("left", "removed"):
        return
    why = "it has left the court: kingdom join makes it a machine of the court again"
    if state == "removed":
        why = (
            f"it was removed from the court, and claims nothing: after kingdom machines remove {section.name} --forget "
            "on the machine that leads, kingdom join makes it a machine of the court again"
        )
    yield CourtProblem(f"machine {section.name}", why)


def homeless_generals(machines: Sequence[MachineState], generals: Iterable[Manifest]) -> Iterator[CourtProblem]:
    """Yield the generals that no machine runs, so that their tasks wait for ever."""
    if not machines or _cut_off(machines) is not None:
        return
    running = {name for machine in machines if machine.state == "active" for name in machine.runs}
    leader = next((one.name for one in machines if one.leads and one.state == "active"), None)
    for general in generals:
        able = [one for one in machines if general.name in one.generals]
        away = [one for one in able if one.state in ("stopped", "silent")]
        if general.name in running:
            continue
        idle = [one.name for one in able if one.state == "active"]  # they stand by
        ways = [f"kingdom up on {' or '.join(one.name for one in away)} starts it"] if away else []
        if idle and leader is not None:
            ways.append(f"kingdom down on {leader} hands the lead to {' or '.join(idle)}, which then runs it")
        option = f" --labels {','.join(general.runs_on)}" if general.runs_on else ""
        ways.append(f"kingdom join{option} adds one that can")
        stands = f" ({' and '.join(idle)} may, but {'stands' if len(idle) == 1 else 'stand'} by)" if idle else ""
        yield CourtProblem(
            f"general {general.name}", f"no machine runs it{stands}, so its tasks wait: {', '.join(ways)}"
        )


def _cut_off(machines: Iterable[MachineState]) -> MachineState | None:
    """Return this machine if it has not read the others for so long that their silence says nothing."""
    return next((one for one in machines if one.here and one.state in ("silent", "stopped")), None)


def _shown_state(machine: Machine) -> str:
    if machine.state != "active":
        return machine.state
    return (
        "stopped" if machine.report.get("stopped") else "silent" if machine.silent_seconds > ALIVE_SECONDS else "active"
    )


def _soldier(value: Any) -> MachineSoldier | None:
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        return None
    texts = {name: str(value.get(name) or "") for name in ("id", "task_id", "general", "engine")}
    return MachineSoldier(**texts, started_at=_number(value.get("started_at"), float))


def _summary(value: Any) -> CourtSummary | None:
    with contextlib.suppress(TypeError):  # of another version
        return CourtSummary(**value)
    return None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any, kind: type[Any]) -> Any:
    return kind(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _path(home: Home) -> Any:
    return home.role("link") / "machines.json"
