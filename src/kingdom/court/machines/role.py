"""The role ``link``: connects the machines of a court.

On a joined machine it reports to the one that leads, carries out its orders and keeps the packages of the generals up
to date. On the machine that leads it takes in the reports, sends the orders and publishes the packages. A machine that
stands by copies the files of the court until it takes over. All write the sign of life that ``kingdom machines`` shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from kingdom import __version__
from kingdom.base.inotify import MODIFY, MOVED_TO
from kingdom.bus import BusError, Envelope
from kingdom.court.cancellations import NOTE_FIELD, cancel_requests, drop_request, request_cancel, requests_folder
from kingdom.court.chamberlain.alerts import WarningLog
from kingdom.court.chamberlain.cleanup import Cleanup, rotate_logs
from kingdom.court.chamberlain.config import ChamberlainConfigFile
from kingdom.court.chamberlain.sessions import LocalSoldierProcesses
from kingdom.court.config import court_zone
from kingdom.court.errors import CourtError, InvalidId, MachineRefused
from kingdom.court.loop import on_changes
from kingdom.court.machines.capacity import machine_state, note_machine_state, runs_here
from kingdom.court.machines.exchange import CANCEL, ORDERS, REPORTS, declare_exchange, machine_of
from kingdom.court.machines.intake import Intake
from kingdom.court.machines.leading import LeadKeeper
from kingdom.court.machines.listing import save_machines
from kingdom.court.machines.registry import Registry
from kingdom.court.machines.rights import Rights
from kingdom.court.machines.role_reports import held_by_generals, summarize
from kingdom.court.machines.shipping import Shipper
from kingdom.court.machines.wakes import WakeCarrier
from kingdom.court.packages.installed import GeneralsCache, general_folders
from kingdom.court.soldiers import SoldierIndex
from kingdom.gitops.repository import REPO
from kingdom.journal import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from kingdom.court.config import MachineSection
    from kingdom.court.home import Home
    from kingdom.court.loop import Services

_SIGN_SECONDS: Final = 10.0  # between two signs of life, and two looks at the packages
_TRANSCRIPT_SECONDS: Final = 2.0  # between two looks at what soldiers say
_GATHER_SECONDS: Final = 0.1  # between two reports of journal lines, while they keep coming
_LEASE_SECONDS: Final = 60.0
_LAST_REPORT_SECONDS: Final = 5.0
_CLEANUP_SECONDS: Final = 3600.0
_MAX_CLONES: Final = 1000  # in a sign of life
log = logging.getLogger("kingdom.court.machines")


class Link:
    """The role."""

    name = "link"
    interval = _SIGN_SECONDS

    def __init__(self, services: Services, url: str, section: MachineSection) -> None:
        self._services = services
        self._home = services.home
        self._bus = services.bus
        self._section = section
        self._machine = section.name
        self._registry = Registry(url)
        self._signed: float | None = None
        self._state = machine_state(services.home)
        self._trouble = ""
        self._cleaned: float | None = None
        self._intake: Intake | None = None
        self._caught_up = False  # everything of this machine's journal is reported
        self._wake: Callable[[], None] = lambda: None
        self._url = url
        self._generals = GeneralsCache(services.home)
        self._soldiers = SoldierIndex(services.home)
        self._wakes = WakeCarrier(services.home, services.bus)
        self._looked_at = -_TRANSCRIPT_SECONDS  # when, at what soldiers say
        self._shipped_at = 0.0  # when, the journal
        self._gathering: asyncio.TimerHandle | None = None
        self._orders_due = True
        self._requests_due = True  # there may be requests to cancel that were not sent
        self._keeper: LeadKeeper | None = None

    async def start(self) -> None:
        """Create the streams and tables, and give back what a former process held."""
        if self._section.joined:
            self._shipper = Shipper(self._home, self._bus, self._machine)
            self._soldiers = self._shipper.soldiers
        await declare_exchange(self._bus)
        await self._registry.setup()
        if not self._section.joined:
            self._keeper = LeadKeeper(self._home, self._url, self._section, self._lead_changed)
            await self._keeper.start()

    async def tick(self) -> float | None:
        """Carry everything that waits, and sign."""
        look_again: float | None = None  # in so many seconds
        loop_time = asyncio.get_running_loop().time()
        signing = self._signed is None or loop_time - self._signed >= _SIGN_SECONDS
        if self._section.joined:
            if self._orders_due or signing:
                self._orders_due = False
                await self._take_orders()
            look_again = await self._ship_transcripts(loop_time)
            more = await self._shipper.ship()
            self._shipped_at = asyncio.get_running_loop().time()
            self._caught_up = not more
        elif self._leads:
            self._services.lead.check()
            if self._intake is None:
                self._intake = Intake(self._services, Rights(self._url))
                await self._intake.recall()
            more = await self._intake.take()
            if self._requests_due or signing:
                self._requests_due = False
                if await self._send_orders():
                    self._requests_due = True  # until each has its result
        else:
            self._end_intake()
            more = False
        if signing:
            await self._sign()
            self._signed = loop_time
            self._wakes.carry_for(self._own_generals())
        return 0.0 if more else look_again

    async def _ship_transcripts(self, now: float) -> float | None:
        """Report what soldiers say, now and then: each journal line wakes this role. Return when to look again."""
        due = self._looked_at + _TRANSCRIPT_SECONDS - now
        if due > 0:
            return due
        self._looked_at = now
        return _TRANSCRIPT_SECONDS if await self._shipper.ship_transcripts() else None

    def _end_intake(self) -> None:
        if self._intake is not None:
            self._intake.close()
            self._intake = None

    @property
    def _leads(self) -> bool:
        return self._keeper is not None and self._keeper.leading

    def _lead_changed(self) -> None:
        self._signed = None  # say so at once
        self._wake()

    def _orders_came(self) -> None:
        self._orders_due = True
        self._wake()

    def _files_changed(self) -> None:
        self._requests_due = True
        self._wake()

    def _logs_changed(self) -> None:
        """Wake for new lines, but let those that come right after the last report gather: a report takes many."""
        if self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_at(self._shipped_at + _GATHER_SECONDS, self._lines_gathered)

    def _lines_gathered(self) -> None:
        self._gathering = None
        self._wake()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` when a report or an order arrives, or when there is something to report or to order."""
        self._wake = wake
        if self._section.joined:
            undo_messages = self._bus.subscribe(ORDERS, self._orders_came, types=[self._machine])
            undo_files = on_changes([self._home.logs], MODIFY | MOVED_TO, lambda _: self._logs_changed())
        else:
            undo_messages = self._bus.subscribe(REPORTS, wake)
            folders = [requests_folder(self._home, folder.name) for folder in general_folders(self._home)]
            undo_files = on_changes(folders, MOVED_TO, lambda _: self._files_changed())

        def undo() -> None:
            self._wakes.close()
            undo_messages()
            undo_files()
            if self._gathering is not None:
                self._gathering.cancel()

        return undo

    def report(self) -> Mapping[str, Any]:
        """Report what was carried, and the trouble with it."""
        carried: dict[str, Any] = {"leads": self._leads}
        trouble = self._trouble
        if self._section.joined:
            carried = {"shipped_lines": self._shipper.shipped_lines}
        elif self._intake is not None:
            carried["taken_reports"] = self._intake.taken
        if self._keeper is not None:
            carried["leader"] = self._keeper.machine
            trouble = trouble or self._keeper.trouble
        return {"machine": self._machine, "state": self._state, **carried, **({"trouble": trouble} if trouble else {})}

    async def stop(self) -> None:
        """Report what the other roles did last: they have stopped before. Hand the lead over, if another stands by."""
        self._end_intake()
        if self._keeper is not None:
            await self._keeper.stop()
        if self._section.joined:
            with contextlib.suppress(BusError, JournalError, OSError):  # reported at the next start
                async with asyncio.timeout(_LAST_REPORT_SECONDS):
                    while await self._shipper.ship():
                        pass
        with contextlib.suppress(CourtError, BusError, OSError):  # then it counts as silent after a minute
            async with asyncio.timeout(_LAST_REPORT_SECONDS):
                await self._exchange_signs(stopped=True)

    # ── signs of life and packages ────────────────────────────────────────────────────────────────────────────

    async def _sign(self) -> None:
        try:
            await self._exchange_signs()
        except MachineRefused as error:
            self._state, self._trouble = "refused", str(error)
            log.warning("link: %s", error)
            note_machine_state(self._home, self._state)
            return
        try:
            if self._leads:
                await self._registry.publish_packages(self._home)
            else:
                only = self._section.generals if self._section.joined else None
                changed = await self._registry.fetch_packages(self._home, only)
                if changed:
                    log.info("link: new packages: %s", ", ".join(changed))
                if self._section.joined:
                    await self._clean()
            self._trouble = ""
        except CourtError as error:
            self._trouble = str(error)
            log.warning("link: %s", error)

    async def _exchange_signs(self, *, stopped: bool = False) -> None:
        """Write a sign of life, the last one if the machine stops, and read those of all machines."""
        report = await asyncio.to_thread(self._own_report)
        if stopped:
            report["stopped"] = True
        self._state = await self._registry.sign(self._machine, joined=self._section.joined, report=report)
        note_machine_state(self._home, self._state)
        save_machines(self._home, await self._registry.machines(), self._services.clock())

    def _own_generals(self) -> Collection[str]:
        return self._generals.current().on(runs_here(self._home)).by_name.keys()

    def _own_report(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "generals": sorted(self._own_generals()),
            "labels": self._section.labels,
            "clones": _clones(self._home),
            "soldiers": [
                {"id": one.id, "task_id": one.task_id, "general": one.general}
                | {"engine": one.order.engine, "started_at": one.started_at}
                for one in self._soldiers.at_work()
            ],
            "slots": self._section.soldiers,
            "load": round(os.getloadavg()[0], 2),
            "cores": os.cpu_count(),
            "held": held_by_generals(self._home),
            **({"court": asdict(summarize(self._home, self._services.clock()))} if self._leads else {}),
        }

    async def _clean(self) -> None:
        """Rotate logs and remove expired files of this machine, once an hour: it has no chamberlain."""
        now = self._services.clock()
        if self._cleaned is not None and 0 <= now - self._cleaned < _CLEANUP_SECONDS:
            return
        self._cleaned = now
        loaded, warn = ChamberlainConfigFile(self._home).load(), WarningLog()
        if not loaded.sound:  # the file may ask for longer retention than the defaults: remove nothing
            return
        section, zone = loaded.config.retention, court_zone(self._home)
        emit = self._services.journal.emit
        rotate_logs(self._home, datetime.fromtimestamp(now, zone), section.log_max_bytes, emit, warn)
        cleanup = Cleanup(self._home, self._bus, LocalSoldierProcesses(self._home), section, now, warn)
        async for _ in cleanup.run(with_journal=self._caught_up, with_queues=False):
            pass

    # ── orders ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _send_orders(self) -> bool:
        """Send each request to cancel a task to the machine that has it; return whether there were any.

        A request stays until there is a result.
        """
        found = False
        for folder in general_folders(self._home):
            for task_id, request in cancel_requests(self._home, folder.name).items():
                found = True
                ended = self._home.result(task_id).exists()
                if ended and request.note is None:
                    drop_request(self._home, folder.name, task_id)
                    continue
                record = await self._bus.find(task_id)
                held = record is not None and (ended or record.status == "PROCESSING")
                machine = machine_of(record.locked_by) if record is not None and held else None
                if machine is None or machine == self._machine:
                    if ended and folder.name not in self._own_generals():
                        drop_request(
                            self._home, folder.name, task_id
                        )  # its general, which would post the reply, is not here
                    continue  # the general on this machine looks after it
                payload = {"task_id": task_id, "general": folder.name, **request._asdict()}
                order = Envelope(machine, payload, event_id=f"{CANCEL}:{task_id}:{machine}", aggregate_id=task_id)
                await self._bus.publish(ORDERS, order)
                if ended:
                    drop_request(self._home, folder.name, task_id)
        return found

    async def _take_orders(self) -> None:
        """Hand the orders for this machine to its generals."""
        claimed = await self._bus.claim(
            ORDERS, worker=self._machine, types=[self._machine], limit=100, lease=_LEASE_SECONDS, max_attempts=1_000
        )
        for delivery in claimed:
            payload = delivery.envelope.payload
            try:
                note = payload.get(NOTE_FIELD)
                request_cancel(
                    self._home,
                    str(payload["general"]),
                    str(payload["task_id"]),
                    str(payload["reason"]),
                    note if isinstance(note, str) else None,
                )
            except (InvalidId, KeyError, TypeError) as error:
                await self._bus.settle(dead=[(delivery, "INVALID", f"not an order: {error}")])
            else:
                await self._bus.settle(done=[delivery])


def _clones(home: Home) -> list[str]:
    """Return the names of the folders of clones."""
    try:
        found = sorted(folder.name for folder in home.clones.iterdir() if (folder / REPO).exists())
    except FileNotFoundError:
        return []
    return found[:_MAX_CLONES]
