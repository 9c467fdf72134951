"""On the machine that leads: take in what joined machines report, and put it into this home.

Reports are handled in the order in which they were published. Each can be handled twice with the same effect: the
process may be killed before it settles them.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import os
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from kingdom.agents.ledger import Ledger
from kingdom.base.files import encode_json
from kingdom.base.text import storable
from kingdom.base.times import epoch_seconds
from kingdom.court.activity import DAY_SECONDS
from kingdom.court.batch_writer import BatchWriter
from kingdom.court.errors import NotLeading
from kingdom.court.loop import LINK
from kingdom.court.machines.exchange import FILE, JOURNAL, LEDGER, REPORTS, RESULT
from kingdom.court.machines.report_checks import InvalidReport, ReportChecks, ReportedFile, file_pieces
from kingdom.court.models import Result
from kingdom.court.queues import recall_held
from kingdom.journal import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kingdom.bus import Delivery
    from kingdom.court.loop import Services
    from kingdom.court.machines.rights import Rights

    _Handler = Callable[[str, Any, bool], None]  # kind, payload, whether it was perhaps handled before

_BATCH: Final = 100
_LEASE_SECONDS: Final = 60.0
_UNLIMITED_ATTEMPTS: Final = 1_000_000
_STORED: Final = (RESULT, LEDGER)  # kinds that are stored before the others, all at once
_KINDS: Final = (*_STORED, JOURNAL, FILE)
_FILE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_ORIGIN: Final = "from"  # a field of journal lines that came from another machine
log = logging.getLogger("kingdom.court.machines")


class Intake:
    """Takes in reports. One process uses it."""

    def __init__(self, services: Services, rights: Rights) -> None:
        self._services = services
        self._checks = ReportChecks(services.home, services.bus, rights)
        self._home = services.home
        self._bus = services.bus
        self._ledger = Ledger(services.home.ledger)
        self._writer = BatchWriter()
        self._results: dict[Path, bytes] = {}  # to be stored, of the reports at hand
        self._costs: dict[str, dict[str, Any]] = {}  # likewise: ledger lines by run
        self._uncertain: set[str] = set()  # reports that were perhaps handled in part
        self._written: set[Path] = set()  # files that belong to reports that are not settled yet
        self._workers = services.lead.workers(LINK)
        self.taken = 0

    async def recall(self) -> None:
        """Give back what a former process had claimed. It is handled again, and perhaps was before."""
        held = await recall_held(self._services, REPORTS, self._workers, _LEASE_SECONDS)
        self._uncertain.update(delivery.event_id for delivery in held)
        await self._bus.release(held)

    async def take(self) -> bool:
        """Take in some reports; return whether there may be more."""
        claimed = await self._bus.claim(
            REPORTS, worker=self._workers[0], limit=_BATCH, lease=_LEASE_SECONDS, max_attempts=_UNLIMITED_ATTEMPTS
        )
        done: list[Delivery] = []
        dead: list[tuple[Delivery, str, str]] = []
        try:
            await self._handle(claimed, done, dead)
        finally:
            # What raised another error, a full disk for example, is handled again with all that follows it.
            handled = {id(one) for one in (*done, *(delivery for delivery, _, _ in dead))}
            left = [delivery for delivery in claimed if id(delivery) not in handled]
            self._uncertain.update(delivery.event_id for delivery in left)
            if done:
                try:
                    await self._services.lead.save(*self._written, self._home.ledger, self._home.journal)
                except NotLeading:
                    await self._bus.release(claimed)  # for the machine that leads now
                    raise
                self._written.clear()
            await self._bus.settle(done=done, dead=dead)
            await self._bus.release(left)
        self._uncertain.difference_update(delivery.event_id for delivery in claimed)
        self.taken += len(done)
        return len(claimed) == _BATCH

    def close(self) -> None:
        """End the threads that write files."""
        self._writer.close()

    async def _handle(
        self, claimed: Sequence[Delivery], done: list[Delivery], dead: list[tuple[Delivery, str, str]]
    ) -> None:
        """Take in reports; put each that is in this home into ``done``, and each that is invalid into ``dead``."""
        reports = [*self._valid(claimed, _check_form, dead)]
        await self._checks.prepare([(one.envelope.type, one.envelope.payload) for one in reports])
        reports = [*self._valid(reports, self._checks.check, dead)]
        await self._checks.save_marks(self._writer)
        self._results.clear()
        self._costs.clear()
        stored = [*self._valid([one for one in reports if one.envelope.type in _STORED], self._take_one, dead)]
        await self._store()
        done += stored
        for one in self._valid([one for one in reports if one.envelope.type not in _STORED], self._take_one, dead):
            done.append(one)  # before the next one, which may raise

    def _valid(
        self, reports: Iterable[Delivery], work: _Handler, dead: list[tuple[Delivery, str, str]]
    ) -> Iterator[Delivery]:
        """Do something with each report; yield those that are valid, and put the others into ``dead``."""
        for delivery in reports:
            again = delivery.attempt > 1 or delivery.event_id in self._uncertain
            try:
                work(delivery.envelope.type, delivery.envelope.payload, again)
            except InvalidReport as error:
                log.warning("the report %s is invalid: %s", delivery.event_id, error)
                dead.append((delivery, "INVALID", str(error)))
            else:
                yield delivery

    def _take_one(self, kind: str, payload: Mapping[str, Any], again: bool) -> None:
        if kind == RESULT:
            self._take_result(payload)
        elif kind == LEDGER:
            self._take_costs(payload.get("lines"))
        elif kind == JOURNAL:
            self._take_journal(payload, again)
        else:
            self._take_files(payload)

    # ── the four kinds ────────────────────────────────────────────────────────────────────────────────────────

    def _take_result(self, payload: Mapping[str, Any]) -> None:
        try:
            result = Result.model_validate(storable(payload.get("result")))
        except ValidationError as error:
            raise InvalidReport(f"not a result: {error.error_count()} problems") from None
        self._take_costs(payload.get("ledger"))
        path = self._home.result(result.task_id)
        if not path.exists():
            self._results.setdefault(path, encode_json({**result.document(), "machine": payload["machine"]}))
        self._written.add(path)

    def _take_costs(self, lines: Any) -> None:
        for line in lines if isinstance(lines, list) else ():
            if isinstance(line, dict) and epoch_seconds(line.get("ts")) is not None:
                self._costs.setdefault(str(line.get("run_id")), line)

    async def _store(self) -> None:
        """Store the costs, then the results, durably: a result releases what the budget reserved."""
        if self._costs:
            since = min(epoch_seconds(line["ts"]) or 0.0 for line in self._costs.values())
            known = self._ledger.recorded(self._costs, since)
            self._ledger.append(*(line for run_id, line in self._costs.items() if run_id not in known))
        if self._results:
            await self._writer.write(*self._results.items())

    def _take_journal(self, payload: Mapping[str, Any], again: bool) -> None:
        lines = payload.get("lines")
        if not isinstance(lines, list):
            raise InvalidReport("a report of journal lines needs lines")
        origin = f"{payload['machine']}/{payload.get('batch')}"
        found = [line for text in lines if (line := _journal_line(text)) is not None]
        accepted = [line for line in found if self._checks.accepts_line(payload["machine"], line)]
        if len(accepted) < len(found):
            log.warning("%s reported %d lines that are not its own", payload["machine"], len(found) - len(accepted))
        marked = [_marked(line, origin) for line in accepted]
        if again:  # a former process may have written some of them
            marked = marked[_count_lines(self._home.journal, origin, self._services.clock()) :]
        self._services.journal.copy(marked)

    def _take_files(self, payload: Mapping[str, Any]) -> None:
        for path, offset, data in [_checked_piece(piece) for piece in file_pieces(payload)]:
            target = self._home.root / path
            self._written.add(target)
            try:
                descriptor = os.open(target, _FILE_FLAGS, 0o600)
            except FileNotFoundError:
                target.parent.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(target, _FILE_FLAGS, 0o600)
            try:
                os.pwrite(descriptor, data, offset)
            finally:
                os.close(descriptor)


def _check_form(kind: str, payload: Any, again: bool) -> None:
    if kind not in _KINDS or not isinstance(payload, dict) or not isinstance(payload.get("machine"), str):
        raise InvalidReport(f"{kind!r:.80} is not a report of a machine")


def _checked_piece(piece: Mapping[str, Any]) -> tuple[str, int, bytes]:
    """Return path, offset and data of a piece of a file."""
    path, offset, text = ReportedFile.of(piece).path, piece.get("offset"), piece.get("data")
    if not isinstance(offset, int) or offset < 0 or not isinstance(text, str):
        raise InvalidReport(f"{path}: no offset or no data")
    try:
        return path, offset, base64.b64decode(text, validate=True)
    except binascii.Error:
        raise InvalidReport(f"{path}: its data is not base64") from None


def _journal_line(text: Any) -> dict[str, Any] | None:
    """Return a journal line; None for one that is no JSON object."""
    try:
        document = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _marked(document: dict[str, Any], origin: str) -> bytes:
    """Return a journal line with its origin."""
    return json.dumps({**document, _ORIGIN: origin}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _count_lines(journal: Path, origin: str, now: float) -> int:
    mark = f'"{_ORIGIN}":{json.dumps(origin)}}}'.encode()
    with Reader(journal, start=now - DAY_SECONDS) as reader:
        return sum(line.endswith(mark) for line in reader.read_lines())
