"""The interpreter changes threads more often while a bus on SQLite writes, and as before when it does not."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.bus import Envelope, connect
from kingdom.bus.transport import TransportOptions
from kingdom.bus.transports.sqlite._store import SqliteStore
from kingdom.bus.transports.sqlite._writer import HURRY, Hurry, SqliteWriter


@pytest.fixture(autouse=True)
def usual() -> Iterator[float]:
    before = sys.getswitchinterval()
    yield before
    sys.setswitchinterval(before)


def test_the_last_of_several_brings_back_what_was_usual(usual: float) -> None:
    hurry = Hurry()
    hurry.begin()
    hurry.begin()
    assert sys.getswitchinterval() == pytest.approx(0.0001)
    hurry.end()
    assert sys.getswitchinterval() == pytest.approx(0.0001)
    hurry.end()
    assert sys.getswitchinterval() == pytest.approx(usual)


@pytest.mark.parametrize("own", [0.00005, 0.02])
def test_what_the_program_set_itself_stays(own: float) -> None:
    hurry = Hurry()
    hurry.begin()
    sys.setswitchinterval(own)
    hurry.end()
    assert sys.getswitchinterval() == pytest.approx(own)


def test_a_shorter_interval_is_left_alone() -> None:
    sys.setswitchinterval(0.00002)
    hurry = Hurry()
    hurry.begin()
    assert sys.getswitchinterval() == pytest.approx(0.00002)
    hurry.end()
    assert sys.getswitchinterval() == pytest.approx(0.00002)


async def test_it_is_so_during_operations_only(tmp_path: Path, usual: float) -> None:
    url = f"sqlite://{tmp_path}/bus.db"
    async with connect(url) as bus:
        await bus.setup()
        await asyncio.gather(*(bus.publish("s", Envelope(type="T")) for _ in range(8)))
    writer = SqliteWriter(SqliteStore(url, TransportOptions()))
    during = await writer.run(lambda _: sys.getswitchinterval())
    await writer.close()  # it has calmed down by then
    assert during == pytest.approx(0.0001)
    assert sys.getswitchinterval() == pytest.approx(usual)
    assert HURRY._count == 0
