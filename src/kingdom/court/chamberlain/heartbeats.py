"""Which roles give signs of life, and which came back.

Dead roles are started again by the supervisor. Here they are only watched: ``system.heartbeat_missed`` when a role has
been silent for too long, once; ``recovery.session_restarted`` when it is back as another process, or when its process
changed between two looks while the supervisor stayed the same.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.files import read_json
from kingdom.court.king.times import seconds_of
from kingdom.court.models import timestamp
from kingdom.court.supervisor.record import running
from kingdom.journal.catalog import RecoverySessionRestarted, SystemHeartbeatMissed

if TYPE_CHECKING:
    from collections.abc import Callable

    from kingdom.court.chamberlain.config import HeartbeatSection
    from kingdom.court.chamberlain.memory import Memory
    from kingdom.court.home import Home
    from kingdom.journal import EventData

OWN_NAME: Final = "chamberlain"
_INTERVALS: Final = 2  # of a role that looks seldom
_FIXED: Final = ("king", "sentinel", "envoy")


@dataclass(frozen=True, slots=True)
class Sign:
    """The last sign of life of a role."""

    seen: float | None = None
    pid: int | None = None
    interval: float = 0.0  # seconds it may be before the next one, as the role says itself


@dataclass(frozen=True, slots=True)
class Silence:
    """A role that has been silent for too long."""

    role: str
    last_seen: str | None
    limit: float


class Heartbeats:
    """Looks at the heartbeat of every role that should run."""

    def __init__(self, home: Home, memory: Memory, began: float) -> None:
        self._home = home
        self._memory = memory
        self._since = began  # nobody is silent for longer than we have been looking
        self._looked = began
        self.roles: set[str] = set()  # those that should run

    def look(self, section: HeartbeatSection, now: float, emit: Callable[[EventData], None]) -> list[Silence]:
        """Look at everybody; returns those who are silent now."""
        if now - self._looked > section.seconds or now < self._since:
            self._since = now  # we were away as well (the machine slept, or the clock was set): all get their time anew
        self._looked = now
        record = running(self._home)
        supervisor = 0 if record is None else record.supervisor.pid
        roles = self.roles = self._expected(set() if record is None else set(record.roles))
        memory = self._memory
        for gone in memory.silent.keys() - roles:
            del memory.silent[gone]
        for role in sorted(roles):
            sign = self._sign(role, now)
            limit = max(section.limit(role), _INTERVALS * sign.interval)
            self._judge(role, sign, limit, now, supervisor, emit)
        self._note_process(OWN_NAME, os.getpid(), supervisor, emit)
        return [Silence(role, item["last_seen"], item["limit"]) for role, item in sorted(memory.silent.items())]

    def alive(self, role: str) -> bool:
        """Whether the role was not silent at the last look."""
        return role not in self._memory.silent

    def _judge(
        self, role: str, sign: Sign, limit: float, now: float, supervisor: int, emit: Callable[[EventData], None]
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
                return  # only our own absence excuses it: it is not back yet
            if sign.pid is not None and sign.pid != silent[role]["pid"]:
                emit(RecoverySessionRestarted(target=role, pid=sign.pid))
                self._memory.pids[role] = [sign.pid, supervisor]
            del silent[role]
        if fresh and sign.pid is not None:
            self._note_process(role, sign.pid, supervisor, emit)

    def _note_process(self, role: str, pid: int, supervisor: int, emit: Callable[[EventData], None]) -> None:
        known = self._memory.pids.get(role)
        if known == [pid, supervisor]:
            return
        if known is not None and supervisor and known[1] == supervisor:
            emit(RecoverySessionRestarted(target=role, pid=pid))
        self._memory.pids[role] = [pid, supervisor]

    def _expected(self, supervised: set[str]) -> set[str]:
        """Those the supervisor has started, and those who have a heartbeat and were not taken away."""
        generals = {path.parent.name for path in self._home.generals.glob("*/manifest.yaml")}
        known = {name for name in (*_FIXED, *generals) if self._home.heartbeat(name).is_file()}
        return (supervised | known) - {OWN_NAME}

    def _sign(self, role: str, now: float) -> Sign:
        path = self._home.heartbeat(role)
        try:
            written = path.stat().st_mtime
        except OSError:
            return Sign()
        document = read_json(path)
        found: dict[str, Any] = document if isinstance(document, dict) else {}
        told, pid = seconds_of(found.get("ts")), _number(found.get("pid"))
        # On a full disk a role can only touch the file, so its time counts as well; but not one of another clock.
        seen = max(told or 0.0, written if written <= now else 0.0) or written
        return Sign(seen, None if pid is None else int(pid), _number(found.get("interval")) or 0.0)


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
