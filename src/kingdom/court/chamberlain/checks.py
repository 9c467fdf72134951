"""Checks of a tick: heartbeats, anomalies in the journal, the token budget, stale thread mappings."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import read_json, read_object
from kingdom.base.times import epoch_seconds
from kingdom.court.budget import limits_of, spending_at
from kingdom.court.days import ONE_DAY, day_of, start_of_day
from kingdom.court.models import timestamp
from kingdom.court.supervisor.record import running_supervisor
from kingdom.journal.catalog import (
    RecoverySessionRestarted,
    SystemHeartbeatMissed,
    SystemTokenBudgetReset,
    SystemTokenStatusChanged,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import date
    from pathlib import Path
    from zoneinfo import ZoneInfo

    from kingdom.agents.ledger import Ledger, LedgerTotals
    from kingdom.bus import EventBus
    from kingdom.court.budget import BudgetLimit, PeriodSpending
    from kingdom.court.chamberlain.alerts import Alerts, ChamberlainTexts
    from kingdom.court.chamberlain.config import AnomalySection, HeartbeatSection, Level
    from kingdom.court.chamberlain.memory import ChamberlainMemory, TokenStatus
    from kingdom.court.chamberlain.tally import JournalTally
    from kingdom.court.config import BudgetSection
    from kingdom.court.home import Home
    from kingdom.court.packages.manifest import GeneralBudget
    from kingdom.court.supervisor.record import RoleRecord
    from kingdom.journal import EventData


OWN_NAME: Final = "chamberlain"
_MAX_MISSED_INTERVALS: Final = 2  # for a role with a long interval
_FIXED_ROLES: Final = ("king", "sentinel", "envoy")
_CRASH_ALERT_SECONDS: Final = 3600.0  # between two alerts about crashes of the same role


@dataclass(frozen=True, slots=True)
class LastHeartbeat:
    """The last heartbeat of a role."""

    seen: float | None = None
    pid: int | None = None
    interval: float = 0.0  # seconds until the next one, as the role announces


@dataclass(frozen=True, slots=True)
class SilentRole:
    """A role without a recent heartbeat."""

    role: str
    last_seen: str | None
    limit: float


@dataclass(frozen=True, slots=True)
class RestartedRole:
    """A role that runs again after a crash."""

    role: str
    reason: str  # of the crash


class HeartbeatMonitor:
    """Checks the heartbeat of every role that should run.

    It only reports; the supervisor restarts dead roles. It emits ``system.heartbeat_missed`` once when a role becomes
    silent, and ``recovery.session_restarted`` when a role runs again after a crash. A role that was stopped on purpose
    has not crashed. Without a supervisor, a silent role that is back as another process was restarted.
    """

    def __init__(self, home: Home, memory: ChamberlainMemory, began: float) -> None:
        self._home = home
        self._memory = memory
        self._since = began  # silence before this time does not count
        self._looked = began
        self.roles: set[str] = set()  # those that should run
        self.restarted: list[RestartedRole] = []  # found by the last check, and to be alerted

    def check(self, section: HeartbeatSection, now: float, emit: Callable[[EventData], None]) -> list[SilentRole]:
        """Check all roles; return those that are silent now."""
        if now - self._looked > section.seconds or now < self._since:
            self._since = now  # the machine slept, or the clock was set: give all roles their full time again
        self._looked = now
        record = running_supervisor(self._home)
        supervised = {} if record is None else record.roles
        self.restarted = []
        roles = self.roles = self._expected(set(supervised))
        memory = self._memory
        for gone in memory.silent.keys() - roles:
            del memory.silent[gone]
        for role in sorted(roles):
            sign = self._sign(role, now)
            limit = max(section.limit(role), _MAX_MISSED_INTERVALS * sign.interval)
            self._judge(role, sign, limit, now, emit, supervised=role in supervised)
        for role, known in supervised.items():
            if record is not None and (role == OWN_NAME or self.alive(role)):
                self._check_crashes(role, known, record.supervisor.pid, now, emit)
        return [SilentRole(role, item["last_seen"], item["limit"]) for role, item in sorted(memory.silent.items())]

    def alive(self, role: str) -> bool:
        """Whether the role was not silent at the last check."""
        return role not in self._memory.silent

    def _judge(
        self,
        role: str,
        sign: LastHeartbeat,
        limit: float,
        now: float,
        emit: Callable[[EventData], None],
        *,
        supervised: bool,
    ) -> None:
        silent = self._memory.silent
        if now - max(sign.seen or 0.0, self._since) > limit:
            if role not in silent:
                last_seen = None if sign.seen is None else timestamp(sign.seen)
                emit(SystemHeartbeatMissed(target=role, last_seen=last_seen, threshold_seconds=limit))
                silent[role] = {"last_seen": last_seen, "pid": sign.pid, "limit": limit}
            return
        fresh = sign.seen is not None and now - sign.seen <= limit
        if role in silent:
            if not fresh:
                return  # still silent; only our own absence has reset the limit
            if not supervised and sign.pid is not None and sign.pid != silent[role]["pid"]:
                emit(RecoverySessionRestarted(target=role, pid=sign.pid))
            del silent[role]

    def _check_crashes(
        self, role: str, record: RoleRecord, supervisor: int, now: float, emit: Callable[[EventData], None]
    ) -> None:
        known = self._memory.crashes.get(role, {})
        counted = known.get("count", 0) if known.get("supervisor") == supervisor else 0
        if record.state != "running" or record.crashes <= counted:
            return  # it has not crashed again, or does not run yet
        sign = self._sign(role, now)
        pid = record.process.pid if record.process is not None else sign.pid
        if pid is None or (role != OWN_NAME and sign.pid != pid):
            return  # it has only just been started
        emit(RecoverySessionRestarted(target=role, pid=pid))
        alerted = known.get("alerted", 0.0)
        if not 0 <= now - alerted < _CRASH_ALERT_SECONDS:
            alerted = now
            self.restarted.append(RestartedRole(role, record.reason))
        self._memory.crashes[role] = {"supervisor": supervisor, "count": record.crashes, "alerted": alerted}

    def _expected(self, supervised: set[str]) -> set[str]:
        """Return the supervised roles, and the known roles that have a heartbeat file."""
        generals = {path.parent.name for path in self._home.generals.glob("*/manifest.yaml")}
        known = {name for name in (*_FIXED_ROLES, *generals) if self._home.heartbeat(name).is_file()}
        return (supervised | known) - {OWN_NAME}

    def _sign(self, role: str, now: float) -> LastHeartbeat:
        path = self._home.heartbeat(role)
        try:
            written = path.stat().st_mtime
        except OSError:
            return LastHeartbeat()
        document = read_json(path)
        found: dict[str, Any] = document if isinstance(document, dict) else {}
        reported, pid = epoch_seconds(found.get("ts")), _number(found.get("pid"))
        # On a full disk a role can only touch the file, so its mtime counts as well, unless it is in the future.
        seen = max(reported or 0.0, written if written <= now else 0.0) or written
        return LastHeartbeat(seen, None if pid is None else int(pid), _number(found.get("interval")) or 0.0)


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


_HOUR_SECONDS: Final = 3600.0
_MAX_LOOKUPS: Final = 50  # of old events in one tick
FAILURES_PREFIX: Final = "failures:"


class AnomalyRules:
    """Finds repeated failures, too many timeouts, and events that are not dispatched."""

    def __init__(self, tally: JournalTally, bus: EventBus, texts: ChamberlainTexts, king_heartbeat: Path) -> None:
        self._tally = tally
        self._king_heartbeat = king_heartbeat
        self._bus = bus
        self._texts = texts

    def levels(self, section: AnomalySection, now: float) -> dict[str, Level]:
        """Return the anomalies that affect health, each with its level."""
        timeouts = self._tally.timeouts_since(now - _HOUR_SECONDS)
        return {f"soldier.timeout: {timeouts} in an hour": "yellow"} if timeouts >= section.timeouts_per_hour else {}

    async def check(self, section: AnomalySection, now: float, *, king_alive: bool, alerts: Alerts) -> None:
        """Update the alerts of all anomalies."""
        text, tally = self._texts.format, self._tally
        failing = {name: count for name, count in tally.streaks.items() if count >= section.failures_in_a_row}
        active = set(alerts.active(FAILURES_PREFIX))
        for general in sorted(failing.keys() | active):
            alerts.update(
                FAILURES_PREFIX + general,
                "failing" if general in failing else None,
                lambda name=general: text("failures", general=name, count=failing[name]),  # type: ignore[misc]
                lambda name=general: text("failures-over", general=name),  # type: ignore[misc]
            )
        timeouts = tally.timeouts_since(now - _HOUR_SECONDS)
        alerts.update(
            "timeouts",
            "many" if timeouts >= section.timeouts_per_hour else None,
            lambda: text("timeouts", count=timeouts),
            lambda: text("timeouts-over"),
        )
        stale = await self._stale(section.event_stale_minutes * 60, now)
        alerts.update(
            "stale",
            "waiting" if stale else None,
            lambda: text(
                "stale",
                count=len(stale),
                minutes=section.event_stale_minutes,
                oldest=stale[0],
                why=self._hold_reason(stale[0]) or text("unknown-hold"),
                king=text("king-alive" if king_alive else "king-silent"),
            ),
            lambda: text("stale-over"),
        )

    def _hold_reason(self, event_id: str) -> str | None:
        """Return why the king holds an event back, or else most events."""
        holds = read_object(self._king_heartbeat).get("holds")
        reasons = holds if isinstance(holds, dict) else {}
        named = (
            reason for reason, one in reasons.items() if isinstance(one, dict) and event_id in one.get("events", ())
        )
        return next(named, None) or next(iter(reasons), None)

    async def _stale(self, limit: float, now: float) -> list[str]:
        """Return the events that have waited too long, the oldest first, after checking the queue."""
        waiting = self._tally.waiting
        old = sorted((at, event_id) for event_id, at in waiting.items() if now - at > limit)
        stale = []
        for number, (_, event_id) in enumerate(old):
            record = await self._bus.find(event_id) if number < _MAX_LOOKUPS else None
            if number < _MAX_LOOKUPS and (record is None or record.status != "PENDING"):
                del waiting[event_id]
            else:
                stale.append(event_id)
        return stale


STATUSES: Final[tuple[TokenStatus, ...]] = ("ok", "warning", "critical")


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """The budget status of the court, or of one general."""

    status: TokenStatus = "ok"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TokenReading:
    court: BudgetStatus
    generals: dict[str, BudgetStatus]
    daily_cost_usd: float
    daily_tokens: int
    monthly_cost_usd: float


class TokenMonitor:
    """Compares the ledger with the limits: ok, warning or critical. A new day begins at local midnight."""

    def __init__(self, ledger: Ledger, section: BudgetSection, zone: ZoneInfo, memory: ChamberlainMemory) -> None:
        self._ledger = ledger
        self._section = section
        self._zone = zone
        self._memory = memory

    def read(self, budgets: Mapping[str, GeneralBudget], now: float, emit: Callable[[EventData], None]) -> TokenReading:
        """Read the current status, and emit what has changed."""
        memory, today = self._memory, day_of(now, self._zone)
        spending = spending_at(self._ledger, now, self._zone)
        if memory.token_day is not None and today.isoformat() > memory.token_day:
            before = self.totals_of(today.fromisoformat(memory.token_day)).cost_usd
            emit(SystemTokenBudgetReset(date=today.isoformat(), previous_cost=format_usd(before)))
        memory.token_day = max(today.isoformat(), memory.token_day or "")
        warning = self._section.warning_percent
        court = _budget_status(limits_of(self._section), spending, warning)
        if court.status != memory.token_status:
            cost = format_usd(spending.day.cost_usd)
            emit(SystemTokenStatusChanged(from_=memory.token_status, to=court.status, daily_cost_usd=cost))
            memory.token_status = court.status
        generals = {
            name: _budget_status(limits_of(budget, name), spending, warning) for name, budget in budgets.items()
        }
        return TokenReading(court, generals, spending.day.cost_usd, spending.day.tokens, spending.month.cost_usd)

    def totals_of(self, day: date) -> LedgerTotals:
        """Return the amounts spent on a day."""
        return self._ledger.totals(start_of_day(day, self._zone), start_of_day(day + ONE_DAY, self._zone))


def format_usd(amount: float) -> str:
    """Format USD as in the journal, with two decimals."""
    return f"{amount:.2f}"


def _budget_status(limits: Iterable[BudgetLimit], spending: PeriodSpending, warning_percent: float) -> BudgetStatus:
    worst = BudgetStatus()
    for limit in limits:
        used = limit.used(spending)
        if used >= limit.amount:
            status: TokenStatus = "critical"
        elif used >= limit.amount * warning_percent / 100:
            status = "warning"
        else:
            continue
        if STATUSES.index(status) > STATUSES.index(worst.status):
            worst = BudgetStatus(status, f"{limit.show(used)} of the {limit.name} of {limit.show(limit.amount)} spent")
    return worst


STALE_THREAD_DAYS: Final = 7
_TIME_FIELDS: Final = ("created_at", "ts", "thread_ts")  # fields with the creation time of an entry, the best first
log = logging.getLogger("kingdom.court.chamberlain")


def warn_about_stale_threads(home: Home, warned: list[str], now: float) -> None:
    """Log one warning for each thread mapping older than a week; ``warned`` holds those already logged.

    The envoy removes a mapping when its task has ended, so one that stays indicates a fault.
    """
    found = read_json(home.role("envoy") / "thread-mappings.json")
    mappings: dict[str, Any] = found if isinstance(found, dict) else {}
    for task_id in sorted(mappings.keys() - set(warned)):
        made = _created_at(mappings[task_id])
        if made is not None and now - made > STALE_THREAD_DAYS * 86400:
            days = (now - made) / 86400
            log.warning("the thread of %s is still mapped after %.0f days: has its task ended?", task_id, days)
            warned.append(task_id)
    warned[:] = [task_id for task_id in warned if task_id in mappings]


def _created_at(entry: Any) -> float | None:
    known = entry if isinstance(entry, dict) else {"thread_ts": entry}
    for key in _TIME_FIELDS:
        value = known.get(key)
        seconds = epoch_seconds(value)
        if seconds is None and isinstance(value, str):
            try:
                seconds = float(value)  # a Slack thread: 1707300000.123456
            except ValueError:
                continue
        if seconds is not None:
            return seconds
    return None
