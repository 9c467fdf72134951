"""A disk that is really full: a small tmpfs, filled by publishing, then given room again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from kingdom.bus import Envelope, StorageFull, connect
from kingdom.bus.eventbus import EventBus
from tests.chaos.disks import small_disk
from tests.chaos.grounds import FilesGround, Ground, PostgresGround, SqliteGround, open_folder, restartable_server
from tests.chaos.processes import Violation

STREAM: Final = "disk"
# Of the disk, and of the ballast that is thrown off later. PostgreSQL writes a new version of a row for each change.
MEGABYTES: Final = {"files": (2, 1), "sqlite": (2, 1), "postgresql": (16, 13)}
_MOST: Final = 20_000  # events: the disk is full long before


@contextmanager
def ground_on_small_disk(transport: str) -> Iterator[tuple[Ground, Path]]:
    """A ground, set up, whose events lie on a small disk."""
    with ExitStack() as stack:
        server = stack.enter_context(restartable_server()) if transport == "postgresql" else None
        folder = stack.enter_context(open_folder())
        disk = stack.enter_context(small_disk(folder / "disk", MEGABYTES[transport][0]))
        if server is not None:
            postgres = PostgresGround(server, "disk")
            asyncio.run(_set_up(postgres.url))
            stack.callback(postgres.run, "DROP TABLE outbox_event")  # a tablespace must be empty before it can go
            move_to_disk(postgres, disk)
            yield postgres, disk
            return
        ground: Ground = FilesGround(disk) if transport == "files" else SqliteGround(disk)
        asyncio.run(_set_up(ground.url))
        yield ground, disk


def move_to_disk(ground: PostgresGround, disk: Path) -> None:
    """Put the table of events onto the small disk; the server's own files stay where they have room."""
    place = disk / "tablespace"
    place.mkdir()
    owner = ground.server.folder.stat()
    os.chown(place, owner.st_uid, owner.st_gid)
    for statement in (
        f"CREATE TABLESPACE small LOCATION '{place}'",
        "ALTER TABLE outbox_event SET TABLESPACE small",
        "ALTER INDEX outbox_event_ready SET TABLESPACE small",
    ):
        ground.run(statement)


def fill_and_free(ground: Ground, disk: Path) -> int:
    """Publish until the disk is full, make room, drain; raises :class:`Violation`. Returns how many were published."""
    return asyncio.run(_fill_and_free(ground, disk))


async def _fill_and_free(ground: Ground, disk: Path) -> int:
    ballast = disk / "ballast"
    ballast.write_bytes(b"\0" * (MEGABYTES[ground.transport][1] << 20))
    async with connect(ground.url) as bus:
        acknowledged, refused = await _publish_until_full(bus)
        seen = [await bus.find(event.event_id) for event in refused]
        if any(seen) and not all(seen):
            raise Violation(f"half of a publish is visible on a full disk: {[item is not None for item in seen]}")
        await _claim_on_full_disk(bus)
        ballast.unlink()
        await bus.publish(STREAM, refused)
        async with asyncio.timeout(60):
            await _drain(bus, acknowledged | {event.event_id for event in refused})
    async with connect(ground.url) as bus:
        not_done = [key for key in sorted(acknowledged) if getattr(await bus.find(key), "status", None) != "DONE"]
    wrong = ground.complaints(acknowledged) + ([f"not DONE: {not_done[:5]}"] if not_done else [])
    if wrong:
        raise Violation("\n".join(wrong))
    return len(acknowledged)


async def _publish_until_full(bus: EventBus) -> tuple[set[str], list[Envelope]]:
    """Publish, alone and in batches; returns the ids acknowledged and the events of the first call that was refused."""
    acknowledged: set[str] = set()
    number = 0
    while number < _MOST:
        size = 1 if number % 2 else 7
        events = [
            Envelope(type="Filling", payload=payload_of(number + index), event_id=f"disk-{number + index:05d}")
            for index in range(size)
        ]
        number += size
        try:
            await bus.publish(STREAM, events)
        except StorageFull:
            return acknowledged, events
        acknowledged.update(event.event_id for event in events)
    raise Violation(f"{number} events of 2 kB did not fill the disk")


def payload_of(number: int) -> dict[str, str]:
    """Two kilobytes that no store can compress away."""
    return {"text": random.Random(number).randbytes(1000).hex()}


async def _claim_on_full_disk(bus: EventBus) -> None:
    """A worker on a full disk is told so, or served; what it was given comes back when the short lease ends."""
    with contextlib.suppress(StorageFull):
        held = await bus.claim(STREAM, worker="unlucky", limit=5, lease=0.1)
        await bus.settle(retry=held)


async def _drain(bus: EventBus, expected: set[str]) -> None:
    handled: Counter[str] = Counter()
    while handled.total() < len(expected):
        held = await bus.claim(STREAM, worker="drain", limit=50, lease=60)
        if not held:
            if not any((await bus.depth())[STREAM][:2]):
                break
            await asyncio.sleep(0.02)  # until the lease of the unlucky one ends
        broken: list[Any] = [item for item in held if item.envelope.payload != payload_of(int(item.event_id[-5:]))]
        if broken:
            raise Violation(f"half-written events were delivered: {broken[:3]}")
        handled.update(item.event_id for item in held)
        if lost := await bus.settle(done=held):
            raise Violation(f"{len(lost)} leases lost while draining alone")
    if handled != Counter(expected):
        raise Violation(
            f"acknowledged but not delivered: {sorted(expected - handled.keys())[:5]}; "
            f"delivered but not acknowledged: {sorted(handled.keys() - expected)[:5]}; "
            f"twice: {[key for key, count in handled.items() if count > 1][:5]}"
        )


async def _set_up(url: str) -> None:
    async with connect(url) as bus:
        await bus.setup()
