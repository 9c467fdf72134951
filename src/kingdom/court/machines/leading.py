"""Keep the lead of the court, or stand by: the part of ``link`` on machines that may lead.

One loop renews the lease, another copies files: to the database while this machine leads and another stands by, from
the database while it stands by itself. Taking over means: hold the lease, bring the last files, then let the other
roles start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from kingdom.base.files import read_object, write_json
from kingdom.base.inotify import CREATE, DELETE, MODIFY, MOVED_FROM, MOVED_TO, FileWatcher
from kingdom.base.uptime import uptime
from kingdom.bus import BusError
from kingdom.court.config import MACHINE_FILE
from kingdom.court.errors import CourtError, NotLeading
from kingdom.court.machines.database import CourtDatabase
from kingdom.court.machines.lead import RENEW_SECONDS, LeadTable
from kingdom.court.machines.own_lead import OwnLead, holder_id, lease_end, write_lead
from kingdom.court.machines.replica import Replica, is_shared, shared_folders
from kingdom.court.machines.role_reports import keep_role_reports
from kingdom.court.soldiers import all_soldiers
from kingdom.court.supervisor.record import running_supervisor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kingdom.base.inotify import FileChange
    from kingdom.court.config import MachineSection
    from kingdom.court.home import Home
    from kingdom.court.machines.lead import Lead

_LOOK_SECONDS: Final = 1.0  # between two looks of a machine that stands by, and two copies of what has changed
_WALK_SECONDS: Final = 30.0  # between two comparisons of all files
_GATHER_SECONDS: Final = 0.2  # in which changes are gathered before they are copied
_ANY_CHANGE: Final = MODIFY | MOVED_TO | MOVED_FROM | CREATE | DELETE
log = logging.getLogger("kingdom.court.machines")


class LeadKeeper:
    """Holds the lease, or waits for it. ``changed`` is called when this machine begins or ceases to lead."""

    def __init__(self, home: Home, url: str, section: MachineSection, changed: Callable[[], None]) -> None:
        self._home = home
        self._section = section
        self._changed = changed
        holder = holder_id(home, section.name)
        self._lease_database = CourtDatabase(url, keep=True)
        self._file_database = CourtDatabase(url, keep=True)
        self._table = LeadTable(self._lease_database, section.name, holder)
        self._replica = Replica(home, self._file_database, holder)
        self._lead: Lead | None = None
        self._term: int | None = None  # of this machine, while it holds the lease
        self._following = False  # the files of this home are those of the database, or were a moment ago
        self._watch = FileWatcher(asyncio.get_running_loop())
        self._dirty: set[str] = set()
        self._watched: set[str] = set()
        self._walked: float | None = None
        self._wake = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self.leading = False
        self.trouble = ""

    async def start(self) -> None:
        """Ask for the lead, and keep asking."""
        with contextlib.suppress(BusError):
            await self._renew()
        self._loops = [asyncio.create_task(self._renew_forever()), asyncio.create_task(self._copy_forever())]

    async def stop(self) -> None:
        """Send the last changes and give the lead back, so that another machine takes over at once."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._watch.close()
        if self.leading and self._term is not None and self._lead is not None and self._lead.standby:
            with contextlib.suppress(BusError, CourtError, OSError):
                await self._replica.push_all(self._term)
                await self._table.release(self._term)
            write_lead(self._home, OwnLead(False, self.machine))
        await self._lease_database.close()
        await self._file_database.close()

    @property
    def machine(self) -> str:
        """The machine that leads, as far as this one knows."""
        return self._lead.machine if self._lead is not None else ""

    # ── the lease ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS if self._term is not None else _LOOK_SECONDS)
            try:
                await self._renew()
            except Exception as error:  # noqa: BLE001 - a full disk, too: without this loop the machine never leads again
                log.warning("link: the lead cannot be renewed: %s", error)

    async def _renew(self) -> None:
        asked = uptime()
        before, now = await self._table.take()
        self._lead = now
        if now.holder != self._table.holder:
            self._cease(now)
            return
        if now.term != self._term:
            own_files = not before.holder or (before.holder == self._table.holder and self._led_term() == now.term)
            if own_files or not before.complete:
                self._begin(now.term)
            else:
                log.info("link: this machine takes over from %s", before.machine)
                self._term, self._following = now.term, False
                self._wake.set()
        if self.leading:
            write_lead(self._home, OwnLead(True, now.machine, now.term, now.standby, lease_end(asked)))
            self._wake.set()

    def _begin(self, term: int) -> None:
        """Lead: the files of this home are the court's."""
        path = self._led_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"term": term})
        self._term, self._following, self._walked, self.leading = term, False, None, True
        self._changed()

    def _cease(self, now: Lead) -> None:
        """Stand by: another machine leads."""
        if self.leading or self._term is not None:
            log.warning("link: %s leads the court now; this machine stands by", now.machine)
            for soldier in all_soldiers(self._home):
                if soldier.alive:
                    soldier.interrupt()
            self._term, self.leading, self._following = None, False, False
            self._changed()
        write_lead(self._home, OwnLead(False, now.machine, now.term))
        self._wake.set()

    def _led_term(self) -> int | None:
        term = read_object(self._led_path()).get("term")
        return term if isinstance(term, int) else None

    # ── the files ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _copy_forever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._copy()
                self.trouble = ""
            except NotLeading:
                await asyncio.sleep(_LOOK_SECONDS)  # the other loop learns it too
            except Exception as error:  # noqa: BLE001 - whatever it is, the next copy may succeed
                self.trouble = f"the files of the court cannot be copied: {error}"
                log.warning("link: %s", self.trouble)
                await asyncio.sleep(_LOOK_SECONDS)

    async def _copy(self) -> None:
        lead, term = self._lead, self._term
        if lead is None:
            return
        if term is None:
            if lead.complete and not self._other_roles_run():
                await self._follow()
        elif not self.leading:
            if not self._other_roles_run():
                await self._follow()
                if self._term == term:  # the lease was kept meanwhile
                    self._begin(term)
                    await self._renew()
        elif lead.standby:
            await asyncio.to_thread(keep_role_reports, self._home)
            await self._send(term, complete=lead.complete)
        elif lead.complete:
            await self._replica.withdraw(term)

    async def _follow(self) -> None:
        if not self._following:
            self._keep_own_settings()
            aside = await self._replica.pull_all(keep=self._led_term() is not None)
            self._led_path().unlink(missing_ok=True)
            self._following = True
            if self._term is None:
                log.info("link: %s leads the court; this machine stands by, with a copy of its files", self.machine)
            if aside:
                log.warning("link: %d files of this home were not in the database any more", len(aside))
        while await self._replica.pull():
            pass

    def _keep_own_settings(self) -> None:
        """Keep the section of this machine in its own file: ``system.yaml`` will be that of the machine that leads."""
        path = self._home.config / MACHINE_FILE
        if not path.exists():
            write_json(path, self._section.model_dump(exclude_none=True))

    async def _send(self, term: int, *, complete: bool) -> None:
        now = asyncio.get_running_loop().time()
        if not complete or self._walked is None or now - self._walked >= _WALK_SECONDS:
            self._watch_folders()
            self._dirty.clear()
            await self._replica.push_all(term)
            self._walked = now
            if not complete:
                await self._replica.mark_complete(term)
        elif self._dirty:
            await asyncio.sleep(_GATHER_SECONDS)
            dirty = [*self._dirty]
            self._dirty.clear()
            try:
                await self._replica.push(term, dirty)
            except BaseException:
                self._dirty.update(dirty)
                raise

    def _watch_folders(self) -> None:
        for folder in shared_folders(self._home):
            if folder not in self._watched:
                with contextlib.suppress(OSError):
                    self._watch.add(self._home.root / folder, _ANY_CHANGE, self._note_in(folder))
                    self._watched.add(folder)

    def _note_in(self, folder: str) -> Callable[[list[FileChange]], None]:
        def note(changes: list[FileChange]) -> None:
            paths = [f"{folder}/{change.name}" for change in changes if change.name]
            if len(paths) < len(changes):  # changes were lost, or the folder is gone
                self._watched.discard(folder)
                self._walked = None
            new = [path for path in paths if is_shared(path)]
            self._dirty.update(new)
            if new:
                self._wake.set()

        return note

    def _other_roles_run(self) -> bool:
        """Whether other roles of this home still run: they are stopped before its files are replaced."""
        supervisor = running_supervisor(self._home)
        roles = {} if supervisor is None else supervisor.roles
        return any(name != "link" and one.process is not None and one.process.alive for name, one in roles.items())

    def _led_path(self) -> Path:
        return self._home.role("link") / "led.json"
