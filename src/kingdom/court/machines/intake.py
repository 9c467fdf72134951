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
import re
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from kingdom.agents.ledger import Ledger
from kingdom.base.files import encode_json, write_atomic
from kingdom.base.text import storable
from kingdom.base.times import epoch_seconds
from kingdom.court.activity import DAY_SECONDS
from kingdom.court.errors import NotLeading
from kingdom.court.loop import LINK
from kingdom.court.machines.exchange import FILE, JOURNAL, LEDGER, REPORTS, RESULT
from kingdom.court.machines.report_checks import InvalidReport, ReportChecks, file_pieces
from kingdom.court.models import Result
from kingdom.court.queues import recall_held
from kingdom.journal import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kingdom.bus import Delivery
    from kingdom.court.loop import Services
    from kingdom.court.machines.rights import Rights

_BATCH: Final = 100
_LEASE_SECONDS: Final = 60.0
_UNLIMITED_ATTEMPTS: Final = 1_000_000
_ORIGIN: Final = "from"  # a field of journal lines that came from another machine
_NAME: Final = r"[A-Za-z0-9_:@+][A-Za-z0-9._:@+\-]{0,199}"
# A machine may send the files of its own runs, and nothing else: not settings, not state of another role.
_ALLOWED_PATHS: Final = re.compile(
    rf"logs/sessions/{_NAME}\.(json|err)|state/prompts/{_NAME}\.md|state/results/{_NAME}-(raw\.json|soldier-id)"
    rf"|state/soldiers/{_NAME}/(order|identity|exit|outcome)\.json"
)
log = logging.getLogger("kingdom.court.machines")


class Intake:
    """Takes in reports. One process uses it."""

    def __init__(self, services: Services, rights: Rights) -> None:
        self._services = services
        self._checks = ReportChecks(services.home, services.bus, rights)
        self._home = services.home
        self._bus = services.bus
        self._ledger = Ledger(services.home.ledger)
        self._handlers: dict[str, Callable[[Mapping[str, Any], bool], None]] = {
            RESULT: self._take_result,
            JOURNAL: self._take_journal,
            LEDGER: self._take_ledger,
            FILE: self._take_files,
        }
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
            for delivery in claimed:
                try:
                    await self._handle(delivery)
                except InvalidReport as error:
                    log.warning("the report %s is invalid: %s", delivery.event_id, error)
                    dead.append((delivery, "INVALID", str(error)))
                else:
                    done.append(delivery)
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

    async def _handle(self, delivery: Delivery) -> None:
        handler = self._handlers.get(delivery.envelope.type)
        payload = delivery.envelope.payload
        if handler is None or not isinstance(payload, dict) or not isinstance(payload.get("machine"), str):
            raise InvalidReport(f"{delivery.envelope.type!r:.80} is not a report of a machine")
        await self._checks.check(delivery.envelope.type, payload)
        handler(payload, delivery.attempt > 1 or delivery.event_id in self._uncertain)

    # ── the four kinds ────────────────────────────────────────────────────────────────────────────────────────

    def _take_result(self, payload: Mapping[str, Any], again: bool) -> None:
        try:
            result = Result.model_validate(storable(payload.get("result")))
        except ValidationError as error:
            raise InvalidReport(f"not a result: {error.error_count()} problems") from None
        self._append_to_ledger(payload.get("ledger"))  # before the result: that releases what the budget reserved
        path = self._home.result(result.task_id)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            document = {**result.document(), "machine": payload["machine"]}
            write_atomic(path, encode_json(document))
        self._written.add(path)

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

    def _take_ledger(self, payload: Mapping[str, Any], again: bool) -> None:
        self._append_to_ledger(payload.get("lines"))

    def _append_to_ledger(self, lines: Any) -> None:
        for line in lines if isinstance(lines, list) else ():
            at = epoch_seconds(line.get("ts")) if isinstance(line, dict) else None
            if at is not None and not self._ledger.has(str(line.get("run_id")), at):
                self._ledger.append(line)

    def _take_files(self, payload: Mapping[str, Any], again: bool) -> None:
        for path, offset, data in [_checked_piece(piece) for piece in file_pieces(payload)]:
            target = self._home.root / path
            self._written.add(target)
            target.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.pwrite(descriptor, data, offset)
            finally:
                os.close(descriptor)


def _checked_piece(piece: Any) -> tuple[str, int, bytes]:
    """Return path, offset and data of a piece of a file."""
    path, offset, text = piece.get("path"), piece.get("offset"), piece.get("data")
    if not isinstance(path, str) or not _ALLOWED_PATHS.fullmatch(path):
        raise InvalidReport(f"a machine may not write {path!r:.100}")
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
