"""The state of a court: its roles, queues, held events, soldiers, open questions and recent problems."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from pydantic import ConfigDict, Field

from kingdom.agents.errors import InvalidOrder
from kingdom.agents.ledger import Ledger
from kingdom.agents.processes import is_running
from kingdom.base.files import read_json, read_object
from kingdom.base.times import epoch_seconds
from kingdom.bus import BusError
from kingdom.court.acknowledgements import Acknowledgements
from kingdom.court.attention import attention_of, condition_of
from kingdom.court.bootstrap import available_roles, configured_sandbox, stop_order
from kingdom.court.budget import cost_summary
from kingdom.court.config import load_system
from kingdom.court.errors import CourtError
from kingdom.court.king.admission import HealthGate
from kingdom.court.machines.capacity import leads_or_joined, runs_here
from kingdom.court.machines.listing import (
    MachineState,
    homeless_generals,
    machine_problems,
    own_problem,
    read_machines,
)
from kingdom.court.machines.role_reports import budget_level, read_role_reports
from kingdom.court.packages.installed import GeneralsCache, load_generals
from kingdom.court.problems import (
    API_CONFIG,
    CourtProblem,
    failure_journal,
    home_problems,
    queue_problems,
    recent_failures,
)
from kingdom.court.queues import (
    EVENTS,
    MESSAGES,
    STATES,
    TASKS,
    invalid_files,
    is_answered,
    is_answered_in_files,
    uses_files,
)
from kingdom.court.soldiers import SoldierIndex
from kingdom.court.supervisor.record import running_supervisor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kingdom.court.config import SystemConfig
    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.court.machines.role_reports import RoleReports
    from kingdom.court.soldiers import Soldier

_DEFAULT_INTERVAL_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class RoleState:
    """A role of the court."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    name: Annotated[str, Field(examples=["king"])]
    state: Annotated[
        str,
        Field(description="running, late, starting, waiting, stopping, failed or stopped", examples=["running"]),
    ]
    pid: int | None
    heartbeat_seconds: Annotated[float | None, Field(description="Age of the last heartbeat in seconds.")]
    deaths: Annotated[int, Field(description="Consecutive crashes.")]
    reason: str


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue and its number of documents by state."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    name: Annotated[str, Field(examples=["tasks"])]
    counts: Annotated[dict[str, int], Field(examples=[{"pending": 2, "in_progress": 1, "invalid": 0}])]
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class RunningSoldier:
    id: str
    task_id: str
    general: str
    engine: str
    pid: int | None
    seconds: float | None
    machine: str | None = None  # another one than this


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question of a task that waits for a person."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    task_id: Annotated[str, Field(examples=["task-20260207-001"])]
    general: str
    question: Annotated[str, Field(examples=["Which of the two?"])]
    choices: list[str]
    deadline: str | None


@dataclass(frozen=True, slots=True)
class HealthState:
    """The health level that applies now."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    level: Annotated[str, Field(description="green, yellow, orange or red", examples=["green"])]
    reason: str


@dataclass(frozen=True, slots=True)
class BudgetSummary:
    """The budget of the court."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    status: Annotated[str, Field(description="ok, warning or critical", examples=["ok"])]
    spent: Annotated[list[str], Field(examples=[["daily budget: $2.50 of $10.00"]])]


@dataclass(frozen=True, slots=True)
class ActiveAlert:
    """An alert of the chamberlain that is not over."""

    __pydantic_config__: ClassVar[ConfigDict] = API_CONFIG

    name: Annotated[str, Field(examples=["failures:gen-pr"])]
    text: Annotated[str, Field(examples=["gen-pr has failed 3 tasks in a row"])]


@dataclass(slots=True)
class CourtOverview:
    home: str
    running: bool
    supervisor_pid: int | None
    mode: str | None
    roles: list[RoleState] = field(default_factory=list)
    queues: list[QueueState] = field(default_factory=list)
    holds: dict[str, Any] = field(default_factory=dict)
    soldiers: list[RunningSoldier] = field(default_factory=list)
    questions: list[OpenQuestion] = field(default_factory=list)
    problems: list[CourtProblem] = field(default_factory=list)
    health: HealthState = field(default_factory=lambda: HealthState("green", ""))
    budget: BudgetSummary = field(default_factory=lambda: BudgetSummary("ok", []))
    alerts: list[ActiveAlert] = field(default_factory=list)
    timezone: str = "UTC"
    machines: list[MachineState] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        first = ("condition", "health", "budget", "alerts")
        found = condition_of(self)
        condition = {"level": found.level, "reasons": [str(one) for one in found.reasons]}
        whole = {"condition": condition, **asdict(self), "attention": self.attention()}
        return {name: whole[name] for name in (*first, "attention", *(name for name in whole if name not in first))}

    def attention(self) -> list[str]:
        """Return what needs a person now, each with what to do; an empty list when nothing does."""
        return [str(one) for one in attention_of(self)]


