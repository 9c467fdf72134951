"""Everything that a store in a database has of a stream: ``bus.records``."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from kingdom.bus import Envelope, EventBus, connect, eventbus
from kingdom.bus.delivery import Record
from kingdom.bus.errors import InvalidName, InvalidOption
from kingdom.bus.transports.postgresql._connections import split_url

STREAM = "orders"


@pytest.fixture
async def bus(database_url: str) -> AsyncIterator[EventBus]:
    async with connect(database_url) as found:
        await found.setup()
        yield found


def order(event_id: str) -> Envelope:
    return Envelope(type="OrderPlaced", payload={"n": 1}, event_id=event_id)


async def records(bus: EventBus, **narrowed: Any) -> list[Record]:
    return [record async for record in bus.records(STREAM, **narrowed)]


async def ids(bus: EventBus, **narrowed: Any) -> list[str]:
    return [record.envelope.event_id for record in await records(bus, **narrowed)]


async def test_what_waits_is_held_or_finished_is_there_as_find_tells_of_it(bus: EventBus) -> None:
    await bus.publish(STREAM, *(order(f"o-{number}") for number in range(5)))
    await bus.publish("others", order("other"))
    first, second, third = await bus.claim(STREAM, worker="w", limit=3)
    await bus.settle(done=[first], retry=[(second, 3600, "LATER", "not yet")])
    await bus.settle(dead=[(third, "BROKEN", "no such market")])
    await bus.claim(STREAM, worker="w", limit=1)
    found = await records(bus)
    assert [(record.envelope.event_id, record.status) for record in found] == [
        ("o-0", "DONE"),
        ("o-1", "PENDING"),
        ("o-2", "DEAD"),
        ("o-3", "PROCESSING"),
        ("o-4", "PENDING"),
    ]
    assert found == [await bus.find(f"o-{number}") for number in range(5)]


async def test_of_more_than_a_page_none_is_missing_and_none_comes_twice(
    bus: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventbus, "_PAGE_RECORDS", 3)
    for number in range(10):
        assert await ids(bus) == [f"o-{one}" for one in range(number)]
        await bus.publish(STREAM, order(f"o-{number}"))


async def test_what_goes_and_comes_while_one_looks_keeps_nothing_else_from_being_seen(
    bus: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventbus, "_PAGE_RECORDS", 2)
    await bus.publish(STREAM, *(order(f"o-{number}") for number in range(6)))
    seen = []
    async for record in bus.records(STREAM):
        seen.append(record.envelope.event_id)
        if len(seen) == 2:  # the row one goes on from is removed
            await bus.settle(done=await bus.claim(STREAM, worker="w", limit=3))
            await bus.purge(0)
            await bus.publish(STREAM, order("o-6"))
    assert seen == ["o-0", "o-1", "o-3", "o-4", "o-5", "o-6"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("evt-*-response-task-1-*", ["evt-a-response-task-1-x"]),
        ("evt-a-response-task-1-x", ["evt-a-response-task-1-x"]),
        ("EVT-*", ["EVT-a_b", "EVT-a.b"]),
        ("*_b", ["EVT-a_b"]),
        ("*@*", ["it@s"]),
        ("*?*", []),
        ("evt-%", []),
        ("*\\*", []),
        ("[e]*", []),
        ("", []),
    ],
)
async def test_ids_are_found_by_a_pattern_in_which_only_the_star_means_anything(
    bus: EventBus, pattern: str, found: list[str]
) -> None:
    stored = ["evt-a-response-task-1-x", "evt-a-response-task-12-x", "EVT-a_b", "EVT-a.b", "it@s"]
    await bus.publish(STREAM, *(order(one) for one in stored))
    assert await ids(bus, ids=pattern) == found
    assert await ids(bus, ids="*") == stored


async def test_what_changed_lately_is_found_by_each_way_to_change(bus: EventBus) -> None:
    await bus.publish(STREAM, *(order(f"o-{number}") for number in range(6)))
    held = await bus.claim(STREAM, worker="w", limit=5)
    await _make_old(bus)
    assert await ids(bus, within=60) == []
    await bus.settle(done=[held[0]], retry=[held[1]], dead=[held[2]])
    await bus.release([held[3]])
    assert await ids(bus, within=60) == ["o-0", "o-1", "o-2", "o-3"]
    await _make_old(bus)
    await bus.recall(STREAM, worker="w")
    await bus.requeue(STREAM, ["o-0", "o-2"])
    await bus.claim(STREAM, worker="w", ids=["o-5"])
    await bus.publish(STREAM, order("o-6"))
    assert await ids(bus, within=60) == ["o-0", "o-2", "o-4", "o-5", "o-6"]
    assert await ids(bus, within=60, ids="o-2") == ["o-2"]


async def _make_old(bus: EventBus) -> None:
    """As if all that happened so far had been an hour ago."""
    if bus.url.startswith("sqlite:"):
        with closing(sqlite3.connect(bus.url.removeprefix("sqlite://"))) as file, file:
            file.execute("UPDATE outbox_event SET updated_at = updated_at - 3600")
        return
    dsn, options = split_url(bus.url)
    server = await asyncpg.connect(dsn, server_settings={"search_path": options["schema"]})
    await server.execute("UPDATE outbox_event SET updated_at = updated_at - INTERVAL '1 hour'")
    await server.close()


async def test_what_is_asked_wrongly_is_said(bus: EventBus, tmp_path: Path) -> None:
    with pytest.raises(InvalidName):
        _ = [record async for record in bus.records("../x")]
    with pytest.raises(InvalidOption, match=r"records\(within\)"):
        await records(bus, within=0)
    async with connect(f"files://{tmp_path}/queue") as files:
        await files.setup()
        with pytest.raises(InvalidOption, match="needs a bus on sqlite: or postgresql:"):
            await records(files)
