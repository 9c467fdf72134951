"""On the machine that leads: what a machine with a role of its own may report.

The database sees to it that a report is in the name of the machine that sent it, and that a result comes from the
machine that holds the task (:mod:`~kingdom.court.machines.rights`). Here is checked what is inside: costs and journal
lines of its own generals, and files of its own runs. The reports of machines without a role of their own are not
checked: nobody knows who sent them.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kingdom.base.files import TEMPORARY
from kingdom.bus.envelope import is_event_id
from kingdom.court.machines.exchange import FILE, LEDGER, RESULT, machine_of
from kingdom.journal.catalog import CHAMBERLAIN, SYSTEM, WORKFLOW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from kingdom.bus import EventBus
    from kingdom.bus.delivery import Record
    from kingdom.court.batch_writer import BatchWriter
    from kingdom.court.home import Home
    from kingdom.court.machines.rights import MachineRight, Rights

_FRESH_SECONDS: Final = 10.0  # before the rights are read again
_ORDER: Final = "order.json"
_OWN_MARK: Final = "machine"  # in the folder of a soldier that runs elsewhere: the name of its machine
# Lines of a joined machine that are not of a general: its start and stop, and what it tidied up.
_OTHER_LINES: Final = frozenset(
    {
        (SYSTEM, "system.startup"),
        (SYSTEM, "system.shutdown"),
        (CHAMBERLAIN, "recovery.log_rotated"),
        (CHAMBERLAIN, "recovery.files_cleaned"),
        (WORKFLOW, "soldier.refused"),
    }
)
_TASK_ID: Final = re.compile(r'"task_id": ?"([^"\\]+)"')
_NAME: Final = r"([A-Za-z0-9_:@+][A-Za-z0-9._:@+\-]{0,199})"
# A machine may send the files of its own runs, and nothing else: not settings, not state of another role.
_ALLOWED_PATHS: Final = re.compile(
    rf"logs/sessions/{_NAME}\.(?:json|err)|state/prompts/{_NAME}\.md|state/results/{_NAME}-(?:raw\.json|soldier-id|asked)"
    rf"|state/landings/{_NAME}\.json|state/soldiers/{_NAME}/((?:order|identity|exit|outcome)\.json)"
)


class InvalidReport(ValueError):
    """A report that cannot be used."""


class ReportChecks:
    """Checks reports against the right of their machine, and notes which machine a soldier is on.

    Used for some reports at a time: :meth:`prepare`, then :meth:`check` for each, then :meth:`save_marks`.
    """

    def __init__(self, home: Home, bus: EventBus, rights: Rights) -> None:
        self._home = home
        self._bus = bus
        self._rights = rights
        self._known: dict[str, MachineRight | None] = {}
        self._read_at = 0.0
        self._tasks: dict[str, Record] = {}  # that these reports name
        self._owners: dict[str, str] = {}  # machines of the soldiers that these reports name
        self._marks: dict[str, str] = {}  # machines of soldiers that were accepted, and are not noted yet

    async def prepare(self, reports: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Look up what the checks of these reports need. Each is a kind and a payload that names its machine."""
        self._tasks, self._owners, self._marks = {}, {}, {}
        tasks: set[str] = set()
        for kind, payload in reports:
            if await self._right_of(payload["machine"]) is not None and kind == FILE:
                tasks.update(_tasks_of(payload))
        self._tasks = await self._bus.find_many(filter(is_event_id, tasks))

    def check(self, kind: str, payload: Mapping[str, Any], again: bool) -> None:
        """Raise :class:`InvalidReport` for what its machine may not report. ``again``: perhaps checked before."""
        right = self._known[payload["machine"]]
        if right is None:
            return
        if kind in (RESULT, LEDGER):
            _check_costs(payload.get("ledger" if kind == RESULT else "lines"), right)
        elif kind == FILE:
            for piece in file_pieces(payload):
                self._check_file(piece, right, again)

    async def save_marks(self, writer: BatchWriter) -> None:
        """Note durably on which machine the accepted soldiers are: the files of others are refused from then on."""
        marks, self._marks = self._marks, {}
        if marks:
            await writer.write(*((self._home.soldiers / name / _OWN_MARK, machine) for name, machine in marks.items()))

    def accepts_line(self, machine: str, line: Mapping[str, Any]) -> bool:
        """Whether a journal line of a machine is one of its own generals, or about the machine itself."""
        right = self._known.get(machine)
        if right is None or right.covers(line.get("actor")):
            return True
        return (line.get("actor"), line.get("type")) in _OTHER_LINES

    async def _right_of(self, machine: str) -> MachineRight | None:
        now = time.monotonic()
        if machine not in self._known or now - self._read_at > _FRESH_SECONDS:
            rights = await self._rights.all()
            self._known = {**dict.fromkeys(self._known), machine: None, **rights}
            self._read_at = now
        return self._known[machine]

    def _check_file(self, piece: Mapping[str, Any], right: MachineRight, again: bool) -> None:
        named = ReportedFile.of(piece)
        if named.soldier is None:
            record = self._tasks.get(named.task)
            if record is None or machine_of(record.locked_by) != right.machine:  # it holds it, or held it at its end
                raise InvalidReport(f"{named.path}: {named.task} is not a task of {right.machine}")
            return
        if named.is_order:
            self._check_order(named.soldier, piece, right, again)
        if self._owner(named.soldier) != right.machine:
            raise InvalidReport(f"{named.soldier} is not a soldier of {right.machine}")

    def _check_order(self, soldier: str, piece: Mapping[str, Any], right: MachineRight, again: bool) -> None:
        """Accept a soldier of which nothing is known here, for a task of one of the machine's generals."""
        if self._owner(soldier):
            return
        folder = self._home.soldiers / soldier
        # A former process may have been killed when it had made the folder, and not the mark in it.
        if not folder.exists() or (again and not _has_files(folder)):
            record = self._tasks.get(_task_in_order(piece.get("data")) or "")
            if record is None or not right.covers(record.envelope.type):
                raise InvalidReport(f"{soldier} does not work for a general of {right.machine}")
            self._marks[soldier] = self._owners[soldier] = right.machine

    def _owner(self, soldier: str) -> str:
        """Return the machine of a soldier; nothing for one that is unknown or runs here."""
        owner = self._owners.get(soldier)
        if owner is None:
            try:
                owner = (self._home.soldiers / soldier / _OWN_MARK).read_text()
            except OSError:
                owner = ""
            self._owners[soldier] = owner
        return owner