async def read_overview(services: Services, readers: OverviewReaders | None = None) -> CourtOverview:
    """Read the state of a court, running or not. ``readers`` that are kept make repeated calls cheaper."""
    view = await asyncio.to_thread(read_overview_without_queues, services.home, services.clock(), readers)
    try:
        view.questions = await _unanswered(services, view.questions)
        view.queues = await _queues(services)
        view.problems += await queue_problems(services)
    except BusError as error:  # a full disk, for example: the rest is still useful
        view.problems.insert(0, CourtProblem("queues", str(error)))
    _drop_acknowledged(view, (readers or OverviewReaders(services.home)).acknowledged, services.clock())
    return view


def _drop_acknowledged(view: CourtOverview, acknowledged: Acknowledgements, now: float) -> None:
    """Leave out the alerts and problems that a person has acknowledged."""
    view.alerts = [one for one in view.alerts if not acknowledged.covers(f"alert:{one.name}", one.text, now)]
    view.problems = [one for one in view.problems if not acknowledged.covers(one.item_id, one.why, now)]


class OverviewReaders:
    """What an overview reads files with. Each remembers what it has read, so that a second call reads only what is new.

    For one call at a time.
    """

    def __init__(self, home: Home, roster: SoldierIndex | None = None) -> None:
        self.roster = roster or SoldierIndex(home)
        self.journal = failure_journal(home.journal)
        self.generals = GeneralsCache(home)
        self.ledger = Ledger(home.ledger)
        self.acknowledged = Acknowledgements(home.root)

    def close(self) -> None:
        """Close the files."""
        self.journal.close()


def read_overview_without_queues(home: Home, now: float, readers: OverviewReaders | None = None) -> CourtOverview:
    """Read the state of a court without opening its queues."""
    record = running_supervisor(home)
    view = CourtOverview(
        str(home.root),
        record is not None,
        record.supervisor.pid if record else None,
        record.mode if record else None,
    )
    used = readers or OverviewReaders(home)
    _read_condition(view, home, now, used)
    view.roles = _roles(home, now)
    reports = read_role_reports(home)
    view.alerts = [ActiveAlert(name, str(text)) for name, text in sorted(reports.alert_texts.items())]
    view.holds = reports.holds
    view.machines = read_machines(home, now)
    _add_from_machines(view)
    view.problems += [*own_problem(home), *machine_problems(view.machines)]
    if view.machines:
        generals = load_generals(home).by_name.values()
        view.problems += homeless_generals(view.machines, [general.manifest for general in generals])
    view.soldiers = [*_soldiers(used.roster.at_work(), now), *_soldiers_elsewhere(view.machines, now)]
    view.questions = _questions(home, reports)
    view.problems += home_problems(home) + recent_failures(home, used.journal, now)
    if readers is None:
        used.close()
    return view


async def open_questions(services: Services) -> list[OpenQuestion]:
    """Return the questions that the king reports as open, without those that have an answer in the queue."""
    home = services.home
    return await _unanswered(services, await asyncio.to_thread(lambda: _questions(home, read_role_reports(home))))


async def _unanswered(services: Services, asked: list[OpenQuestion]) -> list[OpenQuestion]:
    if uses_files(services.bus):
        return asked  # _questions has checked the files
    return [one for one in asked if not await is_answered(services, one.task_id)]


def _read_condition(view: CourtOverview, home: Home, now: float, used: OverviewReaders) -> None:
    """Read health and budget."""
    view.health = HealthState(*HealthGate(home).level(now))
    try:
        system = load_system(home)
        limits = cost_summary(now, used.ledger, system, used.generals.current().by_name).limits
    except (CourtError, OSError) as error:
        view.problems.append(CourtProblem("config", str(error)))
        return
    view.timezone = system.timezone
    if (unconfined := _unconfined(system)) is not None:
        view.problems.append(CourtProblem("sandbox", unconfined))
    spent = [f"{name}: {shown}" for name, (shown, _) in limits.items()]
    parts = [part for _, part in limits.values()]
    view.budget = BudgetSummary(_budget_status(home, max(parts, default=0.0), system.budget.warning_percent), spent)


def _budget_status(home: Home, part: float, warning_percent: float) -> str:
    """Return the level that the chamberlain wrote for the court, or a worse one of a general's own limit."""
    court = budget_level(home)
    if court == "critical" or part >= 1:
        return "critical"
    return "warning" if court == "warning" or part * 100 >= warning_percent else "ok"


def _unconfined(system: SystemConfig) -> str | None:
    """Return why agents are not confined although they should be; None when they are, or need not be."""
    try:
        sandbox = configured_sandbox(system)
    except InvalidOrder as error:
        return str(error)
    return None if sandbox.mode == "off" else sandbox.problem()


