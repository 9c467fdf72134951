"""On a joined machine: report its journal, its costs, its transcripts and the files of finished tasks.

Each report has an id that is made from its place on this machine, so a report that is made again after a kill is
skipped by the bus. Journal lines are reported in batches, in their order. A batch says where the next one begins: when
a batch is known already, because the process was killed before it could note that, reading goes on from there.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import open_untrusted, read_object, write_json
from kingdom.bus import Envelope
from kingdom.court.errors import InvalidId
from kingdom.court.machines.exchange import FILE, JOURNAL, LEDGER, REPORTS
from kingdom.court.soldiers import SoldierIndex
from kingdom.journal import Cursor, InvalidCursor, Reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from kingdom.bus import EventBus
    from kingdom.court.home import Home
    from kingdom.court.soldiers import Soldier

_BATCH_LINES: Final = 500
_BATCH_BYTES: Final = 512 * 1024
_CHUNK_BYTES: Final = 256 * 1024
_MAX_FILE_BYTES: Final = 64 * 1024 * 1024  # of a transcript; what is behind that stays on its machine
_TASK_ENDS: Final = frozenset({"task.completed", "task.failed", "task.cancelled", "task.needs_human"})
_DIGEST_CHARS: Final = 40
_RUN_FILES: Final = ("order.json", "identity.json", "exit.json", "outcome.json")


class Shipper:
    """Reports what is new on this machine. One process uses it."""

    def __init__(self, home: Home, bus: EventBus, machine: str) -> None:
        self._home = home
        self._bus = bus
        self._machine = machine
        self._path = home.role("link") / "shipped.json"
        state = read_object(self._path)
        self._batch = state["batch"] if isinstance(state.get("batch"), int) else 0
        self._months: dict[str, int] = {
            month: offset for month, offset in _object(state.get("ledger")).items() if isinstance(offset, int)
        }
        try:
            self._cursor = Cursor.from_dict(state["journal"]) if "journal" in state else None
        except InvalidCursor:
            self._cursor = None
        self.soldiers = SoldierIndex(home)
        self._prefix = len(f"{home.root}/")  # of the path of each file
        self._transcripts: dict[str, int] = {}  # how much of each is reported, for the soldiers at work
        self.shipped_lines = 0

    async def ship(self) -> bool:
        """Report what is new; return whether more was there already."""
        more_costs = await self._ship_ledger()
        return await self._ship_journal() or more_costs

    async def ship_transcripts(self) -> bool:
        """Report what the soldiers at work have said; return whether there are any."""
        at_work = await asyncio.to_thread(self.soldiers.at_work)
        ends: dict[str, int] = {}
        reports = (report for soldier in at_work for report in self._file_reports(self._said(soldier, ends)))
        await self._publish_files(reports)
        self._transcripts |= ends
        for gone in self._transcripts.keys() - {soldier.id for soldier in at_work}:
            del self._transcripts[gone]  # the rest comes with the other files of its task
        return bool(at_work)

    def _said(self, soldier: Soldier, ends: dict[str, int]) -> Iterator[dict[str, Any]]:
        """Yield what is new in a transcript, after the order of its soldier; note in ``ends`` where it ends."""
        if soldier.id not in self._transcripts:
            yield from self._pieces(soldier.folder / "order.json")
        if soldier.transcript.is_file():
            start, end = self._transcripts.get(soldier.id, 0), soldier.transcript.stat().st_size
            yield from self._pieces(soldier.transcript, start, end)
            ends[soldier.id] = end

    async def _ship_journal(self) -> bool:
        with Reader(self._home.journal, cursor=self._cursor) as reader:
            lines, size, full = [], 0, False
            for line in reader.read_lines():
                lines.append(line.decode("utf-8", "replace"))
                size += len(line)
                full = len(lines) == _BATCH_LINES or size >= _BATCH_BYTES
                if full:
                    break
            cursor = reader.cursor
        if not lines:
            return False
        await self._ship_tasks(_ended_tasks(lines))
        report = Envelope(
            JOURNAL,
            {"machine": self._machine, "batch": self._batch, "lines": lines, "next": cursor.to_dict()},
            event_id=f"{JOURNAL}:{self._machine}:{self._batch}",
            aggregate_id=self._machine,
        )
        if not await self._bus.publish(REPORTS, report):
            record = await self._bus.find(report.event_id)
            if record is not None:  # a former process sent it, with perhaps fewer lines
                cursor, full = Cursor.from_dict(record.envelope.payload["next"]), True
        self._cursor = cursor
        self._batch += 1
        self.shipped_lines += len(lines)
        self._save()
        return full

    async def _ship_ledger(self) -> bool:
        """Report new ledger lines. The machine that leads counts each run once, however often it is reported."""
        full = False
        for path in sorted(self._home.ledger.glob("*.jsonl")):
            offset = self._months.get(path.stem, 0)
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(_BATCH_BYTES)
            whole = data[: data.rfind(b"\n") + 1]
            if not whole:
                continue
            lines = [one for line in whole.splitlines() if (one := _parsed(line)) is not None]
            report = Envelope(
                LEDGER,
                {"machine": self._machine, "lines": lines},
                event_id=f"{LEDGER}:{self._machine}:{path.stem}:{offset}",
                aggregate_id=self._machine,
            )
            await self._bus.publish(REPORTS, report)
            full = full or len(data) == _BATCH_BYTES
            self._months[path.stem] = offset + len(whole)
            self._save()
        return full

    async def _ship_tasks(self, task_ids: Sequence[str]) -> None:
        """Report the files of tasks that have ended: prompts, raw results, runs and transcripts."""
        if task_ids:
            soldiers = await asyncio.to_thread(self.soldiers.ids_of, task_ids)
            paths = (self._task_files(task_id, soldiers[task_id]) for task_id in task_ids)
            pieces = (chain.from_iterable(map(self._pieces, of_task)) for of_task in paths)
            await self._publish_files(chain.from_iterable(map(self._file_reports, pieces)))

    async def _publish_files(self, reports: Iterable[Envelope]) -> None:
        waiting: list[Envelope] = []
        size = 0
        for report in reports:
            waiting.append(report)
            size += sum(len(piece["data"]) for piece in report.payload["files"])
            if size >= _BATCH_BYTES:
                await self._bus.publish(REPORTS, waiting)
                waiting, size = [], 0
        if waiting:
            await self._bus.publish(REPORTS, waiting)

    def _task_files(self, task_id: str, soldiers: Iterable[str]) -> list[Path]:
        home = self._home
        try:
            wanted = [home.prompt(task_id), home.raw_result(task_id), home.soldier_id(task_id)]
        except InvalidId:
            return []
        for soldier in soldiers:
            wanted += [home.soldiers / soldier / name for name in _RUN_FILES]
            wanted += [home.sessions / f"{soldier}.json", home.sessions / f"{soldier}.err"]
        return wanted

    def _pieces(self, path: Path, start: int = 0, end: int = _MAX_FILE_BYTES) -> Iterator[dict[str, Any]]:
        """Yield a file in pieces, nothing if it is missing. Pieces that overlap do no harm: each says its place."""
        try:
            file = open_untrusted(path)
        except OSError:
            return
        with file:
            size = min(os.fstat(file.fileno()).st_size, end, _MAX_FILE_BYTES)
            file.seek(start)
            for offset in range(start, size, _CHUNK_BYTES):
                data = file.read(min(_CHUNK_BYTES, size - offset))
                yield {"path": str(path)[self._prefix :], "offset": offset, "data": base64.b64encode(data).decode()}

    def _file_reports(self, pieces: Iterable[dict[str, Any]]) -> Iterator[Envelope]:
        """Yield reports with these pieces of one task's files: most tasks need one report."""
        waiting: list[dict[str, Any]] = []
        size = 0
        for piece in pieces:
            if waiting and size + len(piece["data"]) > _BATCH_BYTES:
                yield self._file_report(waiting)
                waiting, size = [], 0
            waiting.append(piece)
            size += len(piece["data"])
        if waiting:
            yield self._file_report(waiting)

    def _file_report(self, pieces: list[dict[str, Any]]) -> Envelope:
        places = "\n".join(f"{piece['path']}:{piece['offset']}+{len(piece['data'])}" for piece in pieces)
        digest = hashlib.sha256(places.encode()).hexdigest()[:_DIGEST_CHARS]
        return Envelope(
            FILE,
            {"machine": self._machine, "files": pieces},
            event_id=f"{FILE}:{self._machine}:{digest}",
            aggregate_id=self._machine,
            priority="low",  # results do not wait behind them
        )

    def _save(self) -> None:
        journal = {} if self._cursor is None else {"journal": self._cursor.to_dict()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, {"batch": self._batch, "ledger": self._months, **journal})


def _ended_tasks(lines: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for line in lines:
        document = _parsed(line.encode())
        if document is not None and document.get("type") in _TASK_ENDS:
            task_id = _object(document.get("data")).get("task_id")
            if isinstance(task_id, str):
                found[task_id] = None
    return [*found]


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