class ReportedFile(NamedTuple):
    """A file that a report has a piece of."""

    path: str
    soldier: str | None  # whose file it is
    task: str  # otherwise: the task that it belongs to, a prompt or a raw result
    is_order: bool  # the first piece of an order, which says for which task a soldier works

    @classmethod
    def of(cls, piece: Mapping[str, Any]) -> ReportedFile:
        """Read the path of a piece; raise :class:`InvalidReport` for one that no machine may write."""
        path = piece.get("path")
        found = _ALLOWED_PATHS.fullmatch(path) if isinstance(path, str) else None
        if found is None:
            raise InvalidReport(f"a machine may not write {path!r:.100}")
        session, prompt, result, landing, soldier, file = found.groups()
        is_order = file == _ORDER and piece.get("offset") == 0
        return cls(found[0], session or soldier, prompt or result or landing or "", is_order)


def _has_files(folder: Path) -> bool:
    return any(path.name != _OWN_MARK and not path.name.startswith(TEMPORARY) for path in folder.iterdir())


def _tasks_of(payload: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tasks that a report of files names."""
    with contextlib.suppress(InvalidReport):  # raised again when it is checked
        for piece in file_pieces(payload):
            named = ReportedFile.of(piece)
            if named.soldier is None:
                yield named.task
            elif named.is_order and (task_id := _task_in_order(piece.get("data"))) is not None:
                yield task_id


def file_pieces(payload: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the pieces of files in a report; raise :class:`InvalidReport`."""
    pieces = payload.get("files", [payload])  # the version before reported each on its own
    if not isinstance(pieces, list) or not all(isinstance(piece, dict) for piece in pieces):
        raise InvalidReport("a report of files needs a list of pieces")
    return pieces


def _check_costs(lines: Any, right: MachineRight) -> None:
    for line in lines if isinstance(lines, list) else ():
        if isinstance(line, dict) and not right.covers(line.get("general")):
            raise InvalidReport(f"{right.machine} may not report costs of {line.get('general')!r:.80}")


def _task_in_order(data: Any) -> str | None:
    """Return the task that an order names. A long order comes in pieces: this is the first one."""
    try:
        text = base64.b64decode(str(data), validate=True).decode("utf-8", "replace")
    except binascii.Error:
        return None
    found = _TASK_ID.search(text)
    return None if found is None else found[1]