def _soldiers(soldiers: Iterable[Soldier], now: float) -> list[RunningSoldier]:
    return [
        RunningSoldier(
            soldier.id,
            soldier.task_id,
            soldier.general,
            soldier.order.engine,
            soldier.pid,
            None if soldier.started_at is None else max(now - soldier.started_at, 0.0),
        )
        for soldier in soldiers
    ]


def _soldiers_elsewhere(machines: Iterable[MachineState], now: float) -> Iterator[RunningSoldier]:
    for machine in machines:
        for one in machine.soldiers if not machine.here and machine.state in ("active", "leaving") else ():
            seconds = None if one.started_at is None else max(now - one.started_at, 0.0)
            yield RunningSoldier(one.id, one.task_id, one.general, one.engine, None, seconds, machine.name)


def _roles(home: Home, now: float) -> list[RoleState]:
    record = running_supervisor(home)
    recorded = record.roles if record else {}
    names = {*available_roles(home), *load_generals(home).on(runs_here(home)).by_name, *recorded}
    if record is not None and not leads_or_joined(home):
        names = {*recorded}  # it stands by: the others run on the machine that leads
    found = []
    for name in sorted(names, key=lambda one: (stop_order(one), one)):
        beat = read_object(home.heartbeat(name))
        age = None if (then := epoch_seconds(beat.get("ts"))) is None else max(now - then, 0.0)
        interval = beat["interval"] if isinstance(beat.get("interval"), (int, float)) else _DEFAULT_INTERVAL_SECONDS
        late = age is None or age > 3 * interval + 60
        known = recorded.get(name)
        pid: int | None = known.process.pid if known and known.process else None
        if known is None and not late and is_running(beat.get("pid", 0), None):  # `kingdom role NAME`
            pid = beat["pid"]
        state: str = known.state if known else "stopped" if pid is None else "running"
        if state == "running" and late:
            state = "starting" if age is None else "late"
        reason = known.reason if known and known.deaths else ""
        if not reason and beat.get("failures"):
            reason = "the last tick failed" if beat["failures"] == 1 else f"the last {beat['failures']} ticks failed"
        if not reason and state == "running" and isinstance(beat.get("trouble"), str):
            reason = beat["trouble"]
        found.append(RoleState(name, state, pid, age, known.deaths if known else 0, reason))
    return found


async def _queues(services: Services) -> list[QueueState]:
    depths = await services.bus.depth()
    files = Counter(path.split("/")[1] for path, _ in await asyncio.to_thread(lambda: [*invalid_files(services.home)]))
    found = []
    for stream in (EVENTS, TASKS, MESSAGES):
        depth, words = depths[stream], STATES[stream]
        counts = {words["PENDING"]: depth.pending}
        held, dead = words["PROCESSING"], words["DEAD"]
        counts[held] = counts.get(held, 0) + depth.processing
        # a file that is no document at all is in the folder, but no dead letter of the bus
        in_one_folder = dead == "invalid" and uses_files(services.bus)
        counts[dead] = max(depth.dead, files[stream]) if in_one_folder else depth.dead + files[stream]
        found.append(QueueState(stream, counts, round(depth.oldest_pending_seconds, 3)))
    return found


def _add_from_machines(view: CourtOverview) -> None:
    """Add what other machines report: what their generals hold back, and the state of a court that is led elsewhere."""
    here = next((one for one in view.machines if one.here), None)
    for machine in view.machines:
        if machine.here or machine.state != "active":
            continue
        view.holds |= {f"{reason} (on {machine.name})": held for reason, held in machine.held.items()}
        if machine.court is not None and here is not None and here.joined:  # it has no chamberlain, nor its files
            view.health = HealthState(machine.court.health, f"as {machine.name} reports")
            view.budget = BudgetSummary(machine.court.budget, [])


def _questions(home: Home, reports: RoleReports) -> list[OpenQuestion]:
    """Return the questions of the tasks that ask, without those that are answered in files."""
    found = []
    for task_id in reports.asking:
        result = read_json(home.result(task_id))
        if not isinstance(result, dict) or is_answered_in_files(home, task_id):
            continue
        question = result.get("question")
        question = question if isinstance(question, dict) else {"text": result.get("summary")}
        found.append(
            OpenQuestion(
                task_id,
                str(result.get("general", "")),
                str(question.get("text") or ""),
                [str(choice) for choice in question.get("choices") or []],
                _deadline(reports, task_id, question),
            )
        )
    return found


def question_deadline(home: Home, task_id: str, question: Mapping[str, Any]) -> str | None:
    """Return until when the king waits for the answer to a question."""
    return _deadline(read_role_reports(home), task_id, question)


def _deadline(reports: RoleReports, task_id: str, question: Mapping[str, Any]) -> str | None:
    """The king's own deadline counts, which includes the manifest's; then what the agent wished."""
    until = reports.deadlines.get(task_id) or question.get("deadline")
    return None if until is None else str(until)
