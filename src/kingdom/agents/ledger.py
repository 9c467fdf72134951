"""The ledger: tokens and cost of every run, one line each, in one append-only file per month."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.agents.port import Order, Outcome

_DAY: Final = 86400.0
_MAX_CACHED_SUMS: Final = 16  # periods whose sums are kept up to date


@dataclass(slots=True)
class LedgerSum:
    """The usage of some runs."""

    cost_usd: float = 0.0
    tokens: int = 0
    runs: int = 0

    def add(self, line: LedgerLine) -> None:
        """Add one run."""
        self.cost_usd += line.cost_usd
        self.tokens += line.tokens
        self.runs += 1


@dataclass(slots=True)
class LedgerTotals:
    """The usage in a period, in total and by general."""

    cost_usd: float = 0.0
    tokens: int = 0
    runs: int = 0
    by_general: dict[str, LedgerSum] = field(default_factory=dict)


class LedgerLine(NamedTuple):
    """The fields of a ledger line that a sum needs."""

    ts: float
    general: str
    cost_usd: float
    tokens: int


def ledger_entry(order: Order, outcome: Outcome, now: float, *, price_known: bool = True) -> dict[str, Any]:
    """Return the ledger line of a run that has ended."""
    tokens = outcome.tokens
    made: dict[str, Any] = {
        "ts": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "run_id": order.run_id,
        "task_id": order.task_id,
        "engine": order.engine,
        "model": outcome.model,
        "session_id": outcome.session_id,
        "tokens": {
            "input": tokens.input,
            "output": tokens.output,
            "cache_read": tokens.cache_read,
            "cache_write": tokens.cache_write,
            "total": tokens.total,
        },
        "cost_usd": outcome.cost_usd,
        "source": outcome.cost_source,
        "turns": outcome.turns,
        "status": outcome.status,
        "seconds": round(outcome.ended_at - outcome.started_at, 3),
    }
    if not price_known:
        made["price"] = "unknown model, priced as the dearest known"
    return {**order.labels, **made}


class Ledger:
    """The ledger files in a folder. Any number of processes may append and read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, _Month] = {}
        self._reading = Lock()  # runs that end together look for their lines from several threads

    def append(self, *lines: Mapping[str, Any]) -> None:
        """Append lines durably; several cost as much as one. Their ``ts`` decides the month.

        A line may be appended again if an error left open whether it was written: it counts once.
        """
        months: dict[str, list[bytes]] = {}
        for line in lines:
            data = json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
            months.setdefault(line["ts"][:7], []).append(data)
        for month, written in months.items():
            self._append(f"{self._folder}/{month}.jsonl", b"".join(written))

    def _append(self, path: str, data: bytes) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, flags, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n" + data  # a power cut truncated the last line: keep this one separate
            os.write(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def has(self, run_id: str, since: float) -> bool:
        """Tell whether a run that started at ``since`` is recorded."""
        return bool(self.recorded([run_id], since))

    def recorded(self, run_ids: Iterable[str], since: float) -> set[str]:
        """Return those of some runs that are recorded; none of them started before ``since``."""
        with self._reading:
            months = self._months(since, None)
            return {run_id for run_id in run_ids if any(run_id in month.run_ids for month in months)}

    def totals(self, since: float, until: float | None = None) -> LedgerTotals:
        """Return the usage from ``since`` until before ``until`` (None: until now). Reads only new lines."""
        made = LedgerTotals()
        with self._reading:
            for month in self._months(since, until):
                month.add_to(made, since, until)
        return made

    def latest(self, general: str, count: int, since: float) -> list[LedgerLine]:
        """Return up to ``count`` latest runs of a general since then, the latest first."""
        found: list[LedgerLine] = []
        with self._reading:
            for month in reversed(self._months(since, None)):
                found += month.latest(general, count - len(found), since)
        return found

    def _months(self, since: float, until: float | None) -> list[_Month]:
        first = datetime.fromtimestamp(max(since - _DAY, 0.0), UTC).strftime("%Y-%m")
        last = "9999-99" if until is None else datetime.fromtimestamp(until + _DAY, UTC).strftime("%Y-%m")
        found = []
        for path in sorted(self._folder.glob("[0-9][0-9][0-9][0-9]-[0-9][0-9].jsonl")):
            if first <= path.stem <= last:
                month = self._files.setdefault(path.stem, _Month(path))
                month.read_new()
                found.append(month)
        return found


class _Month:
    """One file. Reads only what was appended, and keeps the sums of earlier queries up to date."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reset()

    def _reset(self) -> None:
        self._inode = 0
        self._offset = 0
        self._lines: list[LedgerLine] = []
        self._sums: dict[tuple[float, float | None], tuple[int, dict[str, LedgerSum]]] = {}
        self.run_ids: set[str] = set()

    def read_new(self) -> None:
        """Read the lines appended since the last call. An unfinished line is read later."""
        try:
            with self._path.open("rb") as file:
                state = os.fstat(file.fileno())
                if state.st_ino != self._inode or state.st_size < self._offset:
                    self._reset()
                    self._inode = state.st_ino
                if state.st_size == self._offset:
                    return
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            self._reset()
            return
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        for raw in data[:whole].splitlines():
            self._add_line(raw)

    def _add_line(self, raw: bytes) -> None:
        try:
            document = json.loads(raw)
            run_id = str(document["run_id"])
            line = LedgerLine(
                datetime.fromisoformat(document["ts"]).timestamp(),
                str(document.get("general") or ""),
                float(document.get("cost_usd") or 0.0),
                int((document.get("tokens") or {}).get("total") or 0),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # a truncated line
        if run_id not in self.run_ids:
            self.run_ids.add(run_id)
            self._lines.append(line)

    def latest(self, general: str, count: int, since: float) -> list[LedgerLine]:
        """Return the latest runs of a general, the latest first."""
        own = (line for line in reversed(self._lines) if line.general == general and line.ts >= since)
        return list(islice(own, count))

    def add_to(self, totals: LedgerTotals, since: float, until: float | None) -> None:
        """Add the runs of a period."""
        counted, sums = self._sums.pop((since, until), (0, {}))
        for line in self._lines[counted:]:
            if since <= line.ts and (until is None or line.ts < until):
                sums.setdefault(line.general, LedgerSum()).add(line)
        self._sums[since, until] = (len(self._lines), sums)
        while len(self._sums) > _MAX_CACHED_SUMS:
            del self._sums[next(iter(self._sums))]
        for general, spent in sums.items():
            totals.cost_usd += spent.cost_usd
            totals.tokens += spent.tokens
            totals.runs += spent.runs
            own = totals.by_general.setdefault(general, LedgerSum())
            own.cost_usd += spent.cost_usd
            own.tokens += spent.tokens
            own.runs += spent.runs
