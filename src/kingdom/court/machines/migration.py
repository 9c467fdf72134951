"""Move the queues of a court from the files of its home to a database, so that machines can join it; and back.

Every document is copied in its state: pending ones are pending, those that the king or a general holds are held by it,
finished ones are finished with the same outcome. Then one file, ``config/machine.yaml``, makes the home use the
database; without it, its files. Until that has changed, nothing has: an interrupted move is repeated, and what is there
is left out.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import yaml

from kingdom.base.files import sync_directory, write_atomic
from kingdom.bus.transport import INTERACTIVE_CONNECT_SECONDS
from kingdom.court.config import MACHINE_FILE, load_system
from kingdom.court.errors import CourtError, InvalidDocument, MachineRefused
from kingdom.court.home import MARKER
from kingdom.court.machines.database import CourtDatabase
from kingdom.court.machines.exchange import ORDERS, REPORTS, declare_exchange, worker_name
from kingdom.court.machines.registry import Registry
from kingdom.court.machines.replica import FORGET_LEAD, REMOVE_FILES
from kingdom.court.machines.rights import Rights
from kingdom.court.queues import (
    EVENTS,
    MESSAGES,
    OUTCOMES,
    STREAMS,
    TASKS,
    StoredDocument,
    declare_queues,
    document_from_record,
    documents_in_files,
    open_queues,
    raw_envelope,
)
from kingdom.court.soldiers import all_soldiers
from kingdom.court.supervisor.record import running_supervisor

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from kingdom.bus import EventBus
    from kingdom.court.home import Home
    from kingdom.court.init_home import SharedQueues

_BATCH: Final = 500
_HELD_SECONDS: Final = 10 * 365 * 86400.0  # the role that held it recalls it when it starts
_WORKER: Final = "move"
_UNLIMITED: Final = 2**31 - 1
_HELD_STATES: Final = {EVENTS: "dispatched", TASKS: "in_progress"}
_MOVED_FOLDER: Final = "queue.moved"


class CannotMove(CourtError):
    """The court cannot be moved now; the message says why and what to do."""

    code = "CANNOT_MOVE"


@dataclass(slots=True)
class MovedCourt:
    """What was moved."""

    documents: dict[str, int] = field(default_factory=dict)  # by queue
    left: int = 0
    """Documents that cannot be read; they stay in the folder of the former queues."""


async def move_to_database(home: Home, shared: SharedQueues) -> MovedCourt:
    """Move the queues, and make this machine the one that leads. The court must be down, without soldiers."""
    await asyncio.to_thread(_check_is_down, home)
    registry = Registry(shared.database, connect_timeout=INTERACTIVE_CONNECT_SECONDS)
    await registry.setup()
    others = [one.name for one in await registry.machines() if one.name != shared.machine]
    if others:
        raise MachineRefused(
            f"the database has a court already, with the machine {others[0]}: "
            "name an empty database, or another schema (?schema=NAME)"
        )
    moved = MovedCourt()
    async with open_queues(shared.database, INTERACTIVE_CONNECT_SECONDS) as bus:
        await declare_queues(bus)
        await declare_exchange(bus)
        for stream in STREAMS:
            # Give back what a move that was interrupted held.
            await bus.release(await bus.recall(stream, worker=_WORKER, lease=_HELD_SECONDS))
            stored = await asyncio.to_thread(documents_in_files, home, stream)
            await _refuse_others(bus, stream, {one.id for one in stored})
            await _copy_all(bus, stream, stored, shared.machine, moved)
    if not any(one.name == shared.machine for one in await registry.machines()):
        await registry.register(shared.machine, joined=False)
    await registry.publish_packages(home)
    write_atomic(home.config / MACHINE_FILE, shared.machine_settings())
    await asyncio.to_thread(_put_aside, home)
    return moved


async def move_to_files(home: Home) -> MovedCourt:
    """Move the queues back into the home. The court must be down, and no other machine may be left in it.

    The database keeps nothing of the court.
    """
    await asyncio.to_thread(_check_has_ended, home)
    system = load_system(home)
    if system.machine is None:
        raise CannotMove(f"the queues of {home.root} are files of the home already, or config/machine.yaml is missing")
    url, machine = system.queue_url(home), system.machine.name
    await _check_is_alone(url, machine)
    settings = await asyncio.to_thread(_settings_without_database, home)
    moved = MovedCourt()
    async with open_queues(url, INTERACTIVE_CONNECT_SECONDS) as old, open_queues(home.queue_url) as bus:
        if waiting := (await old.depth())[REPORTS].pending:
            raise CannotMove(f"{waiting} reports of other machines wait: kingdom up takes them in; then try again")
        await declare_queues(bus)
        for stream in STREAMS:
            await bus.release(await bus.recall(stream, worker=_WORKER, lease=_HELD_SECONDS))
            stored = [document_from_record(record) async for record in old.records(stream)]
            await _copy_all(bus, stream, stored, None, moved)
    if settings is not None:
        write_atomic(home.root / MARKER, settings.encode())
    (home.config / MACHINE_FILE).unlink()
    sync_directory(home.config)  # before the database forgets: the home must not point there after a power cut
    await _remove_from_database(url)
    return moved


def _check_is_down(home: Home) -> None:
    system = load_system(home)
    if system.machine is not None or system.queue_url(home) != home.queue_url:
        raise CannotMove(f"the queues of {home.root} are not files of the home: they are in a database already")
    _check_has_ended(home)


def _check_has_ended(home: Home) -> None:
    if running_supervisor(home) is not None:
        raise CannotMove("the court is up: kingdom down --soldiers stops it, and its soldiers")
    if alive := [soldier.task_id for soldier in all_soldiers(home) if soldier.alive]:
        raise CannotMove(f"a soldier still works on {alive[0]}: wait for it, or kingdom down --soldiers ends it")


async def _refuse_others(bus: EventBus, stream: str, known: Container[str]) -> None:
    """Raise :class:`CannotMove` when something waits in the database that this court does not know."""
    async for record in bus.records(stream):
        if record.status in ("PENDING", "PROCESSING") and record.envelope.event_id not in known:
            raise CannotMove(
                f"{record.envelope.event_id} waits in the database, and is not of this court: "
                "name an empty database, or another schema (?schema=NAME)"
            )


async def _check_is_alone(url: str, machine: str) -> None:
    machines = await Registry(url, connect_timeout=INTERACTIVE_CONNECT_SECONDS).machines()
    if others := [one.name for one in machines if one.name != machine and one.state != "removed"]:
        raise CannotMove(
            f"{others[0]} is a machine of the court: kingdom leave there, or kingdom machines remove {others[0]}"
        )
    leader = next((one for one in machines if one.leads), None)
    if leader is not None and leader.name != machine:
        raise CannotMove(f"{leader.name} led the court last, and has its newest files: run this there")


def _settings_without_database(home: Home) -> str | None:
    """Return ``config/system.yaml`` without the URL that ``kingdom init --database`` wrote; None when it has none."""
    path = home.root / MARKER
    text = path.read_text(encoding="utf-8")
    remaining = re.sub(r"^queue:\n  transport(?:_env)?: .*\n", "", text, flags=re.MULTILINE)
    if remaining != text:
        return remaining
    if (yaml.safe_load(text) or {}).get("queue"):
        raise CannotMove(f"{path} names the database in its section queue: remove that section, then try again")
    return None


async def _remove_from_database(url: str) -> None:
    rights = Rights(url)
    for machine in await rights.all():
        await rights.remove(machine)
    async with CourtDatabase(url).transaction() as connection:
        await connection.execute("DELETE FROM outbox_event WHERE stream = ANY ($1)", [*STREAMS, REPORTS, ORDERS])
        await connection.execute("DELETE FROM outbox_stream WHERE stream = ANY ($1)", [*STREAMS, REPORTS, ORDERS])
        for statements in ("DELETE FROM court_machine; DELETE FROM court_package", FORGET_LEAD, REMOVE_FILES):
            await connection.execute(statements)


async def _copy_all(
    bus: EventBus, stream: str, stored: list[StoredDocument], machine: str | None, moved: MovedCourt
) -> None:
    moved.documents[stream] = 0
    for first in range(0, len(stored), _BATCH):
        count, unreadable = await _copy(bus, stream, stored[first : first + _BATCH], machine)
        moved.documents[stream] += count
        moved.left += unreadable


async def _copy(bus: EventBus, stream: str, documents: list[StoredDocument], machine: str | None) -> tuple[int, int]:
    """Copy some documents in their states; return how many, and how many cannot be read."""
    usable: dict[str, StoredDocument] = {}
    envelopes = []
    for stored in documents:
        try:
            envelope = raw_envelope(stream, stored.document)
        except (InvalidDocument, ValueError, KeyError, TypeError):
            continue
        if stored.state != "invalid":
            envelopes.append(envelope)
            usable[envelope.event_id] = stored
    await bus.publish(stream, envelopes)
    for worker, ids in _holders(stream, usable.values(), machine):
        await bus.claim(stream, worker=worker, ids=ids, lease=_HELD_SECONDS, max_attempts=_UNLIMITED)
    finished = [event_id for event_id, stored in usable.items() if _is_finished(stored)]
    done: list[Any] = []
    dead: list[Any] = []
    for delivery in await bus.claim(stream, worker=_WORKER, ids=finished, lease=_HELD_SECONDS, max_attempts=_UNLIMITED):
        stored = usable[delivery.event_id]
        if stream == MESSAGES and stored.state == "failed":
            dead.append((delivery, "NOT_SENT", "it could not be sent before the court was moved"))
        else:
            status = stored.document.get("status")
            done.append((delivery, status if status in OUTCOMES[stream] else None))
    await bus.settle(done=done, dead=dead)
    return len(usable), len(documents) - len(usable)


def _is_finished(stored: StoredDocument) -> bool:
    return stored.state not in ("pending", _HELD_STATES.get(stored.stream))


def _holders(stream: str, documents: Iterable[StoredDocument], machine: str | None) -> Iterator[tuple[str, list[str]]]:
    """Yield the roles that hold documents, each with their ids."""
    by_worker: dict[str, list[str]] = {}
    for stored in documents:
        if stored.state == _HELD_STATES.get(stream):
            general = str(stored.document.get("target_general"))
            worker = "king" if stream == EVENTS else worker_name(general, machine)
            by_worker.setdefault(worker, []).append(stored.id)
    yield from by_worker.items()


def _put_aside(home: Home) -> None:
    target, number = home.root / _MOVED_FOLDER, 1
    while target.exists():
        number += 1
        target = home.root / f"{_MOVED_FOLDER}-{number}"
    if home.queue.is_dir():
        home.queue.rename(target)
