"""On the machine that leads: what a machine with a role of its own may report.

The database sees to it that a report is in the name of the machine that sent it, and that a result comes from the
machine that holds the task (:mod:`~kingdom.court.machines.rights`). Here is checked what is inside: costs and journal
lines of its own generals, and files of its own runs. The reports of machines without a role of their own are not
checked: nobody knows who sent them.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import write_atomic
from kingdom.court.machines.exchange import FILE, LEDGER, RESULT, machine_of
from kingdom.journal.catalog import CHAMBERLAIN, SYSTEM, WORKFLOW

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.bus import EventBus
    from kingdom.court.home import Home
    from kingdom.court.machines.rights import MachineRight, Rights

_FRESH_SECONDS: Final = 10.0  # before the rights are read again
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


class InvalidReport(ValueError):
    """A report that cannot be used."""


class ReportChecks:
    """Checks reports against the right of their machine, and notes which machine a soldier is on."""

    def __init__(self, home: Home, bus: EventBus, rights: Rights) -> None:
        self._home = home
        self._bus = bus
        self._rights = rights
        self._known: dict[str, MachineRight | None] = {}
        self._read_at = 0.0
        self._last_task = ("", "")

    async def check(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Raise :class:`InvalidReport` for what its machine may not report."""
        machine = payload["machine"]
        right = await self._right_of(machine)
        if right is None:
            return
        if kind in (RESULT, LEDGER):
            _check_costs(payload.get("ledger" if kind == RESULT else "lines"), right)
        elif kind == FILE:
            for piece in file_pieces(payload):
                await self._check_file(piece, right)

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

    async def _check_file(self, piece: Mapping[str, Any], right: MachineRight) -> None:
        folder, _, rest = str(piece.get("path")).partition("/")
        kind, _, name = rest.partition("/")
        if (folder, kind) == ("state", "soldiers"):
            soldier, _, file = name.partition("/")
            if file == "order.json" and piece.get("offset") == 0:
                await self._check_order(soldier, piece, right)
            self._check_soldier(soldier, right)
        elif (folder, kind) == ("logs", "sessions"):
            self._check_soldier(name.rpartition(".")[0], right)
        else:  # a prompt, or a raw result
            task_id = name.removesuffix(".md").removesuffix("-raw.json").removesuffix("-soldier-id")
            if not await self._is_on(task_id, right.machine):
                raise InvalidReport(f"{piece.get('path')}: {task_id} is not a task of {right.machine}")

    async def _is_on(self, task_id: str, machine: str) -> bool:
        """Whether a machine holds a task, or held it when it ended."""
        if self._last_task != (task_id, machine):  # the files of a task come one after the other
            record = await self._bus.find(task_id)
            if record is None or machine_of(record.locked_by) != machine:
                return False
            self._last_task = task_id, machine
        return True

    async def _check_order(self, soldier: str, piece: Mapping[str, Any], right: MachineRight) -> None:
        """Accept a soldier of which nothing is known here, for a task of one of the machine's generals."""
        folder = self._home.soldiers / soldier
        if not folder.exists():
            task_id = _task_in_order(piece.get("data"))
            record = None if task_id is None else await self._bus.find(task_id)
            if record is None or not right.covers(record.envelope.type):
                raise InvalidReport(f"{soldier} does not work for a general of {right.machine}")
            folder.mkdir(parents=True)
            write_atomic(folder / _OWN_MARK, right.machine.encode())

    def _check_soldier(self, soldier: str, right: MachineRight) -> None:
        try:
            owner = (self._home.soldiers / soldier / _OWN_MARK).read_text()
        except OSError:
            owner = ""
        if owner != right.machine:
            raise InvalidReport(f"{soldier} is not a soldier of {right.machine}")


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
